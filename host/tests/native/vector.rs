//! x87 and SSE: results, exceptions, and state that does not carry over to the next case.

use super::*;

#[test]
fn sse_arithmetic_and_its_exceptions() {
    let Some(mut native) = spawn("sse_arithmetic_and_its_exceptions") else {
        return;
    };
    let mut div = NativeCase::new(Mode::Fx, &[0xf2, 0x0f, 0x5e, 0xc1]); // divsd xmm0, xmm1
    set_xmm(&mut div.state, 0, 1.0);
    set_xmm(&mut div.state, 1, 3.0);
    for mode in [Mode::Fx, Mode::Step] {
        div.mode = mode;
        let state = done(&mut native, div);
        assert_eq!((xmm(&state, 0), mxcsr(&state)), (1.0 / 3.0, 0x1fa0)); // PE
    }
    // Rounding up, and in XMM15: divsd xmm15, xmm1
    let mut up = NativeCase::new(Mode::Fx, &[0xf2, 0x44, 0x0f, 0x5e, 0xf9]);
    set_xmm(&mut up.state, 15, 1.0);
    set_xmm(&mut up.state, 1, 3.0);
    set_mxcsr(&mut up.state, 0x5f80);
    let third = (1.0_f64 / 3.0).next_up();
    for mode in [Mode::Fx, Mode::Step] {
        up.mode = mode;
        assert_eq!(xmm(&done(&mut native, up), 15), third);
    }
    // Division by zero, unmasked: #XM
    div.mode = Mode::Fx;
    set_xmm(&mut div.state, 1, 0.0);
    set_mxcsr(&mut div.state, 0x1d80);
    let (outcome, state) = run(&mut native, div);
    assert!(
        matches!(
            outcome,
            Outcome::Signal {
                signal: SIGFPE,
                trapno: 19,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!((xmm(&state, 0), mxcsr(&state)), (1.0, 0x1d84)); // ZE
    // movaps xmm0, [rdi], unaligned
    let mut load = case(Mode::Fx, &[0x0f, 0x28, 0x07], &[(RDI, WINDOW + 16)]);
    set_window(&mut load.state, WINDOW + 16, &2.5_f64.to_le_bytes());
    assert_eq!(xmm(&done(&mut native, load), 0), 2.5);
    load.state.gpr[RDI] += 8;
    let (outcome, _) = run(&mut native, load);
    assert!(
        matches!(
            outcome,
            Outcome::Signal {
                signal: SIGSEGV,
                trapno: 13,
                ..
            }
        ),
        "{outcome:?}"
    );
}

#[test]
fn upper_halves_of_vectors_do_not_stay() {
    let Some(mut native) = spawn("upper_halves_of_vectors_do_not_stay") else {
        return;
    };
    if !std::arch::is_x86_feature_detected!("avx") {
        skip::skip("upper_halves_of_vectors_do_not_stay", "there is no AVX");
        return;
    }
    // vinsertf128 ymm3, ymm3, xmm3, 1; vextractf128 xmm0, ymm3, 1
    let mut insert = NativeCase::new(Mode::Fx, &[0xc4, 0xe3, 0x65, 0x18, 0xdb, 1]);
    set_xmm(&mut insert.state, 3, 4.0);
    let mut extract = NativeCase::new(Mode::Fx, &[0xc4, 0xe3, 0x7d, 0x19, 0xd8, 1]);
    set_xmm(&mut extract.state, 0, 1.0);
    let results = run_all(&mut native, &[insert, extract]);
    assert_eq!((results[0].0, results[1].0), (Outcome::Done, Outcome::Done));
    assert_eq!(xmm(&results[1].1, 0), 0.0);
}

#[test]
fn x87_arithmetic_and_its_exceptions() {
    let Some(mut native) = spawn("x87_arithmetic_and_its_exceptions") else {
        return;
    };
    // fld1 on an empty stack: TOP goes from 0 to 7, and holds 1.0
    let fld1 = NativeCase::new(Mode::Fx, &[0xd9, 0xe8]);
    let one = done(&mut native, fld1);
    assert_eq!((fsw(&one), one.fx[4]), (0x3800, 0x80));
    assert_eq!(one.fx[32..42], [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]);
    // fadd st0, st0
    let mut add = NativeCase::new(Mode::Step, &[0xd8, 0xc0]);
    add.state.fx = one.fx;
    let two = done(&mut native, add);
    assert_eq!(two.fx[32..42], [0, 0, 0, 0, 0, 0, 0, 0x80, 0x00, 0x40]);
    // fstp qword ptr [rdi]
    let mut store = case(Mode::Fx, &[0xdd, 0x1f], &[(RDI, WINDOW)]);
    store.state.fx = two.fx;
    let state = done(&mut native, store);
    assert_eq!(f64::from_bits(window_word(&state, WINDOW)), 2.0);
    assert_eq!((fsw(&state), state.fx[4]), (0, 0));
    // fld1 on a full stack: IE, SF and C1, and the default NaN
    let mut full = fld1;
    full.state.fx[4] = 0xff;
    let state = done(&mut native, full);
    assert_eq!(fsw(&state), 0x3800 | 0x241);
    assert_eq!(state.fx[32..42], [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff]);
    // The same unmasked: the next x87 instruction faults.
    full.state.fx[0] = 0x7e;
    let mut wait = NativeCase::new(Mode::Fx, &[0x9b]);
    wait.state.fx = done(&mut native, full).fx;
    assert_eq!(fsw(&wait.state) & 0x80c1, 0x80c1);
    let (outcome, _) = run(&mut native, wait);
    assert!(
        matches!(
            outcome,
            Outcome::Signal {
                signal: SIGFPE,
                trapno: 16,
                ..
            }
        ),
        "{outcome:?}"
    );
}

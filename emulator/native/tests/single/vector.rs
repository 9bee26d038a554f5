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
        crate::skip::skip("upper_halves_of_vectors_do_not_stay", "there is no AVX");
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
    assert_eq!((fsw(&one), one.fx.legacy[4]), (0x3800, 0x80));
    assert_eq!(
        one.fx.legacy[32..42],
        [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]
    );

    // fadd st0, st0
    let mut add = NativeCase::new(Mode::Step, &[0xd8, 0xc0]);
    add.state.fx = one.fx;
    let two = done(&mut native, add);
    assert_eq!(
        two.fx.legacy[32..42],
        [0, 0, 0, 0, 0, 0, 0, 0x80, 0x00, 0x40]
    );

    // fstp qword ptr [rdi]
    let mut store = case(Mode::Fx, &[0xdd, 0x1f], &[(RDI, WINDOW)]);
    store.state.fx = two.fx;
    let state = done(&mut native, store);
    assert_eq!(f64::from_bits(window_word(&state, WINDOW)), 2.0);
    assert_eq!((fsw(&state), state.fx.legacy[4]), (0, 0));

    // fld1 on a full stack: IE, SF and C1, and the default NaN
    let mut full = fld1;
    full.state.fx.legacy[4] = 0xff;
    let state = done(&mut native, full);
    assert_eq!(fsw(&state), 0x3800 | 0x241);
    assert_eq!(
        state.fx.legacy[32..42],
        [0, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xff]
    );

    // The same unmasked: the next x87 instruction faults.
    full.state.fx.legacy[0] = 0x7e;
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

#[test]
fn whole_vectors_are_loaded_and_stored() {
    let test = "whole_vectors_are_loaded_and_stored";
    let Some(mut native) = spawn(test) else {
        return;
    };
    if !Native::has_avx() {
        let case = NativeCase::new(Mode::Avx, &[0x90]);
        let mut results = [(Outcome::Hung, NativeState::default())];
        let refused = native.run(&[case], &mut results);
        assert!(matches!(refused, Err(NativeError::NoAvx { index: 0 })));
        crate::skip::skip(test, "there is no AVX");
        return;
    }
    let pair = |low: f64, high: f64| u128::from(high.to_bits()) << 64 | u128::from(low.to_bits());

    // vaddpd ymm9, ymm2, ymm15
    let mut add = NativeCase::new(Mode::Avx, &[0xc4, 0x41, 0x6d, 0x58, 0xcf]);
    add.state.fx.set_ymm(2, [pair(1.0, 2.0), pair(3.0, 1.0)]);
    add.state
        .fx
        .set_ymm(15, [pair(0.5, 0.25), pair(-3.0, f64::EPSILON / 4.0)]);
    add.state.fx.set_ymm(9, [7, 7]);
    add.state.fx.set_mxcsr(0x5f80); // round up
    for mode in [Mode::Avx, Mode::Step] {
        add.mode = mode;
        let mut expected = add.state.fx;
        let sum = [pair(1.5, 2.25), pair(0.0, 1.0_f64.next_up())];
        expected.set_ymm(9, sum);
        expected.set_mxcsr(0x5fa0); // PE
        let state = done(&mut native, add);
        assert_eq!(state.fx.ymm(9), sum);
        assert_eq!((state.fx.upper, state.fx.mxcsr()), (expected.upper, 0x5fa0));
        assert_eq!(state.fx.legacy[160..416], expected.legacy[160..416]);
    }

    // Precision unmasked: #XM, and nothing is written.
    add.mode = Mode::Avx;
    add.state.fx.set_mxcsr(0x4f80);
    let (outcome, state) = run(&mut native, add);
    assert!(
        matches!(outcome, Outcome::Signal { trapno: 19, .. }),
        "{outcome:?}"
    );
    assert_eq!(
        (state.fx.upper, state.fx.mxcsr()),
        (add.state.fx.upper, 0x4fa0)
    );

    // addpd xmm2, xmm15 keeps the upper half; vaddpd xmm2, xmm2, xmm15 clears it.
    let (sse, vex) = (
        [0x66, 0x41, 0x0f, 0x58, 0xd7],
        [0xc4, 0xc1, 0x69, 0x58, 0xd7],
    );
    for (code, upper) in [(sse, add.state.fx.upper[2]), (vex, 0)] {
        let mut case = NativeCase::new(Mode::Avx, &code);
        case.state.fx = add.state.fx;
        case.state.fx.set_mxcsr(0x1f80);
        let state = done(&mut native, case);
        assert_eq!(state.fx.ymm(2), [pair(1.5, 2.25), upper]);
        assert_eq!(state.fx.upper[15], add.state.fx.upper[15]);
    }

    // vzeroupper, and what was zero before: a component in its initial state.
    let mut zero = full(Mode::Avx, 3);
    zero.code[..3].copy_from_slice(&[0xc5, 0xf8, 0x77]);
    zero.code_len = 3;
    let mut expected = zero.state.fx;
    expected.upper = [0; 16];
    assert_eq!(done(&mut native, zero).fx, expected);
    let mut nop = full(Mode::Avx, 4);
    nop.state.fx.upper = [0; 16];
    assert_eq!(done(&mut native, nop).fx, nop.state.fx);

    // vmovupd [rdi], ymm0, to the window, and past its end
    let mut store = case(Mode::Avx, &[0xc5, 0xfd, 0x11, 0x07], &[(RDI, WINDOW + 8)]);
    store.state.fx.set_ymm(0, [1, 2 << 64]);
    let state = done(&mut native, store);
    assert_eq!(
        [8, 16, 24, 32].map(|at| window_word(&state, WINDOW + at)),
        [1, 0, 0, 2]
    );
    store.state.gpr[RDI] = WINDOW_PAGE.end - 16;
    let (outcome, state) = run(&mut native, store);
    assert!(
        matches!(outcome, Outcome::Signal { trapno: 14, .. }),
        "{outcome:?}"
    );
    assert_eq!(state.fx.upper, store.state.fx.upper);
}

//! Cases that do not end like a normal instruction, and calls that are refused.

use super::*;

#[test]
fn faults_are_outcomes() {
    let Some(mut native) = spawn("faults_are_outcomes") else {
        return;
    };
    let place = Native::place(1);
    let load = [0x48, 0x8b, 0x07]; // mov rax, [rdi]
    let store = [0x48, 0x89, 0x07]; // mov [rdi], rax

    // Linux numbers: signal, x86 vector, error code, address. Error code bits: 1 present, 2 write,
    // 4 user mode.
    let page_fault = |address, error_code| (SIGSEGV, 14, error_code, address);

    // #GP has no address: Linux reports 0.
    let non_canonical = (SIGSEGV, 13, 0, 0);

    // The page after the window is not mapped.
    let behind = WINDOW_PAGE.end;
    let at = |rdi: u64| vec![(RAX, 99), (RDI, rdi)];
    for (code, gpr, (signal, trapno, error_code, address)) in [
        (&load[..], at(0x4000), page_fault(0x4000, 4)),
        (&store, at(0x4000), page_fault(0x4000, 6)),
        // Eight bytes that cross into that page: the fault is at the page, not at the operand.
        (&load, at(behind - 7), page_fault(behind, 4)),
        (
            &store,
            at(WINDOW_PAGE.start - 8),
            page_fault(WINDOW_PAGE.start - 8, 6),
        ),
        (
            &store,
            at(CODE_RANGE.start),
            // Code is mapped, but not writable: the error code has the bit for a protection
            // violation, too.
            page_fault(CODE_RANGE.start, 7),
        ),
        (&load, at(1 << 63), non_canonical),
        (&[0xf4], at(0), non_canonical),                     // hlt
        (&[0x0f, 0x0b], at(0), (SIGILL, 6, 0, place)),       // ud2
        (&[0x48, 0xf7, 0xf7], at(0), (SIGFPE, 0, 0, place)), // div rdi
    ] {
        // A fault is the same whether the instruction is stepped or runs into the driver.
        for mode in [Mode::Plain, Mode::Fx, Mode::Step] {
            let case = case(mode, code, &gpr);
            let (outcome, state) = run(&mut native, case);
            let Outcome::Signal {
                signal: s,
                trapno: t,
                error_code: e,
                address: a,
                ..
            } = outcome
            else {
                panic!("{code:x?}: {outcome:?}");
            };

            let expected = (signal, trapno, error_code, address);
            assert_eq!((s, t, e, a), expected, "{code:x?} {mode:?}");
            let expected = NativeState {
                rip: place,
                rflags: ALWAYS,
                ..case.state
            };

            // A fault changes no register, and rip stays at the instruction.
            assert_eq!((state.gpr, state.rip), (expected.gpr, place), "{code:x?}");
            assert_eq!(state.rflags, ALWAYS, "{code:x?} {mode:?}");
            assert_eq!(state.window, expected.window);
        }
    }
}

#[test]
fn traps_and_system_calls_are_outcomes() {
    let Some(mut native) = spawn("traps_and_system_calls_are_outcomes") else {
        return;
    };
    for (code, expected) in [
        (&[0xcc][..], SIGTRAP),
        (&[0x0f, 0x05], SIGSYS), // syscall
        (&[0xcd, 0x03], SIGTRAP),
        (&[0xcd, 0x05], SIGSEGV),
        (&[0xeb, 0x10], SIGTRAP), // jmp $+18: only traps follow the instruction
    ] {
        let exit = case(Mode::Plain, code, &[(RAX, 231), (RDI, 1)]);
        let (outcome, _) = run(&mut native, exit);
        assert!(
            matches!(outcome, Outcome::Signal { signal, .. } if signal == expected),
            "{code:x?}: {outcome:?}"
        );
    }
}

#[test]
fn a_loop_hangs_and_the_next_case_does_not() {
    let Some(mut native) = spawn("a_loop_hangs_and_the_next_case_does_not") else {
        return;
    };
    for mode in [Mode::Plain, Mode::Fx] {
        let mut forever = case(mode, &[0xeb, 0xfe], &[(RAX, 9)]);
        forever.state.rflags = AC | DF | CF;
        let (outcome, state) = run(&mut native, forever);
        assert_eq!(outcome, Outcome::Hung);
        assert_eq!((state.rip, state.gpr[RAX]), (Native::place(1), 9));
        assert_eq!(state.rflags, ALWAYS | AC | DF | CF);
    }

    // Under a single step it does not hang.
    let state = done(&mut native, case(Mode::Step, &[0xeb, 0xfe], &[]));
    assert_eq!(state.rip, Native::place(1));
}

#[test]
fn a_child_survives_the_thread_that_made_it() {
    let Some(native) = std::thread::spawn(|| spawn("a_child_survives_the_thread_that_made_it"))
        .join()
        .expect("the thread ends")
    else {
        return;
    };
    let mut native = native;
    let state = done(&mut native, case(Mode::Plain, &[0x48, 0xff, 0xc0], &[]));
    assert_eq!(state.gpr[RAX], 1);
}

#[test]
fn bad_cases_are_refused() {
    let Some(mut native) = spawn("bad_cases_are_refused") else {
        return;
    };
    let nop = NativeCase::new(Mode::Fx, &[0x90]);
    let mut results = [(Outcome::Hung, NativeState::default()); 2];
    let mut fail = |cases: &[NativeCase]| native.run(cases, &mut results).expect_err("refused");

    // An instruction has 1 to 15 bytes. The length is kept in a byte: 300 must not become 44.
    for code in [&[][..], &[0x90; 16], &[0x90; 300]] {
        let error = fail(&[nop, NativeCase::new(Mode::Plain, code)]);
        let expected = code.len().min(255) as u8;
        assert!(
            matches!(error, NativeError::CodeLength { index: 1, length } if length == expected),
            "{error}"
        );
    }

    // Loading reserved MXCSR bits raises #GP in the driver itself, so the case must not get there.
    let mut reserved = nop;
    set_mxcsr(&mut reserved.state, 0x1_1f80);
    let error = fail(&[reserved]);
    let is_mxcsr = matches!(
        error,
        NativeError::Mxcsr {
            index: 0,
            mxcsr: 0x1_1f80
        }
    );
    assert!(is_mxcsr, "{error}");

    // As many results as cases, or the last would be lost.
    let error = fail(&[nop; 3]);
    let too_few = matches!(
        error,
        NativeError::TooFewResults {
            cases: 3,
            results: 2
        }
    );
    assert!(too_few, "{error}");

    // Nothing was executed.
    assert!(results.iter().all(|result| result.0 == Outcome::Hung));
}

#[test]
fn random_bytes_never_panic() {
    let Some(mut native) = spawn("random_bytes_never_panic") else {
        return;
    };
    let mut random = Random::new(0xbad_c0de);
    let mut outcomes = [0_u32; 4];
    for _ in 0..40 {
        let cases: Vec<NativeCase> = (0..Native::BATCH)
            .map(|_| {
                // Bytes may be anything, also jumps out of the slot and stores all over the child.
                let mode = random.pick(&[Mode::Plain, Mode::Fx, Mode::Step]);
                let mut code = [0; 15];
                random.fill(&mut code);
                let mut case = NativeCase::new(mode, &code);
                case.state.rflags = random.bits();
                for register in &mut case.state.gpr {
                    let within = WINDOW + random.below_u64(WINDOW_SIZE as u64);

                    // Half of the registers point into the window, so that accesses often succeed.
                    *register = [within, random.bits()][random.below(2)];
                }
                case
            })
            .collect();

        let results = run_all(&mut native, &cases);
        for (outcome, _) in &results {
            outcomes[match outcome {
                Outcome::Done => 0,
                Outcome::Signal { .. } => 1,
                Outcome::Hung => 2,
                Outcome::Killed { .. } => 3,
            }] += 1;
        }
    }

    // Both kinds of ending must have occurred often, or the test shows nothing.
    println!("done, signals, hung, killed: {outcomes:?}");
    assert!(outcomes[0] > 1000 && outcomes[1] > 1000, "{outcomes:?}");

    // Whatever the child went through, it, or its successor, still executes.
    let state = done(&mut native, case(Mode::Plain, &[0x01, 0xd1], &[(RDX, 3)]));
    assert_eq!(state.gpr[RCX], 3);
}

//! Registers, flags, memory and control transfers.

use super::*;

#[test]
fn nothing_changes_what_a_nop_finds() {
    let Some(mut native) = spawn("nothing_changes_what_a_nop_finds") else {
        return;
    };
    for mode in [Mode::Fx, whole(), Mode::Step] {
        for seed in 1..20 {
            let mut nop = full(mode, seed);
            nop.state.rflags = Random::new(seed).bits() & (STATUS | DF | AC | ID);
            let mut expected = nop.state;
            expected.rip = Native::place(1) + 1;
            expected.rflags |= ALWAYS;
            assert_eq!(done(&mut native, nop), expected, "{mode:?} {seed}");
        }
    }
}

#[test]
fn additions_set_registers_and_flags() {
    let Some(mut native) = spawn("additions_set_registers_and_flags") else {
        return;
    };

    let add = [0x48, 0x01, 0xd8]; // add rax, rbx
    let adc = [0x48, 0x11, 0xd8]; // adc rax, rbx
    for (code, carry, a, b, result, flags) in [
        (&add, 0, 40, 2, 42, 0),
        (&add, CF, u64::MAX, 1, 0, CF | PF | AF | ZF),
        (&add, 0, i64::MAX as u64, 1, 1 << 63, PF | AF | SF | OF),
        (&adc, CF, 40, 2, 43, PF),
        (&adc, 0, 40, 2, 42, 0),
        (&adc, CF, u64::MAX, 0, 0, CF | PF | AF | ZF),
    ] {
        // How the state is transferred changes nothing of the result.
        for mode in [Mode::Plain, Mode::Fx, Mode::Step] {
            let mut case = case(mode, code, &[(RAX, a), (RBX, b), (R15, 15)]);
            case.state.rflags = carry;
            let state = done(&mut native, case);
            assert_eq!(state.gpr[RAX], result, "{a:#x} + {b:#x} + {carry}");
            assert_eq!(state.rflags, flags | ALWAYS, "{a:#x} + {b:#x} + {carry}");
            assert_eq!((state.gpr[RBX], state.gpr[R15]), (b, 15));
            assert_eq!(state.rip, Native::place(1) + 3);
        }
    }
}

#[test]
fn the_same_instructions_in_this_process_agree() {
    let Some(mut native) = spawn("the_same_instructions_in_this_process_agree") else {
        return;
    };

    let mut random = Random::new(0x5eed);
    let shld = [0x48, 0x0f, 0xa5, 0xd8]; // shld rax, rbx, cl

    // Several batches, the last of which is not full.
    let cases: Vec<NativeCase> = (0..3 * Native::BATCH + 100)
        .map(|_| {
            let values = [(RAX, random.bits()), (RBX, random.bits())];
            let mut case = case(Mode::Plain, &shld, &values);
            case.state.gpr[RCX] = random.bits() % 63 + 1;
            case.state.rflags = random.bits() & (STATUS | DF);
            case.memory = false;
            case
        })
        .collect();

    let results = run_all(&mut native, &cases);
    for (index, (case, (outcome, state))) in cases.iter().zip(&results).enumerate() {
        let gpr = &case.state.gpr;
        let (mut a, mut flags) = (gpr[RAX], case.state.rflags & STATUS);
        // SAFETY: the stack ends as it began, and DF is not set.
        unsafe {
            std::arch::asm!(
                "push {flags}", "popfq", "shld {a}, {b}, cl", "pushfq", "pop {flags}",
                a = inout(reg) a, b = in(reg) gpr[RBX], flags = inout(reg) flags,
                in("rcx") gpr[RCX],
            );
        }
        let here = (Outcome::Done, a, flags & STATUS);
        assert_eq!((*outcome, state.gpr[RAX], state.rflags & STATUS), here);
        assert_eq!(state.rflags & DF, case.state.rflags & DF);
        assert_eq!(state.rip, Native::place(index) + 4);
    }
}

#[test]
fn memory_is_found_and_left_in_the_window() {
    let Some(mut native) = spawn("memory_is_found_and_left_in_the_window") else {
        return;
    };

    // add [rdi + 8], rax
    let mut add = case(
        Mode::Plain,
        &[0x48, 0x01, 0x47, 0x08],
        &[(RAX, 5), (RDI, WINDOW)],
    );
    add.state.window = [0xff; WINDOW_SIZE];
    let mut expected = add.state.window;
    expected[8..16].copy_from_slice(&4_u64.to_le_bytes());
    let state = done(&mut native, add);
    assert_eq!(state.window, expected);
    assert_eq!(state.rflags & STATUS, CF | AF);

    // push rax; pop rcx
    let state = done(&mut native, case(Mode::Plain, &[0x50], &[(RAX, 0x1234)]));
    assert_eq!(state.gpr[RSP], SP - 8);
    assert_eq!(window_word(&state, SP - 8), 0x1234);
    let mut pop = case(Mode::Step, &[0x59], &[(RSP, SP - 8)]);
    set_window(&mut pop.state, SP - 8, &77_u64.to_le_bytes());
    let state = done(&mut native, pop);
    assert_eq!((state.gpr[RSP], state.gpr[RCX]), (SP, 77));

    // rep stosb over the whole page; outside the window it is zero again for the next case.
    let fill = [
        (RDI, WINDOW_PAGE.start),
        (RCX, WINDOW_PAGE.end - WINDOW_PAGE.start),
        (RAX, 0xaa),
    ];
    let fill = case(Mode::Plain, &[0xf3, 0xaa], &fill);
    let read = [0x48, 0x8b, 0x07]; // mov rax, [rdi]
    let before = case(Mode::Plain, &read, &[(RAX, 1), (RDI, WINDOW - 8)]);
    let first = case(Mode::Plain, &read, &[(RAX, 1), (RDI, WINDOW_PAGE.start)]);
    let inside = case(Mode::Plain, &read, &[(RAX, 1), (RDI, WINDOW)]);
    let results = run_all(&mut native, &[fill, before, first, inside]);
    assert!(results.iter().all(|result| result.0 == Outcome::Done));
    assert_eq!(results[0].1.window, [0xaa; WINDOW_SIZE]);
    let read: Vec<u64> = results[1..].iter().map(|(_, s)| s.gpr[RAX]).collect();
    assert_eq!(read, [0, 0, 0]);
}

#[test]
fn control_goes_where_it_is_transferred_to() {
    let Some(mut native) = spawn("control_goes_where_it_is_transferred_to") else {
        return;
    };
    let place = Native::place(1);

    // call $+0x105
    let state = done(&mut native, case(Mode::Step, &[0xe8, 0, 1, 0, 0], &[]));
    assert_eq!(state.rip, place + 0x105);
    assert_eq!(state.gpr[RSP], SP - 8);
    assert_eq!(window_word(&state, SP - 8), place + 5);

    // ret 16, to an unmapped address
    let mut ret = case(Mode::Step, &[0xc2, 16, 0], &[]);
    set_window(&mut ret.state, SP, &0x1234_5678_u64.to_le_bytes());
    let state = done(&mut native, ret);
    assert_eq!((state.rip, state.gpr[RSP]), (0x1234_5678, SP + 24));

    // jmp [rdi]
    let mut jump = case(Mode::Step, &[0xff, 0x27], &[(RDI, WINDOW)]);
    set_window(&mut jump.state, WINDOW, &CODE_RANGE.end.to_le_bytes());
    assert_eq!(done(&mut native, jump).rip, CODE_RANGE.end);

    // je $-0x0e
    for (flags, rip) in [(0, place + 2), (ZF, place - 0x0e)] {
        let mut branch = case(Mode::Step, &[0x74, 0xf0], &[]);
        branch.state.rflags = flags;
        let state = done(&mut native, branch);
        assert_eq!((state.rip, state.rflags), (rip, flags | ALWAYS));
    }

    // rep movsb stops after each byte
    let values = [(RCX, 3), (RSI, WINDOW), (RDI, WINDOW + 8)];
    let state = done(&mut native, case(Mode::Step, &[0xf3, 0xa4], &values));
    assert_eq!((state.rip, state.gpr[RCX]), (place, 2));
}

#[test]
fn flags_that_change_our_own_code_do_not_stay() {
    let Some(mut native) = spawn("flags_that_change_our_own_code_do_not_stay") else {
        return;
    };

    // lodsb moves backwards with DF
    let mut lods = case(Mode::Plain, &[0xac], &[(RSI, WINDOW + 8)]);
    lods.state.rflags = DF;
    let state = done(&mut native, lods);
    assert_eq!((state.gpr[RSI], state.rflags), (WINDOW + 7, ALWAYS | DF));

    // with AC, mov eax, [rdi] faults at an unaligned address only
    for mode in [Mode::Plain, Mode::Fx, Mode::Step] {
        let mut load = case(mode, &[0x8b, 0x07], &[(RDI, WINDOW + 1)]);
        load.state.rflags = AC | DF;
        let (outcome, state) = run(&mut native, load);
        assert!(
            matches!(
                outcome,
                Outcome::Signal {
                    signal: SIGBUS,
                    trapno: 17,
                    ..
                }
            ),
            "{outcome:?}"
        );
        assert_eq!(state.rflags, ALWAYS | AC | DF);
        load.state.gpr[RDI] = WINDOW + 4;
        assert_eq!(done(&mut native, load).rflags, ALWAYS | AC | DF);
    }

    // popfq, and a single step after it
    for flags in [STATUS | DF | NT | AC | ID, NT, AC, DF] {
        for mode in [Mode::Plain, Mode::Fx, Mode::Step] {
            let mut pop = case(mode, &[0x9d], &[]);
            set_window(&mut pop.state, SP, &flags.to_le_bytes());
            let state = done(&mut native, pop);
            assert_eq!((state.rflags, state.gpr[RSP]), (flags | ALWAYS, SP + 8));
            let step = case(Mode::Step, &[0x90], &[]);
            let results = run_all(&mut native, &[pop, step, pop, step]);
            let left: Vec<u64> = results.iter().map(|(_, state)| state.rflags).collect();
            let popped = flags | ALWAYS;
            assert_eq!(left, [popped, ALWAYS, popped, ALWAYS], "{mode:?}");
            assert!(results.iter().all(|result| result.0 == Outcome::Done));
        }
    }
}

#[test]
fn the_stack_pointer_may_be_anything() {
    let Some(mut native) = spawn("the_stack_pointer_may_be_anything") else {
        return;
    };
    for value in [0, 1, 0x1000_0000, 1 << 63, u64::MAX, 0xffff_8000_dead_beef] {
        for mode in [Mode::Plain, Mode::Fx, Mode::Step] {
            // mov rsp, rax
            let state = done(
                &mut native,
                case(mode, &[0x48, 0x89, 0xc4], &[(RAX, value)]),
            );
            assert_eq!(state.gpr[RSP], value, "{mode:?}");
        }
    }

    // Using it faults: SS is the segment, so the fault is #SS.
    let (outcome, state) = run(&mut native, case(Mode::Plain, &[0x50], &[(RSP, 1 << 63)]));
    assert!(
        matches!(
            outcome,
            Outcome::Signal {
                signal: SIGBUS,
                trapno: 12,
                ..
            }
        ),
        "{outcome:?}"
    );
    assert_eq!(state.gpr[RSP], 1 << 63);
}

//! Starts from registers, from the unwinder itself, and for tasks that do not run.

use super::*;

/// The states on the way to the mark, the state after the start, and why it ended.
fn started(
    small: &Small,
    from: StartFrom<'_>,
    first_frame: u64,
) -> (Vec<OrcState>, OrcState, Option<Ended>) {
    let code = small.code();
    let kernel = Kernel {
        code: &code,
        task: &small.task,
        memory: &small.words,
    };
    let mut finds = FindCache::default();
    let mut passed = Vec::new();
    let unwind = Unwind::start(
        UnwinderKind::Orc,
        kernel,
        from,
        first_frame,
        &mut finds,
        &mut |unwind| passed.push(orc_state(unwind)),
    );
    (passed, orc_state(&unwind), unwind.ended)
}

#[test]
fn a_start_from_registers_takes_one_step_with_all_of_them() {
    let small = with_entry("6.1", by(OrcReg::R10, 0));
    let regs = start_regs();
    let (passed, state, ended) = started(&small, StartFrom::Regs(&regs), 0);

    // The state of the registers themselves is passed, and not reported.
    let first = OrcState {
        bp: SP + 0x900,
        regs: RegsPtr::Start,
        full_regs: true,
        signal: true,
        ..before()
    };
    assert_eq!((passed, ended), (Vec::from([first]), None));
    assert_eq!((state.sp, state.ip), (SP + 0x100, RET));

    // Registers of user space, with either of the two low bits of cs set, are rejected.
    for (cs, refused) in [
        (0x10, false),
        (0x33, true),
        (1, true),
        (2, true),
        (4, false),
    ] {
        let mut regs = start_regs();
        regs.set(Reg::Cs, cs);
        let (_, state, ended) = started(&small, StartFrom::Regs(&regs), 0);
        assert_eq!(ended == Some(Ended::StartedInUser), refused, "{cs:#x}");
        assert!(!state.error);
    }
}

#[test]
fn a_start_from_the_unwinder_itself_has_sp_rbp_and_no_registers() {
    let small = with_entry("6.1", by(OrcReg::Bp, 16));
    let regs = Regs::frame(IP, SP, BP);
    // The mark is below: nothing is skipped.
    let (passed, state, ended) = started(&small, StartFrom::Own(&regs), SP - 8);
    assert_eq!((passed.len(), ended), (0, None));
    assert_eq!(state, before());
    let (passed, state, _) = started(&small, StartFrom::Own(&regs), SP);
    assert_eq!((passed, state.sp), (Vec::from([before()]), BP + 16));
    // The mark is one byte above the second frame's sp, or one below.
    let step_from = |mark| started(&small, StartFrom::Own(&regs), mark).0.len();
    assert_eq!((step_from(BP + 15), step_from(BP + 17)), (1, 2));
    // A mark on another stack is never reached on this one.
    assert!(step_from(NMI.start) > 1);
    // Neither is a mark whose word is not entirely on this stack.
    assert!(step_from(TASK.end - 4) > 1);
}

#[test]
fn an_inactive_task_starts_from_what_its_switch_saved() {
    let task = |version: &str, ip: u64| {
        let mut small = Small::new(version, &[(0, call(8)), (0xd00, call(8))]);
        (small.task.is_current, small.task.thread_sp) = (false, SP);
        // r15 to r12, rbx, rbp, and where the task goes on (`struct inactive_task_frame`).
        small.put(SP, &[15, 14, 13, 12, 3, BP, ip, RET]);
        small
    };

    // (version, ip, sp, whether ip is exact)
    let new = TEXT + 0xd40;
    let new_asm = TEXT + 0xd00;

    for (version, ip, sp, signal) in [
        ("5.7", IP, SP, false),
        ("5.8", IP, SP + 56, false),
        ("6.5", new, SP + 56, true),
        ("6.5", new_asm, SP + 56, false),
        ("6.6", new_asm, SP + 56, true),
        ("6.6", new, SP + 56, false),
        ("6.6", 0, SP + 56, false),
    ] {
        let (passed, state, ended) = started(&task(version, ip), StartFrom::Inactive, SP - 8);

        let expected = OrcState {
            sp,
            ip,
            signal,
            ..before()
        };
        assert_eq!(
            (passed.len(), state, ended),
            (0, expected, None),
            "{version}"
        );
    }

    // If the kernel has no such function, ip 0 does not match it.
    let mut small = task("6.12", 0);
    small.words.0.remove(&(SP + 48));
    let (_, _, ended) = started(&small, StartFrom::Inactive, SP);
    let unmapped = |address| Some(Ended::NotRecorded(MemoryError::Unmapped { address }));
    assert_eq!(ended, unmapped(SP + 48));

    small.words.0.remove(&(SP + 40));
    assert_eq!(
        started(&small, StartFrom::Inactive, SP).2,
        unmapped(SP + 40)
    );
}

#[test]
fn a_task_on_another_processor_and_a_kernel_without_tables_are_refused() {
    let regs = start_regs();
    for (is_current, on_other_cpu, ended) in [
        (true, false, None),
        (true, true, None),
        (false, true, Some(Ended::OtherCpu)),
        (false, false, None),
    ] {
        let mut small = with_entry("6.1", call(16));
        (small.task.is_current, small.task.on_other_cpu) = (is_current, on_other_cpu);
        let (_, state, found) = started(&small, StartFrom::Regs(&regs), 0);
        assert_eq!(found, ended, "{is_current} {on_other_cpu}");
        assert_eq!(state.error, ended.is_some());
    }
    let mut small = Small::new("6.1", &[]);
    small.put(SP, &[RET]);
    let (_, state, ended) = started(&small, StartFrom::Regs(&regs), 0);
    assert_eq!((ended, state.error), (Some(Ended::NoTables), true));
}

#[test]
fn a_start_off_every_stack_is_tried_at_the_next_page() {
    let from = |sp| {
        let small = Small::new("6.1", &[(0, call(8))]);
        let regs = Regs::frame(IP, sp, 0);
        let (_, state, ended) = started(&small, StartFrom::Own(&regs), TASK.start);
        (state.stack.begin, state.error, ended)
    };
    let refused = |sp| (0, true, Some(Ended::StartNotOnStack { sp }));
    assert_eq!(from(TASK.start - 0x1001), refused(TASK.start - 0x1001));
    assert_eq!(from(TASK.start - 0x1000), refused(TASK.start - 0x1000));
    for sp in [TASK.start - 0xfff, TASK.start - 1] {
        let (begin, error, ended) = from(sp);
        assert_eq!((begin, error), (TASK.start, true), "{sp:#x}");
        assert_ne!(ended, Some(Ended::StartNotOnStack { sp }), "{sp:#x}");
    }
    assert!(!from(TASK.start + 8).1);
    // Only the page's first address is tried, even if a later one is on a stack.
    let mut small = Small::new("6.1", &[(0, call(8))]);
    small.task.stacks[0].begin = TASK.start + 0x800;
    let sp = TASK.start - 1;
    let regs = Regs::frame(IP, sp, 0);
    let (_, _, ended) = started(&small, StartFrom::Own(&regs), TASK.start);
    assert_eq!(ended, Some(Ended::StartNotOnStack { sp }));
}

#[test]
fn the_inactive_frame_is_laid_out_as_the_kernel_has_it() {
    // Six registers and the return address; rbp is the last register.
    assert_eq!(orc::INACTIVE_BP, 40);
}

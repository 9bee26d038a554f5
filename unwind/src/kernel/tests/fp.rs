//! The frame-pointer and guess unwinders.

use super::support::{ENTRY, IRQ, NMI, Small, TASK, TEXT, call, kernel_regs};
use crate::kernel::{Ended, State, UnwinderKind};
use crate::reason::{Code, Reason};
use crate::regs::{Reg, Regs};
use crate::start::Start;
use alloc::string::ToString;

pub(super) const SP: u64 = TASK.start + 0x3000;
pub(super) const TASK_REGS: u64 = TASK.end - 168;

/// Two frames, then the last one, before the registers of a system call.
pub(super) fn frames() -> Small {
    let mut small = Small::new("6.12", &[(0, call(8))]);
    let last = TASK_REGS - 16;
    small.put(SP, &[SP + 0x40, TEXT + 0x10]);
    small.put(SP + 0x40, &[last, TEXT + 0x20]);
    small.put(last, &[0, TEXT + 0x30]);
    small.put_regs(TASK_REGS, &[(Reg::Rip, 0x40_1000), (Reg::Cs, 0x33)]);
    small
}

#[test]
fn frame_pointers_are_followed_to_the_system_call() {
    let small = frames();
    let (ips, state, reason) = small.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]);
    assert_eq!(ips, [TEXT, TEXT + 0x10, TEXT + 0x20, TEXT + 0x30]);
    assert_eq!(reason, Reason::RootReached);
    assert!(!state.is_error());

    // A start from registers counts as an interrupt.
    let got_irq = |state| matches!(state, State::Fp(s) if s.got_irq);
    assert!(got_irq(state));

    let mut own = Start::from_regs(Regs::frame(TEXT, SP - 8, SP));
    own.first_frame = Some(SP);
    assert!(!got_irq(small.chain(UnwinderKind::Fp, &own).1));

    // A start in user space is not walked.
    let mut regs = kernel_regs([TEXT, SP - 8, SP]);
    regs.set(Reg::Cs, 0x33);
    let (ips, _, reason) = small.chain(UnwinderKind::Fp, &Start::from_regs(regs));
    assert_eq!((ips.len(), reason), (1, Ended::StartedInUser.reason()));

    // A kernel thread also has registers there, but they mean nothing.
    let mut thread = frames();
    thread.put_regs(TASK_REGS, &[(Reg::Cs, 0x10)]);
    assert_eq!(
        thread.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]).2,
        Reason::RootReached
    );
}

#[test]
fn the_frame_at_the_mark_is_kept() {
    let small = frames();
    let mut start = Start::from_regs(Regs::frame(TEXT, SP - 8, SP));
    start.first_frame = Some(SP + 0x40);
    assert_eq!(
        small.chain(UnwinderKind::Fp, &start).0,
        [TEXT + 0x20, TEXT + 0x30]
    );
    start.first_frame = Some(SP + 0x41);
    assert_eq!(small.chain(UnwinderKind::Fp, &start).0, [TEXT + 0x30]);
}

#[test]
fn an_invalid_frame_pointer_ends_the_walk() {
    let small = frames();
    // On no stack at the start: an empty trace without an error.
    let (ips, state, reason) = small.walk_from(UnwinderKind::Fp, [TEXT, SP, 0x1234]);
    assert_eq!((ips.len(), state.is_error()), (1, false));
    assert_eq!(reason.code(), Code::NotOnStack);

    let mut broken = frames();
    // The next frame pointer is on no stack.
    broken.put(SP + 0x40, &[0x1234, TEXT + 0x20]);
    let (ips, state, reason) = broken.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]);
    assert_eq!((ips.len(), state.is_error()), (3, true));
    assert_eq!(reason.code(), Code::BadFramePointer);

    let text = reason.to_string();
    assert!(
        text.contains("frame pointer at") && text.ends_with("has bad value 0x1234"),
        "{text}"
    );

    // For another task, the kernel does not warn.
    broken.task.is_current = false;
    broken.task.thread_sp = SP - 40;
    broken.put(SP - 40, &[0; 5]);
    let (ips, state, reason) =
        broken.chain(UnwinderKind::Fp, &Start::from_regs(Regs::frame(0, 0, 0)));
    assert_eq!(
        (ips.len(), state.is_error(), reason),
        (2, true, Reason::NotAtRoot)
    );

    // Downwards.
    let mut back = frames();
    back.put(SP + 0x40, &[SP, TEXT + 0x20]);
    assert!(
        back.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP])
            .1
            .is_error()
    );
}

#[test]
fn registers_are_encoded_in_a_frame_pointer() {
    let mut small = frames();
    // An interrupt: rbp points to the registers, with the lowest bit set.
    let regs = SP + 0x100;
    small.put(SP, &[regs | 1, TEXT + 0x10]);
    let saved = [
        (Reg::Rip, TEXT + 0x50),
        (Reg::Cs, 0x10),
        (Reg::Rbp, TASK_REGS - 16),
    ];
    small.put_regs(regs, &saved);
    let (ips, state, _) = small.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]);
    assert_eq!(ips, [TEXT, TEXT + 0x10, TEXT + 0x50, TEXT + 0x30]);
    let State::Fp(state) = state else { panic!() };
    assert!(state.got_irq);
}

#[test]
fn frames_may_lie_next_to_each_other() {
    let mut small = frames();
    small.put(SP, &[SP + 16, TEXT + 0x10, TASK_REGS - 16, TEXT + 0x20]);
    let (ips, ..) = small.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]);
    assert_eq!(ips, [TEXT, TEXT + 0x10, TEXT + 0x20, TEXT + 0x30]);
    // Registers that start within the previous ones are rejected.
    small.put(SP, &[SP + 15]);
    assert!(
        small
            .walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP])
            .1
            .is_error()
    );
}

#[test]
fn the_last_frame_may_be_realigned_or_follow_a_tracers() {
    const LAST: u64 = TASK_REGS - 16;
    // Whether a walk ends at the registers if its last frame, at `at`, contains `words`.
    let ends = |at: u64, words: &[u64]| {
        let mut small = frames();
        small.put(SP, &[at, TEXT + 0x10]);
        small.put(LAST - 32, &[0x70; 6]).put(at, words);
        small.put_regs(TASK_REGS, &[(Reg::Rip, 0x40_1000), (Reg::Cs, 0x33)]);
        small.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]).2 == Reason::RootReached
    };
    let (rbp, ret) = (0x77, TEXT + 0x30);
    // gcc copied the return address that follows rbp's slot.
    assert!(ends(LAST - 8, &[rbp, ret, ret]));
    assert!(!ends(LAST - 8, &[rbp, ret, ret + 1]));
    // ftrace's frame has copies of rbp and the return address.
    assert!(ends(LAST - 24, &[rbp, ret, rbp, 1, ret]));
    for (at, other) in [(0, 0x78), (1, ret + 1), (2, 0x78), (4, ret + 1)] {
        let mut words = [rbp, ret, rbp, 1, ret];
        words[at] = other;
        assert!(!ends(LAST - 24, &words), "{at}");
    }
    assert!(!ends(LAST - 16, &[rbp, ret, rbp, ret]));
}

#[test]
fn the_kernel_does_not_warn_where_it_knows_that_a_walk_may_fail() {
    let regs = SP + 0x100;
    let walk = |ip: u64, sp: u64| {
        let mut small = frames();
        // The lowest bit says that these are registers (`ENCODE_FRAME_POINTER`).
        small.put(SP, &[regs | 1, TEXT + 0x10]);
        let saved = [
            (Reg::Rip, ip),
            (Reg::Cs, 0x10),
            (Reg::Rbp, 0x1234),
            (Reg::Rsp, sp),
        ];
        small.put_regs(regs, &saved);
        let (_, state, reason) = small.walk_from(UnwinderKind::Fp, [TEXT, SP - 8, SP]);
        assert!(state.is_error());
        reason.code()
    };

    let (silent, warned) = (Code::NotAtRoot, Code::BadFramePointer);
    // At the end of the stack, no frame has been made yet.
    for (sp, code) in [
        (0, warned),
        (TASK_REGS - 25, warned),
        (TASK_REGS - 24, silent),
        (TASK_REGS - 1, silent),
        (TASK_REGS, warned),
    ] {
        assert_eq!(walk(TEXT + 0x50, sp), code, "{sp:#x}");
    }

    // The same holds in entry code.
    for (ip, code) in [
        (ENTRY.start, silent),
        (ENTRY.end - 1, silent),
        (ENTRY.end, warned),
    ] {
        assert_eq!(walk(ip, 0), code, "{ip:#x}");
    }
}

#[test]
fn stacks_are_linked() {
    let mut small = frames();
    let on_irq = IRQ.start + 0x1000;
    small.task.stacks[2].next_sp = SP;
    small.put(on_irq, &[SP, TEXT + 0x40]);
    let (ips, ..) = small.walk_from(UnwinderKind::Fp, [TEXT, on_irq - 8, on_irq]);
    assert_eq!(
        ips,
        [TEXT, TEXT + 0x40, TEXT + 0x10, TEXT + 0x20, TEXT + 0x30]
    );
}

#[test]
fn a_call_through_null_has_half_a_frame() {
    let mut small = frames();
    small.put(SP - 8, &[0x77]);
    small.put(SP, &[TEXT + 0x18]);
    let (ips, ..) = small.walk_from(UnwinderKind::Fp, [0, SP, SP + 0x40]);
    assert_eq!(ips, [0, TEXT + 0x18, TEXT + 0x20, TEXT + 0x30]);
}

#[test]
fn the_guess_reports_every_word_that_is_text() {
    let mut small = frames();
    for word in 0..0x100 {
        small
            .words
            .0
            .entry(NMI.end - 8 * (word + 1))
            .or_insert(word);
    }

    // No word may be missing, since the guess reads all of them.
    for address in (SP..TASK.end).step_by(8) {
        small.words.0.entry(address).or_insert(3);
    }

    small.task.stacks[1].next_sp = SP;
    small.put(NMI.end - 0x30, &[TEXT + 0x99]);
    let (ips, state, reason) = small.walk_from(UnwinderKind::Guess, [TEXT, NMI.end - 0x40, 0]);
    // Word 0 of the next stack is skipped.
    assert_eq!(
        ips,
        [TEXT, TEXT + 0x99, TEXT + 0x10, TEXT + 0x20, TEXT + 0x30]
    );
    assert_eq!((reason, state.is_error()), (Reason::NotAtRoot, false));

    // From a mark, the scan starts there.
    let mut start = Start::from_regs(kernel_regs([TEXT, 0, 0]));
    start.first_frame = Some(SP + 0x48);
    let marked = small.chain(UnwinderKind::Guess, &start).0;
    assert_eq!(
        marked,
        [TEXT + 0x20, TEXT + 0x30],
        "the word at the mark counts"
    );

    // A mark on no stack ends the walk before it began.
    start.first_frame = Some(0x1000);
    assert_eq!(
        small.chain(UnwinderKind::Guess, &start).2.code(),
        Code::NotOnStack
    );

    // Only half a word is left on the stack: it is not read.
    start.first_frame = Some(TASK.end - 4);
    let (ips, state, reason) = small.chain(UnwinderKind::Guess, &start);
    assert_eq!((ips.len(), state.is_error()), (0, false));
    assert_eq!(reason, Reason::NotAtRoot);
}

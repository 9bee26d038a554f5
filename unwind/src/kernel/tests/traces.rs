//! The other ways to print a walk, and the user's part.

use super::support::{IRQ, Small, TASK, TEXT, Words, call, kernel_regs, of_kind};
use crate::kernel::trace::{Line, Unreliable, show, stack_walk, stack_walk_reliable};
use crate::kernel::{
    Finds, From, Kernel, Kind, StackType, UserFrames, perf_callchain_user, unwind_user,
};
use crate::memory::Copy;
use crate::orc::{Entry, EntryType, OrcReg};
use crate::reason::{Code, Reason};
use crate::regs::{Reg, Regs};
use alloc::vec::Vec;

const SP: u64 = TASK.start + 0x3000;

/// A function of a kernel thread, with a stale return address in its frame.
fn thread() -> Small {
    let entries = [
        (0, call(24)),
        (0x100, call(8)),
        (0x200, of_kind(EntryType::EndOfStack, 0)),
        (0x300, Entry::UNDEFINED),
    ];
    let mut small = Small::new("6.12", &entries);
    for address in (SP..TASK.end).step_by(8) {
        small.put(address, &[0]);
    }
    small.put(SP, &[0, TEXT + 0x555, TEXT + 0x110, TEXT + 0x210]);
    small
}

type Kern<'a> = Kernel<'a, Words>;

fn with<R>(small: &Small, act: impl FnOnce(Kern<'_>, From<'_>, &mut Finds) -> R) -> R {
    let code = small.code();
    let kernel = Kernel {
        code: &code,
        task: &small.task,
        memory: &small.words,
    };
    let regs = kernel_regs([TEXT + 4, SP, 0]);
    act(kernel, From::Regs(&regs), &mut Finds::default())
}

#[test]
fn a_walk_and_a_reliable_walk() {
    let small = thread();
    let chain = [TEXT + 4, TEXT + 0x110, TEXT + 0x210];
    let walk = |k: Kern<'_>, f: From<'_>, n: &mut Finds| stack_walk(Kind::Orc, k, f, 99, n);
    assert_eq!(with(&small, walk), chain);
    assert_eq!(
        with(&small, |k, f, n| stack_walk(Kind::Orc, k, f, 2, n)),
        chain[..2]
    );
    let reliable =
        |k: Kern<'_>, f: From<'_>, n: &mut Finds| stack_walk_reliable(Kind::Orc, k, f, 99, n);
    assert_eq!(with(&small, reliable), Ok(chain[1..].to_vec()));
    let short = with(&small, |k, f, n| stack_walk_reliable(Kind::Orc, k, f, 1, n));
    assert_eq!(short, Err(Unreliable::TooMany));
    let mut lost = thread();
    lost.put(SP + 16, &[TEXT + 0x301]);
    let Err(Unreliable::Error(reason)) = with(&lost, reliable) else {
        panic!("an address of which nothing is known")
    };
    assert_eq!(reason.code(), Code::UndefinedByTable);
    let mut wild = thread();
    wild.put(SP + 16, &[0x1234]);
    assert_eq!(with(&wild, reliable), Err(Unreliable::NotText(0x1234)));
}

#[test]
fn stale_addresses_are_shown_with_a_question_mark() {
    let small = thread();
    let lines = with(&small, |k, f, n| show(Kind::Orc, k, f, n));
    let address = |address, reliable| Line::Address { address, reliable };
    let expected = [
        address(TEXT + 0x555, false),
        address(TEXT + 0x110, true),
        address(TEXT + 0x210, true),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn stacks_are_announced() {
    let link = Entry {
        sp_reg: OrcReg::SpIndirect,
        ..call(8)
    };
    let mut small = thread();
    small.entries = Vec::from([(0, link), (0x100, of_kind(EntryType::EndOfStack, 0))]);
    let top = IRQ.end - 8;
    small.put(top, &[SP]);
    small.put(SP, &[TEXT + 0x110, 0, 0, 0]);
    small.task.stacks[2].next_sp = SP;
    let code = small.code();
    let kernel = Kernel {
        code: &code,
        task: &small.task,
        memory: &small.words,
    };
    let regs = kernel_regs([TEXT + 4, top, 0]);
    let lines = show(Kind::Orc, kernel, From::Regs(&regs), &mut Finds::default());
    let address = TEXT + 0x110;
    let expected = [
        Line::StackBegin(StackType::Irq),
        Line::StackEnd(StackType::Irq),
        Line::Address {
            address,
            reliable: true,
        },
    ];
    assert_eq!(lines, expected);
}

fn user_stack(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[test]
fn the_users_part_follows_frame_pointers_whatever_their_order() {
    const AT: u64 = 0x7ffe_0000;
    let bytes = user_stack(&[AT + 32, 0x40_1111, 0, 0, AT + 8, 0x40_2222]);
    let memory = Copy::new(AT, &bytes);
    let mut regs = Regs::frame(0x40_0000, AT, AT);
    regs.set(Reg::Cs, 0x33);
    let what = UserFrames {
        uprobe: None,
        max: 5,
    };
    let (ips, reason) = perf_callchain_user(&regs, &memory, what);
    // The third frame lies below the second, and holds what nobody meant: the kernel goes on.
    assert_eq!(
        ips,
        [0x40_0000, 0x40_1111, 0x40_2222, 0, 0x40_1111][..ips.len()]
    );
    assert!(
        ips.len() > 3 || matches!(reason, Reason::Memory(_)),
        "{ips:x?} {reason}"
    );
    // unwind_user does not.
    let (ips, reason) = unwind_user(&regs, &memory, false, 9);
    assert_eq!(ips, [0x40_0000, 0x40_1111, 0x40_2222]);
    assert_eq!(reason.code(), Code::SpDidNotAdvance);
    // A uprobe at a function's entry, where rbp is still the caller's.
    let at_entry = UserFrames {
        uprobe: Some([0x55, 0, 0, 0]),
        max: 2,
    };
    assert_eq!(
        perf_callchain_user(&regs, &memory, at_entry).0,
        [0x40_0000, AT + 32]
    );
    let endbr = UserFrames {
        uprobe: Some([0xf3, 0x0f, 0x1e, 0xfa]),
        max: 2,
    };
    assert_eq!(perf_callchain_user(&regs, &memory, endbr).0[1], AT + 32);
    let inside = UserFrames {
        uprobe: Some([0x90; 4]),
        max: 2,
    };
    assert_eq!(perf_callchain_user(&regs, &memory, inside).0[1], 0x40_1111);
    let (ips, _) = unwind_user(&regs, &memory, true, 2);
    assert_eq!(ips, [0x40_0000, AT + 32]);
}

#[test]
fn programs_of_32_bits_have_small_frames() {
    let bytes: Vec<u8> = [0x1008_u32, 0x111, 0, 0x222]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    let memory = Copy::new(0x1000, &bytes);
    let mut regs = Regs::frame(0x40_0000, 0x1000, 0x1000);
    regs.set(Reg::Cs, 0x23);
    let what = UserFrames {
        uprobe: None,
        max: 9,
    };
    let (ips, reason) = perf_callchain_user(&regs, &memory, what);
    assert_eq!(ips, [0x40_0000, 0x111, 0x222]);
    assert!(matches!(reason, Reason::Memory(_)));
    regs.set(Reg::Rflags, 1 << 17);
    assert!(
        perf_callchain_user(&regs, &memory, what).0.is_empty(),
        "virtual 8086 mode"
    );
}

//! The other ways to print a walk.

use super::support::{IRQ, Small, TASK, TEXT, Words, call, kernel_regs, of_kind};
use crate::kernel::trace::{Line, Unreliable, show, stack_walk, stack_walk_reliable};
use crate::kernel::{Finds, From, Kernel, Kind, StackType};
use crate::orc::{Entry, EntryType, OrcReg};
use crate::reason::Code;
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

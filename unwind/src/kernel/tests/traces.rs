//! The other stack traces.

use super::support::{IRQ, Small, TASK, TEXT, WordMap, call, kernel_regs, of_kind};
use crate::kernel::perf::{Begin, Visit, callchain, states};
use crate::kernel::trace::{Line, Unreliable, show, stack_walk, stack_walk_reliable};
use crate::kernel::{
    EntryRegs, FindCache, Kernel, RegsPtr, StackType, StartFrom, UnwinderKind, Version,
};
use crate::orc::{Entry, EntryType, OrcReg};
use crate::reason::{Code, Reason};
use crate::regs::{Reg, Regs};
use crate::start::Start;
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

type Kern<'a> = Kernel<'a, WordMap>;

fn from_regs(regs: &Regs) -> Begin<'_> {
    Begin {
        from: StartFrom::Regs(regs),
        first_frame: regs.rsp(),
        ip: Some(regs.rip()),
    }
}

fn with<R>(small: &Small, act: impl FnOnce(Kern<'_>, Begin<'_>, &mut FindCache) -> R) -> R {
    let code = small.code();
    let kernel = Kernel {
        code: &code,
        task: &small.task,
        memory: &small.words,
    };
    let regs = kernel_regs([TEXT + 4, SP, 0]);
    act(kernel, from_regs(&regs), &mut FindCache::default())
}

#[test]
fn a_walk_and_a_reliable_walk() {
    let small = thread();
    let chain = [TEXT + 4, TEXT + 0x110, TEXT + 0x210];

    let walk =
        |k: Kern<'_>, f: Begin<'_>, n: &mut FindCache| stack_walk(UnwinderKind::Orc, k, f, 99, n);

    // The start is reported, and the limit counts it.
    assert_eq!(with(&small, walk), chain);
    assert_eq!(
        with(&small, |k, f, n| stack_walk(UnwinderKind::Orc, k, f, 2, n)),
        chain[..2]
    );

    let reliable = |k: Kern<'_>, f: Begin<'_>, n: &mut FindCache| {
        stack_walk_reliable(UnwinderKind::Orc, k, f, 99, n)
    };

    // A reliable walk leaves out the start, and fails where the other one ends.
    assert_eq!(with(&small, reliable), Ok(chain[1..].to_vec()));

    let short = with(&small, |k, f, n| {
        stack_walk_reliable(UnwinderKind::Orc, k, f, 1, n)
    });
    assert_eq!(short, Err(Unreliable::TooMany));

    // An address with an undefined entry, and then a word that is no code.
    let mut lost = thread();
    lost.put(SP + 16, &[TEXT + 0x301]);
    let Err(Unreliable::Error(reason)) = with(&lost, reliable) else {
        panic!("an address without an entry")
    };
    assert_eq!(reason.code(), Code::UndefinedByTable);

    let mut wild = thread();
    wild.put(SP + 16, &[0x1234]);
    assert_eq!(with(&wild, reliable), Err(Unreliable::NotText(0x1234)));
}

#[test]
fn stale_addresses_are_shown_with_a_question_mark() {
    let small = thread();
    let lines = with(&small, |k, f, n| show(UnwinderKind::Orc, k, f, n));
    let address = |address, reliable| Line::Address { address, reliable };
    let expected = [
        Line::StackBegin(StackType::Task),
        address(TEXT + 0x555, false),
        address(TEXT + 0x110, true),
        address(TEXT + 0x210, true),
        Line::StackEnd(StackType::Task),
    ];
    assert_eq!(lines, expected);

    // An old kernel does not announce a task's own stack.
    let mut old = thread();
    old.version = Version::from_name("5.10").expect("a version");
    let lines = with(&old, |k, f, n| show(UnwinderKind::Orc, k, f, n));
    assert_eq!(lines, expected[1..4]);
}

/// The current task's own trace: what the kernel's own code has on the stack below the mark is left out.
#[test]
fn a_trace_from_the_unwinder_itself_begins_at_its_mark() {
    let mut small = thread();
    // `__unwind_start` is at 0x4, called from 0x110, where the mark is made; the trace is that of 0x210.
    small.put(SP + 8, &[TEXT + 0x666]);
    let code = small.code();
    let kernel = Kernel {
        code: &code,
        task: &small.task,
        memory: &small.words,
    };
    let own = kernel_regs([TEXT + 4, SP, 0]);
    let begin = Begin {
        from: StartFrom::Own(&own),
        first_frame: SP + 24,
        ip: None,
    };
    let address = |address, reliable| Line::Address { address, reliable };
    let lines = show(UnwinderKind::Orc, kernel, begin, &mut FindCache::default());
    let task = StackType::Task;
    let expected = [
        Line::StackBegin(task),
        address(TEXT + 0x210, true),
        Line::StackEnd(task),
    ];
    assert_eq!(lines, expected);
    let walk = stack_walk(
        UnwinderKind::Orc,
        kernel,
        begin,
        99,
        &mut FindCache::default(),
    );
    assert_eq!(walk, [TEXT + 0x210]);
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
    // The last word of the interrupt stack leads to the task's.
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
    let lines = show(
        UnwinderKind::Orc,
        kernel,
        from_regs(&regs),
        &mut FindCache::default(),
    );

    // No word of the interrupt stack is text, so it is announced and ends.
    let address = TEXT + 0x110;
    let expected = [
        Line::StackBegin(StackType::Irq),
        Line::StackEnd(StackType::Irq),
        Line::StackBegin(StackType::Task),
        Line::Address {
            address,
            reliable: true,
        },
        Line::StackEnd(StackType::Task),
    ];
    assert_eq!(lines, expected);
}

/// An interrupt that left its registers on the stack, before the end of a kernel thread's stack;
/// with frame pointers.
fn interrupted() -> Small {
    let mut small = thread();
    let (regs, last) = (SP + 0x100, TASK.end - 168 - 16);
    small.put(SP, &[regs | 1, TEXT + 0x10, 0, 0]);
    let saved = [(Reg::Rip, TEXT + 0x50), (Reg::Cs, 0x10), (Reg::Rbp, last)];
    small.put_regs(regs, &saved);
    small.put(last, &[0, TEXT + 0x30]);
    small
}

fn with_fp<R>(
    small: &Small,
    sp: u64,
    act: impl FnOnce(Kern<'_>, Begin<'_>, &mut FindCache) -> R,
) -> R {
    let code = small.code();
    let kernel = Kernel {
        code: &code,
        task: &small.task,
        memory: &small.words,
    };
    let regs = kernel_regs([TEXT + 4, sp, SP]);
    act(kernel, from_regs(&regs), &mut FindCache::default())
}

#[test]
fn kernel_registers_are_not_reliable_with_frame_pointers() {
    let reliable = |k: Kern<'_>, f: Begin<'_>, n: &mut FindCache| {
        stack_walk_reliable(UnwinderKind::Fp, k, f, 99, n)
    };
    assert_eq!(
        with_fp(&interrupted(), SP, reliable),
        Err(Unreliable::KernelRegs)
    );
    let mut plain = interrupted();
    plain.put(SP, &[TASK.end - 168 - 16]);
    let chain = [TEXT + 0x10, TEXT + 0x30];
    assert_eq!(with_fp(&plain, SP, reliable), Ok(chain.to_vec()));
}

#[test]
fn saved_registers_are_shown_in_place_of_their_address() {
    let small = interrupted();
    let lines = with_fp(&small, SP, |k, f, n| show(UnwinderKind::Fp, k, f, n));
    let address = |address| Line::Address {
        address,
        reliable: true,
    };
    let regs = EntryRegs {
        at: RegsPtr::At(SP + 0x100),
        partial: false,
    };
    let expected = [
        Line::StackBegin(StackType::Task),
        address(TEXT + 0x10),
        Line::Regs(regs),
        address(TEXT + 0x30),
        Line::StackEnd(StackType::Task),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_dump_starts_at_an_aligned_word_and_below_a_stack_at_the_next_page() {
    let mut small = interrupted();
    let whole = with_fp(&small, SP, |k, f, n| show(UnwinderKind::Fp, k, f, n));
    for sp in [SP - 7, SP - 1, SP] {
        let lines = with_fp(&small, sp, |k, f, n| show(UnwinderKind::Fp, k, f, n));
        assert_eq!(lines, whole, "{sp:#x}");
    }
    for address in (TASK.start..SP).step_by(8) {
        small.put(address, &[0]);
    }
    small.put(TASK.start, &[TEXT + 0x44]);
    // The unwinder does not find the stack, so nothing is reliable.
    let mut text = Vec::from([Line::StackBegin(StackType::Task)]);
    text.extend([0x44, 0x10, 0x50, 0x30].map(|at| Line::Address {
        address: TEXT + at,
        reliable: false,
    }));
    text.push(Line::StackEnd(StackType::Task));
    for (below, lines) in [(8, &text[..]), (0x1000 - 8, &text), (0x1000, &[])] {
        let sp = TASK.start - below;
        let shown = with_fp(&small, sp, |k, f, n| show(UnwinderKind::Fp, k, f, n));
        assert_eq!(shown, lines, "{below:#x}");
    }
}

#[test]
fn the_limits_of_states_and_addresses_are_exact() {
    let small = interrupted();
    let all = with_fp(&small, SP, |kernel, from, finds| {
        let begin = |max, finds: &mut FindCache| states(UnwinderKind::Fp, kernel, from, max, finds);

        // The reference, with room for all states.
        let (all, skipped) = begin(99, finds);
        assert_eq!(skipped, 0);
        assert!(all.iter().position(|s| s.is_done()) == Some(all.len() - 1));
        for max in 1..=all.len() {
            assert_eq!(begin(max, finds).0, all[..max], "{max}");
        }
        all
    });

    // The two calls, the registers, and the state that is done.
    assert_eq!(all.len(), 4);

    // The same limits for addresses, where the sampled ip counts.
    let start = Start::from_regs(kernel_regs([TEXT + 4, SP, SP]));
    let chain = |max| {
        with_fp(&small, SP, |kernel, _, finds| {
            let mut ips = Vec::new();
            let mut visit = |visit: Visit<'_, WordMap>| {
                if let Visit::Ip(ip) | Visit::Stored(_, ip) = visit {
                    ips.push(ip);
                }
            };
            let ended = callchain(UnwinderKind::Fp, kernel, &start, max, finds, &mut visit);
            (ips, ended.expect("registers").1)
        })
    };

    let ips = [TEXT + 4, TEXT + 0x10, TEXT + 0x50, TEXT + 0x30];
    for limit in 1..=4 {
        let reason = match limit {
            4 => Reason::RootReached,
            limit => Reason::FrameLimit { limit },
        };
        assert_eq!(chain(limit), (ips[..limit as usize].to_vec(), reason));
    }
    assert_eq!(chain(5), (ips.to_vec(), Reason::RootReached));
}

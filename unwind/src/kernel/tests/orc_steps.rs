//! Single steps and starts of the ORC unwinder: the register or word that each field of the state
//! comes from, and every limit.

mod starts;

use super::support::{IRQ, NMI, Small, TASK, TEXT, call, kernel_regs, of_kind};
use crate::kernel::orc::{self, OrcState};
use crate::kernel::{
    Ended, FindCache, Kernel, NoStack, RegsPtr, Rethook, StackInfo, StackType, StartFrom, State,
    Unwind, UnwinderKind,
};
use crate::memory::MemoryError;
use crate::orc::{Entry, EntryType, OrcReg};
use crate::regs::{Reg, Regs};
use alloc::vec::Vec;

const SP: u64 = TASK.start + 0x3000;
const BP: u64 = SP + 0x400;
/// An address in code whose entry starts at [`TEXT`].
const IP: u64 = TEXT + 0x11;
/// The return address everywhere in these tests.
const RET: u64 = TEXT + 0x222;
const TASK_STACK: StackInfo = StackInfo {
    kind: StackType::Task,
    begin: TASK.start,
    end: TASK.end,
    next_sp: 0,
};

/// The state before the step: after a call, on the task's stack.
fn before() -> OrcState {
    OrcState {
        stack: TASK_STACK,
        stack_mask: 1 << StackType::Task as u8,
        sp: SP,
        bp: BP,
        ip: IP,
        ..OrcState::default()
    }
}

/// The registers of the start: each general register points to its own place on the stack.
fn start_regs() -> Regs {
    let mut regs = kernel_regs([IP, SP, SP + 0x900]);
    let used = [Reg::R10, Reg::R13, Reg::Rdi, Reg::Rdx, Reg::Rax];
    for (i, reg) in used.into_iter().enumerate() {
        regs.set(reg, SP + 0x100 + 0x10 * i as u64);
    }
    regs
}

/// A kernel with one entry, and return addresses below every address that the tests reach.
fn with_entry(version: &str, entry: Entry) -> Small {
    let mut small = Small::new(version, &[(0, entry)]);
    for slot in (SP - 0x40..SP + 0xa00).step_by(8) {
        small.put(slot, &[RET]);
    }
    small
}

/// A step: whether it continued, the state after it, and why it ended.
fn step(small: &Small, state: OrcState) -> (bool, OrcState, Option<Ended>) {
    let code = small.code();
    let regs = start_regs();
    let mut finds = FindCache::default();
    let mut unwind = Unwind {
        kernel: Kernel {
            code: &code,
            task: &small.task,
            memory: &small.words,
        },
        start: &regs,
        state: State::Orc(state),
        finds: &mut finds,
        found: None,
        ended: None,
    };
    let went_on = unwind.next_frame();
    (went_on, orc_state(&unwind), unwind.ended)
}

fn orc_state(unwind: &Unwind<'_, impl crate::memory::Memory>) -> OrcState {
    match unwind.state {
        State::Orc(state) => state,
        other => panic!("{other:?}"),
    }
}

fn by(sp_reg: OrcReg, sp_offset: i16) -> Entry {
    Entry {
        sp_reg,
        ..call(sp_offset)
    }
}

fn with_bp(bp_reg: OrcReg, bp_offset: i16) -> Entry {
    Entry {
        bp_reg,
        bp_offset,
        ..call(16)
    }
}

#[test]
fn sp_comes_from_the_register_that_the_entry_names() {
    let cases = [
        ("6.1", by(OrcReg::Sp, 16), SP + 16),
        ("6.1", by(OrcReg::Bp, 16), BP + 16),
        ("6.1", by(OrcReg::Bp, -16), BP - 16),
        // For loaded values: before 5.12 at the offset, since then without it.
        ("5.11", by(OrcReg::SpIndirect, 16), SP + 0x210),
        ("5.12", by(OrcReg::SpIndirect, 16), SP + 0x200 + 16),
        ("6.1", by(OrcReg::BpIndirect, 16), SP + 0x410),
        // The offset is ignored.
        ("6.1", by(OrcReg::R10, 16), SP + 0x100),
        ("6.1", by(OrcReg::R13, 16), SP + 0x110),
        ("6.1", by(OrcReg::Di, 16), SP + 0x120),
        ("6.1", by(OrcReg::Dx, 16), SP + 0x130),
        ("6.1", by(OrcReg::Ax, 16), SP + 0x140),
    ];

    for (version, entry, sp) in cases {
        let mut small = with_entry(version, entry);
        small.put(SP, &[SP + 0x200]).put(SP + 16, &[SP + 0x210]);
        small.put(BP + 16, &[SP + 0x410]);

        let state = OrcState {
            regs: RegsPtr::Start,
            full_regs: true,
            ..before()
        };
        small.put(sp - 8, &[RET]);

        let (went_on, after, ended) = step(&small, state);
        assert_eq!((went_on, ended), (true, None), "{version} {entry}");
        assert_eq!((after.sp, after.ip), (sp, RET), "{version} {entry}");
        let none = (RegsPtr::None, RegsPtr::None);
        assert_eq!((after.regs, after.prev_regs), none, "{entry}");
    }
}

#[test]
fn an_unsaved_register_ends_the_walk_and_is_named() {
    let prev = RegsPtr::Start;
    let cases = [
        (OrcReg::R10, Reg::R10),
        (OrcReg::R13, Reg::R13),
        (OrcReg::Di, Reg::Rdi),
        (OrcReg::Dx, Reg::Rdx),
        (OrcReg::Ax, Reg::Rax),
    ];

    for (base, reg) in cases {
        let small = with_entry("6.1", by(base, 0));
        let missing = Some(Ended::MissingReg { reg, ip: IP });
        let (went_on, after, ended) = step(&small, before());
        assert_eq!((went_on, ended), (false, missing), "{reg}");
        assert!(after.error && after.stack.kind == StackType::Unknown);

        // Complete registers come first; the previous ones serve an iret frame; without current
        // registers, the previous ones do not count.
        let with = |regs, prev_regs, full_regs| {
            let state = OrcState {
                regs,
                prev_regs,
                full_regs,
                ..before()
            };
            step(&small, state).2
        };

        let at = RegsPtr::At(TASK.start + 0x100);
        let mut hardware = with_entry("6.1", by(base, 0));
        // cs of the kernel, at its offset in `struct pt_regs`.
        hardware.put(TASK.start + 0x100 + 136, &[0x10]);
        let partial = OrcState {
            regs: at,
            prev_regs: prev,
            ..before()
        };
        assert_eq!(step(&hardware, partial).2, None, "{reg}");
        let alone = OrcState {
            prev_regs: RegsPtr::None,
            ..partial
        };
        assert_eq!(step(&hardware, alone).2, missing, "{reg}");

        assert_eq!(with(RegsPtr::None, prev, false), missing, "{reg}");
        assert_eq!(with(RegsPtr::None, prev, true), missing, "{reg}");
        assert_eq!(with(prev, RegsPtr::None, true), None, "{reg}");
    }
}

#[test]
fn rbp_comes_from_where_the_entry_says() {
    let start = Some(RegsPtr::Start);
    // (entry, current registers, rbp)
    let cases = [
        (with_bp(OrcReg::Undefined, 8), None, BP),
        (with_bp(OrcReg::PrevSp, -24), None, 0x111),
        (with_bp(OrcReg::PrevSp, 24), None, 0x112),
        (with_bp(OrcReg::Bp, -16), None, 0x113),
        (with_bp(OrcReg::Bp, 16), None, 0x114),
        // A call's frame has no registers.
        (with_bp(OrcReg::Undefined, 0), start, BP),
    ];

    for (entry, regs, bp) in cases {
        let mut small = with_entry("6.1", entry);
        small.put(SP - 8, &[0x111]).put(SP + 40, &[0x112]);
        small.put(BP - 16, &[0x113]).put(BP + 16, &[0x114]);

        let state = OrcState {
            regs: regs.unwrap_or_default(),
            full_regs: regs.is_some(),
            ..before()
        };
        let (went_on, after, ended) = step(&small, state);
        assert_eq!((went_on, ended, after.bp), (true, None, bp), "{entry}");
    }
}

#[test]
fn nonsensical_entries_end_in_an_error() {
    let unknown_sp = "unknown SP base reg";
    let unknown_bp = "unknown BP base reg";
    for (entry, what) in [
        (by(OrcReg::PrevSp, 8), unknown_sp),
        (by(OrcReg::Undefined, 8), unknown_sp),
        (with_bp(OrcReg::Sp, 8), unknown_bp),
        (with_bp(OrcReg::R10, 8), unknown_bp),
        (with_bp(OrcReg::BpIndirect, 8), unknown_bp),
    ] {
        let (went_on, after, ended) = step(&with_entry("6.12", entry), before());
        let bad = Ended::BadEntry { what, ip: IP };
        assert_eq!((went_on, ended), (false, Some(bad)), "{entry}");
        assert!(after.error);
    }
}

/// A kernel whose entry finds a complete `struct pt_regs` at SP, or an iret frame.
fn saved(version: &str, kind: EntryType, signal: bool) -> Small {
    let entry = Entry {
        signal,
        ..of_kind(kind, 0)
    };
    let mut small = Small::new(version, &[(0, entry)]);
    let regs = match kind {
        EntryType::Regs => SP,
        _ => SP - 128,
    };
    let values = [
        (Reg::Rip, RET),
        (Reg::Cs, 0x10),
        (Reg::Rsp, SP + 0x300),
        (Reg::Rbp, 0xb1),
    ];
    small.put_regs(regs, &values);
    small
}

#[test]
fn whole_registers_give_ip_sp_and_rbp() {
    let state = OrcState {
        prev_regs: RegsPtr::At(7),
        ..before()
    };
    let (went_on, after, ended) = step(&saved("6.1", EntryType::Regs, true), state);
    assert_eq!((went_on, ended), (true, None));
    let expected = OrcState {
        sp: SP + 0x300,
        ip: RET,
        bp: 0xb1,
        regs: RegsPtr::At(SP),
        prev_regs: RegsPtr::None,
        full_regs: true,
        signal: true,
        ..before()
    };
    assert_eq!(after, expected);
}

#[test]
fn the_hardwares_part_keeps_the_registers_before_since_5_7() {
    let full = OrcState {
        regs: RegsPtr::Start,
        full_regs: true,
        ..before()
    };
    let partial = OrcState {
        regs: RegsPtr::Start,
        prev_regs: RegsPtr::At(SP + 0x800),
        full_regs: false,
        ..before()
    };

    let rbp = start_regs().get(Reg::Rbp).unwrap_or(0);
    let cases = [
        ("5.6", full, RegsPtr::None, BP),
        ("5.7", full, RegsPtr::Start, rbp),
        ("6.1", full, RegsPtr::Start, rbp),
        // Incomplete registers are not kept: the previous ones stay.
        ("6.1", partial, RegsPtr::At(SP + 0x800), 0xb2),
        ("6.1", before(), RegsPtr::None, BP),
    ];

    // rbp comes from the previous registers, where they are kept.
    for (version, state, prev_regs, bp) in cases {
        let mut small = saved(version, EntryType::RegsPartial, true);
        small.put_regs(SP + 0x800, &[(Reg::Rbp, 0xb2)]);
        let (went_on, after, ended) = step(&small, state);
        assert_eq!((went_on, ended), (true, None), "{version}");

        let expected = OrcState {
            sp: SP + 0x300,
            ip: RET,
            bp,
            regs: RegsPtr::At(SP - 128),
            prev_regs,
            full_regs: false,
            signal: true,
            ..before()
        };
        assert_eq!(after, expected, "{version}");
    }
}

#[test]
fn the_type_says_whether_ip_is_exact_before_6_3_and_the_entry_since() {
    // Version, type, the entry's bit, and whether the next ip is looked up as it is.
    for (version, kind, signal, expected) in [
        ("6.2", EntryType::Call, false, false),
        ("6.2", EntryType::Regs, true, true),
        ("6.2", EntryType::RegsPartial, true, true),
        ("6.3", EntryType::Call, false, false),
        ("6.3", EntryType::Call, true, true),
        ("6.3", EntryType::Regs, false, false),
        ("6.3", EntryType::Regs, true, true),
        ("6.12", EntryType::RegsPartial, false, false),
        ("6.12", EntryType::RegsPartial, true, true),
    ] {
        let small = match kind {
            EntryType::Call => with_entry(version, Entry { signal, ..call(16) }),
            _ => saved(version, kind, signal),
        };

        // What the state said before does not matter.
        for before_it in [false, true] {
            let state = OrcState {
                signal: before_it,
                ..before()
            };
            let (went_on, after, _) = step(&small, state);
            assert!(went_on, "{version} {kind:?}");
            assert_eq!(after.signal, expected, "{version} {kind:?} {signal}");
        }
    }
}

#[test]
fn an_exact_ip_is_looked_up_itself_and_a_return_address_one_byte_before() {
    let mut small = Small::new("6.12", &[(0, call(16)), (0x100, call(32))]);
    small.put(SP + 8, &[RET]).put(SP + 24, &[RET]);
    for (ip, signal, sp) in [
        (TEXT + 0x100, false, SP + 16),
        (TEXT + 0x100, true, SP + 32),
        (TEXT + 0x101, false, SP + 32),
        (TEXT + 0xff, true, SP + 16),
    ] {
        let state = OrcState {
            ip,
            signal,
            ..before()
        };
        assert_eq!(step(&small, state).1.sp, sp, "{ip:#x} {signal}");
    }
}

#[test]
fn sp_must_advance_while_the_stack_is_the_same() {
    let wrong = Some(Ended::WrongDirection { ip: IP });
    for (offset, expected) in [(8, None), (0, wrong), (-8, wrong)] {
        let (went_on, after, ended) = step(&with_entry("6.1", call(offset)), before());
        assert_eq!((went_on, ended), (expected.is_none(), expected), "{offset}");
        assert_eq!(after.sp, SP.wrapping_add_signed(offset.into()));
    }

    // At the stack's end there is no further word that could be wrong.
    let mut small = Small::new("6.1", &[(0, by(OrcReg::Sp, 16))]);
    small.put(TASK.end - 8, &[RET]);
    let state = OrcState {
        sp: TASK.end - 16,
        ..before()
    };
    let (went_on, after, ended) = step(&small, state);
    assert_eq!((went_on, ended, after.sp), (true, None, TASK.end));

    // Registers whose sp is the same as before do not advance.
    let mut small = saved("6.1", EntryType::Regs, true);
    // The saved rsp, at its offset in `struct pt_regs`.
    small.put(SP + 152, &[SP]);
    assert_eq!(step(&small, before()).2, wrong);
    // On another stack sp may be lower.
    let mut small = Small::new("6.1", &[(0, by(OrcReg::Bp, 8))]);
    small.put(TASK.start, &[RET]);
    let state = OrcState {
        stack: small.task.stacks[2],
        stack_mask: 1 << StackType::Irq as u8,
        sp: IRQ.start + 0x100,
        bp: TASK.start,
        ..before()
    };
    let (went_on, after, ended) = step(&small, state);
    assert_eq!((went_on, ended), (true, None));
    assert_eq!(after.stack, TASK_STACK);
    let both = 1 << StackType::Irq as u8 | 1 << StackType::Task as u8;
    assert_eq!((after.sp, after.stack_mask), (TASK.start + 8, both));
}

#[test]
fn a_word_must_lie_whole_on_a_stack() {
    let unknown = Some(NoStack::Unknown);
    // If only half of a word is on a visited stack, the stack is searched for again.
    let again = Some(NoStack::Recursion(StackType::Task));

    // The edges of a stack that was visited and of one that was not.
    let slots = [
        (TASK.start, None),
        (TASK.start - 1, unknown),
        (TASK.end - 8, None),
        (TASK.end - 7, again),
        (TASK.end, unknown),
        (NMI.end - 8, None),
        (NMI.end - 7, unknown),
        (NMI.end, unknown),
        (0, unknown),
    ];

    for (slot, refused) in slots {
        let mut small = Small::new("6.1", &[(0, by(OrcReg::Bp, 8))]);
        small.put(slot, &[RET]);
        let state = OrcState {
            sp: TASK.start - 0x100,
            bp: slot,
            ..before()
        };
        let ended = refused.map(|why| Ended::CannotRead {
            address: slot,
            why,
            ip: IP,
        });
        assert_eq!(step(&small, state).2, ended, "{slot:#x}");
    }

    // A stack that was visited before is not visited again.
    let small = Small::new("6.1", &[(0, by(OrcReg::Bp, 8))]);
    let state = OrcState {
        stack_mask: 1 << StackType::Task as u8 | 1 << StackType::Nmi as u8,
        bp: NMI.start,
        ..before()
    };
    let ended = Ended::CannotRead {
        address: NMI.start,
        why: NoStack::Recursion(StackType::Nmi),
        ip: IP,
    };
    assert_eq!(step(&small, state).2, Some(ended));
}

#[test]
fn saved_registers_must_lie_whole_on_a_stack() {
    // All registers have 168 bytes, the processor's part has 40.
    for (kind, len, partial) in [
        (EntryType::Regs, 168, false),
        (EntryType::RegsPartial, 40, true),
    ] {
        let again = NoStack::Recursion(StackType::Task);
        for (address, refused) in [
            (TASK.start, None),
            (TASK.start - 8, Some(NoStack::Unknown)),
            (TASK.end - len, None),
            (TASK.end - len + 8, Some(again)),
        ] {
            let mut small = Small::new("6.1", &[(0, of_kind(kind, 0))]);
            // An iret frame is the last part of `struct pt_regs`.
            small.put_regs(address - if partial { 128 } else { 0 }, &[(Reg::Rip, RET)]);

            let state = OrcState {
                sp: address,
                ..before()
            };
            let refused = refused.map(|why| Ended::CannotReadRegs {
                address,
                partial,
                why,
                ip: IP,
            });

            let (went_on, _, ended) = step(&small, state);
            assert_eq!(ended, refused, "{address:#x}");
            assert_eq!(went_on, refused.is_none());
        }
    }
}

#[test]
fn registers_of_user_space_end_the_walk_without_an_error() {
    for (cs, ended) in [(0x33, Some(Ended::UserRegs)), (0x10, None)] {
        let mut small = with_entry("6.1", call(16));
        small.put_regs(TASK.start, &[(Reg::Cs, cs)]);
        let state = OrcState {
            regs: RegsPtr::At(TASK.start),
            full_regs: true,
            ..before()
        };
        let (went_on, after, found) = step(&small, state);
        assert_eq!((went_on, found), (ended.is_none(), ended), "{cs:#x}");
        assert!(!after.error);
    }
}

#[test]
fn an_error_stays_and_only_guessed_entries_make_one() {
    for (ip, error, expected) in [
        (IP, false, false),
        (IP, true, true),
        (TEXT + 0x100_0000, false, true),
        (TEXT + 0x100_0000, true, true),
    ] {
        let mut small = with_entry("6.1", call(16));
        small.put(BP, &[0, RET]);
        let state = OrcState {
            ip,
            error,
            ..before()
        };
        let (went_on, after, ended) = step(&small, state);
        assert_eq!((went_on, ended), (true, None));
        assert_eq!(after.error, expected, "{ip:#x} {error}");
    }
}

#[test]
fn before_4_18_every_end_is_alike() {
    let far = TEXT + 0x100_0000;
    let undefined = Ended::Undefined { ip: IP - 1 };
    let wrong = Ended::WrongDirection { ip: IP };
    let none = Ended::NoEntry { ip: far - 1 };
    let root = of_kind(EntryType::EndOfStack, 0);

    // Version, entry, ip, the end, and whether it counts as an error.
    let cases = [
        ("4.17", Entry::UNDEFINED, IP, undefined, false),
        ("4.18", Entry::UNDEFINED, IP, undefined, true),
        ("4.17", call(0), IP, wrong, false),
        ("4.18", call(0), IP, wrong, true),
        ("4.17", call(0), far, none, false),
        ("4.18", call(0), far, none, true),
        ("5.1", call(0), far, none, true),
        ("4.17", root, IP, Ended::EndOfStack, false),
        ("6.12", root, IP, Ended::EndOfStack, false),
    ];

    for (version, entry, ip, ended, error) in cases {
        let state = OrcState { ip, ..before() };
        let (went_on, after, found) = step(&with_entry(version, entry), state);
        assert_eq!((went_on, found), (false, Some(ended)), "{version} {entry}");
        assert_eq!(after.error, error, "{version} {entry}");
        assert_eq!(after.stack.kind, StackType::Unknown);
    }
}

#[test]
fn missing_memory_ends_every_walk_in_an_error() {
    let unmapped = |address| Some(Ended::NotRecorded(MemoryError::Unmapped { address }));
    // The return address; the saved rbp; rip and rsp of saved registers; their cs.
    let empty = Small::new("4.17", &[(0, call(16))]);
    let (_, after, ended) = step(&empty, before());
    assert_eq!((ended, after.error), (unmapped(SP + 8), true));
    let mut no_bp = Small::new("4.17", &[(0, with_bp(OrcReg::PrevSp, -16))]);
    no_bp.put(SP + 8, &[RET]);
    assert_eq!(step(&no_bp, before()).2, unmapped(SP));
    let mut no_rsp = Small::new("4.17", &[(0, of_kind(EntryType::Regs, 0))]);
    assert_eq!(step(&no_rsp, before()).2, unmapped(SP + 128));
    no_rsp.put(SP + 128, &[RET]);
    assert_eq!(step(&no_rsp, before()).2, unmapped(SP + 152));
    let state = OrcState {
        regs: RegsPtr::At(SP),
        ..before()
    };
    assert_eq!(step(&empty, state).2, unmapped(SP + 136));
}

#[test]
fn a_trampoline_in_saved_registers_was_reached_by_a_ret() {
    let trampoline = TEXT + 0xe40;
    let ip = |frame| {
        let mut small = saved("6.1", EntryType::Regs, true);
        small.put(SP + 128, &[trampoline]);
        let ret_addr = RET;
        small.task.rethooks = Vec::from([Rethook { ret_addr, frame }]);
        step(&small, before()).1.ip
    };
    // The word was just below the saved sp.
    assert_eq!(ip(SP + 0x300 - 8), RET);
    assert_eq!(ip(SP + 0x300), 0);
    assert_eq!(ip(SP - 8), 0);
}

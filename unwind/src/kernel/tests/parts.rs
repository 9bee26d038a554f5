//! Small parts: recorded states compared field by field, names and links of stacks, current
//! registers.

use super::support::{Small, TASK, TEXT, call};
use crate::kernel::perf::{Difference, first_difference};
use crate::kernel::{
    Cursors, EntryRegs, FpState, GuessState, OrcState, RegsPtr, StackInfo, StackType, State, Task,
    is_user_cs,
};
use crate::pt_regs::regs_from;
use crate::regs::{Reg, Regs};
use alloc::vec::Vec;

const STACK: StackInfo = StackInfo {
    kind: StackType::Task,
    begin: TASK.start,
    end: TASK.end,
    next_sp: 0,
};
/// A stack for which the recording has only the type.
const BRIEF: StackInfo = StackInfo {
    begin: 0,
    end: 0,
    ..STACK
};

fn is_equal(ours: State, recorded: State) -> bool {
    first_difference(&[ours], &[recorded], 1).is_none()
}

#[test]
fn each_field_of_a_recorded_orc_state_counts() {
    let a = OrcState {
        stack: STACK,
        stack_mask: 2,
        sp: 1,
        bp: 2,
        ip: 3,
        regs: RegsPtr::At(8),
        prev_regs: RegsPtr::At(16),
        ..OrcState::default()
    };

    let graph = |graph_idx| Cursors {
        graph_idx,
        rethook: 0,
    };
    let irq = StackInfo {
        kind: StackType::Irq,
        ..STACK
    };
    let longer = StackInfo {
        end: STACK.end + 8,
        ..STACK
    };

    assert!(is_equal(State::Orc(a), State::Orc(a)));

    // Fields in a recording without bounds are compared; it does not have the others.
    for (b, counts_if_brief) in [
        (OrcState { sp: 9, ..a }, true),
        (OrcState { bp: 9, ..a }, true),
        (OrcState { ip: 9, ..a }, true),
        (OrcState { error: true, ..a }, true),
        (OrcState { signal: true, ..a }, true),
        (
            OrcState {
                full_regs: true,
                ..a
            },
            true,
        ),
        (OrcState { stack: irq, ..a }, true),
        (OrcState { stack: longer, ..a }, false),
        (OrcState { stack_mask: 6, ..a }, false),
        (
            OrcState {
                cursors: graph(1),
                ..a
            },
            false,
        ),
        (
            OrcState {
                regs: RegsPtr::At(9),
                ..a
            },
            false,
        ),
        (
            OrcState {
                prev_regs: RegsPtr::None,
                ..a
            },
            false,
        ),
    ] {
        assert!(!is_equal(State::Orc(a), State::Orc(b)), "{b:?}");

        // The recording is brief: it has no bounds of a stack.
        let stack = StackInfo {
            kind: b.stack.kind,
            ..BRIEF
        };
        let brief = State::Orc(OrcState { stack, ..b });
        assert_eq!(!is_equal(State::Orc(a), brief), counts_if_brief, "{b:?}");
    }

    // The unit of graph_idx changed: only whether anything was found is compared.
    let with = |cursors| State::Orc(OrcState { cursors, ..a });
    assert!(is_equal(with(graph(1)), with(graph(5))));
    assert!(!is_equal(with(graph(1)), with(graph(0))));
}

#[test]
fn start_registers_equal_registers_at_any_address() {
    // The registers at the start are not in memory, so a recording has another address for them.
    for (recorded, equal) in [
        (RegsPtr::At(8), true),
        (RegsPtr::Start, true),
        (RegsPtr::None, false),
    ] {
        let orc = |regs| {
            State::Orc(OrcState {
                stack: STACK,
                regs,
                ..OrcState::default()
            })
        };
        assert_eq!(is_equal(orc(RegsPtr::Start), orc(recorded)), equal);

        let fp = |regs| {
            State::Fp(FpState {
                stack: STACK,
                regs,
                ..FpState::default()
            })
        };
        assert_eq!(is_equal(fp(RegsPtr::Start), fp(recorded)), equal);

        assert_eq!(
            is_equal(orc(RegsPtr::At(8)), orc(recorded)),
            recorded == RegsPtr::At(8)
        );
    }
}

#[test]
fn each_field_of_the_other_states_counts_but_cursors() {
    let fp = FpState {
        stack: STACK,
        ..FpState::default()
    };

    let cursors = Cursors {
        graph_idx: 1,
        rethook: 1,
    };
    let same = State::Fp(FpState { cursors, ..fp });
    assert!(is_equal(State::Fp(fp), same));

    // Every other field makes a difference.
    for other in [
        FpState { bp: 1, ..fp },
        FpState { ip: 1, ..fp },
        FpState { orig_sp: 1, ..fp },
        FpState { next_bp: 1, ..fp },
        FpState {
            got_irq: true,
            ..fp
        },
        FpState { error: true, ..fp },
        FpState {
            stack_mask: 1,
            ..fp
        },
        FpState {
            regs: RegsPtr::At(1),
            ..fp
        },
    ] {
        assert!(!is_equal(State::Fp(fp), State::Fp(other)), "{other:?}");
    }

    let guess = |sp| {
        State::Guess(GuessState {
            stack: STACK,
            sp,
            ..GuessState::default()
        })
    };
    assert!(is_equal(guess(1), guess(1)));
    assert!(!is_equal(guess(1), guess(2)));

    // A recording without bounds has the stack's type, the error, ip and bp; or the type and sp.
    let brief = |state: FpState| {
        State::Fp(FpState {
            stack: BRIEF,
            ..state
        })
    };
    let unknown = FpState {
        orig_sp: 1,
        next_bp: 1,
        got_irq: true,
        stack_mask: 1,
        ..fp
    };
    assert!(is_equal(State::Fp(fp), brief(unknown)));

    // What a brief recording has is still compared.
    let irq = StackInfo {
        kind: StackType::Irq,
        ..BRIEF
    };
    for other in [
        brief(FpState { bp: 1, ..fp }),
        brief(FpState { ip: 1, ..fp }),
        brief(FpState { error: true, ..fp }),
        State::Fp(FpState { stack: irq, ..fp }),
    ] {
        assert!(!is_equal(State::Fp(fp), other), "{other:?}");
    }

    let brief = |stack, sp| {
        State::Guess(GuessState {
            stack,
            stack_mask: 1,
            sp,
        })
    };
    assert!(is_equal(guess(1), brief(BRIEF, 1)));
    assert!(!is_equal(guess(1), brief(BRIEF, 2)));
    assert!(!is_equal(guess(1), brief(irq, 1)));

    // With bounds, everything is compared.
    assert!(!is_equal(guess(1), brief(STACK, 1)));
    assert!(!is_equal(guess(1), State::Fp(fp)));
}

#[test]
fn a_recording_may_leave_out_the_first_state_and_the_last_one_that_is_done() {
    let state = |sp| {
        State::Guess(GuessState {
            stack: STACK,
            sp,
            ..GuessState::default()
        })
    };

    let done = State::Guess(GuessState::default());
    let ours = [state(1), state(2), done];
    let at = |ours, recorded| Some(Difference { ours, recorded });

    let cases: [(&[State], Option<Difference>); 9] = [
        (&ours, None),
        (&ours[..2], None),
        (&ours[1..], None),
        (&ours[1..2], None),
        // Too short, too long, others: the better of both readings.
        (&ours[..1], at(1, 1)),
        (&[ours[0], ours[1], done, done], at(3, 3)),
        (&[state(1), state(3), done], at(1, 1)),
        (&[state(2), state(3)], at(2, 1)),
        // Neither reading agrees further: nothing was omitted.
        (&[state(7)], at(0, 0)),
    ];

    for (recorded, expected) in cases {
        let found = first_difference(&ours, recorded, 1);
        assert_eq!(found, expected, "{recorded:?}");
    }
}

#[test]
fn stacks_have_a_name_a_number_and_the_names_of_the_exceptions() {
    for (number, kind) in (0..).zip(StackType::ALL) {
        assert_eq!(StackType::from_number(number), Some(kind));
        assert_eq!(StackType::from_name(kind.as_str()), Some(kind));
    }
    assert_eq!(StackType::from_number(11), None);
    for (name, kind) in [
        ("DF", StackType::DoubleFault),
        ("DB", StackType::Debug),
        ("MCE", StackType::MachineCheck),
        ("VC", StackType::VmmCommunication),
        ("VC2", StackType::VmmCommunicationFallback),
        ("NMI", StackType::Nmi),
    ] {
        assert_eq!(StackType::from_name(name), Some(kind));
        let long = alloc::format!("EXC_{name}");
        assert_eq!(StackType::from_name(&long), Some(kind));
    }
    assert_eq!(StackType::from_name("EXC_TASK"), None);
    assert_eq!(StackType::from_name("task"), None);
}

#[test]
fn the_link_to_the_interrupted_stack_is_at_the_top() {
    let end = 0x4000;
    for kind in StackType::ALL {
        let expected = match kind {
            StackType::Unknown | StackType::Task | StackType::Entry => None,
            StackType::Irq | StackType::Softirq => Some(0x3ff8),
            _ => Some(0x3ff0),
        };
        assert_eq!(kind.next_sp_at(end), expected, "{kind}");
    }
}

#[test]
fn a_stack_contains_only_what_lies_entirely_on_it() {
    let stack = StackInfo {
        begin: 0x1000,
        end: 0x2000,
        ..STACK
    };

    // Both ends count; an empty range is on the stack only behind its start.
    for (address, len, holds) in [
        (0x1000, 8, true),
        (0xfff, 8, false),
        (0x1ff8, 8, true),
        (0x1ff9, 8, false),
        (0x2000, 0, false),
        (0x1000, 0, false),
        (0x1001, 0, true),
        (0x1000, 0x1000, true),
        (0x1000, 0x1001, false),
        // The kernel's test wraps around, too.
        (0x1800, u64::MAX, true),
        (u64::MAX, 0x1100, false),
    ] {
        assert_eq!(stack.holds(address, len), holds, "{address:#x} {len:#x}");
    }

    let unknown = StackInfo {
        kind: StackType::Unknown,
        ..stack
    };
    assert!(!unknown.holds(0x1000, 8));
    assert_eq!(stack.range(), 0x1000..0x2000);
}

#[test]
fn registers_at_hand_are_those_of_a_state_that_is_not_done() {
    let at = RegsPtr::At(8);
    let orc = |stack, regs, full_regs| {
        EntryRegs::of(&State::Orc(OrcState {
            stack,
            regs,
            full_regs,
            ..OrcState::default()
        }))
    };

    // Registers of the hardware alone are partial.
    let found = |partial| Some(EntryRegs { at, partial });
    assert_eq!(orc(STACK, at, true), found(false));
    assert_eq!(orc(STACK, at, false), found(true));
    assert_eq!(orc(STACK, RegsPtr::None, true), None);
    assert_eq!(orc(StackInfo::default(), at, true), None);

    let fp = State::Fp(FpState {
        stack: STACK,
        regs: at,
        ..FpState::default()
    });
    assert_eq!(EntryRegs::of(&fp), found(false));

    // The guess never has registers.
    let guess = GuessState {
        stack: STACK,
        ..GuessState::default()
    };
    assert_eq!(EntryRegs::of(&State::Guess(guess)), None);

    assert_eq!(RegsPtr::At(8).address(), Some(8));
    assert_eq!(RegsPtr::Start.address(), None);
    assert_eq!(
        // The low two bits of cs are the privilege level.
        [0, 0x10, 1, 2, 3, 0x33].map(is_user_cs),
        [false, false, true, true, true, true]
    );
}

#[test]
fn registers_are_read_as_far_as_their_bytes_go() {
    let bytes: Vec<u8> = (0..21u64).flat_map(|i| (0x100 + i).to_le_bytes()).collect();
    let regs = regs_from(&bytes);
    let expected = [
        (Reg::R15, 0x100),
        (Reg::Rdi, 0x10e),
        (Reg::Rip, 0x110),
        (Reg::Cs, 0x111),
        (Reg::Rflags, 0x112),
        (Reg::Rsp, 0x113),
    ];
    for (reg, value) in expected {
        assert_eq!(regs.get(reg), Some(value), "{reg}");
    }
    assert_eq!(
        regs_from(&bytes[..8]).known(),
        Regs::UNKNOWN.known().with(Reg::R15)
    );
    assert_eq!(regs_from(&bytes[..7]).known(), Regs::UNKNOWN.known());
}

#[test]
fn rows_of_a_table_say_where_they_are_and_how_far_they_reach() {
    let small = Small::new("6.12", &[(0, call(8)), (0x100, call(16))]);
    let code = small.code();
    assert!(code.has_core() && code.has_orc());
    let row = |position| code.row(0, position).map(|r| (r.offset, r.start, r.end));
    assert_eq!(row(0), Some((0, TEXT, TEXT + 0x100)));
    assert_eq!(row(1), Some((6, TEXT + 0x100, TEXT + 0x1000)));
    assert_eq!(row(2), None);
    assert_eq!(code.row(1, 0), None);
    assert_eq!(Task::of_stack(Some(TASK)).stacks, [STACK]);
    assert_eq!(Task::of_stack(None).stacks, []);
}

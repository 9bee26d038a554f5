//! Compares the machine's result of a case with the processor's.

use super::subject::{Access, Jump, TestInstruction, address, elements};
use unwind_sim_emulator::Processor;
use unwind_sim_emulator::differences::{Case, DifferenceSet, End, View};
use unwind_sim_emulator_native::single::{
    CODE_RANGE, MIDDLE_PAGES, Mode, NativeCase, NativeState, Outcome, WINDOW_PAGE,
};

/// The outcome of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Both agree.
    Same,
    /// They differ only where these entries of the table of differences allow it.
    Open(DifferenceSet),
    /// They differ.
    Different,
    /// Not comparable: the case went where it must not.
    Void,
}

const SIGTRAP: i32 = 5;
const INT3: u64 = 3;
const INVALID_OPCODE: u64 = 6;
const PAGE_FAULT: u64 = 14;
const GENERAL_PROTECTION: u64 = 13;
const STACK_FAULT: u64 = 12;
const FETCH: u64 = 0x10;

/// Where a case must not go, except for the window's page.
const RESERVED: std::ops::Range<u64> = 0x1000_0000..0x1300_0000;

/// Turns a trap or failed fetch at a jump's target into a completed jump on the processor's side.
fn arrived(subject: &TestInstruction, place: u64, native: &mut (Outcome, NativeState)) {
    let Outcome::Signal {
        signal,
        trapno,
        error_code,
        address,
        ..
    } = native.0
    else {
        return;
    };
    let rip = native.1.rip;
    if subject.jump == Jump::None {
        return;
    }
    if signal == SIGTRAP && trapno == INT3 && rip.wrapping_sub(1) != place {
        native.1.rip = rip.wrapping_sub(1);
        native.0 = Outcome::Done;
    } else if trapno == PAGE_FAULT && error_code & FETCH != 0 && rip == address {
        native.0 = Outcome::Done;
    }
}

/// Removes what is not compared of an outcome: `si_code`, and what the machine does not report:
/// whether a non-canonical address was in the stack segment, and which selector was refused.
fn plain(subject: &TestInstruction, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Signal {
            signal,
            trapno,
            error_code,
            address,
            ..
        } => Outcome::Signal {
            // Linux turns #SS into SIGBUS and #GP into SIGSEGV; the machine has one kind for both.
            signal: if trapno == STACK_FAULT { 11 } else { signal },
            code: 0,
            trapno: if trapno == STACK_FAULT {
                GENERAL_PROTECTION
            } else {
                trapno
            },
            // The error code of a far transfer is the selector.
            error_code: match trapno {
                GENERAL_PROTECTION if subject.is_far() => 0,
                _ => error_code,
            },
            address,
        },
        outcome => outcome,
    }
}

/// Compares both results. `native` is first reduced to what the machine can reproduce.
pub(super) fn compare(
    subject: &TestInstruction,
    case: &NativeCase,
    cpu: Processor,
    native: &mut (Outcome, NativeState),
    machine: &(Outcome, NativeState),
) -> Verdict {
    if native.0 != Outcome::Done {
        arrived(subject, case.state.rip, native);
        native.0 = plain(subject, native.0);
    }

    let (fx, avx) = (case.mode != Mode::Plain, case.mode == Mode::Avx);

    // Bytes from 416 on are reserved or software's, and parts that the case does not use were not
    // transferred.
    let same = |native: &(Outcome, NativeState), machine: &(Outcome, NativeState)| {
        native.0 == machine.0
            && native.1.gpr == machine.1.gpr
            && native.1.rip == machine.1.rip
            && native.1.rflags == machine.1.rflags
            && (!fx || native.1.fx.legacy[..416] == machine.1.fx.legacy[..416])
            && (!avx || native.1.fx.upper == machine.1.fx.upper)
            && (!case.memory || native.1.window == machine.1.window)
    };

    if same(native, machine) {
        return Verdict::Same;
    }

    // On a copy: a failure must show what the machine really did.
    let mut forgiven = *machine;
    let used = forgive(subject, case, cpu, native, &mut forgiven);
    if same(native, &forgiven) {
        return Verdict::Open(used);
    }

    // The child's own memory and program are not the machine's.
    if meddles(subject, case) || runs_the_child(machine) {
        return Verdict::Void;
    }
    Verdict::Different
}

/// Gives the machine the processor's result where the table of differences allows any.
fn forgive(
    subject: &TestInstruction,
    case: &NativeCase,
    cpu: Processor,
    native: &(Outcome, NativeState),
    machine: &mut (Outcome, NativeState),
) -> DifferenceSet {
    let about = Case {
        insn: &subject.insn,
        cpu,
        gpr: &case.state.gpr,
        in_parts: subject.in_parts(),
        processor: end(native.0),
        machine: end(machine.0),
    };

    let mut used = DifferenceSet::default();
    // Of two faults of one instruction, a processor may raise either.
    if native.0 != machine.0
        && let Some(by) = about.may_end_differently()
    {
        machine.0 = native.0;
        used.add(by);
    }

    // Views need mutable access, also to the side that only gives.
    let mut theirs = native.1;
    used.add(about.forgive(
        &view(&mut theirs, case.mode),
        &mut view(&mut machine.1, case.mode),
    ));

    if case.memory && native.1.window != machine.1.window {
        let (by, open) = about.open_stores(native.1.rflags);

        // Only bytes that the manuals leave open become the processor's; all others must be equal.
        let before = machine.1.window;
        for access in subject.accesses.iter().filter(|access| access.written) {
            let start = address(subject, access, case);
            let size = (access.size as usize).max(1);
            for range in &open {
                for at in range.start..range.end.min(size) {
                    let at = start.wrapping_add(at as u64).wrapping_sub(case.window());
                    if let Some(byte) = machine.1.window.get_mut(at as usize) {
                        *byte = native.1.window[at as usize];
                    }
                }
            }
        }

        // Otherwise the open bytes were equal, and nothing was forgiven.
        if machine.1.window != before {
            used.add(by);
        }
    }
    used
}

fn view(state: &mut NativeState, mode: Mode) -> View<'_> {
    View {
        gpr: &mut state.gpr,
        rip: &mut state.rip,
        rflags: &mut state.rflags,
        fx: (mode != Mode::Plain).then_some(&mut state.fx.legacy),
        upper: (mode == Mode::Avx).then_some(&mut state.fx.upper),
    }
}

fn end(outcome: Outcome) -> End {
    match outcome {
        Outcome::Done => End::Done,
        Outcome::Signal {
            trapno: INVALID_OPCODE,
            ..
        } => End::InvalidOpcode,
        Outcome::Signal {
            trapno: STACK_FAULT | GENERAL_PROTECTION,
            ..
        } => End::GeneralProtection,
        Outcome::Signal {
            trapno: PAGE_FAULT, ..
        } => End::PageFault,
        _ => End::Other,
    }
}

/// Whether execution continues in the child's own program, which only the processor executes.
fn runs_the_child(machine: &(Outcome, NativeState)) -> bool {
    let rip = machine.1.rip;
    machine.0 == Outcome::Done && RESERVED.contains(&rip) && !CODE_RANGE.contains(&rip)
}

/// Whether the case accesses memory reserved for the child, or reads code.
fn meddles(subject: &TestInstruction, case: &NativeCase) -> bool {
    let is_reserved = |address: u64, access: &Access| {
        let end = address.wrapping_add(access.size.into());
        let reserved = address < RESERVED.end && end > RESERVED.start;

        // The pages beside the window are free, so an access there faults on both sides.
        let near = [WINDOW_PAGE, MIDDLE_PAGES]
            .iter()
            .any(|pages| address >= pages.start - 0x1000 && end <= pages.end + 0x1000);

        reserved && !near && !(access.written && CODE_RANGE.contains(&address))
    };

    subject.accesses.iter().any(|access| {
        let first = address(subject, access, case);

        // A gather accesses elements all over memory, any other instruction one range.
        let elements = elements(subject, case);
        elements.map_or_else(
            || is_reserved(first, access),
            |mut elements| {
                elements.any(|offset| {
                    let address = first.wrapping_add(offset);

                    // The sum wraps at 32 bits with an address-size prefix.
                    let address = if access.small {
                        address & 0xffff_ffff
                    } else {
                        address
                    };
                    is_reserved(address, access)
                })
            },
        )
    })
}

//! Takes a sample of a stopped thread.

use super::task::{Process, Thread, cpu, sample_regs};
use super::{Sample, StackPiece, StackRole};
use crate::plan::FetchFrame;
use unwind_sim_emulator_native::ptrace::Registers;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::{SampleRegs, fetch_caller_regs};
use unwind_sim_unwind::truth::Truth;

/// Bytes copied below rsp: the red zone (psABI 3.2.2) and recently popped values.
const BELOW_SP: u64 = 512;

/// The fake registers that a fetching function with these live registers would capture.
pub(crate) fn fetch(process: &Process, regs: &Registers, frame: FetchFrame) -> Option<Regs> {
    let cfa = match frame {
        FetchFrame::Entry => regs.rsp.wrapping_add(8),
        FetchFrame::Rbp => regs.rbp.wrapping_add(16),
    };
    let caller = process.memory.word(cfa.wrapping_sub(8))?;
    Some(fetch_caller_regs(caller, cfa))
}

/// Copies the stack that holds `sp`, up to `max` bytes above it.
fn piece(process: &Process, sp: u64, max: u64, role: StackRole) -> Option<StackPiece> {
    let bounds = process.maps.find(sp)?.range.clone();
    let address = sp.saturating_sub(BELOW_SP).max(bounds.start) & !7;
    let end = sp.saturating_add(max).min(bounds.end);
    let mut bytes = vec![0; usize::try_from(end.checked_sub(address)?).ok()?];
    let length = process.memory.read(address, &mut bytes);
    bytes.truncate(length);
    process.breakpoints.hide(address, &mut bytes);
    (!bytes.is_empty()).then_some(StackPiece {
        role,
        bounds,
        address,
        bytes,
    })
}

/// The stacks of `thread`, innermost first, without duplicates.
fn stacks(process: &Process, thread: &Thread, sp: u64, max: u64) -> Vec<StackPiece> {
    let mut out: Vec<StackPiece> = piece(process, sp, max, StackRole::Stack)
        .into_iter()
        .collect();
    let others = thread.tracker.iter().flat_map(|t| t.other_stacks());
    for other in others {
        let covered =
            |p: &StackPiece| (p.address..p.address + p.bytes.len() as u64).contains(&other);
        if !out.iter().any(covered) {
            out.extend(piece(process, other, max, StackRole::OtherStack));
        }
    }
    out
}

/// A sample of `thread` at its current registers; `regs` are the registers to report.
pub(crate) fn take(
    process: &mut Process,
    thread: &Thread,
    tid: i32,
    live: &Registers,
    regs: SampleRegs,
    stack_bytes: u64,
) -> Sample {
    if process.maps.find(live.rsp).is_none() {
        // The stack grew.
        process.maps = unwind_sim_emulator_native::maps::Maps::read(process.pid);
    }

    let truth = match &thread.tracker {
        Some(tracker) => tracker.truth(&cpu(live)),
        None => Truth::Unknown,
    };

    Sample {
        pid: process.pid as u32,
        tid: tid as u32,
        // The session sets the time and the point.
        time: 0,
        regs,
        stacks: stacks(process, thread, live.rsp, stack_bytes),
        truth,
        point: None,
    }
}

/// A sample's registers for a start from hardware registers.
pub(crate) fn hardware(live: &Registers) -> SampleRegs {
    SampleRegs::hardware(sample_regs(live))
}

//! The x87 unit: 80-bit floating point on a stack of registers.
//!
//! The arithmetic is [`crate::float::x87`]; here are the registers, the stack and its faults, and
//! what an exception does. An exception that is not masked is pending until the next instruction
//! that looks for it: any of the x87 and MMX but those whose names begin with `fn`.
//!
//! Where the last instruction was is kept as by current processors: FIP by every instruction but
//! control instructions, FOP and FDP only by those that raise an exception that is not masked
//! (`cpuid` of Intel's processors says so), on AMD's by every such instruction; the selectors FCS
//! and FDS are always 0.
//!
//! Source: Intel SDM volume 1, chapter 8, and volume 2.

mod arithmetic;
mod compare;
mod control;
mod environment;
mod load_store;
mod state;
mod transcendental;

pub(crate) use state::Fpu;

use crate::lower;
use crate::op::{Flow, Op, Run};
use crate::processor::Vendor;
use crate::state::State;
use crate::stop::{Exception, Stop};
use iced_x86::Instruction;

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let run = load_store::select(insn)
        .or_else(|| arithmetic::select(insn))
        .or_else(|| compare::select(insn))
        .or_else(|| transcendental::select(insn))
        .or_else(|| control::select(insn))
        .or_else(|| environment::select(insn))?;
    op.extra = lower::segment(insn) as u8;
    Some(run)
}

/// Raises an exception that is pending.
pub(super) fn wait(state: &mut State) -> Option<()> {
    if !state.fpu.is_pending() {
        return Some(());
    }
    state.stop = Stop::Exception(Exception::X87);
    None
}

/// An instruction without memory: waits, and does it.
fn execute(state: &mut State, op: &Op, run: impl FnOnce(&mut Fpu)) -> Flow {
    match wait(state) {
        Some(()) => commit(state, op, run),
        None => Flow::Stop,
    }
}

/// Does what cannot fault any more, and notes where the instruction is. No exception is pending
/// before.
fn commit(state: &mut State, op: &Op, run: impl FnOnce(&mut Fpu)) -> Flow {
    run(&mut state.fpu);
    let rip = state.rip.wrapping_add(op.offset.into());
    state.fpu.instruction = rip;
    if state.fpu.is_pending() || state.processor.vendor() == Vendor::Amd {
        note_operand(state, op, rip);
    }
    Flow::Next
}

/// Notes opcode and memory operand of the instruction at `rip`.
#[cold]
fn note_operand(state: &mut State, op: &Op, rip: u64) {
    let mut bytes = (0..u64::from(op.len)).map(|i| {
        let mut byte = [0];
        let fetched = state.memory.fetch(rip.wrapping_add(i), &mut byte);
        fetched.map_or(0, |()| byte[0])
    });
    // None of the prefixes looks like an x87 instruction.
    let Some(first) = bytes.find(|byte| matches!(byte, 0xd8..=0xdf)) else {
        return;
    };
    let second = bytes.next().unwrap_or(0);
    state.fpu.opcode = u16::from(first & 7) << 8 | u16::from(second);
    if second < 0xc0 {
        let base = state.gpr[(op.extra & 31) as usize];
        state.fpu.data = op.address(state).wrapping_sub(base);
    }
}

//! What every x87 instruction does besides its arithmetic: it raises a pending exception, and notes
//! where it is.
//!
//! An unmasked exception is pending until the next instruction that looks for it: every x87 and MMX
//! instruction except those whose names begin with `fn`.
//!
//! The pointers to the last instruction are kept as current processors do: FIP by every instruction
//! except control instructions, FOP and FDP only by those that raise an unmasked exception
//! (Intel's `cpuid` says so), on AMD's processors by every such instruction. The selectors FCS and
//! FDS are always 0.

use crate::op::{Flow, Op};
use crate::processor::Vendor;
use crate::state::State;
use crate::state::fpu::Fpu;
use crate::stop::{Exception, Stop};

/// Raises an exception that is pending.
pub(in crate::isa) fn wait(state: &mut State) -> Option<()> {
    if !state.fpu.is_pending() {
        return Some(());
    }
    state.stop = Stop::Exception(Exception::X87);
    None
}

/// An instruction without memory: waits, and does it.
pub(super) fn execute(state: &mut State, op: &Op, run: impl FnOnce(&mut Fpu)) -> Flow {
    match wait(state) {
        Some(()) => commit(state, op, run),
        None => Flow::Stop,
    }
}

/// Does what cannot fault any more, and notes where the instruction is. No exception is pending
/// before.
pub(super) fn commit(state: &mut State, op: &Op, run: impl FnOnce(&mut Fpu)) -> Flow {
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

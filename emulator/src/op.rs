//! Operations: the compact form of instructions, a function and its operands.

use crate::state::State;
use crate::stop::{Exception, Stop};

/// The function of an operation.
pub(crate) type Run = fn(&mut State, &Op) -> Flow;

/// Where execution continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Flow {
    /// At the next operation.
    Next,
    /// At `rip`, which has been set; the instruction is done.
    Jump,
    /// Nowhere: see [`State::take_stop`].
    Stop,
}

/// An operation. The function defines the meaning of the fields, except for the address: `base +
/// (index << scale) + disp`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) run: Run,
    /// The displacement (a whole address if it is relative to rip), a 64-bit immediate, or a branch
    /// target.
    pub(crate) disp: u64,
    /// The immediate, sign-extended.
    pub(crate) imm: i32,
    /// Offset of the instruction in the block, bytes.
    pub(crate) offset: u16,
    pub(crate) base: u8,
    pub(crate) index: u8,
    pub(crate) scale: u8,
    /// The first register operand.
    pub(crate) dst: u8,
    /// The second register operand.
    pub(crate) src: u8,
    /// Length of the instruction, bytes; 0 if another operation of the same instruction follows.
    pub(crate) len: u8,
    /// Any other parameter of the function.
    pub(crate) extra: u8,
}

impl Op {
    /// The address of the memory operand.
    #[inline(always)]
    pub(crate) fn address(&self, state: &State) -> u64 {
        let base = state.gpr[(self.base & 31) as usize];
        let index = state.gpr[(self.index & 31) as usize];
        base.wrapping_add(index << (self.scale & 3))
            .wrapping_add(self.disp)
    }

    /// The address of the memory operand, with `by` added. If `extra` is set, that sum is truncated
    /// to 32 bits; then the base of the segment is added, from the register in `imm`.
    #[inline(always)]
    pub(crate) fn address_moved(&self, state: &State, by: u64) -> u64 {
        let mut address = self.address(state).wrapping_add(by);
        if self.extra != 0 {
            address &= 0xffff_ffff;
        }
        address.wrapping_add(state.gpr[(self.imm & 31) as usize])
    }

    /// The immediate, sign-extended.
    #[inline(always)]
    pub(crate) fn imm(&self) -> u64 {
        i64::from(self.imm).cast_unsigned()
    }
}

/// Continues if memory could be accessed.
#[inline(always)]
pub(crate) fn flow(done: Option<()>) -> Flow {
    match done {
        Some(()) => Flow::Next,
        None => Flow::Stop,
    }
}

/// Stops for this reason.
#[cold]
pub(crate) fn stop(state: &mut State, why: Stop) -> Flow {
    state.stop = why;
    Flow::Stop
}

/// Raises an exception.
#[cold]
pub(crate) fn raise(state: &mut State, exception: Exception) -> Flow {
    stop(state, Stop::Exception(exception))
}

/// An instruction that is not modelled.
pub(crate) fn unsupported(state: &mut State, _: &Op) -> Flow {
    stop(state, Stop::Unsupported)
}

/// Bytes that are not an instruction.
pub(crate) fn invalid(state: &mut State, _: &Op) -> Flow {
    raise(state, Exception::InvalidOpcode)
}

/// An instruction that cannot be fetched; `disp` is the address of the first unreadable byte.
pub(crate) fn unfetchable(state: &mut State, op: &Op) -> Flow {
    match state.memory.fetch(op.disp, &mut [0]) {
        Err(fault) => raise(state, Exception::Memory(fault)),
        // It was mapped in the meantime; blocks are not kept across that.
        Ok(()) => raise(state, Exception::InvalidOpcode),
    }
}

/// Computes an address that one operation cannot add up: `imm` is the register of a segment's base,
/// `extra` says that the address has 32 bits.
pub(crate) fn address(state: &mut State, op: &Op) -> Flow {
    state.gpr[crate::state::reg::ADDRESS] = op.address_moved(state, 0);
    Flow::Next
}

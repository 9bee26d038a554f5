//! The compact form of an instruction: a function and its operands.

use crate::state::State;
use crate::stop::{Exception, Stop};

/// What an operation does.
pub(crate) type Run = fn(&mut State, &Op) -> Flow;

/// Where it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Flow {
    /// At the next operation.
    Next,
    /// At `rip`, which is set. The instruction is done.
    Jump,
    /// [`State::take_stop`] says.
    Stop,
}

/// An operation. What the fields mean is the function's business, but for the address:
/// `base + (index << scale) + disp`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) run: Run,
    /// The displacement (an address if it is relative to rip), a 64-bit immediate, or where a
    /// branch goes.
    pub(crate) disp: u64,
    /// The immediate, sign-extended.
    pub(crate) imm: i32,
    /// From the block's start to the instruction, bytes.
    pub(crate) offset: u16,
    pub(crate) base: u8,
    pub(crate) index: u8,
    pub(crate) scale: u8,
    /// The first register operand.
    pub(crate) dst: u8,
    /// The second register operand.
    pub(crate) src: u8,
    /// Bytes of the instruction; 0 if another operation of the same instruction follows.
    pub(crate) len: u8,
    /// Whatever else the function wants to know.
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

    /// The address of the memory operand, moved by so much before it is cut to 32 bits, which
    /// `extra` says, and before the base of the segment, a register in `imm`, is added.
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

/// Goes on if memory allowed it.
#[inline(always)]
pub(crate) fn flow(done: Option<()>) -> Flow {
    match done {
        Some(()) => Flow::Next,
        None => Flow::Stop,
    }
}

/// Stops.
#[cold]
pub(crate) fn stop(state: &mut State, why: Stop) -> Flow {
    state.stop = why;
    Flow::Stop
}

/// Raises.
#[cold]
pub(crate) fn raise(state: &mut State, exception: Exception) -> Flow {
    stop(state, Stop::Exception(exception))
}

/// An instruction that is not modelled.
pub(crate) fn unsupported(state: &mut State, _: &Op) -> Flow {
    stop(state, Stop::Unsupported)
}

/// Bytes that are no instruction.
pub(crate) fn invalid(state: &mut State, _: &Op) -> Flow {
    raise(state, Exception::InvalidOpcode)
}

/// An instruction whose bytes cannot be fetched; `disp` is the first of them.
pub(crate) fn unfetchable(state: &mut State, op: &Op) -> Flow {
    match state.memory.fetch(op.disp, &mut [0]) {
        Err(fault) => raise(state, Exception::Memory(fault)),
        // Mapped in the meantime: a block is not kept over that.
        Ok(()) => raise(state, Exception::InvalidOpcode),
    }
}

/// Computes an address that needs more than one operation can add: `imm` is a segment's base
/// register, `extra` says that it has 32 bits only.
pub(crate) fn address(state: &mut State, op: &Op) -> Flow {
    state.gpr[crate::state::reg::ADDRESS] = op.address_moved(state, 0);
    Flow::Next
}

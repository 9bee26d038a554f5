//! Operations: the compact form of instructions, a function and its operands.

use crate::core::Core;
use crate::stop::{Exception, Stop};

/// The function of an operation.
pub(crate) type Run = fn(&mut Core, &Op) -> Flow;

/// Where execution continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Flow {
    /// At the next operation.
    Next,
    /// At `rip`, which has been set; the instruction is done.
    Jump,
    /// Nowhere: see [`Core::take_stop`].
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
    /// How many instructions after the first one it also executes: see `isa/fused.rs`.
    pub(crate) more: u8,
}

impl Op {
    /// The number of instructions that end with it.
    pub(crate) fn instructions(&self) -> u64 {
        match self.len {
            0 => 0,
            _ => 1 + u64::from(self.more),
        }
    }

    /// The address of the memory operand.
    #[inline(always)]
    pub(crate) fn address(&self, core: &Core) -> u64 {
        let base = core.state.gpr[(self.base & 31) as usize];
        let index = core.state.gpr[(self.index & 31) as usize];
        base.wrapping_add(index << (self.scale & 3))
            .wrapping_add(self.disp)
    }

    /// The address of the memory operand, with `by` added. If `extra` is set, that sum is truncated
    /// to 32 bits; then the base of the segment is added, from the register in `imm`.
    #[inline(always)]
    pub(crate) fn address_moved(&self, core: &Core, by: u64) -> u64 {
        let mut address = self.address(core).wrapping_add(by);
        if self.extra != 0 {
            address &= 0xffff_ffff;
        }
        address.wrapping_add(core.state.gpr[(self.imm & 31) as usize])
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
pub(crate) fn stop(core: &mut Core, why: Stop) -> Flow {
    core.stop = why;
    Flow::Stop
}

/// Raises an exception.
#[cold]
pub(crate) fn raise(core: &mut Core, exception: Exception) -> Flow {
    stop(core, Stop::Exception(exception))
}

/// An instruction that the system executes in system mode: what it does otherwise is `otherwise`.
#[inline(always)]
pub(crate) fn system_or(core: &mut Core, otherwise: impl FnOnce(&mut Core) -> Flow) -> Flow {
    if core.is_system {
        stop(core, Stop::System)
    } else {
        otherwise(core)
    }
}

/// An instruction that is modelled only in system mode.
pub(crate) fn system_only(core: &mut Core, op: &Op) -> Flow {
    system_or(core, |core| unsupported(core, op))
}

/// An instruction that only system mode has (#UD).
pub(crate) fn system_or_invalid(core: &mut Core, op: &Op) -> Flow {
    system_or(core, |core| invalid(core, op))
}

/// An instruction that is not modelled.
pub(crate) fn unsupported(core: &mut Core, _: &Op) -> Flow {
    stop(core, Stop::Unsupported)
}

/// Bytes that are not an instruction.
pub(crate) fn invalid(core: &mut Core, _: &Op) -> Flow {
    raise(core, Exception::InvalidOpcode)
}

/// Bytes that go on for longer than an instruction can.
pub(crate) fn too_long(core: &mut Core, _: &Op) -> Flow {
    raise(core, Exception::GeneralProtection)
}

/// An instruction that cannot be fetched; `disp` is the address of the first unreadable byte.
pub(crate) fn unfetchable(core: &mut Core, op: &Op) -> Flow {
    match core.memory.fetch(op.disp, &mut [0]) {
        Err(fault) => raise(core, Exception::Memory(fault)),
        // It was mapped in the meantime; blocks are not kept across that.
        Ok(()) => raise(core, Exception::InvalidOpcode),
    }
}

/// Computes an address that one operation cannot add up: `imm` is the register of a segment's base,
/// `extra` says that the address has 32 bits.
pub(crate) fn address(core: &mut Core, op: &Op) -> Flow {
    core.state.gpr[crate::state::reg::ADDRESS] = op.address_moved(core, 0);
    Flow::Next
}

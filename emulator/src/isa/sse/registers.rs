//! Access to xmm and ymm registers, and to memory operands of up to 32 bytes.
//!
//! `VEX` says that an instruction is VEX-encoded: its first source operand is a register of its
//! own, its memory operand need not be aligned, and it clears the upper half of its destination.

use crate::core::Core;
use crate::op::Op;
use crate::processor::MXCSR_MISALIGNED;
use crate::stop::{Exception, Stop};

#[inline(always)]
pub(in crate::isa) fn xmm(core: &Core, number: u8) -> u128 {
    core.state.vectors.xmm(number.into())
}

#[inline(always)]
pub(in crate::isa) fn set_xmm(core: &mut Core, number: u8, value: u128) {
    core.state.vectors.set_xmm(number.into(), value);
}

#[inline(always)]
pub(in crate::isa) fn ymm(core: &Core, number: u8) -> [u128; 2] {
    core.state.vectors.ymm(number.into())
}

#[inline(always)]
pub(in crate::isa) fn set_ymm(core: &mut Core, number: u8, value: [u128; 2]) {
    core.state.vectors.set_ymm(number.into(), value);
}

/// The lower half of the first source operand.
#[inline(always)]
pub(in crate::isa) fn first<const VEX: bool>(core: &Core, op: &Op) -> u128 {
    xmm(core, if VEX { op.src } else { op.dst })
}

/// The number of the second source operand, a register.
#[inline(always)]
pub(in crate::isa) fn second<const VEX: bool>(op: &Op) -> u8 {
    if VEX { op.extra } else { op.src }
}

/// Sets the lower half of the destination.
#[inline(always)]
pub(in crate::isa) fn set_result<const VEX: bool>(core: &mut Core, op: &Op, value: u128) {
    set_number::<VEX>(core, op.dst, value);
}

/// Sets the lower half of the register with this number.
#[inline(always)]
pub(in crate::isa) fn set_number<const VEX: bool>(core: &mut Core, number: u8, value: u128) {
    if VEX {
        set_ymm(core, number, [value, 0]);
    } else {
        set_xmm(core, number, value);
    }
}

/// Loads 2, 4, 8 or 16 bytes. Without VEX, 16 bytes must be aligned, unless MXCSR.MM is set.
#[inline(always)]
pub(in crate::isa) fn load<const VEX: bool>(core: &mut Core, op: &Op, size: usize) -> Option<u128> {
    let address = op.address(core);
    Some(match size {
        2 => core.load::<16>(address)?.into(),
        4 => core.load::<32>(address)?.into(),
        8 => core.load::<64>(address)?.into(),
        _ => {
            if !VEX && core.state.mxcsr & MXCSR_MISALIGNED == 0 {
                aligned(core, address, 16)?;
            }
            u128::from_le_bytes(core.memory.load_bytes(address)?)
        }
    })
}

/// Loads up to 32 bytes, aligned or not.
#[inline(always)]
pub(in crate::isa) fn load_wide(core: &mut Core, op: &Op, size: usize) -> Option<[u128; 2]> {
    if size < 32 {
        return Some([load::<true>(core, op, size)?, 0]);
    }
    let bytes = core.memory.load_bytes(op.address(core))?;
    Some(from_bytes(bytes))
}

/// Stores 32 bytes, aligned or not.
#[inline(always)]
pub(in crate::isa) fn store_wide(core: &mut Core, op: &Op, value: [u128; 2]) -> Option<()> {
    core.memory.store_bytes(op.address(core), to_bytes(value))
}

#[inline(always)]
pub(in crate::isa) fn from_bytes(bytes: [u8; 32]) -> [u128; 2] {
    let mut halves = [[0; 16]; 2];
    halves[0].copy_from_slice(&bytes[..16]);
    halves[1].copy_from_slice(&bytes[16..]);
    halves.map(u128::from_le_bytes)
}

#[inline(always)]
pub(in crate::isa) fn to_bytes(value: [u128; 2]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&value[0].to_le_bytes());
    bytes[16..].copy_from_slice(&value[1].to_le_bytes());
    bytes
}

/// Raises an exception and returns `None` if the address of an operand is not a multiple of its
/// size.
#[inline(always)]
pub(in crate::isa) fn aligned(core: &mut Core, address: u64, size: u64) -> Option<()> {
    if address.is_multiple_of(size) {
        return Some(());
    }
    core.stop = Stop::Exception(Exception::GeneralProtection);
    None
}

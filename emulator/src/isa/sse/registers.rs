//! Access to xmm registers, and to memory operands of up to 16 bytes.

use crate::op::Op;
use crate::processor::MXCSR_MISALIGNED;
use crate::state::State;
use crate::stop::{Exception, Stop};

#[inline(always)]
pub(super) fn xmm(state: &State, number: u8) -> u128 {
    state.xmm[(number & 15) as usize]
}

#[inline(always)]
pub(super) fn set_xmm(state: &mut State, number: u8, value: u128) {
    state.xmm[(number & 15) as usize] = value;
}

/// Loads 2, 4, 8 or 16 bytes. 16 bytes must be aligned, unless MXCSR.MM is set.
#[inline(always)]
pub(super) fn load(state: &mut State, op: &Op, size: usize) -> Option<u128> {
    let address = op.address(state);
    Some(match size {
        2 => state.load::<16>(address)?.into(),
        4 => state.load::<32>(address)?.into(),
        8 => state.load::<64>(address)?.into(),
        _ => {
            if state.mxcsr & MXCSR_MISALIGNED == 0 {
                aligned(state, address)?;
            }
            u128::from_le_bytes(state.memory.load_bytes(address)?)
        }
    })
}

/// Raises an exception and returns `None` if the address of a 16-byte operand is not aligned.
#[inline(always)]
pub(super) fn aligned(state: &mut State, address: u64) -> Option<()> {
    if address.is_multiple_of(16) {
        return Some(());
    }
    state.stop = Stop::Exception(Exception::GeneralProtection);
    None
}

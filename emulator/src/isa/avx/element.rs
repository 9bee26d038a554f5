//! Addresses of the elements of gathers and of masked loads and stores. Each element has its own:
//! one with 32 bits wraps around (masked ones: seen on an AMD EPYC, family 25, model 17; the SDM
//! leaves it to the processor, volume 1, for an operand as a whole).

use crate::core::Core;
use crate::op::Op;
use iced_x86::{Instruction, Mnemonic};

/// Added to the register of the segment's base: addresses have 32 bits.
const SMALL: i32 = 0x100;

/// Whether the instruction accesses the elements of an operand that a mask selects.
pub(crate) fn has_mask(insn: &Instruction) -> bool {
    use Mnemonic::{Vmaskmovpd, Vmaskmovps, Vpmaskmovd, Vpmaskmovq};
    matches!(
        insn.mnemonic(),
        Vmaskmovpd | Vmaskmovps | Vpmaskmovd | Vpmaskmovq
    )
}

/// The value of `imm`: the register with the base of the segment, and whether addresses have 32
/// bits.
pub(crate) fn element_address(segment: usize, small: bool) -> i32 {
    segment as i32 | if small { SMALL } else { 0 }
}

/// The linear address of an element at this effective address.
#[inline(always)]
pub(super) fn linear(core: &Core, op: &Op, effective: u64) -> u64 {
    let effective = match op.imm & SMALL {
        0 => effective,
        _ => effective & 0xffff_ffff,
    };
    effective.wrapping_add(core.state.gpr[(op.imm & 31) as usize])
}

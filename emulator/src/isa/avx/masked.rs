//! Loads and stores of the elements that a mask selects: `vmaskmovps`, `vpmaskmovd` and the like.
//! Only these elements can fault.

use super::element::linear;
use crate::core::Core;
use crate::isa::sse::registers::{from_bytes, set_ymm, to_bytes, ymm};
use crate::isa::sse::wide::is_wide;
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    let is_load = form(insn) != Form::MR;
    Some(match (insn.mnemonic(), is_load, is_wide(insn)) {
        (Vmaskmovps | Vpmaskmovd, true, false) => load::<4, 16>,
        (Vmaskmovps | Vpmaskmovd, true, true) => load::<4, 32>,
        (Vmaskmovps | Vpmaskmovd, false, false) => store::<4, 16>,
        (Vmaskmovps | Vpmaskmovd, false, true) => store::<4, 32>,
        (Vmaskmovpd | Vpmaskmovq, true, false) => load::<8, 16>,
        (Vmaskmovpd | Vpmaskmovq, true, true) => load::<8, 32>,
        (Vmaskmovpd | Vpmaskmovq, false, false) => store::<8, 16>,
        (Vmaskmovpd | Vpmaskmovq, false, true) => store::<8, 32>,
        _ => return None,
    })
}

/// The offsets of the elements of `SIZE` bytes that the signs of a mask select.
#[inline(always)]
fn selected<const SIZE: usize, const TOTAL: usize>(mask: [u128; 2]) -> impl Iterator<Item = usize> {
    let mask = to_bytes(mask);
    let offsets = (0..TOTAL).step_by(SIZE);
    offsets.filter(move |offset| mask[offset + SIZE - 1] & 0x80 != 0)
}

/// The elements that are not selected become zero. The mask is in `src`.
fn load<const SIZE: usize, const TOTAL: usize>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let mut result = [0; 32];
    for offset in selected::<SIZE, TOTAL>(ymm(core, op.src)) {
        let at = linear(core, op, address.wrapping_add(offset as u64));
        let Some(element) = core.memory.load_bytes::<SIZE>(at) else {
            return Flow::Stop;
        };
        result[offset..offset + SIZE].copy_from_slice(&element);
    }
    set_ymm(core, op.dst, from_bytes(result));
    Flow::Next
}

/// Nothing is stored if an element faults. The mask is in `src`, the data in `extra`.
fn store<const SIZE: usize, const TOTAL: usize>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let mask = ymm(core, op.src);
    for offset in selected::<SIZE, TOTAL>(mask) {
        let at = linear(core, op, address.wrapping_add(offset as u64));
        if core.memory.check_store(at, SIZE).is_none() {
            return Flow::Stop;
        }
    }
    let data = to_bytes(ymm(core, op.extra));
    for offset in selected::<SIZE, TOTAL>(mask) {
        let mut element = [0; SIZE];
        element.copy_from_slice(&data[offset..offset + SIZE]);
        let at = linear(core, op, address.wrapping_add(offset as u64));
        if core.memory.store_bytes(at, element).is_none() {
            return Flow::Stop;
        }
    }
    Flow::Next
}

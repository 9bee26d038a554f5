//! Loads of elements at addresses of their own: `vpgatherdd` and the like.
//!
//! Elements are loaded one at a time, the lowest first, and their masks are cleared. After a fault
//! the instruction can therefore be restarted. Source: Intel SDM volume 2, VPGATHERDD/VPGATHERQD.
//! A fault leaves the elements from the faulting one on, their masks, and what lies above all
//! elements as they were (seen on an AMD EPYC, family 26, model 2). On Intel's, masks have been
//! replaced by their signs then, as in the SDM's pseudocode, and in some forms what lies above has been
//! cleared (seen on a Xeon, family 6, model 207; see `gather-above-elements` in `differences`).

use super::element::linear;
use crate::core::Core;
use crate::isa::sse::registers::{from_bytes, set_ymm, to_bytes, ymm};
use crate::isa::sse::wide::is_wide;
use crate::op::{Flow, Op, Run};
use crate::processor::Vendor;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    // A gather of four elements may have only one ymm register, its indices or its result.
    let wide = is_wide(insn) || insn.memory_index().is_ymm();

    let run: Run = match (insn.mnemonic(), wide) {
        (Vpgatherdd | Vgatherdps, false) => gather::<4, 4, 4>,
        (Vpgatherdd | Vgatherdps, true) => gather::<4, 4, 8>,
        (Vpgatherdq | Vgatherdpd, false) => gather::<4, 8, 2>,
        (Vpgatherdq | Vgatherdpd, true) => gather::<4, 8, 4>,
        (Vpgatherqd | Vgatherqps, false) => gather::<8, 4, 2>,
        (Vpgatherqd | Vgatherqps, true) => gather::<8, 4, 4>,
        (Vpgatherqq | Vgatherqpd, false) => gather::<8, 8, 2>,
        (Vpgatherqq | Vgatherqpd, true) => gather::<8, 8, 4>,
        _ => return None,
    };

    let numbers = [
        insn.op_register(0),
        insn.memory_index(),
        insn.op_register(2),
    ]
    .map(|register| register.number());

    // #UD if two of the three registers are the same (SDM volume 2, VGATHERDPS).
    let [result, index, mask] = numbers;
    if result == index || result == mask || index == mask {
        return Some(crate::op::invalid);
    }

    Some(run)
}

/// Loads `COUNT` elements of `SIZE` bytes with indices of `INDEX` bytes. The mask is in `extra`.
fn gather<const INDEX: usize, const SIZE: usize, const COUNT: usize>(
    core: &mut Core,
    op: &Op,
) -> Flow {
    let indices = to_bytes(ymm(core, op.index));
    let mut result = to_bytes(ymm(core, op.dst));
    let mut mask = to_bytes(ymm(core, op.extra));
    let base = core.state.gpr[(op.base & 31) as usize].wrapping_add(op.disp);

    if core.processor.vendor() == Vendor::Intel {
        result[COUNT * SIZE..].fill(0);
        mask[COUNT * SIZE..].fill(0);
        for element in mask[..COUNT * SIZE].chunks_exact_mut(SIZE) {
            let sign = element[SIZE - 1].cast_signed() >> 7;
            element.fill(sign.cast_unsigned());
        }
    }

    let mut flow = Flow::Next;
    for number in 0..COUNT {
        let at = number * SIZE;
        // Of each element of the mask, the highest bit counts (SDM volume 2).
        if mask[at + SIZE - 1] & 0x80 != 0 {
            // Indices are signed.
            let index = match INDEX {
                4 => i64::from(i32::from_le_bytes(array(&indices, 4 * number))),
                _ => i64::from_le_bytes(array(&indices, 8 * number)),
            };

            let offset = index.cast_unsigned() << (op.scale & 3);
            let address = linear(core, op, base.wrapping_add(offset));
            let Some(element) = core.memory.load_bytes::<SIZE>(address) else {
                flow = Flow::Stop;
                break;
            };
            result[at..at + SIZE].copy_from_slice(&element);
        }

        // Done elements leave the mask, so that the instruction goes on with the others after a
        // fault (SDM volume 2, VGATHERDPS).
        mask[at..at + SIZE].fill(0);
    }

    // As after any instruction with VEX, the rest of the register is zero.
    if flow == Flow::Next {
        result[COUNT * SIZE..].fill(0);
        mask.fill(0);
    }

    set_ymm(core, op.dst, from_bytes(result));
    set_ymm(core, op.extra, from_bytes(mask));
    flow
}

fn array<const N: usize>(bytes: &[u8; 32], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

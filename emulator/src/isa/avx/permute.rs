//! Instructions that move elements across lanes: broadcast, permute, insert, extract; and blends with
//! a mask register of their own.

use crate::core::Core;
use crate::isa::sse::lanes::Lane;
use crate::isa::sse::registers::{from_bytes, load, load_wide, set_ymm, to_bytes, xmm, ymm};
use crate::isa::sse::shuffle::blend;
use crate::isa::sse::wide::is_wide;
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form, register};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    let memory = Form::has_memory(insn);
    let either = |rr: Run, rm: Run| Some(if memory { rm } else { rr });
    match insn.mnemonic() {
        Vpbroadcastb => broadcast_function::<1>(insn),
        Vpbroadcastw => broadcast_function::<2>(insn),
        Vpbroadcastd | Vbroadcastss => broadcast_function::<4>(insn),
        Vpbroadcastq | Vbroadcastsd => broadcast_function::<8>(insn),
        Vbroadcastf128 | Vbroadcasti128 if memory => Some(broadcast_rm::<16, true>),
        Vperm2f128 | Vperm2i128 => either(permute_halves_rr, permute_halves_rm),
        Vpermd | Vpermps => either(permute_rr, permute_rm),
        Vpermq | Vpermpd => either(permute_quarters_rr, permute_quarters_rm),
        Vinsertf128 | Vinserti128 => either(insert_rr, insert_rm),
        Vextractf128 | Vextracti128 => match form(insn) {
            Form::MR => Some(extract_mr),
            _ => Some(extract_rr),
        },
        Vpblendvb => blend_function::<u8>(insn, op),
        Vblendvps => blend_function::<u32>(insn, op),
        Vblendvpd => blend_function::<u64>(insn, op),
        _ => None,
    }
}

fn broadcast_function<const SIZE: usize>(insn: &Instruction) -> Option<Run> {
    Some(match (is_wide(insn), Form::has_memory(insn)) {
        (false, false) => broadcast_rr::<SIZE, false>,
        (false, true) => broadcast_rm::<SIZE, false>,
        (true, false) => broadcast_rr::<SIZE, true>,
        (true, true) => broadcast_rm::<SIZE, true>,
    })
}

/// Repeats the lowest `SIZE` bytes.
#[inline(always)]
fn broadcast<const SIZE: usize, const WIDE: bool>(core: &mut Core, op: &Op, value: u128) {
    let bytes = value.to_le_bytes();
    let lane = u128::from_le_bytes(std::array::from_fn(|i| bytes[i % SIZE]));
    set_ymm(core, op.dst, [lane, if WIDE { lane } else { 0 }]);
}

fn broadcast_rr<const SIZE: usize, const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let value = xmm(core, op.src);
    broadcast::<SIZE, WIDE>(core, op, value);
    Flow::Next
}

fn broadcast_rm<const SIZE: usize, const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let value = match SIZE {
        1 => core.load::<8>(op.address(core)).map(u128::from),
        _ => load::<true>(core, op, SIZE),
    };
    let Some(value) = value else {
        return Flow::Stop;
    };
    broadcast::<SIZE, WIDE>(core, op, value);
    Flow::Next
}

/// Each half of the result is a half of an operand, or zero.
#[inline(always)]
fn permute_halves(core: &mut Core, op: &Op, b: [u128; 2]) {
    let a = ymm(core, op.src);
    let halves = [a[0], a[1], b[0], b[1]];
    let half = |control: i32| match control & 8 {
        0 => halves[(control & 3) as usize],
        _ => 0,
    };
    set_ymm(core, op.dst, [half(op.imm), half(op.imm >> 4)]);
}

fn permute_halves_rr(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.extra);
    permute_halves(core, op, b);
    Flow::Next
}

fn permute_halves_rm(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load_wide(core, op, 32) else {
        return Flow::Stop;
    };
    permute_halves(core, op, b);
    Flow::Next
}

/// Each 32-bit element of the result is the element of `b` that the first operand's element
/// selects.
#[inline(always)]
fn permute(core: &mut Core, op: &Op, b: [u128; 2]) {
    let (indices, b) = (to_bytes(ymm(core, op.src)), to_bytes(b));
    let mut result = [0; 32];
    for (i, element) in result.chunks_exact_mut(4).enumerate() {
        let number = u32::get(&indices, i) as usize & 7;
        element.copy_from_slice(&b[4 * number..4 * number + 4]);
    }
    set_ymm(core, op.dst, from_bytes(result));
}

fn permute_rr(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.extra);
    permute(core, op, b);
    Flow::Next
}

fn permute_rm(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load_wide(core, op, 32) else {
        return Flow::Stop;
    };
    permute(core, op, b);
    Flow::Next
}

/// Each 64-bit element of the result is the element of `b` that the immediate selects.
#[inline(always)]
fn permute_quarters(core: &mut Core, op: &Op, b: [u128; 2]) {
    let quarter = |i: u32| {
        let number = op.imm >> (2 * i) & 3;
        u128::from((b[(number >> 1) as usize] >> (64 * (number & 1))) as u64)
    };
    let half = |i| quarter(i) | quarter(i + 1) << 64;
    set_ymm(core, op.dst, [half(0), half(2)]);
}

fn permute_quarters_rr(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.src);
    permute_quarters(core, op, b);
    Flow::Next
}

fn permute_quarters_rm(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load_wide(core, op, 32) else {
        return Flow::Stop;
    };
    permute_quarters(core, op, b);
    Flow::Next
}

/// Replaces a half.
#[inline(always)]
fn insert(core: &mut Core, op: &Op, half: u128) {
    let mut result = ymm(core, op.src);
    result[(op.imm & 1) as usize] = half;
    set_ymm(core, op.dst, result);
}

fn insert_rr(core: &mut Core, op: &Op) -> Flow {
    let half = xmm(core, op.extra);
    insert(core, op, half);
    Flow::Next
}

fn insert_rm(core: &mut Core, op: &Op) -> Flow {
    let Some(half) = load::<true>(core, op, 16) else {
        return Flow::Stop;
    };
    insert(core, op, half);
    Flow::Next
}

fn extract_rr(core: &mut Core, op: &Op) -> Flow {
    let half = ymm(core, op.src)[(op.imm & 1) as usize];
    set_ymm(core, op.dst, [half, 0]);
    Flow::Next
}

fn extract_mr(core: &mut Core, op: &Op) -> Flow {
    let half = ymm(core, op.src)[(op.imm & 1) as usize];
    flow(
        core.memory
            .store_bytes(op.address(core), half.to_le_bytes()),
    )
}

/// The mask is in `extra`. A second operand in a register is in `base`.
fn blend_function<T: Lane>(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let memory = Form::has_memory(insn);
    if !memory {
        op.base = register(insn.op_register(2));
    }
    Some(match (is_wide(insn), memory) {
        (false, false) => blend_rr::<T, false>,
        (false, true) => blend_rm::<T, false>,
        (true, false) => blend_rr::<T, true>,
        (true, true) => blend_rm::<T, true>,
    })
}

#[inline(always)]
fn blend_wide<T: Lane, const WIDE: bool>(core: &mut Core, op: &Op, b: [u128; 2]) {
    let (a, mask) = (ymm(core, op.src), ymm(core, op.extra));
    let low = blend::<T>(a[0], b[0], mask[0]);
    let high = if WIDE {
        blend::<T>(a[1], b[1], mask[1])
    } else {
        0
    };
    set_ymm(core, op.dst, [low, high]);
}

fn blend_rr<T: Lane, const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.base);
    blend_wide::<T, WIDE>(core, op, b);
    Flow::Next
}

fn blend_rm<T: Lane, const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load_wide(core, op, if WIDE { 32 } else { 16 }) else {
        return Flow::Stop;
    };
    blend_wide::<T, WIDE>(core, op, b);
    Flow::Next
}

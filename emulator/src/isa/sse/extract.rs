//! Moves between lanes of xmm registers and general registers; sign masks; ptest.

use super::registers::{first, load, load_wide, second, set_result, xmm, ymm};
use super::wide::is_wide;
use crate::core::Core;
use crate::flags::{self, Flags};
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::state::mask;
use iced_x86::{EncodingKind, Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;

    let wide = is_wide(insn);
    Some(match (insn.mnemonic(), form(insn)) {
        (Pinsrb | Vpinsrb, _) => insert_function::<8>(insn),
        (Pinsrw | Vpinsrw, _) => insert_function::<16>(insn),
        (Pinsrd | Vpinsrd, _) => insert_function::<32>(insn),
        (Pinsrq | Vpinsrq, _) => insert_function::<64>(insn),
        (Pextrb | Vpextrb, Form::RR) => extract_rr::<8>,
        (Pextrb | Vpextrb, Form::MR) => extract_mr::<8>,
        (Pextrw | Vpextrw, Form::RR) => extract_rr::<16>,
        (Pextrw | Vpextrw, Form::MR) => extract_mr::<16>,
        (Pextrd | Extractps | Vpextrd | Vextractps, Form::RR) => extract_rr::<32>,
        (Pextrd | Extractps | Vpextrd | Vextractps, Form::MR) => extract_mr::<32>,
        (Pextrq | Vpextrq, Form::RR) => extract_rr::<64>,
        (Pextrq | Vpextrq, Form::MR) => extract_mr::<64>,
        // Those with ymm registers first: the mnemonic is the same.
        (Vpmovmskb, Form::RR) if wide => wide_byte_signs,
        (Vmovmskps, Form::RR) if wide => wide_lane_signs::<32>,
        (Vmovmskpd, Form::RR) if wide => wide_lane_signs::<64>,
        (Pmovmskb | Vpmovmskb, Form::RR) => byte_signs,
        (Movmskps | Vmovmskps, Form::RR) => lane_signs::<32>,
        (Movmskpd | Vmovmskpd, Form::RR) => lane_signs::<64>,
        (Ptest, Form::RR) => test_rr,
        (Ptest, Form::RM) => test_rm,
        (Vptest, _) => test_function::<{ u128::MAX }>(insn),
        // `vtestps` and `vtestpd` look only at the signs.
        (Vtestps, _) => test_function::<SIGNS_32>(insn),
        (Vtestpd, _) => test_function::<SIGNS_64>(insn),
        _ => return None,
    })
}

/// The signs of 32-bit lanes.
const SIGNS_32: u128 = 0x8000_0000_8000_0000_8000_0000_8000_0000;
/// The signs of 64-bit lanes.
const SIGNS_64: u128 = 0x8000_0000_0000_0000_8000_0000_0000_0000;

fn insert_function<const W: u32>(insn: &Instruction) -> Run {
    match (insn.encoding(), Form::has_memory(insn)) {
        (EncodingKind::VEX, false) => insert_rr::<W, true>,
        (EncodingKind::VEX, true) => insert_rm::<W, true>,
        (_, false) => insert_rr::<W, false>,
        (_, true) => insert_rm::<W, false>,
    }
}

fn test_function<const BITS: u128>(insn: &Instruction) -> Run {
    match (is_wide(insn), Form::has_memory(insn)) {
        (false, false) => vex_test_rr::<BITS, 16>,
        (false, true) => vex_test_rm::<BITS, 16>,
        (true, false) => vex_test_rr::<BITS, 32>,
        (true, true) => vex_test_rm::<BITS, 32>,
    }
}

/// The start of the lane that the immediate selects, bits.
#[inline(always)]
fn lane<const W: u32>(op: &Op) -> u32 {
    op.imm as u32 % (128 / W) * W
}

#[inline(always)]
fn insert<const W: u32, const VEX: bool>(core: &mut Core, op: &Op, value: u64) {
    let at = lane::<W>(op);
    let rest = first::<VEX>(core, op) & !(u128::from(mask::<W>()) << at);
    set_result::<VEX>(core, op, rest | u128::from(value) << at);
}

fn insert_rr<const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let value = core.state.gpr[(second::<VEX>(op) & 31) as usize] & mask::<W>();
    insert::<W, VEX>(core, op, value);
    Flow::Next
}

fn insert_rm<const W: u32, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(value) = core.load::<W>(op.address(core)) else {
        return Flow::Stop;
    };
    insert::<W, VEX>(core, op, value);
    Flow::Next
}

#[inline(always)]
fn extract<const W: u32>(core: &Core, op: &Op) -> u64 {
    (xmm(core, op.src) >> lane::<W>(op)) as u64 & mask::<W>()
}

fn extract_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = extract::<W>(core, op);
    core.state.set::<64>(op.dst, value);
    Flow::Next
}

fn extract_mr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let value = extract::<W>(core, op);
    flow(core.store::<W>(op.address(core), value))
}

/// The sign of each byte.
#[inline(always)]
fn signs_of_bytes(value: u128) -> u64 {
    // The multiplication moves the signs, which are a byte apart, next to each other at the top.
    let signs = |half: u64| (half & 0x8080_8080_8080_8080).wrapping_mul(0x2_0408_1020_4081) >> 56;
    signs(value as u64) | signs((value >> 64) as u64) << 8
}

fn byte_signs(core: &mut Core, op: &Op) -> Flow {
    let result = signs_of_bytes(xmm(core, op.src));
    core.state.set::<64>(op.dst, result);
    Flow::Next
}

fn wide_byte_signs(core: &mut Core, op: &Op) -> Flow {
    let [low, high] = ymm(core, op.src).map(signs_of_bytes);
    core.state.set::<64>(op.dst, low | high << 16);
    Flow::Next
}

/// The sign of each lane of `W` bits.
#[inline(always)]
fn signs_of_lanes<const W: u32>(value: u128) -> u64 {
    let sign = |i| (value >> (W * (i + 1) - 1)) as u64 & 1;
    (0..128 / W).fold(0, |all, i| all | sign(i) << i)
}

fn lane_signs<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let result = signs_of_lanes::<W>(xmm(core, op.src));
    core.state.set::<64>(op.dst, result);
    Flow::Next
}

fn wide_lane_signs<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let [low, high] = ymm(core, op.src).map(signs_of_lanes::<W>);
    core.state.set::<64>(op.dst, low | high << (128 / W));
    Flow::Next
}

/// Sets ZF if no bit is set in both operands, and CF if none is set in the second one only.
#[inline(always)]
fn test(core: &mut Core, a: [u128; 2], b: [u128; 2]) -> Flow {
    let zf = a[0] & b[0] | a[1] & b[1] == 0;
    let cf = !a[0] & b[0] | !a[1] & b[1] == 0;
    let zf = if zf { flags::ZF } else { 0 };
    let cf = if cf { flags::CF } else { 0 };
    core.state.flags = Flags::from_bits(zf | cf);
    Flow::Next
}

fn test_rr(core: &mut Core, op: &Op) -> Flow {
    let (a, b) = (xmm(core, op.dst), xmm(core, op.src));
    test(core, [a, 0], [b, 0])
}

fn test_rm(core: &mut Core, op: &Op) -> Flow {
    match load::<false>(core, op, 16) {
        Some(b) => {
            let a = xmm(core, op.dst);
            test(core, [a, 0], [b, 0])
        }
        None => Flow::Stop,
    }
}

/// The same for operands of `SIZE` bytes, of which only some bits count.
#[inline(always)]
fn vex_test<const BITS: u128, const SIZE: usize>(core: &mut Core, op: &Op, b: [u128; 2]) -> Flow {
    let a = ymm(core, op.dst);
    let b = [b[0] & BITS, if SIZE == 32 { b[1] & BITS } else { 0 }];
    test(core, a, b)
}

fn vex_test_rr<const BITS: u128, const SIZE: usize>(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.src);
    vex_test::<BITS, SIZE>(core, op, b)
}

fn vex_test_rm<const BITS: u128, const SIZE: usize>(core: &mut Core, op: &Op) -> Flow {
    match load_wide(core, op, SIZE) {
        Some(b) => vex_test::<BITS, SIZE>(core, op, b),
        None => Flow::Stop,
    }
}

//! F16C: conversions between binary16 and binary32.

use crate::core::Core;
use crate::float::sse::{from_binary16, to_binary16};
use crate::float::{Exceptions, Rounding};
use crate::isa::sse::float::{Control, lane, lanes};
use crate::isa::sse::registers::{load, set_ymm, xmm, ymm};
use crate::isa::sse::wide::is_wide;
use crate::op::{Flow, Op, Run, flow};
use crate::operands::{Form, form};
use crate::processor::Vendor;
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match (insn.mnemonic(), form(insn), is_wide(insn)) {
        (Vcvtph2ps, Form::RR, false) => widen_rr::<false>,
        (Vcvtph2ps, Form::RM, false) => widen_rm::<false>,
        (Vcvtph2ps, Form::RR, true) => widen_rr::<true>,
        (Vcvtph2ps, Form::RM, true) => widen_rm::<true>,
        (Vcvtps2ph, Form::RR, false) => narrow_rr::<false>,
        (Vcvtps2ph, Form::MR, false) => narrow_mr::<false>,
        (Vcvtps2ph, Form::RR, true) => narrow_rr::<true>,
        (Vcvtps2ph, Form::MR, true) => narrow_mr::<true>,
        _ => return None,
    })
}

fn widen<const WIDE: bool>(core: &mut Core, op: &Op, halves: u128) -> Flow {
    let mut control = Control::new(core);
    let mut convert = |halves: u128| {
        lanes(|i| control.take(from_binary16((halves >> (16 * i)) as u16, control.env)))
    };
    let low = convert(halves);
    let high = if WIDE { convert(halves >> 64) } else { 0 };
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    set_ymm(core, op.dst, [low, high]);
    Flow::Next
}

fn widen_rr<const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let halves = xmm(core, op.src);
    widen::<WIDE>(core, op, halves)
}

fn widen_rm<const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    match load::<true>(core, op, if WIDE { 16 } else { 8 }) {
        Some(halves) => widen::<WIDE>(core, op, halves),
        None => Flow::Stop,
    }
}

/// The converted elements of `src`, and MXCSR afterwards. The immediate gives the direction of
/// rounding, unless bit 2 is set.
#[inline(always)]
fn narrow<const WIDE: bool>(core: &Core, op: &Op) -> (u128, Control) {
    let mut control = Control::new(core);
    let is_intel = core.processor.vendor() == Vendor::Intel;
    let rounding = match op.imm & 4 {
        0 => Rounding::from_bits(op.imm as u8),
        _ => control.env.rounding,
    };
    let mut convert = |singles: u128| {
        (0..4).fold(0, |all, i| {
            let (half, mut raised) = to_binary16(lane(singles, i), rounding, control.env);
            // Where underflow is not masked, a denormal number is exact with an unbounded exponent, and
            // Intel's processors call it inexact all the same (measured on family 6, model 207).
            if is_intel && raised.contains(Exceptions::DENORMAL) {
                raised |= Exceptions::PRECISION;
            }
            all | u128::from(control.take((half, raised))) << (16 * i)
        })
    };
    let singles = ymm(core, op.src);
    let low = convert(singles[0]);
    let high = if WIDE { convert(singles[1]) } else { 0 };
    (low | high << 64, control)
}

fn narrow_rr<const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let (halves, control) = narrow::<WIDE>(core, op);
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    set_ymm(core, op.dst, [halves, 0]);
    Flow::Next
}

fn narrow_mr<const WIDE: bool>(core: &mut Core, op: &Op) -> Flow {
    let address = op.address(core);
    let size = if WIDE { 16 } else { 8 };
    // Intel's processors convert first: a store that faults leaves the flags of MXCSR, and an exception of
    // the conversion precedes its fault. The manuals are silent.
    let converts_first = core.processor.vendor() == Vendor::Intel;
    if !converts_first && core.memory.check_store(address, size).is_none() {
        return Flow::Stop;
    }
    let (halves, control) = narrow::<WIDE>(core, op);
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    flow(if WIDE {
        core.memory.store_bytes(address, halves.to_le_bytes())
    } else {
        core.store::<64>(address, halves as u64)
    })
}

//! MMX: instructions with mm registers, including those of SSE to SSSE3; emms.
//!
//! The functions are those of xmm registers on the lower halves, see [`super::sse`]. The registers
//! are the significands of the x87 registers: an instruction raises a pending x87 exception, sets
//! TOP to 0, marks all registers as not empty, and sets the exponent of the register it writes to
//! all ones.
//!
//! Source: Intel SDM volume 1, chapter 9, and volume 3, chapter 13.

use super::mm::{change, from_both};
use super::sse::float::Control;
use super::sse::{self, convert};
use super::x87::wait;
use crate::core::Core;
use crate::float::Rounding;
use crate::op::{Flow, Op, Run, raise};
use crate::operands::{Form, form, segment};
use crate::processor::Vendor;
use crate::state::reg;
use crate::stop::Exception;
use iced_x86::{EncodingKind, Instruction, Mnemonic, OpKind};

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    use Mnemonic::*;
    if insn.mnemonic() == Emms {
        return Some(emms);
    }

    // Only AMD had them.
    if insn.mnemonic() == Femms || insn.encoding() == EncodingKind::D3NOW {
        return Some(crate::op::invalid);
    }

    // SSE has the same mnemonics; the operands decide.
    let mm = (0..insn.op_count()).any(|number| insn.op_register(number).is_mm());
    // With a memory operand, these two have no mm register.
    if !mm && !matches!(insn.mnemonic(), Cvtpi2ps | Cvtpi2pd) {
        return None;
    }

    Some(match (insn.mnemonic(), form(insn)) {
        (Movd, Form::MR) => store::<32>,
        (Movq | Movntq, Form::MR) => store::<64>,
        (Movd, Form::RM) => load::<32>,
        (Movq, Form::RM) => load::<64>,
        (Movd, Form::RR) if insn.op_register(0).is_mm() => from_general::<32>,
        (Movd, Form::RR) => to_general::<32>,
        (Movq, Form::RR) if insn.op_register(0).is_gpr() => to_general::<64>,
        (Movq, Form::RR) if insn.op_register(1).is_gpr() => from_general::<64>,
        (Movq, Form::RR) => |core, op| from_both(core, op, |_, b| b),
        (Movq2dq, _) => to_xmm,
        (Movdq2q, _) => from_xmm,
        (Pinsrw, Form::RR) => insert_rr,
        (Pinsrw, Form::RM) => insert_rm,
        (Pextrw, _) => extract,
        (Pmovmskb, _) => signs,
        // Its destination is implicit: ds:rdi, or ds:edi with an address-size prefix.
        (Maskmovq, _) => {
            op.base = reg::RDI as u8;
            op.index = segment(insn) as u8;
            match insn.op_kind(0) {
                OpKind::MemorySegRDI => masked_move::<{ u64::MAX }>,
                _ => masked_move::<0xffff_ffff>,
            }
        }
        (Cvtpi2ps, Form::RR) => floats_rr::<32>,
        (Cvtpi2ps, Form::RM) => floats_m::<32>,
        (Cvtpi2pd, Form::RR) => floats_rr::<64>,
        (Cvtpi2pd, Form::RM) => floats_m::<64>,
        (Cvtps2pi, Form::RR) => integers_rr::<32, false>,
        (Cvtps2pi, Form::RM) => integers_m::<32, false>,
        (Cvttps2pi, Form::RR) => integers_rr::<32, true>,
        (Cvttps2pi, Form::RM) => integers_m::<32, true>,
        (Cvtpd2pi, Form::RR) => integers_rr::<64, false>,
        (Cvtpd2pi, Form::RM) => integers_m::<64, false>,
        (Cvttpd2pi, Form::RR) => integers_rr::<64, true>,
        (Cvttpd2pi, Form::RM) => integers_m::<64, true>,
        _ => return sse::select_mm(insn, op),
    })
}

fn emms(core: &mut Core, _: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    core.state.fpu.top = 0;
    core.state.fpu.empty = 0xff;
    Flow::Next
}

fn load<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    match core.load::<W>(op.address(core)) {
        Some(value) => change(core, op, |_| value),
        None => Flow::Stop,
    }
}

fn store<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    // If the store faults, Intel's processors have set TOP but not the tags (seen on a Xeon), AMD's
    // have set neither (seen on an EPYC, family 25, model 1).
    if core.processor.vendor() == Vendor::Intel {
        core.state.fpu.top = 0;
    }
    let value = core.state.fpu.mm(op.src);
    if core.store::<W>(op.address(core), value).is_none() {
        return Flow::Stop;
    }
    core.state.fpu.begin_mmx();
    Flow::Next
}

fn from_general<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let value = core.state.get::<W>(op.src);
    change(core, op, |_| value)
}

/// Writes a function of the second operand to a general register.
fn general<const W: u32>(core: &mut Core, op: &Op, function: impl FnOnce(u64) -> u64) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    core.state.fpu.begin_mmx();
    core.state
        .set::<W>(op.dst, function(core.state.fpu.mm(op.src)));
    Flow::Next
}

fn to_general<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    general::<W>(core, op, |b| b)
}

fn extract(core: &mut Core, op: &Op) -> Flow {
    general::<32>(core, op, |b| b >> (16 * (op.imm & 3)) & 0xffff)
}

/// `pmovmskb`: the top bits of the bytes.
fn signs(core: &mut Core, op: &Op) -> Flow {
    general::<32>(core, op, |b| {
        let bytes = (0..).zip(b.to_le_bytes());
        bytes.fold(0, |all, (i, byte)| all | u64::from(byte >> 7) << i)
    })
}

fn insert(core: &mut Core, op: &Op, value: u64) -> Flow {
    let at = (op.imm & 3) * 16;
    change(core, op, |a| a & !(0xffff << at) | value << at)
}

fn insert_rr(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let value = core.state.get::<16>(op.src);
    insert(core, op, value)
}

fn insert_rm(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    match core.load::<16>(op.address(core)) {
        Some(value) => insert(core, op, value),
        None => Flow::Stop,
    }
}

fn to_xmm(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    core.state.fpu.begin_mmx();
    let value = core.state.fpu.mm(op.src).into();
    core.state.vectors.set_xmm(op.dst.into(), value);
    Flow::Next
}

fn from_xmm(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let value = core.state.vectors.xmm(op.src.into()) as u64;
    change(core, op, |_| value)
}

/// `maskmovq`: stores the bytes whose mask has its top bit set. All 8 must be writable.
fn masked_move<const ADDRESS_BITS: u64>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    core.state.fpu.begin_mmx();
    let base = core.state.gpr[reg::RDI] & ADDRESS_BITS;
    let address = base.wrapping_add(core.state.gpr[(op.index & 31) as usize]);
    if core.memory.check_store(address, 8).is_none() {
        return Flow::Stop;
    }
    let data = core.state.fpu.mm(op.src).to_le_bytes();
    let mask = core.state.fpu.mm(op.extra).to_le_bytes();
    for ((i, byte), mask) in (0..).zip(data).zip(mask) {
        let at = address.wrapping_add(i);
        if mask & 0x80 != 0 && core.memory.store_bytes(at, [byte]).is_none() {
            return Flow::Stop;
        }
    }
    Flow::Next
}

/// Converts two 32-bit integers to floating point of `W` bits.
fn floats<const W: u32>(core: &mut Core, op: &Op, integers: u64) -> Flow {
    let mut control = Control::new(core);
    let result = convert::from_pair::<W>(&mut control, integers);
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    let number = op.dst.into();
    let value = match W {
        32 => core.state.vectors.xmm(number) >> 64 << 64 | result,
        _ => result,
    };
    core.state.vectors.set_xmm(number, value);
    Flow::Next
}

fn floats_rr<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    core.state.fpu.begin_mmx();
    let integers = core.state.fpu.mm(op.src);
    floats::<W>(core, op, integers)
}

/// With a memory operand no mm register is used: the x87 state does not change, and a pending
/// exception is not raised (seen on an Intel Xeon).
fn floats_m<const W: u32>(core: &mut Core, op: &Op) -> Flow {
    let Some(integers) = core.load::<64>(op.address(core)) else {
        return Flow::Stop;
    };
    floats::<W>(core, op, integers)
}

/// Converts two `W`-bit numbers to 32-bit integers.
fn integers<const W: u32, const TRUNCATE: bool>(core: &mut Core, op: &Op, floats: u128) -> Flow {
    let mut control = Control::new(core);
    let rounding = if TRUNCATE {
        Rounding::Zero
    } else {
        control.env.rounding
    };
    let result = convert::to_pair::<W>(&mut control, floats, rounding);
    // This happens even if SSE raises an exception.
    core.state.fpu.begin_mmx();
    if control.finish(core).is_none() {
        return Flow::Stop;
    }
    change(core, op, |_| result)
}

fn integers_rr<const W: u32, const TRUNCATE: bool>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let floats = core.state.vectors.xmm(op.src.into());
    integers::<W, TRUNCATE>(core, op, floats)
}

fn integers_m<const W: u32, const TRUNCATE: bool>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let address = op.address(core);
    let floats = if W == 32 {
        core.load::<64>(address).map(u128::from)
    } else if address.is_multiple_of(16) {
        core.memory.load_bytes(address).map(u128::from_le_bytes)
    } else {
        return raise(core, Exception::GeneralProtection);
    };
    match floats {
        Some(floats) => integers::<W, TRUNCATE>(core, op, floats),
        None => Flow::Stop,
    }
}

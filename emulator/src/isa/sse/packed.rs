//! Instructions that are a function of two registers and an immediate, on xmm and mm registers.
//!
//! The functions are those of xmm registers; with mm registers they work on the lower halves,
//! arranged as `extra` says.

use super::registers::{first, load, load_wide, second, set_result, set_ymm, xmm, ymm};
use super::wide::{YmmForm, is_wide};
use crate::core::Core;
use crate::isa::mm::{change, from_both};
use crate::isa::x87::wait;
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form, width};
use iced_x86::{EncodingKind, Instruction, Mnemonic};

/// A function from the old first operand (a register), the second operand and the immediate byte to
/// the new first operand.
pub(in crate::isa) trait Packed {
    /// Size of a second operand in memory, bytes: 2, 4, 8, or 16 (aligned). The bits above are
    /// zero.
    const SOURCE: usize = 16;
    /// What the instruction with ymm registers does.
    const WIDE: YmmForm = YmmForm::Lanes(0);

    fn apply(a: u128, b: u128, imm: u8) -> u128;
}

/// The function of an instruction whose operands are one or two registers and a register or
/// memory.
pub(in crate::isa) fn packed<P: Packed>(insn: &Instruction) -> Option<Run> {
    let in_memory = Form::has_memory(insn);
    Some(match (insn.encoding(), form(insn)) {
        (EncodingKind::VEX, _) => match (is_wide(insn), in_memory) {
            (false, false) => xmm_rr::<P, true>,
            (false, true) => xmm_rm::<P, true>,
            (true, false) => ymm_rr::<P>,
            (true, true) => ymm_rm::<P>,
        },
        (EncodingKind::Legacy, Form::RR | Form::RM) => match (mm(insn), in_memory) {
            (false, false) => xmm_rr::<P, false>,
            (false, true) => xmm_rm::<P, false>,
            (true, false) => mm_rr::<P>,
            (true, true) => mm_rm::<P>,
        },
        _ => return None,
    })
}

fn mm(insn: &Instruction) -> bool {
    insn.op_register(0).is_mm()
}

fn xmm_rr<P: Packed, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let (a, b) = (first::<VEX>(core, op), xmm(core, second::<VEX>(op)));
    set_result::<VEX>(core, op, P::apply(a, b, op.imm as u8));
    Flow::Next
}

fn xmm_rm<P: Packed, const VEX: bool>(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load::<VEX>(core, op, P::SOURCE) else {
        return Flow::Stop;
    };
    let a = first::<VEX>(core, op);
    set_result::<VEX>(core, op, P::apply(a, b, op.imm as u8));
    Flow::Next
}

#[inline(always)]
fn apply_wide<P: Packed>(core: &mut Core, op: &Op, b: [u128; 2]) {
    let (a, imm) = (ymm(core, op.src), op.imm as u8);
    let [low, high] = P::WIDE.operands(a, b, imm, P::SOURCE);
    let low = P::apply(low.a, low.b, low.imm);
    let high = P::apply(high.a, high.b, high.imm);
    set_ymm(core, op.dst, P::WIDE.join(low, high));
}

fn ymm_rr<P: Packed>(core: &mut Core, op: &Op) -> Flow {
    let b = ymm(core, op.extra);
    apply_wide::<P>(core, op, b);
    Flow::Next
}

fn ymm_rm<P: Packed>(core: &mut Core, op: &Op) -> Flow {
    let Some(b) = load_wide(core, op, P::WIDE.size(P::SOURCE)) else {
        return Flow::Stop;
    };
    apply_wide::<P>(core, op, b);
    Flow::Next
}

// How a function of xmm registers is applied to mm registers: the value of `extra`.

/// To the lower halves.
const LANES: u8 = 0;
/// The first operand of the function is the first operand with the second one above it.
const JOINED: u8 = 1;
/// To the upper halves.
const UPPER: u8 = 2;
/// Like `LANES`; only those bits of the second operand count that select among 8 bytes.
const SHUFFLED: u8 = 3;
/// The second operand of the function is the second operand with the first one above it.
const ALIGNED: u8 = 4;
/// Added if the second operand is 32 bits of memory.
const SMALL: u8 = 0x10;

/// How the function of an instruction with mm registers gets its operands.
pub(super) fn arrangement(insn: &Instruction) -> u8 {
    use Mnemonic::*;
    let arrangement = match insn.mnemonic() {
        Packsswb | Packssdw | Packuswb | Phaddw | Phaddd | Phaddsw | Phsubw | Phsubd | Phsubsw => {
            JOINED
        }
        Punpckhbw | Punpckhwd | Punpckhdq => UPPER,
        Pshufb => SHUFFLED,
        Palignr => ALIGNED,
        _ => LANES,
    };
    if form(insn) == Form::RM && width(insn, 1) == 32 {
        arrangement | SMALL
    } else {
        arrangement
    }
}

/// Applies the function to two mm registers.
fn apply<P: Packed>(op: &Op, a: u64, b: u64) -> u64 {
    let (a, b, imm) = (u128::from(a), u128::from(b), op.imm as u8);
    let result = match op.extra & !SMALL {
        JOINED => P::apply(a | b << 64, 0, imm),
        UPPER => P::apply(a << 64, b << 64, imm) >> 64,
        SHUFFLED => P::apply(a, b & 0x8787_8787_8787_8787, imm),
        ALIGNED => P::apply(0, a << 64 | b, imm),
        _ => P::apply(a, b, imm),
    };
    result as u64
}

fn mm_rr<P: Packed>(core: &mut Core, op: &Op) -> Flow {
    from_both(core, op, |a, b| apply::<P>(op, a, b))
}

fn mm_rm<P: Packed>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let address = op.address(core);
    let b = match op.extra & SMALL {
        0 => core.load::<64>(address),
        _ => core.load::<32>(address),
    };
    match b {
        Some(b) => change(core, op, |a| apply::<P>(op, a, b)),
        None => Flow::Stop,
    }
}

/// With a bit count as the second operand.
pub(super) fn mm_ri<P: Packed>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let count = u64::from(op.imm as u8);
    change(core, op, |a| apply::<P>(op, a, count))
}

/// A table of mnemonics and their functions of both operands and the immediate. In parentheses: the
/// size in bytes of a memory operand that is not 16 bytes. In brackets: [`YmmForm`], if it is not
/// `Lanes(0)`.
macro_rules! packed_table {
    ($(
        $name:ident $(| $other:ident)* $(($size:literal))? $([$wide:expr])? => $function:expr;
    )*) => {
        $(
            struct $name;
            impl $crate::isa::sse::packed::Packed for $name {
                $(const SOURCE: usize = $size;)?
                $(const WIDE: $crate::isa::sse::wide::YmmForm = $wide;)?
                #[inline(always)]
                fn apply(a: u128, b: u128, imm: u8) -> u128 {
                    $crate::isa::sse::packed::call($function, a, b, imm)
                }
            }
        )*

        fn packed_function(insn: &iced_x86::Instruction) -> Option<$crate::op::Run> {
            use iced_x86::Mnemonic;
            match insn.mnemonic() {
                $(Mnemonic::$name $(| Mnemonic::$other)* => {
                    $crate::isa::sse::packed::packed::<$name>(insn)
                })*
                _ => None,
            }
        }
    };
}
pub(in crate::isa) use packed_table;

#[inline(always)]
pub(in crate::isa) fn call(
    function: impl Fn(u128, u128, u8) -> u128,
    a: u128,
    b: u128,
    imm: u8,
) -> u128 {
    function(a, b, imm)
}

//! FMA: multiplication and addition with a single rounding.
//!
//! `imm` holds what the mnemonic says: the order of the operands, and which signs are changed.

use crate::core::Core;
use crate::float::sse::{Element, multiply_add};
use crate::isa::sse::float::{Control, lane, lanes, width};
use crate::isa::sse::registers::{load, load_wide, set_ymm, ymm};
use crate::isa::sse::wide::is_wide;
use crate::op::{Flow, Op, Run};
use crate::operands::Form;
use iced_x86::{Instruction, Mnemonic};

// The order of the operands: the multiplicand, the multiplier and the addend.

/// First, third, second.
const ORDER_132: i32 = 0;
/// Second, first, third.
const ORDER_213: i32 = 1;
/// Second, third, first.
const ORDER_231: i32 = 2;
/// The bits of the order.
const ORDER: i32 = 3;
/// The product is negated.
const NEGATE_PRODUCT: i32 = 4;
/// The addends of even lanes are negated.
const NEGATE_EVEN: i32 = 8;
/// The addends of odd lanes are negated.
const NEGATE_ODD: i32 = 16;

/// Which elements are computed.
const SCALAR: u8 = 0;
const XMM: u8 = 1;
const YMM: u8 = 2;

const ADD: i32 = 0;
const SUBTRACT: i32 = NEGATE_EVEN | NEGATE_ODD;
const NEGATED_ADD: i32 = NEGATE_PRODUCT;
const NEGATED_SUBTRACT: i32 = NEGATE_PRODUCT | SUBTRACT;
const ADD_SUBTRACT: i32 = NEGATE_EVEN;
const SUBTRACT_ADD: i32 = NEGATE_ODD;

macro_rules! mnemonics {
    ($($signs:ident: $first:ident $second:ident $third:ident $double:literal $scalar:literal;)*) => {
        /// The order and the signs, whether elements are doubles, and whether only the lowest is
        /// computed.
        fn operation(mnemonic: Mnemonic) -> Option<(i32, bool, bool)> {
            Some(match mnemonic {
                $(
                    Mnemonic::$first => ($signs | ORDER_132, $double, $scalar),
                    Mnemonic::$second => ($signs | ORDER_213, $double, $scalar),
                    Mnemonic::$third => ($signs | ORDER_231, $double, $scalar),
                )*
                _ => return None,
            })
        }
    };
}

mnemonics! {
    ADD: Vfmadd132ps Vfmadd213ps Vfmadd231ps false false;
    ADD: Vfmadd132pd Vfmadd213pd Vfmadd231pd true false;
    ADD: Vfmadd132ss Vfmadd213ss Vfmadd231ss false true;
    ADD: Vfmadd132sd Vfmadd213sd Vfmadd231sd true true;
    SUBTRACT: Vfmsub132ps Vfmsub213ps Vfmsub231ps false false;
    SUBTRACT: Vfmsub132pd Vfmsub213pd Vfmsub231pd true false;
    SUBTRACT: Vfmsub132ss Vfmsub213ss Vfmsub231ss false true;
    SUBTRACT: Vfmsub132sd Vfmsub213sd Vfmsub231sd true true;
    NEGATED_ADD: Vfnmadd132ps Vfnmadd213ps Vfnmadd231ps false false;
    NEGATED_ADD: Vfnmadd132pd Vfnmadd213pd Vfnmadd231pd true false;
    NEGATED_ADD: Vfnmadd132ss Vfnmadd213ss Vfnmadd231ss false true;
    NEGATED_ADD: Vfnmadd132sd Vfnmadd213sd Vfnmadd231sd true true;
    NEGATED_SUBTRACT: Vfnmsub132ps Vfnmsub213ps Vfnmsub231ps false false;
    NEGATED_SUBTRACT: Vfnmsub132pd Vfnmsub213pd Vfnmsub231pd true false;
    NEGATED_SUBTRACT: Vfnmsub132ss Vfnmsub213ss Vfnmsub231ss false true;
    NEGATED_SUBTRACT: Vfnmsub132sd Vfnmsub213sd Vfnmsub231sd true true;
    ADD_SUBTRACT: Vfmaddsub132ps Vfmaddsub213ps Vfmaddsub231ps false false;
    ADD_SUBTRACT: Vfmaddsub132pd Vfmaddsub213pd Vfmaddsub231pd true false;
    SUBTRACT_ADD: Vfmsubadd132ps Vfmsubadd213ps Vfmsubadd231ps false false;
    SUBTRACT_ADD: Vfmsubadd132pd Vfmsubadd213pd Vfmsubadd231pd true false;
}

pub(super) fn select(insn: &Instruction, op: &mut Op) -> Option<Run> {
    let (imm, double, scalar) = operation(insn.mnemonic())?;
    op.imm = imm;
    Some(match (double, scalar, is_wide(insn)) {
        (false, true, _) => function::<u32, SCALAR>(insn),
        (false, false, false) => function::<u32, XMM>(insn),
        (false, false, true) => function::<u32, YMM>(insn),
        (true, true, _) => function::<u64, SCALAR>(insn),
        (true, false, false) => function::<u64, XMM>(insn),
        (true, false, true) => function::<u64, YMM>(insn),
    })
}

fn function<T: Element, const SHAPE: u8>(insn: &Instruction) -> Run {
    if Form::has_memory(insn) {
        fused_rm::<T, SHAPE>
    } else {
        fused_rr::<T, SHAPE>
    }
}

fn fused_rr<T: Element, const SHAPE: u8>(core: &mut Core, op: &Op) -> Flow {
    let c = ymm(core, op.extra);
    fused::<T, SHAPE>(core, op, c)
}

fn fused_rm<T: Element, const SHAPE: u8>(core: &mut Core, op: &Op) -> Flow {
    let c = match SHAPE {
        SCALAR => load::<true>(core, op, size_of::<T>()).map(|c| [c, 0]),
        XMM => load_wide(core, op, 16),
        _ => load_wide(core, op, 32),
    };
    match c {
        Some(c) => fused::<T, SHAPE>(core, op, c),
        None => Flow::Stop,
    }
}

/// With the third operand `c`.
#[inline(always)]
fn fused<T: Element, const SHAPE: u8>(core: &mut Core, op: &Op, c: [u128; 2]) -> Flow {
    let (a, b) = (ymm(core, op.dst), ymm(core, op.src));

    // The name counts operands: 132 is the first times the third, plus the second.
    let [x, y, z] = match op.imm & ORDER {
        ORDER_132 => [a, c, b],
        ORDER_213 => [b, a, c],
        _ => [b, c, a],
    };

    let mut control = Control::new(core);
    let mut element = |half: usize, i: u32| {
        // `vfmaddsub` and `vfmsubadd` treat even and odd elements differently.
        let even = i.is_multiple_of(2);
        let negate = if even { NEGATE_EVEN } else { NEGATE_ODD };

        let operands = [x, y, z].map(|operand| lane::<T>(operand[half], i));
        let signs = [NEGATE_PRODUCT, negate].map(|bit| op.imm & bit != 0);
        control.take(multiply_add(operands, signs, control.env))
    };

    let result = match SHAPE {
        // The first operand keeps the rest of its lower half; VEX clears the upper one.
        SCALAR => {
            let low = u128::from(element(0, 0).widen());
            [a[0] >> width::<T>() << width::<T>() | low, 0]
        }
        XMM => [lanes(|i| element(0, i)), 0],
        _ => [lanes(|i| element(0, i)), lanes(|i| element(1, i))],
    };

    if control.finish(core).is_none() {
        return Flow::Stop;
    }

    set_ymm(core, op.dst, result);
    Flow::Next
}

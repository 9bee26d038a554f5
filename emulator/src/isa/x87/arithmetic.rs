//! Addition, subtraction, multiplication, division; square root, sign, rounding, scaling,
//! remainders.

use super::execute::{commit, execute, wait};
use crate::core::Core;
use crate::float::x87::{
    self, Env, F80, MemoryOperand, Outcome, add, classify, divide, multiply, remainder,
    round_to_integral, scale, square_root, subtract,
};
use crate::float::{Class, Exceptions};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form, width};
use crate::processor::Vendor;
use crate::state::fpu::{C0, C1, C2, C3, Fpu};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    let integer = matches!(
        insn.mnemonic(),
        Fiadd | Fimul | Fisub | Fisubr | Fidiv | Fidivr
    );

    Some(match insn.mnemonic() {
        // With operands in memory and in registers, with and without a pop.
        Fadd | Faddp | Fiadd => binary::<Sum>(insn, integer)?,
        Fmul | Fmulp | Fimul => binary::<Product>(insn, integer)?,
        Fsub | Fsubp | Fisub => binary::<Difference>(insn, integer)?,
        Fsubr | Fsubrp | Fisubr => binary::<DifferenceReversed>(insn, integer)?,
        Fdiv | Fdivp | Fidiv => binary::<Quotient>(insn, integer)?,
        Fdivr | Fdivrp | Fidivr => binary::<QuotientReversed>(insn, integer)?,
        Fsqrt => |core, op| unary(core, op, square_root),
        Frndint => |core, op| unary(core, op, round_to_integral),
        Fscale => |core, op| {
            let vendor = core.processor.vendor();
            execute(core, op, |fpu| {
                let outcome = both(fpu, 0, 1).map(|(a, b)| {
                    let unchanged = classify(b).0 == Class::Zero;
                    scale(a, b, env_of(fpu, vendor, unchanged))
                });
                fpu.put(0, outcome);
            })
        },
        // Only the sign changes, of a NaN, too, so nothing can be raised.
        Fabs => |core, op| sign(core, op, |a| a & 0x7fff),
        Fchs => |core, op| sign(core, op, |a| a ^ 0x8000),
        Fprem => partial_remainder::<false>,
        Fprem1 => partial_remainder::<true>,
        _ => return None,
    })
}

/// A function of the destination and the other operand.
trait Binary {
    fn apply(a: F80, b: F80, env: Env) -> Outcome<F80>;
}

macro_rules! binary_functions {
    ($($name:ident => $function:expr;)*) => {$(
        struct $name;
        impl Binary for $name {
            fn apply(a: F80, b: F80, env: Env) -> Outcome<F80> {
                $function(a, b, env)
            }
        }
    )*};
}

binary_functions! {
    Sum => add;
    Product => multiply;
    Difference => subtract;
    DifferenceReversed => |a, b, env| subtract(b, a, env);
    Quotient => divide;
    QuotientReversed => |a, b, env| divide(b, a, env);
}

fn binary<B: Binary>(insn: &Instruction, integer: bool) -> Option<Run> {
    use Mnemonic::{Faddp, Fdivp, Fdivrp, Fmulp, Fsubp, Fsubrp};
    let pops = matches!(
        insn.mnemonic(),
        Faddp | Fmulp | Fsubp | Fsubrp | Fdivp | Fdivrp
    );
    Some(match (form(insn), width(insn, 0), integer) {
        (Form::RR, ..) if pops => binary_rr::<B, true>,
        (Form::RR, ..) => binary_rr::<B, false>,
        (Form::M, 32, false) => binary_m::<B, Single>,
        (Form::M, 64, false) => binary_m::<B, Double>,
        (Form::M, 16, true) => binary_m::<B, Integer16>,
        (Form::M, 32, true) => binary_m::<B, Integer32>,
        _ => return None,
    })
}

/// The values of two registers, unless one of them is empty.
pub(super) fn both(fpu: &Fpu, a: u8, b: u8) -> Option<(F80, F80)> {
    fpu.st(a).zip(fpu.st(b))
}

fn binary_rr<B: Binary, const POP: bool>(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let outcome = both(fpu, op.dst, op.src).map(|(a, b)| B::apply(a, b, fpu.env()));
        if fpu.put(op.dst, outcome) && POP {
            fpu.pop();
        }
    })
}

/// A memory operand of arithmetic and comparisons.
pub(super) trait Source {
    fn load(core: &mut Core, address: u64) -> Option<MemoryOperand>;
}

/// binary32.
pub(super) struct Single;
/// binary64.
pub(super) struct Double;
/// A 16-bit signed integer.
pub(super) struct Integer16;
/// A 32-bit signed integer.
pub(super) struct Integer32;

impl Source for Single {
    fn load(core: &mut Core, address: u64) -> Option<MemoryOperand> {
        Some(MemoryOperand::binary32(core.load::<32>(address)? as u32))
    }
}

impl Source for Double {
    fn load(core: &mut Core, address: u64) -> Option<MemoryOperand> {
        Some(MemoryOperand::binary64(core.load::<64>(address)?))
    }
}

impl Source for Integer16 {
    fn load(core: &mut Core, address: u64) -> Option<MemoryOperand> {
        let integer = core.load::<16>(address)? as i16;
        Some(exact(integer.into()))
    }
}

impl Source for Integer32 {
    fn load(core: &mut Core, address: u64) -> Option<MemoryOperand> {
        let integer = core.load::<32>(address)? as i32;
        Some(exact(integer.into()))
    }
}

fn exact(integer: i64) -> MemoryOperand {
    MemoryOperand {
        value: x87::from_integer(integer),
        denormal: false,
    }
}

fn binary_m<B: Binary, S: Source>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let Some(b) = S::load(core, op.address(core)) else {
        return Flow::Stop;
    };
    commit(core, op, |fpu| {
        let env = fpu.env();
        let outcome = fpu.st(0).map(|a| b.arithmetic(B::apply(a, b.value, env)));
        fpu.put(0, outcome);
    })
}

/// Writes a function of ST(0) to ST(0).
pub(super) fn unary(
    core: &mut Core,
    op: &Op,
    function: impl FnOnce(F80, Env) -> Outcome<F80>,
) -> Flow {
    execute(core, op, |fpu| {
        let outcome = fpu.st(0).map(|a| function(a, fpu.env()));
        fpu.put(0, outcome);
    })
}

/// Changes the sign without checking the value.
fn sign(core: &mut Core, op: &Op, change: impl FnOnce(u16) -> u16) -> Flow {
    unary(core, op, |a, _| Outcome {
        value: F80 {
            sign_exponent: change(a.sign_exponent),
            ..a
        },
        exceptions: Exceptions::NONE,
        rounded_up: false,
    })
}

/// The environment of an operation that may leave its operand `unchanged`. If that is a denormal
/// number and underflow is unmasked, AMD's processors report underflow (seen on an EPYC, family 25,
/// model 1), Intel's do not (seen on a Xeon).
fn env_of(fpu: &Fpu, vendor: Vendor, unchanged: bool) -> Env {
    let mut env = fpu.env();
    env.underflow_masked |= unchanged && vendor == Vendor::Intel;
    env
}

fn partial_remainder<const TO_NEAREST: bool>(core: &mut Core, op: &Op) -> Flow {
    let vendor = core.processor.vendor();
    execute(core, op, |fpu| {
        let result = both(fpu, 0, 1).map(|(a, b)| {
            let unchanged = classify(b).0 == Class::Infinity;
            remainder(a, b, TO_NEAREST, env_of(fpu, vendor, unchanged))
        });

        let outcome = result.map(|result| Outcome {
            value: result.value,
            exceptions: result.exceptions,
            rounded_up: false,
        });

        let goes_on = fpu.put(0, outcome);
        fpu.set_conditions(C2, 0);

        // C2 asks for another round. Without it, C0, C3 and C1 are the quotient's low bits (SDM
        // volume 2, FPREM).
        if let Some(result) = result
            && goes_on
            && !classify(result.value).0.is_nan()
        {
            let set = result.quotient.map_or(C2, |quotient| {
                let bit = |number: u8, set| if quotient >> number & 1 != 0 { set } else { 0 };
                bit(2, C0) | bit(1, C3) | bit(0, C1)
            });
            fpu.set_conditions(C0 | C1 | C2 | C3, set);
        }
    })
}

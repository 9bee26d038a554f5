//! Sine, cosine, tangent, arc tangent, logarithms, powers of 2; `fxtract`.

use super::arithmetic::{both, unary};
use super::execute::execute;
use crate::core::Core;
use crate::float::Exceptions;
use crate::float::x87::{
    Env, F80, Outcome, arc_tan, cos, exponential, extract, logarithm, logarithm_plus_1, sin,
    sin_cos, tan,
};
use crate::op::{Flow, Op, Run};
use crate::state::fpu::{C2, Fpu};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;
    Some(match insn.mnemonic() {
        F2xm1 => |core, op| unary(core, op, exponential),
        Fyl2x => |core, op| two_to_one(core, op, logarithm),
        Fyl2xp1 => |core, op| two_to_one(core, op, logarithm_plus_1),
        Fpatan => |core, op| two_to_one(core, op, |x, y, env| arc_tan(y, x, env)),
        Fsin => |core, op| one_to_one(core, op, sin),
        Fcos => |core, op| one_to_one(core, op, cos),
        Fsincos => |core, op| one_to_two(core, op, sin_cos),
        Fptan => |core, op| one_to_two(core, op, tan),
        Fxtract => fxtract,
        _ => return None,
    })
}

/// Writes a function of ST(0) and ST(1) to ST(1), and pops ST(0).
fn two_to_one(
    core: &mut Core,
    op: &Op,
    function: impl FnOnce(F80, F80, Env) -> Outcome<F80>,
) -> Flow {
    execute(core, op, |fpu| {
        let outcome = both(fpu, 0, 1).map(|(x, y)| function(x, y, fpu.env()));
        if fpu.put(1, outcome) {
            fpu.pop();
        }
    })
}

/// The argument is out of range: only C2 reports that.
fn out_of_range(fpu: &mut Fpu) {
    fpu.report(Exceptions::NONE, false);
    fpu.set_conditions(C2, C2);
}

/// Writes a function of ST(0) to ST(0), if it is in range.
fn one_to_one(
    core: &mut Core,
    op: &Op,
    function: impl FnOnce(F80, Env) -> Option<Outcome<F80>>,
) -> Flow {
    execute(core, op, |fpu| {
        let outcome = match fpu.st(0).map(|a| function(a, fpu.env())) {
            Some(None) => return out_of_range(fpu),
            Some(outcome) => outcome,
            None => None,
        };
        fpu.put(0, outcome);
        fpu.set_conditions(C2, 0);
    })
}

/// Writes a function of ST(0) to ST(0) and pushes a second result, if it is in range.
fn one_to_two(
    core: &mut Core,
    op: &Op,
    function: impl FnOnce(F80, Env) -> Option<Outcome<(F80, F80)>>,
) -> Flow {
    execute(core, op, |fpu| {
        let outcome = match fpu.st(0).map(|a| function(a, fpu.env())) {
            Some(None) if fpu.st(7).is_none() => return out_of_range(fpu),
            Some(outcome) => outcome,
            None => None,
        };
        put_two(fpu, outcome);
        fpu.set_conditions(C2, 0);
    })
}

/// Replaces ST(0) and pushes. `None` if ST(0) was empty.
fn put_two(fpu: &mut Fpu, outcome: Option<Outcome<(F80, F80)>>) {
    let both_indefinite = (F80::INDEFINITE, F80::INDEFINITE);
    let (goes_on, (replaced, pushed)) = match outcome {
        _ if fpu.st(0).is_some() && fpu.st(7).is_some() => (fpu.stack_fault(true), both_indefinite),
        None => (fpu.stack_fault(false), both_indefinite),
        Some(outcome) => (
            fpu.report(outcome.exceptions, outcome.rounded_up),
            outcome.value,
        ),
    };
    if goes_on {
        fpu.set_st(0, replaced);
        fpu.push(pushed);
    }
}

/// Replaces ST(0) by its exponent and pushes its significand.
fn fxtract(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let outcome = fpu.st(0).map(|a| {
            let outcome = extract(a);
            let (significand, exponent) = outcome.value;
            Outcome {
                value: (exponent, significand),
                exceptions: outcome.exceptions,
                rounded_up: outcome.rounded_up,
            }
        });
        put_two(fpu, outcome);
    })
}

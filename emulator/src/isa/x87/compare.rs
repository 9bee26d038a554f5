//! Comparisons, `fxam`, and conditional moves.

use super::arithmetic::{Double, Integer16, Integer32, Single, Source, both};
use super::execute::{commit, execute, wait};
use crate::core::Core;
use crate::flags::{self, Flags};
use crate::float::x87::{F80, classify, compare_ordered, compare_unordered};
use crate::float::{Class, Exceptions, Relation};
use crate::op::{Flow, Op, Run};
use crate::operands::{Form, form, width};
use crate::state::fpu::{C0, C1, C2, C3, Fpu};
use iced_x86::{Instruction, Mnemonic};

pub(super) fn select(insn: &Instruction) -> Option<Run> {
    use Mnemonic::*;

    Some(match (insn.mnemonic(), form(insn), width(insn, 0)) {
        // The first flag says whether a quiet NaN is invalid, too; the number is that of pops.
        (Fcom, Form::RR, _) => compare_rr::<true, 0>,
        (Fcomp, Form::RR, _) => compare_rr::<true, 1>,
        (Fucom, ..) => compare_rr::<false, 0>,
        (Fucomp, ..) => compare_rr::<false, 1>,
        // These two have no operand: they compare with st(1).
        (Fcompp, ..) => |core, op| compare_rr::<true, 2>(core, &Op { src: 1, ..*op }),
        (Fucompp, ..) => |core, op| compare_rr::<false, 2>(core, &Op { src: 1, ..*op }),
        (Fcom, Form::M, 32) => compare_m::<Single, false>,
        (Fcomp, Form::M, 32) => compare_m::<Single, true>,
        (Fcom, Form::M, 64) => compare_m::<Double, false>,
        (Fcomp, Form::M, 64) => compare_m::<Double, true>,
        (Ficom, Form::M, 16) => compare_m::<Integer16, false>,
        (Ficomp, Form::M, 16) => compare_m::<Integer16, true>,
        (Ficom, Form::M, 32) => compare_m::<Integer32, false>,
        (Ficomp, Form::M, 32) => compare_m::<Integer32, true>,
        (Ftst, ..) => test,
        (Fcomi, ..) => compare_flags::<true, false>,
        (Fcomip, ..) => compare_flags::<true, true>,
        (Fucomi, ..) => compare_flags::<false, false>,
        (Fucomip, ..) => compare_flags::<false, true>,
        (Fxam, ..) => examine,
        // The numbers are those of conditions in `jcc` and `cmovcc`.
        (Fcmovb, ..) => move_if::<2>,
        (Fcmovnb, ..) => move_if::<3>,
        (Fcmove, ..) => move_if::<4>,
        (Fcmovne, ..) => move_if::<5>,
        (Fcmovbe, ..) => move_if::<6>,
        (Fcmovnbe, ..) => move_if::<7>,
        (Fcmovu, ..) => move_if::<10>,
        (Fcmovnu, ..) => move_if::<11>,
        _ => return None,
    })
}

/// Reports a comparison (`None` if an operand was empty), and pops. The result is delivered even if
/// an exception is unmasked, but then nothing is popped.
fn report(fpu: &mut Fpu, result: Option<(Relation, Exceptions)>, pops: u32) -> Relation {
    let (relation, goes_on) = match result {
        None => (Relation::Unordered, fpu.stack_fault(false)),
        Some((relation, exceptions)) => (relation, fpu.report(exceptions, false)),
    };
    if goes_on {
        (0..pops).for_each(|_| fpu.pop());
    }
    relation
}

/// Reports a comparison in C0, C2 and C3.
fn compare(fpu: &mut Fpu, result: Option<(Relation, Exceptions)>, pops: u32) {
    let relation = report(fpu, result, pops);
    let set = match relation {
        Relation::Greater => 0,
        Relation::Less => C0,
        Relation::Equal => C3,
        Relation::Unordered => C0 | C2 | C3,
    };
    fpu.set_conditions(C0 | C2 | C3, set);
}

/// The relation of two numbers; if `ORDERED`, a quiet NaN is invalid too.
fn relation<const ORDERED: bool>((a, b): (F80, F80)) -> (Relation, Exceptions) {
    if ORDERED {
        compare_ordered(a, b)
    } else {
        compare_unordered(a, b)
    }
}

fn compare_rr<const ORDERED: bool, const POPS: u32>(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let result = both(fpu, 0, op.src).map(relation::<ORDERED>);
        compare(fpu, result, POPS);
    })
}

fn compare_m<S: Source, const POP: bool>(core: &mut Core, op: &Op) -> Flow {
    if wait(core).is_none() {
        return Flow::Stop;
    }
    let Some(b) = S::load(core, op.address(core)) else {
        return Flow::Stop;
    };
    commit(core, op, |fpu| {
        let result = fpu.st(0).map(|a| b.comparison(compare_ordered(a, b.value)));
        compare(fpu, result, POP.into());
    })
}

/// `ftst`: compares with zero.
fn test(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let result = fpu.st(0).map(|a| compare_ordered(a, F80::default()));
        compare(fpu, result, 0);
    })
}

fn compare_flags<const ORDERED: bool, const POP: bool>(core: &mut Core, op: &Op) -> Flow {
    let mut flags = core.state.flags;
    let flow = execute(core, op, |fpu| {
        let c1 = fpu.status_word() & C1;
        let result = both(fpu, 0, op.src).map(relation::<ORDERED>);
        let relation = report(fpu, result, POP.into());
        if result.is_some() {
            fpu.set_conditions(C1, c1);
        }
        flags = Flags::from_bits(match relation {
            Relation::Greater => 0,
            Relation::Less => flags::CF,
            Relation::Equal => flags::ZF,
            Relation::Unordered => flags::ZF | flags::PF | flags::CF,
        });
    });
    core.state.flags = flags;
    flow
}

/// `fxam`: the class and the sign of ST(0).
fn examine(core: &mut Core, op: &Op) -> Flow {
    execute(core, op, |fpu| {
        let (class, negative) = classify(fpu.content(0));
        let class = match class {
            _ if fpu.st(0).is_none() => C3 | C0,
            Class::Unsupported => 0,
            Class::QuietNan | Class::SignalingNan => C0,
            Class::Normal => C2,
            Class::Infinity => C2 | C0,
            Class::Zero => C3,
            Class::Denormal => C3 | C2,
        };
        let sign = if negative { C1 } else { 0 };
        fpu.set_conditions(C0 | C1 | C2 | C3, class | sign);
    })
}

/// Copies another register to ST(0) if a condition of the flags holds, which is numbered as in
/// other instructions.
fn move_if<const CC: u8>(core: &mut Core, op: &Op) -> Flow {
    let holds = core.state.flags.condition::<CC>();
    execute(core, op, |fpu| match both(fpu, 0, op.src) {
        Some((_, value)) if holds => fpu.set_st(0, value),
        Some(_) => {}
        None => {
            fpu.put(0, None);
        }
    })
}

//! One form for rules that mean the same.

use unwind_sim_unwind::derived::simplify;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Rule, RuleKind, Value};

/// The rule in its simplest terms; `section` has the bytes of its expressions.
///
/// - Expressions that are only a register, an offset and a load become plain values.
/// - What is based on the CFA's own register is based on the CFA instead: with `cfa = rbp + 16`,
///   `*(rbp)` is `*(cfa - 16)`.
/// - A register that is its own value is unchanged, and one without a rule too: a callee keeps it.
/// - A caller's sp that is the CFA is left out.
pub(super) fn normal(rule: &Rule, section: &[u8]) -> Rule {
    let mut rule = simplify(rule, section);
    if rule.kind == RuleKind::Outermost {
        return Rule::OUTERMOST;
    }

    // Only a CFA that is a register plus a number can take the place of that register.
    let own = match rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            offset,
        } => Some((reg, offset)),
        _ => None,
    };

    // If the CFA is `reg + n`, `reg + m` is `cfa + (m - n)`.
    let rebase = |value| match (value, own) {
        (
            Value::Offset {
                base: Base::Reg(base),
                offset,
            },
            Some((reg, cfa)),
        ) if base == reg => match offset.checked_sub(cfa) {
            Some(offset) => Value::Offset {
                base: Base::Cfa,
                offset,
            },
            None => value,
        },
        (
            Value::Load {
                base: Base::Reg(base),
                offset,
                addend,
            },
            Some((reg, cfa)),
        ) if base == reg => match offset.checked_sub(cfa) {
            Some(offset) => Value::Load {
                base: Base::Cfa,
                offset,
                addend,
            },
            None => value,
        },
        _ => value,
    };

    rule.ra = rebase(rule.ra);
    rule.sp = match rebase(rule.sp) {
        Value::Offset {
            base: Base::Cfa,
            offset: 0,
        } => Value::Unspecified,
        sp => sp,
    };

    // A callee-saved register without a rule is unchanged: psABI 3.2.1.
    for (reg, value) in Reg::CALLEE_SAVED.into_iter().zip(&mut rule.saved) {
        let itself = Value::reg(reg, 0);
        *value = match *value {
            Value::Unspecified => Value::Same,
            value if value == itself || rebase(value) == rebase(itself) => Value::Same,
            value => rebase(value),
        };
    }
    rule
}

/// Whether a row with this rule says anything. ORC's UNDEFINED and an FDE without a CFA do not.
pub(super) fn says_something(rule: &Rule) -> bool {
    rule.kind == RuleKind::Outermost || rule.cfa != Value::Undefined
}

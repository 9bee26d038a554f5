//! The row that is right for a state: what the code has done, as a rule.

use super::state::State;
use super::value::Value;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base, Rule, RuleKind};

/// The rule for `state`; `None` if the CFA cannot be computed from what is known.
pub fn rule(state: &State) -> Option<Rule> {
    let cfa = cfa(state)?;
    let mut rule = Rule {
        kind: RuleKind::Call,
        by_frame_pointer: false,
        cfa,
        ra: place(state, Value::ReturnAddress),
        sp: rule::Value::Unspecified,
        saved: [rule::Value::Unspecified; 6],
    };
    for reg in Reg::CALLEE_SAVED {
        let value = if state.reg(reg) == Value::entry(reg) {
            rule::Value::Same
        } else {
            place(state, Value::entry(reg))
        };
        rule = rule.with_saved(reg, value);
    }
    Some(rule)
}

/// How the CFA can be computed: from rsp, rbp, another register, or a slot that rbp or rsp finds.
fn cfa(state: &State) -> Option<rule::Value> {
    let by_register = |reg: Reg| match state.reg(reg) {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => Some(rule::Value::reg(reg, 8i32.checked_sub(offset)?)),
        _ => None,
    };

    // rsp and rbp first, which every format can express as a base.
    let others = Reg::ALL.into_iter().take(16);
    let mut registers = [Reg::Rsp, Reg::Rbp].into_iter().chain(others);

    registers.find_map(by_register).or_else(|| {
        // GCC keeps the address of the frame in a slot where it realigns the stack.
        state.slots().find_map(|slot| match slot.value {
            Value::Entry {
                reg: Reg::Rsp,
                offset,
            } => {
                let (reg, distance) = reach(state, slot.at)?;
                Some(rule::Value::Load {
                    base: Base::Reg(reg),
                    offset: distance,
                    addend: 8i32.checked_sub(offset)?,
                })
            }
            _ => None,
        })
    })
}

/// Where `value` is: in a slot, or in a register; `Undefined` if nowhere.
fn place(state: &State, value: Value) -> rule::Value {
    let slots = state.slots().filter(|s| s.value == value && s.size == 8);
    let from_slot = slots.filter_map(|slot| match slot.at {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => Some(rule::Value::at_cfa(offset.checked_sub(8)?)),
        at => reach(state, at).map(|(reg, offset)| rule::Value::Load {
            base: Base::Reg(reg),
            offset,
            addend: 0,
        }),
    });

    let mut registers = Reg::ALL.into_iter().take(16);
    // The highest slot is the one that the prologue wrote.
    from_slot
        .max_by_key(|v| match v {
            rule::Value::Load { offset, .. } => *offset,
            _ => i32::MIN,
        })
        .or_else(|| {
            let reg = registers.find(|&reg| state.reg(reg) == value)?;
            Some(rule::Value::reg(reg, 0))
        })
        .unwrap_or(rule::Value::Undefined)
}

/// The register, rbp or rsp, from which a stack address is at a known distance.
pub(crate) fn reach(state: &State, at: Value) -> Option<(Reg, i32)> {
    [Reg::Rbp, Reg::Rsp].into_iter().find_map(|reg| {
        let distance = match (state.reg(reg), at) {
            (Value::Entry { reg: a, offset: x }, Value::Entry { reg: b, offset: y }) if a == b => {
                y.checked_sub(x)?
            }
            (
                Value::Below {
                    anchor: a,
                    offset: x,
                },
                Value::Below {
                    anchor: b,
                    offset: y,
                },
            ) if a == b => y.checked_sub(x)?,
            _ => return None,
        };
        Some((reg, distance))
    })
}

//! Holds what a row claims against what the code has done.

use super::claims::Claims;
use super::expression;
use super::packed::Packed;
use super::state::State;
use super::value::{Anchor, Value};
use crate::table::{Row, Table};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base, Rule, RuleKind};

/// What a row says something about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Subject {
    /// The CFA: rsp before the call.
    Cfa,
    /// The return address.
    ReturnAddress,
    /// The caller's rsp.
    Sp,
    /// A callee-saved register of the caller.
    Register(Reg),
    /// That there is a row at all: the function reaches code that its table has none for.
    Row,
}

/// How a claim turned out at one instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is what the code has done.
    Proven {
        /// Whether the slot that it names lies below rsp, where a copy of the stack does not reach.
        below_sp: bool,
    },
    /// It is not what the code has done.
    Contradicted {
        /// What the row's rule evaluates to.
        found: Value,
    },
    /// It is what the code has done, but the slot that it names lies so far below rsp that a signal or an
    /// interrupt overwrites it.
    Overwritten,
    /// It is not what the code has done on a way that may not exist.
    Guessed,
    /// A function of the same file that was called may have changed it.
    ByCallee,
    /// It cannot be told.
    Unproven,
}

const PROVEN: Outcome = Outcome::Proven { below_sp: false };

/// The CFA of a function that was called: 8 above rsp at entry.
pub const CFA: Value = Value::frame(8);

/// A row of the usual form: the CFA is a register plus a number, and every other value lies at the CFA
/// plus a number or is unchanged. Proven at once by [`State::proves`].
#[derive(Clone, Debug)]
pub struct CommonRow {
    /// The register that the CFA is based on.
    pub(super) base: Reg,
    /// Its value if the CFA is right.
    pub(super) base_value: Packed,
    /// Bit n: register n of [`Reg::CALLEE_SAVED`] is unchanged.
    pub(super) unchanged: u8,
    /// Bit n: register n lies in a slot; bit 6: the return address does.
    pub(super) in_slots: u8,
    /// Where these slots are: rsp at entry plus this, bytes.
    pub(super) slots: [i32; 7],
    /// The lowest of them.
    pub(super) lowest: i32,
    /// See [`Claims::red_zone`].
    pub(super) red_zone: i32,
}

/// The place of the return address in [`CommonRow::slots`].
pub(super) const RETURN_ADDRESS: usize = 6;

impl CommonRow {
    /// The `claims` of `rule` of `table`, if it has the usual form.
    pub fn new(table: &Table, rule: &Rule, claims: &Claims) -> Option<CommonRow> {
        let rule::Value::Offset {
            base: Base::Reg(base),
            offset,
        } = rule.cfa
        else {
            return None;
        };
        if rule.kind != RuleKind::Call || !rule.sp_is_cfa() || base == Reg::Rip {
            return None;
        }

        // The CFA lies 8 bytes above rsp at the entry (psABI 3.2.2): so much must the base register
        // have.
        let mut usual = CommonRow {
            base,
            base_value: Packed::new(Value::frame(8i32.checked_sub(offset)?)),
            unchanged: 0,
            in_slots: 0,
            slots: [0; 7],
            lowest: i32::MAX,
            red_zone: claims.red_zone,
        };

        if claims.return_address {
            usual.place(rule.ra, RETURN_ADDRESS)?;
        }

        for (number, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
            match rule.saved[number] {
                value if !is_claimed(table, claims, (number, reg), value) => {}
                rule::Value::Undefined => {}
                rule::Value::Same | rule::Value::Unspecified => usual.unchanged |= 1 << number,
                claimed => usual.place(claimed, number)?,
            }
        }

        Some(usual)
    }

    fn place(&mut self, claimed: rule::Value, number: usize) -> Option<()> {
        let rule::Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } = claimed
        else {
            return None;
        };
        let at = offset.checked_add(8)?;
        self.slots[number] = at;
        self.in_slots |= 1 << number;
        self.lowest = self.lowest.min(at);
        Some(())
    }
}

/// Calls `each` for every one of the `claims` of `row` at `pc`, with its outcome.
pub fn judge(
    (table, claims): (&Table, &Claims),
    row: &Row<'_>,
    pc: u64,
    state: &State,
    anchors: &[Anchor],
    mut each: impl FnMut(Subject, Outcome),
) {
    let rule = row.rule;
    if rule.kind == RuleKind::Outermost {
        // "There is no caller" cannot be told from the code.
        return;
    }

    let eye = ClaimCheck {
        table,
        pc,
        state,
        red_zone: claims.red_zone,
    };

    let cfa = eye.value(rule.cfa, Value::Unknown);
    let outcome = match expect(CFA, cfa, anchors) {
        // A row for a frame that has a caller has to say where it is.
        Outcome::Unproven if eye.says_nothing(rule.cfa, Value::Unknown) => Outcome::Contradicted {
            found: Value::Unknown,
        },
        // longjmp and setcontext describe the frame that they will continue with: what an argument leads
        // to, and nothing that belongs to their caller. So does what follows where rsp is that frame's.
        Outcome::Contradicted { found }
            if (!rule.sp_is_cfa() || !state.reg(Reg::Rsp).is_stack())
                && !found.is_stack()
                && !found.is_callers() =>
        {
            Outcome::Unproven
        }
        // Where rsp has a rule of its own, the CFA is only what the other rules go by.
        _ if !rule.sp_is_cfa() && cfa.is_stack() => eye.placed(rule.cfa, Value::Unknown, PROVEN),
        outcome => eye.placed(rule.cfa, Value::Unknown, outcome),
    };

    each(Subject::Cfa, outcome);
    if !matches!(outcome, Outcome::Proven { .. }) {
        // All else refers to it.
        return;
    }

    if !rule.sp_is_cfa() {
        let outcome = expect(CFA, eye.value(rule.sp, cfa), anchors);
        each(Subject::Sp, eye.placed(rule.sp, cfa, outcome));
    }

    if claims.return_address {
        let address = eye.value(rule.ra, cfa);
        let outcome = match expect(Value::ReturnAddress, address, anchors) {
            Outcome::Unproven if eye.says_nothing(rule.ra, cfa) => Outcome::Contradicted {
                found: Value::Unknown,
            },
            outcome => outcome,
        };
        each(Subject::ReturnAddress, eye.placed(rule.ra, cfa, outcome));
    }

    for (number, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
        let claimed = rule.saved[number];
        if !is_claimed(table, claims, (number, reg), claimed) {
            continue;
        }
        let found = match claimed {
            // Lost: no claim that could be wrong.
            rule::Value::Undefined => continue,
            rule::Value::Same | rule::Value::Unspecified => state.reg(reg),
            claimed => eye.value(claimed, cfa),
        };

        let outcome = match expect(Value::entry(reg), found, anchors) {
            Outcome::Unproven if eye.is_invalid(claimed, cfa) => Outcome::Contradicted {
                found: Value::Unknown,
            },
            outcome => outcome,
        };

        each(Subject::Register(reg), eye.placed(claimed, cfa, outcome));
    }
}

/// Whether `value`, what a row of `table` says of a register, is one of the `claims`. SFrame and ORC know
/// rbp alone, and have one word for an unchanged register and for none.
fn is_claimed(
    table: &Table,
    claims: &Claims,
    (number, reg): (usize, Reg),
    value: rule::Value,
) -> bool {
    match (table.kind().is_dwarf(), value) {
        (true, value) => claims.has(number, value),
        (false, rule::Value::Same) => {
            reg == Reg::Rbp && claims.has(number, rule::Value::Unspecified)
        }
        (false, value) => reg == Reg::Rbp && claims.has(number, value),
    }
}

fn expect(wanted: Value, found: Value, anchors: &[Anchor]) -> Outcome {
    match found {
        found if found == wanted => PROVEN,
        Value::Unknown => Outcome::Unproven,
        Value::Guessed => Outcome::Guessed,
        Value::ByCallee => Outcome::ByCallee,
        // Below the frame at a distance that is not known, but may always be the same.
        Value::Below { anchor, .. }
            if wanted == CFA && anchors.get(usize::from(anchor)).is_none_or(|a| !a.varies()) =>
        {
            Outcome::Unproven
        }
        found => Outcome::Contradicted { found },
    }
}

struct ClaimCheck<'a> {
    table: &'a Table,
    pc: u64,
    state: &'a State,
    red_zone: i32,
}

impl ClaimCheck<'_> {
    /// What the rule's value is in this state.
    fn value(&self, value: rule::Value, cfa: Value) -> Value {
        let base = |base| match base {
            Base::Cfa => cfa,
            Base::Reg(Reg::Rip) => Value::Unknown,
            Base::Reg(reg) => self.state.reg(reg),
        };
        match value {
            rule::Value::Undefined | rule::Value::Unspecified => Value::Unknown,
            rule::Value::Same => Value::Unknown,
            rule::Value::Offset { base: b, offset } => base(b).plus(offset.into()),
            rule::Value::Load {
                base: b,
                offset,
                addend,
            } => self.load(base(b).plus(offset.into())).plus(addend.into()),
            rule::Value::Expression(e) => {
                let initial = (cfa != Value::Unknown).then_some(cfa);
                let result = expression::evaluate(self.formula(e), self.state, self.pc, initial);
                if e.load { self.load(result) } else { result }
            }
        }
    }

    /// Whether a rule for the CFA or the return address gives nothing: there is none, it is an address
    /// of this function's own code, or a formula that no unwinder can evaluate.
    fn says_nothing(&self, value: rule::Value, cfa: Value) -> bool {
        match value {
            rule::Value::Undefined | rule::Value::Unspecified | rule::Value::Same => true,
            rule::Value::Offset { base, .. } => base == Base::Reg(Reg::Rip),
            _ => self.is_invalid(value, cfa),
        }
    }

    /// Whether a rule is a formula that no unwinder can evaluate.
    fn is_invalid(&self, value: rule::Value, cfa: Value) -> bool {
        let rule::Value::Expression(e) = value else {
            return false;
        };
        let initial = (cfa != Value::Unknown).then_some(cfa);
        expression::is_invalid(self.formula(e), self.state, self.pc, initial)
    }

    fn formula(&self, e: rule::Expression) -> &[u8] {
        let start = e.start as usize;
        let bytes = self.table.section().get(start..start + usize::from(e.len));
        bytes.unwrap_or(&[])
    }

    fn load(&self, at: Value) -> Value {
        match at {
            at if at.is_stack() => self.state.load(at, 8),
            Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee => Value::Unknown,
            // Memory of somebody else.
            _ => Value::Computed,
        }
    }

    /// `outcome`, with the remark that the slot lies below rsp.
    fn placed(&self, value: rule::Value, cfa: Value, outcome: Outcome) -> Outcome {
        if !matches!(outcome, Outcome::Proven { .. }) {
            return outcome;
        }

        let slot = match value {
            rule::Value::Load { base, offset, .. } => {
                let base = match base {
                    Base::Cfa => cfa,
                    Base::Reg(reg) => self.state.reg(reg),
                };
                base.plus(offset.into())
            }
            rule::Value::Expression(e) if e.load => {
                let initial = (cfa != Value::Unknown).then_some(cfa);
                expression::evaluate(self.formula(e), self.state, self.pc, initial)
            }
            _ => return outcome,
        };

        // Two addresses have a known distance only if both are relative to the same place.
        let distance = match (slot, self.state.reg(Reg::Rsp)) {
            (
                Value::Entry {
                    reg: Reg::Rsp,
                    offset: slot,
                },
                Value::Entry {
                    reg: Reg::Rsp,
                    offset: sp,
                },
            ) => sp.saturating_sub(slot),
            (
                Value::Below { anchor, offset },
                Value::Below {
                    anchor: a,
                    offset: sp,
                },
            ) if anchor == a => sp.saturating_sub(offset),
            _ => 0,
        };

        // psABI 3.2.2, the red zone: what lies deeper below rsp, a signal handler overwrites.
        if distance > self.red_zone.max(0) {
            Outcome::Overwritten
        } else {
            Outcome::Proven {
                below_sp: distance > 0,
            }
        }
    }
}

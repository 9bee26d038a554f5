//! What is seen at each instruction of a function, on all ways that lead there: the rule for its
//! frame that all of them agree on.

use super::FunctionWalk;
use crate::proof::claim::{self, Outcome, Subject};
use crate::proof::derive;
use crate::proof::signal;
use crate::proof::state::State;
use crate::proof::value::{Anchor, Value};
use crate::proof::verdict::Doubt;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use iced_x86::{FlowControl, Instruction};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value as RuleValue};

/// What is seen at one instruction.
#[derive(Clone, Debug)]
pub struct InsnProof {
    /// The address (svma) behind the instruction.
    pub end: u64,
    /// Whether it is a call.
    pub is_call: bool,
    /// The rule that is right on all ways; registers that it cannot find are undefined. Or why
    /// there is none.
    pub rule: Result<Rule, Doubt>,
}

/// What was seen so far at one instruction.
#[derive(Debug)]
struct PartialProof {
    end: u64,
    is_call: bool,
    /// The row, if there is one.
    row: Option<Rule>,
    /// The claims of the row that were proven on every way: see [`bit`].
    proven: u32,
    /// What every way's own rule says; what they disagree on is undefined.
    derived: Option<Rule>,
    doubt: Option<Doubt>,
}

/// The instructions of one function, with what is seen there.
#[derive(Debug, Default)]
pub struct InsnProofs {
    function: usize,
    seen: HashMap<u64, PartialProof>,
}

/// The bit of a claim.
const fn bit(subject: Subject) -> u32 {
    match subject {
        Subject::Cfa => 1,
        Subject::ReturnAddress => 2,
        Subject::Sp => 4,
        Subject::Register(reg) => 8 << (reg as u32 & 15),
        Subject::Row => 0,
    }
}

impl InsnProofs {
    /// For what will be seen in function `function` of the program.
    pub fn of(function: usize) -> InsnProofs {
        InsnProofs {
            function,
            seen: HashMap::new(),
        }
    }

    /// Adds what `state` shows at `insn`.
    pub(super) fn see(
        &mut self,
        part: &mut FunctionWalk<'_>,
        anchors: &[Anchor],
        insn: &Instruction,
        state: &State,
    ) {
        if part.function != self.function {
            return;
        }

        let pc = insn.ip();
        let rows = part.rows.iter_mut();

        // Expressions are ranges of the first table's section.
        let mut rows = rows.filter(|r| {
            let kind = r.table.kind();
            r.number == 0 && matches!(kind, TableKind::EhFrame | TableKind::DebugFrame)
        });
        let row = rows.next().and_then(|rows| {
            let index = rows.find(pc)?;
            Some(((rows.table, rows.claims), rows.rows[index]))
        });

        // Which of the row's claims are right here, one bit for each.
        let mut proven = 0u32;
        if let Some(((table, claims), row)) = &row {
            match row.rule.kind {
                RuleKind::Signal if part.is_signal && state.reg(Reg::Rsp) == Value::frame(0) => {
                    proven = u32::MAX;
                    signal::judge(table, row.rule, |subject, outcome| {
                        if outcome != Some(true) {
                            proven &= !bit(subject);
                        }
                    });
                }
                RuleKind::Call | RuleKind::Signal if !part.is_signal => claim::judge(
                    (table, claims),
                    row,
                    pc,
                    state,
                    anchors,
                    |subject, outcome| {
                        if matches!(outcome, Outcome::Proven { .. }) {
                            proven |= bit(subject);
                        }
                    },
                ),
                _ => {}
            }
        }

        // The rule that the code itself shows, whatever the row says.
        let derived = derive::rule(state);
        // Nobody comes here, or an assumption about a callee is wrong. (A guessed way is only one
        // more with which all must agree.)
        let doubt = state.is_dead.then_some(Doubt::Unreached);

        match self.seen.entry(pc) {
            Entry::Vacant(place) => {
                place.insert(PartialProof {
                    end: insn.next_ip(),
                    is_call: matches!(
                        insn.flow_control(),
                        FlowControl::Call | FlowControl::IndirectCall
                    ),
                    row: row.map(|(_, row)| match row.rule.kind {
                        // The mark changes the lookup of the caller's row, and nothing else.
                        RuleKind::Signal if !part.is_signal => Rule {
                            kind: RuleKind::Call,
                            ..*row.rule
                        },
                        _ => *row.rule,
                    }),
                    proven,
                    derived,
                    doubt,
                });
            }
            Entry::Occupied(mut place) => {
                let seen = place.get_mut();
                // Proven on one way is not enough.
                seen.proven &= proven;
                seen.derived = seen.derived.zip(derived).and_then(|(a, b)| common(a, b));
                seen.doubt = seen.doubt.or(doubt);
            }
        }
    }

    /// What was seen, by address (svma).
    pub fn finish(self) -> Vec<(u64, InsnProof)> {
        let mut all: Vec<(u64, InsnProof)> = self
            .seen
            .into_iter()
            .map(|(pc, s)| (pc, s.sight()))
            .collect();
        all.sort_unstable_by_key(|(pc, _)| *pc);
        all
    }
}

impl PartialProof {
    fn sight(self) -> InsnProof {
        InsnProof {
            end: self.end,
            is_call: self.is_call,
            rule: self.rule(),
        }
    }

    /// The row's claims that are proven and, for the rest, what all ways agree on.
    fn rule(&self) -> Result<Rule, Doubt> {
        if let Some(doubt) = self.doubt {
            return Err(doubt);
        }

        // A claim counts if it was proven on every way.
        let has = |subject| self.proven & bit(subject) != 0;
        match self.row.map(|row| row.kind) {
            Some(RuleKind::Signal) => {
                // A signal frame's rule is right as a whole or not at all.
                return match self.proven {
                    u32::MAX => self.row.ok_or(Doubt::SignalFrame),
                    _ => Err(Doubt::SignalFrame),
                };
            }
            Some(RuleKind::Call) | None => {}
            Some(_) => return Err(Doubt::Outermost),
        }

        // A row with a rule of its own for rsp is not used.
        let row = self.row.filter(|row| row.sp == RuleValue::Unspecified);
        let derived = self.derived;
        // The row's own value if it is proven, or else what the code has done.
        let choose = |subject, of: &dyn Fn(&Rule) -> RuleValue| match &row {
            Some(row) if has(subject) => Some(of(row)),
            _ => derived.as_ref().map(of),
        };

        let known = |value: &RuleValue| *value != RuleValue::Undefined;
        let cfa = choose(Subject::Cfa, &|rule| rule.cfa).filter(known);
        let ra = choose(Subject::ReturnAddress, &|rule| rule.ra).filter(known);

        let mut rule = Rule {
            kind: RuleKind::Call,
            by_frame_pointer: false,
            cfa: cfa.ok_or(Doubt::StackPointer)?,
            ra: ra.ok_or(Doubt::Value)?,
            sp: RuleValue::Unspecified,
            saved: [RuleValue::Undefined; 6],
        };

        // First the code's own rule, then the row's.
        for (index, reg) in Reg::CALLEE_SAVED.into_iter().enumerate() {
            // A value that is still in its register is in every recording.
            let own = derived.map(|rule| rule.saved[index]).filter(known);
            let own = own.or_else(|| choose(Subject::Register(reg), &|rule| rule.saved[index]));
            rule.saved[index] = match own {
                Some(RuleValue::Unspecified) => RuleValue::Same,
                own => own.unwrap_or(RuleValue::Undefined),
            };
        }

        Ok(rule)
    }
}

/// What both rules say. `None` if they have different CFAs.
fn common(a: Rule, b: Rule) -> Option<Rule> {
    let both = |a, b| if a == b { a } else { RuleValue::Undefined };
    let mut rule = Rule {
        ra: both(a.ra, b.ra),
        ..a
    };
    for (value, other) in rule.saved.iter_mut().zip(b.saved) {
        *value = both(*value, other);
    }
    (a.cfa == b.cfa).then_some(rule)
}

//! Units made from units of another table: the rows stay, their rules are exchanged.
//!
//! A rule is exchanged once; from then on its number stands for the outcome. That is what makes
//! derived rows cost little more than the rows that they come from.

use super::{Cache, Key, TableKind, UnitId};
use crate::derived::Loss;
use crate::rule::{Rule, Value};
use alloc::vec::Vec;

/// What became of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    /// The rule that stands for it.
    pub(crate) rule: Rule,
    /// What could not be held; then the rule is that of no row.
    pub(crate) loss: Option<Loss>,
    /// Were registers left out that the format never holds?
    pub(crate) registers_left_out: bool,
}

#[derive(Clone, Copy, Debug)]
enum Known {
    Not,
    /// It hangs on the bytes of its image: no number stands for it.
    Expression,
    Rule {
        id: u32,
        loss: Option<Loss>,
        registers_left_out: bool,
    },
}

/// By number of the original rule.
#[derive(Debug, Default)]
struct Transcripts(Vec<Known>);

/// For each kind of derived table.
#[derive(Debug, Default)]
pub(super) struct AllTranscripts {
    sframe: Transcripts,
    orc: Transcripts,
}

impl AllTranscripts {
    fn of(&mut self, table: TableKind) -> &mut Transcripts {
        match table {
            TableKind::OrcDerived => &mut self.orc,
            _ => &mut self.sframe,
        }
    }
}

fn has_expression(rule: &Rule) -> bool {
    let values = [rule.cfa, rule.ra, rule.sp];
    let mut values = values.into_iter().chain(rule.saved);
    values.any(|v| matches!(v, Value::Expression(_)))
}

impl Cache {
    #[inline]
    fn known(
        &mut self,
        all: &mut Transcripts,
        id: u32,
        make: &impl Fn(&Rule) -> Transcript,
    ) -> Known {
        match all.0.get(id as usize) {
            None | Some(Known::Not) => self.exchange(all, id, make),
            Some(known) => *known,
        }
    }

    #[cold]
    fn exchange(
        &mut self,
        all: &mut Transcripts,
        id: u32,
        make: &impl Fn(&Rule) -> Transcript,
    ) -> Known {
        let at = id as usize;
        let rule = self.rules[at];
        let known = if has_expression(&rule) {
            Known::Expression
        } else {
            let made = make(&rule);
            Known::Rule {
                id: self.rule_id(Key::of(&made.rule), || made.rule),
                loss: made.loss,
                registers_left_out: made.registers_left_out,
            }
        };
        if all.0.len() <= at {
            all.0.resize(at + 1, Known::Not);
        }
        all.0[at] = known;
        known
    }

    /// Exchanges the rules of a unit for those that `make` gives; `each` hears what was lost.
    /// False, and nothing done, if there is a rule with an expression.
    pub(crate) fn transcribe_unit(
        &mut self,
        unit: UnitId,
        make: impl Fn(&Rule) -> Transcript,
        mut each: impl FnMut(Option<Loss>, bool),
    ) -> bool {
        let unit = &self.units[unit.0 as usize];
        let (table, rows) = (unit.key.table, unit.rows.clone());
        let rows = rows.start as usize..rows.end as usize;
        let mut all = core::mem::take(self.transcripts.of(table));
        let plain = rows.clone().all(|i| {
            let rule = self.rows[i].rule;
            !matches!(self.known(&mut all, rule, &make), Known::Expression)
        });
        for row in self.rows[rows].iter_mut().filter(|_| plain) {
            if let Some(Known::Rule {
                id,
                loss,
                registers_left_out,
            }) = all.0.get(row.rule as usize)
            {
                each(*loss, *registers_left_out);
                row.rule = *id;
            }
        }
        *self.transcripts.of(table) = all;
        plain
    }
}

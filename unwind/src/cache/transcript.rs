//! Rules that are translated to another format when they are added to a unit.
//!
//! A rule with a short form is translated once. After that, its short form finds the result, so
//! derived rows cost no more than the rows they come from.

use super::by_key::ByKey;
use crate::derived::Lost;
use crate::row::TableKind;
use crate::rule::{Rule, RuleKey};

/// The result of translating a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    /// The rule in the other format.
    pub(crate) rule: Rule,
    /// What the translation lost.
    pub(crate) lost: Lost,
}

/// The id of the translated rule, and what the translation lost.
type Outcome = (u32, Lost);

/// For each kind of derived table: the rules' short forms and their translations.
#[derive(Debug, Default)]
pub(super) struct Transcripts {
    sframe: ByKey<Outcome>,
    orc: ByKey<Outcome>,
}

impl Transcripts {
    #[inline]
    fn of(&mut self, table: TableKind) -> &mut ByKey<Outcome> {
        match table {
            TableKind::OrcDerived => &mut self.orc,
            _ => &mut self.sframe,
        }
    }

    /// The translation of the rule with the short form `key`.
    #[inline]
    pub(super) fn get(&mut self, table: TableKind, key: &RuleKey) -> Option<Outcome> {
        self.of(table).get(key)
    }

    /// Remembers the translation of the rule with the short form `key`.
    pub(super) fn insert(&mut self, table: TableKind, key: RuleKey, outcome: Outcome) {
        self.of(table).insert(key, outcome);
    }
}

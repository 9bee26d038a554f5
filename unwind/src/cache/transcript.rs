//! Rules that are exchanged for another format's on their way into a unit.
//!
//! A rule with a short form is exchanged once; from then on the short form finds the outcome. That
//! is what makes derived rows cost no more than the rows that they come from.

use crate::derived::Lost;
use crate::row::TableKind;
use crate::rule::{Key, Rule};
use hashbrown::HashMap;

/// What became of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    /// The rule that stands for it.
    pub(crate) rule: Rule,
    /// What of it was lost.
    pub(crate) lost: Lost,
}

/// The id of the rule that stands for another, and what was lost.
type Outcome = (u32, Lost);

/// For each kind of derived table: the rules' short forms, and what they became.
#[derive(Debug, Default)]
pub(super) struct Transcripts {
    sframe: HashMap<Key, Outcome>,
    orc: HashMap<Key, Outcome>,
}

impl Transcripts {
    #[inline]
    fn of(&mut self, table: TableKind) -> &mut HashMap<Key, Outcome> {
        match table {
            TableKind::OrcDerived => &mut self.orc,
            _ => &mut self.sframe,
        }
    }

    /// What the rule with the short form `key` became.
    #[inline]
    pub(super) fn get(&mut self, table: TableKind, key: &Key) -> Option<Outcome> {
        self.of(table).get(key).copied()
    }

    /// Remembers what the rule with the short form `key` became.
    pub(super) fn insert(&mut self, table: TableKind, key: Key, outcome: Outcome) {
        self.of(table).insert(key, outcome);
    }
}

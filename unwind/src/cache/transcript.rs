//! Rows whose rules are exchanged for another format's on their way into a unit.
//!
//! A rule with a short form is exchanged once; from then on the short form finds the outcome. That
//! is what makes derived rows cost no more than the rows that they come from.

use super::{Cache, Key, TableKind, UnitBuilder};
use crate::derived::{Derived, Loss};
use crate::image::ImageId;
use crate::rule::Rule;
use hashbrown::HashMap;

/// What became of a rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transcript {
    /// The rule that stands for it.
    pub(crate) rule: Rule,
    /// What of it was lost.
    pub(crate) lost: Lost,
}

/// What was lost of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lost {
    /// What could not be held; then the rule is that of no row.
    pub(crate) row: Option<Loss>,
    /// Were registers left out that the format never holds?
    pub(crate) registers: bool,
}

/// For each kind of derived table: the rules' short forms, and what they became.
#[derive(Debug, Default)]
pub(super) struct Transcripts {
    sframe: HashMap<Key, (u32, Lost)>,
    orc: HashMap<Key, (u32, Lost)>,
}

impl Transcripts {
    #[inline]
    fn of(&mut self, table: TableKind) -> &mut HashMap<Key, (u32, Lost)> {
        match table {
            TableKind::OrcDerived => &mut self.orc,
            _ => &mut self.sframe,
        }
    }
}

impl UnitBuilder<'_> {
    /// Adds a row by what `make` gives for its rule, whose short form is `key`; `make` is only
    /// asked if that is new. Says what was lost.
    #[inline]
    pub(crate) fn push_transcript(
        &mut self,
        start: u64,
        offset: u64,
        key: Option<Key>,
        make: impl FnOnce() -> Transcript,
    ) -> Lost {
        let table = self.key.table;
        let known = key.and_then(|key| self.cache.transcripts.of(table).get(&key).copied());
        let (rule, lost) = known.unwrap_or_else(|| self.cache.exchange(table, key, make()));
        self.push_id(start, offset, |_| rule);
        lost
    }
}

impl Cache {
    #[cold]
    fn exchange(&mut self, table: TableKind, key: Option<Key>, made: Transcript) -> (u32, Lost) {
        let id = self.rule_id(Key::of(&made.rule), || made.rule);
        if let Some(key) = key {
            self.transcripts.of(table).insert(key, (id, made.lost));
        }
        (id, made.lost)
    }

    /// What was derived for an image so far.
    pub(crate) fn derived(&mut self, image: ImageId, table: TableKind) -> &mut Derived {
        self.derived.entry((image, table)).or_default()
    }
}

//! Adds units to a cache, row by row.

use super::unit::{NewRow, Row, Unit, UnitId, UnitKey};
use super::{Cache, Transcript, Version};
use crate::derived::Lost;
use crate::reason::Reason;
use crate::rule::{Rule, RuleKey};
use core::ops::Range;

/// The numbers of units and rows for which the first unit makes room: enough for a small program.
const UNITS_MIN: usize = 96;
const ROWS_MIN: usize = 128;

/// A unit that is being added to a cache.
#[derive(Debug)]
pub struct UnitBuilder<'a> {
    cache: &'a mut Cache,
    id: UnitId,
    key: UnitKey,
    range: Range<u64>,
    /// The key's hash.
    hash: u64,
    /// The unit with this key that this one replaces, although its row stays valid.
    first_part: Option<UnitId>,
    first: u32,
    last: Option<u32>,
}

impl UnitBuilder<'_> {
    /// The unit's id, if the cache already has all its rows.
    pub(crate) fn already(&self) -> Option<UnitId> {
        let known = (self.id.0 as usize) < self.cache.units.len();
        (known && self.cache.is_complete(self.id)).then_some(self.id)
    }

    /// Adds a row. A row outside the unit or out of order is dropped.
    pub fn push(&mut self, row: NewRow) {
        self.push_short(row.start, row.offset, RuleKey::of(&row.rule), || row.rule);
    }

    /// Like [`UnitBuilder::push`], for a row whose rule has the short form `key`. Calls `rule` only
    /// if `key` is new.
    #[inline]
    pub(crate) fn push_short(
        &mut self,
        start: u64,
        offset: u64,
        key: Option<RuleKey>,
        rule: impl FnOnce() -> Rule,
    ) {
        self.push_id(start, offset, |cache| cache.rules.id(key, rule));
    }

    /// Adds a row whose rule is derived by `make` from the rule with the short form `key`. Calls
    /// `make` only if `key` is new. Returns what the derived rule lost.
    #[inline]
    pub(crate) fn push_transcript(
        &mut self,
        start: u64,
        offset: u64,
        key: Option<RuleKey>,
        make: impl FnOnce() -> Transcript,
    ) -> Lost {
        let table = self.key.table;
        let known = key.and_then(|key| self.cache.transcripts.get(table, &key));
        let (rule, lost) = known.unwrap_or_else(|| self.cache.exchange(table, key, make()));
        self.push_id(start, offset, |_| rule);
        lost
    }

    /// Like [`UnitBuilder::push`], for a row whose rule has the id that `rule` returns.
    #[inline]
    fn push_id(&mut self, start: u64, offset: u64, rule: impl FnOnce(&mut Cache) -> u32) {
        let start = start.checked_sub(self.range.start);
        let start = start.and_then(|s| u32::try_from(s).ok());
        let Some(start) = start.filter(|&s| self.last.is_none_or(|last| s > last)) else {
            return;
        };
        self.last = Some(start);
        let rule = rule(self.cache);
        self.cache.rows.push(Row {
            start,
            offset: offset.wrapping_sub(self.key.offset) as u32,
            rule,
            unit: self.id.0,
        });
    }

    /// The addresses (svma) that the unit covers.
    #[inline]
    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Completes the unit. `error` gives the first malformed address (svma) and the reason.
    pub fn finish(self, error: Option<(u64, Reason)>) -> UnitId {
        if let Some(error) = error {
            self.cache.errors.insert(self.id, error);
        }
        self.finish_part(0..u64::MAX)
    }

    /// Completes the unit in part: its rows cover only the addresses `known` (svma). To look up
    /// other addresses ([`Cache::knows`]), add the unit again.
    #[inline]
    pub(crate) fn finish_part(self, known: Range<u64>) -> UnitId {
        let rows = self.first..self.cache.rows.len() as u32;

        // The rows were pushed while the unit was built, so they are the last ones of the cache.
        let unit = Unit {
            key: self.key,
            start: self.range.start,
            end: self.range.end,
            rows,
            known,
            second: self.first_part.is_some(),
        };

        let Cache {
            units,
            unit_ids,
            unit_hasher,
            failed,
            rows,
            version,
            ..
        } = self.cache;

        match units.get_mut(self.id.0 as usize) {
            Some(place) => {
                *place = unit;
                *version = Version::default();
            }
            None => {
                // Once, so that small programs do not pay for growing.
                if units.is_empty() {
                    rows.reserve(ROWS_MIN);
                    units.reserve(UNITS_MIN);
                    unit_ids.reserve(UNITS_MIN, |_| 0);
                }
                units.push(unit);

                // The key leads to the new unit from now on, but the first part's row stays valid.
                let place = self
                    .first_part
                    .and_then(|first| unit_ids.find_mut(self.hash, |id| UnitId(*id) == first));
                match place {
                    Some(id) => *id = self.id.0,
                    None => {
                        let hash = |id: &u32| units[*id as usize].key.hash_by_place(unit_hasher);
                        unit_ids.insert_unique(self.hash, self.id.0, hash);
                    }
                }
            }
        }

        // Hardly any unit fails: this saves the hash of the key.
        if !failed.is_empty() {
            failed.remove(&self.key);
        }

        self.id
    }
}

impl Cache {
    /// Like [`Cache::add_unit`], row by row. The unit is added only when it is finished.
    pub fn begin_unit(&mut self, key: UnitKey, range: Range<u64>) -> UnitBuilder<'_> {
        let hash = key.hash_by_place(&self.unit_hasher);
        let known = self.compiled(&key, hash);
        let id = known.unwrap_or(UnitId(self.units.len() as u32));
        self.builder(key, range, hash, id)
    }

    /// Like [`Cache::begin_unit`], for one row of a unit that [`Cache::unit`] does not know, or of
    /// which it knows the first part.
    #[inline]
    pub(crate) fn begin_part(
        &mut self,
        key: UnitKey,
        range: Range<u64>,
        first_part: Option<UnitId>,
    ) -> UnitBuilder<'_> {
        let hash = key.hash_by_place(&self.unit_hasher);
        let id = UnitId(self.units.len() as u32);
        UnitBuilder {
            first_part,
            ..self.builder(key, range, hash, id)
        }
    }

    #[inline]
    fn builder(
        &mut self,
        key: UnitKey,
        range: Range<u64>,
        hash: u64,
        id: UnitId,
    ) -> UnitBuilder<'_> {
        UnitBuilder {
            hash,
            first_part: None,
            first: self.rows.len() as u32,
            id,
            last: None,
            cache: self,
            key,
            range,
        }
    }
}

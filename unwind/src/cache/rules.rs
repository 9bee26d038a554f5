//! The rules of a cache, deduplicated.

use super::by_key::ByKey;
use crate::rule::{Packed, Rule, RuleKey};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Rules by id, and ids by rule.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// The packed form of each rule.
    packed: Vec<Packed>,
    /// Ids of the rules that have a short form, by short form.
    by_key: ByKey<u32>,
    /// Ids of the other rules.
    by_rule: HashMap<Rule, u32>,
}

impl Rules {
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.rules.capacity() * size_of::<Rule>()
            + self.packed.capacity() * size_of::<Packed>();
        lists + self.by_key.bytes() + self.by_rule.allocation_size()
    }

    /// The rule with this id.
    #[inline]
    pub(super) fn get(&self, id: u32) -> &Rule {
        &self.rules[id as usize]
    }

    /// The packed form of the rule with this id.
    #[inline]
    pub(super) fn packed(&self, id: u32) -> Packed {
        self.packed[id as usize]
    }

    /// The id of the rule that `make` returns and whose short form is `key`. Calls `make` only if
    /// `key` is new or `None`.
    #[inline]
    pub(super) fn id(&mut self, key: Option<RuleKey>, make: impl FnOnce() -> Rule) -> u32 {
        match key {
            Some(key) => match self.by_key.get(&key) {
                Some(id) => id,
                None => self.add(Some(key), make()),
            },
            None => {
                let rule = make();
                let id = self.by_rule.get(&rule).copied();
                id.unwrap_or_else(|| self.add(None, rule))
            }
        }
    }

    #[cold]
    fn add(&mut self, key: Option<RuleKey>, rule: Rule) -> u32 {
        let id = self.rules.len() as u32;
        self.rules.push(rule);
        self.packed
            .push(key.as_ref().map_or(Packed::GENERIC, Packed::of));
        match key {
            Some(key) => self.by_key.insert(key, id),
            None => _ = self.by_rule.insert(rule, id),
        }
        id
    }
}

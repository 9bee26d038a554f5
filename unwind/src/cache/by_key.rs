//! A map from rules' short forms, for tables whose rows repeat the same few rules.

use crate::rule::RuleKey;
use alloc::vec::Vec;
use core::cmp::Ordering;
use hashbrown::HashMap;

/// log2 of the number of places in front of the map.
const FRONT_BITS: u32 = 10;

/// Up to this many keys are searched one by one.
const FEW: usize = 16;

/// A place without a key.
const NONE: u16 = u16::MAX;

/// Keys and their values. Few keys are searched. Many are found by their places, where another key
/// may have replaced them, or else in a hash map, whose hashes cannot be made to collide by the
/// input.
#[derive(Debug)]
pub(super) struct ByKey<V> {
    /// The keys in the order in which they were added.
    entries: Vec<(RuleKey, V)>,
    /// For each place, the index of the key found or added last; empty if there are few keys.
    front: Vec<u16>,
    /// The index of each key; empty if there are few.
    map: HashMap<RuleKey, u32>,
}

impl<V> Default for ByKey<V> {
    fn default() -> Self {
        ByKey {
            entries: Vec::new(),
            front: Vec::new(),
            map: HashMap::new(),
        }
    }
}

impl<V: Copy> ByKey<V> {
    /// The value of `key`.
    #[inline]
    pub(super) fn get(&mut self, key: &RuleKey) -> Option<V> {
        let index = self.front.get(key.spread(FRONT_BITS));
        match index.and_then(|&index| self.entries.get(usize::from(index))) {
            Some((found, value)) if found == key => Some(*value),
            _ => self.get_behind(key),
        }
    }

    #[inline(never)]
    fn get_behind(&mut self, key: &RuleKey) -> Option<V> {
        let index = if self.map.is_empty() {
            self.entries.iter().position(|(found, _)| found == key)?
        } else {
            *self.map.get(key)? as usize
        };
        self.place(key, index);
        self.entries.get(index).map(|(_, value)| *value)
    }

    fn place(&mut self, key: &RuleKey, index: usize) {
        if let Some(place) = self.front.get_mut(key.spread(FRONT_BITS)) {
            *place = u16::try_from(index).unwrap_or(NONE);
        }
    }

    /// Adds a key that is not in the map.
    pub(super) fn insert(&mut self, key: RuleKey, value: V) {
        let index = self.entries.len();
        self.entries.push((key, value));
        match index.cmp(&FEW) {
            Ordering::Less => {}
            Ordering::Equal => {
                self.front.resize(1 << FRONT_BITS, NONE);
                self.map.reserve(4 * FEW);
                self.map.extend(self.entries.iter().map(|e| e.0).zip(0..));
            }
            Ordering::Greater => _ = self.map.insert(key, index as u32),
        }
        self.place(&key, index);
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<(RuleKey, V)>();
        entries + self.front.capacity() * size_of::<u16>() + self.map.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regs::Reg;
    use crate::rule::{Rule, Value};

    fn key(offset: i32) -> RuleKey {
        RuleKey::of(&Rule::call(Value::reg(Reg::Rsp, offset))).expect("a short form")
    }

    /// Few keys, then more than there are places, so that keys share one.
    #[test]
    fn every_key_has_its_value_and_other_keys_have_none() {
        let mut map = ByKey::default();
        for number in 0..5_000 {
            assert_eq!(map.get(&key(number)), None);
            map.insert(key(number), number);
            let recent = (number - 20).max(0)..=number;
            for known in recent.chain([0, number / 2]) {
                assert_eq!(map.get(&key(known)), Some(known));
            }
        }
        assert!((0..5_000).all(|number| map.get(&key(number)) == Some(number)));
        assert_eq!(map.get(&key(5_000)), None);
        let least = 5_000 * size_of::<(RuleKey, i32)>() + (2 << FRONT_BITS);
        assert!((least..4 * least).contains(&map.bytes()));
    }
}

//! A map from rules' short forms, for tables whose rows repeat the same few rules.

use crate::rule::Key;
use alloc::vec::Vec;
use hashbrown::HashMap;

/// log2 of the number of places in front of the map.
const FRONT_BITS: u32 = 9;

/// A map with fewer keys than this has no front: making it costs more than it saves.
const FRONT_KEYS_MIN: usize = 16;

/// A hash map with the keys found last in front of it, each in its own place. The map's hashes
/// cannot be made to collide by the input; a place holds one key, whatever collides there.
#[derive(Debug)]
pub(super) struct ByKey<V> {
    map: HashMap<Key, V>,
    front: Vec<Option<(Key, V)>>,
}

impl<V> Default for ByKey<V> {
    fn default() -> Self {
        ByKey {
            map: HashMap::new(),
            front: Vec::new(),
        }
    }
}

impl<V: Copy> ByKey<V> {
    /// The value of `key`.
    #[inline]
    pub(super) fn get(&mut self, key: &Key) -> Option<V> {
        match self.front.get(key.spread(FRONT_BITS)) {
            Some(Some((found, value))) if found == key => Some(*value),
            _ => self.get_behind(key),
        }
    }

    #[inline(never)]
    fn get_behind(&mut self, key: &Key) -> Option<V> {
        let value = *self.map.get(key)?;
        if let Some(place) = self.front.get_mut(key.spread(FRONT_BITS)) {
            *place = Some((*key, value));
        } else if self.map.len() >= FRONT_KEYS_MIN {
            self.front = alloc::vec![None; 1 << FRONT_BITS];
        }
        Some(value)
    }

    /// Adds a key that is not in the map.
    pub(super) fn insert(&mut self, key: Key, value: V) {
        self.map.insert(key, value);
    }

    /// Heap bytes.
    pub(super) fn bytes(&self) -> usize {
        self.map.allocation_size() + self.front.capacity() * size_of::<Option<(Key, V)>>()
    }
}

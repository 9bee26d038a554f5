//! Hash tables with a limited number of entries; with LRU the least recently used entry is evicted.

use super::{EXIST, Errno, NOEXIST, Table, Values};
use std::collections::{BTreeMap, HashMap};

/// The results of insertions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashStats {
    /// Refused because all entries were in use (`E2BIG`).
    pub full: u64,
    /// Entries that were evicted.
    pub evicted: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Number of the entry, which is the position of its values.
    index: u32,
    /// Time of the last use; only for LRU.
    used: u64,
}

/// A hash table, with one value for each entry, or one for each entry and processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hash {
    key_size: u32,
    entries_max: u32,
    is_lru: bool,
    entries: HashMap<Vec<u8>, Entry>,
    /// The keys by last use, for LRU.
    by_use: BTreeMap<u64, Vec<u8>>,
    uses: u64,
    /// The values, which grow with the entries.
    values: Values,
    /// Entries that were deleted; the last one is reused first.
    free: Vec<u32>,
    stats: HashStats,
}

impl Hash {
    pub(super) fn new(
        (key_size, value_size, entries_max): (u32, u32, u32),
        cpus: u32,
        is_lru: bool,
    ) -> Self {
        Self {
            key_size,
            entries_max,
            is_lru,
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            values: Values::new(value_size, cpus),
            free: Vec::new(),
            stats: HashStats::default(),
        }
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The results of insertions.
    pub fn stats(&self) -> HashStats {
        self.stats
    }

    /// Marks an entry as used now. Returns its number.
    fn touch(&mut self, key: &[u8]) -> Option<u32> {
        let entry = self.entries.get_mut(key)?;
        if self.is_lru {
            self.by_use.remove(&entry.used);
            self.uses += 1;
            entry.used = self.uses;
            self.by_use.insert(self.uses, key.to_vec());
        }
        Some(entry.index)
    }

    /// A new entry whose values are zero.
    fn insert(&mut self, key: &[u8]) -> Result<u32, Errno> {
        if self.entries.len() >= self.entries_max as usize {
            let oldest = self.by_use.first_key_value().map(|(_, key)| key.clone());
            let Some(oldest) = oldest.filter(|_| self.is_lru) else {
                self.stats.full += 1;
                return Err(Errno::E2big);
            };
            self.delete(&oldest)?;
            self.stats.evicted += 1;
        }
        // Without deleted entries, all numbers so far are in use.
        let index = self.free.pop().unwrap_or(self.entries.len() as u32);
        self.values.clear(index);
        self.uses += 1;
        let used = self.uses;
        self.entries.insert(key.to_vec(), Entry { index, used });
        if self.is_lru {
            self.by_use.insert(used, key.to_vec());
        }
        Ok(index)
    }

    pub(super) fn delete(&mut self, key: &[u8]) -> Result<(), Errno> {
        let entry = self.entries.remove(key).ok_or(Errno::Enoent)?;
        self.by_use.remove(&entry.used);
        self.free.push(entry.index);
        Ok(())
    }
}

impl Table for Hash {
    fn lookup(&mut self, key: &[u8], cpu: u32) -> Option<u32> {
        let index = self.touch(key)?;
        self.values.slot(index, cpu)
    }

    fn update(&mut self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        if key.len() != self.key_size as usize || value.len() != self.values.size() {
            return Err(Errno::Einval);
        }
        let index = match self.touch(key) {
            Some(_) if flags == NOEXIST => return Err(Errno::Eexist),
            Some(index) => index,
            None if flags == EXIST => return Err(Errno::Enoent),
            None => self.insert(key)?,
        };
        let slot = self.values.slot(index, cpu).ok_or(Errno::Einval)?;
        if let Some(old) = self.values.get_mut(slot) {
            old.copy_from_slice(value);
        }
        Ok(())
    }

    fn dump(&self) -> Vec<(Vec<u8>, Vec<&[u8]>)> {
        let mut found: Vec<(Vec<u8>, Vec<&[u8]>)> = self
            .entries
            .iter()
            .map(|(key, entry)| (key.clone(), self.values.of_entry(entry.index)))
            .collect();
        found.sort();
        found
    }

    fn values(&self) -> &Values {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }
}

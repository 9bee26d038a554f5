//! Interned values with numbers, and lists with little unused capacity.

use super::memory::list_bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hash};

/// The maximum number of unwinders in a run.
pub const UNWINDERS_MAX: usize = 8;
/// Stands for no number.
pub(super) const NONE: u32 = u32::MAX;

/// Interned values.
pub(super) struct Numbered<T> {
    all: Vec<T>,
    ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The number that was given last: often the next value is the same.
    last: u32,
}

impl<T: Copy + Eq + Hash> Numbered<T> {
    pub(super) fn new() -> Self {
        Numbered {
            all: Vec::new(),
            ids: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            last: NONE,
        }
    }

    /// The number of `value`, which is added if it is new.
    pub(super) fn number(&mut self, value: T) -> u32 {
        let Numbered {
            all,
            ids,
            hasher,
            last,
        } = self;
        if all.get(*last as usize) == Some(&value) {
            return *last;
        }
        let hash = hasher.hash_one(value);
        *last = match ids.find(hash, |&id| all[id as usize] == value) {
            Some(&id) => id,
            None => {
                let id = all.len() as u32;
                push_tight(all, value);
                ids.insert_unique(hash, id, |&id| hasher.hash_one(all[id as usize]));
                id
            }
        };
        *last
    }

    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.all.get(id as usize)
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        list_bytes(&self.all) + self.ids.allocation_size()
    }
}

/// Like [`Vec::reserve`], but leaves at most an eighth of the list unused.
pub(super) fn reserve_tight<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / 8 + 8));
    }
}

/// Like [`Vec::resize`] to a length that is not shorter, with [`reserve_tight`].
pub(super) fn grow_tight<T: Clone>(list: &mut Vec<T>, len: usize, value: T) {
    reserve_tight(list, len.saturating_sub(list.len()));
    list.resize(len, value);
}

/// Like [`Vec::push`], with [`reserve_tight`].
pub(super) fn push_tight<T>(list: &mut Vec<T>, value: T) {
    reserve_tight(list, 1);
    list.push(value);
}

#[cfg(test)]
mod tests;

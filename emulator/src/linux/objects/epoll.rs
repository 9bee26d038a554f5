//! `epoll`: what it watches, and what may be ready. Not here: what is ready, the calls.
//!
//! Source: Linux 6.12 `fs/eventpoll.c`.

use crate::linux::files::WeakShared;
use std::collections::{BTreeMap, VecDeque};

/// What names an item: the descriptor under which it was added, and the number of its object.
pub(in crate::linux) type ItemKey = (u32, u32);

/// Bits of the events that say how to report (`EP_PRIVATE_BITS`).
pub(in crate::linux) const PRIVATE: u32 = 0xf000_0000;

/// What is watched.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Item {
    pub(in crate::linux) events: u32,
    pub(in crate::linux) data: u64,
    pub(in crate::linux) open: WeakShared,
}

#[derive(Clone, Debug, Default)]
pub(in crate::linux) struct Epoll {
    items: BTreeMap<ItemKey, Item>,
    /// The items that may be ready, in the order in which that was noticed.
    ready: VecDeque<ItemKey>,
}

impl Epoll {
    pub(in crate::linux) fn item(&mut self, key: ItemKey) -> Option<&mut Item> {
        self.items.get_mut(&key)
    }

    pub(in crate::linux) fn add(&mut self, key: ItemKey, item: Item) {
        self.items.insert(key, item);
    }

    pub(in crate::linux) fn remove(&mut self, key: ItemKey) {
        self.items.remove(&key);
        self.ready.retain(|ready| *ready != key);
    }

    pub(in crate::linux) fn keys(&self) -> Vec<ItemKey> {
        self.items.keys().copied().collect()
    }

    /// Puts an item at the end of those that may be ready.
    pub(in crate::linux) fn queue(&mut self, key: ItemKey) {
        if !self.ready.contains(&key) {
            self.ready.push_back(key);
        }
    }

    /// Takes those that may be ready.
    pub(in crate::linux) fn take_ready(&mut self) -> VecDeque<ItemKey> {
        std::mem::take(&mut self.ready)
    }

    /// Puts back those that were not looked at, before the others.
    pub(in crate::linux) fn put_back(&mut self, rest: VecDeque<ItemKey>) {
        for key in rest.into_iter().rev() {
            self.ready.push_front(key);
        }
    }

    /// Those that may be ready.
    pub(in crate::linux) fn candidates(&self) -> impl Iterator<Item = &Item> {
        self.ready.iter().filter_map(|key| self.items.get(key))
    }

    /// All items.
    pub(in crate::linux) fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values()
    }

    pub(super) fn watched(&mut self) -> impl Iterator<Item = &mut WeakShared> {
        self.items.values_mut().map(|item| &mut item.open)
    }

    /// These events became possible for an item; whether that matters.
    pub(in crate::linux) fn wake(&mut self, key: ItemKey, events: u32) -> bool {
        let Some(item) = self.items.get(&key) else {
            return false;
        };
        // An item that was reported once is disabled.
        if item.events & !PRIVATE == 0 || events != 0 && item.events & events == 0 {
            return false;
        }
        self.queue(key);
        true
    }
}

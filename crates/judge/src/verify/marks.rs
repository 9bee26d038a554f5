//! The set of code addresses that were met, with a bit for each.

use super::memory::list_bytes;
use super::numbered::push_tight;
use hashbrown::HashMap;
use std::hash::Hash;

/// The number of addresses in a chunk.
const CHUNK: u64 = 256;

/// Addresses that were met, in address spaces or images `S`.
#[derive(Debug)]
pub(super) struct Marks<S> {
    chunks: Vec<[u64; CHUNK as usize / 64]>,
    places: HashMap<(S, u64), u32>,
    count: u64,
}

impl<S: Eq + Hash> Marks<S> {
    pub(super) fn new() -> Self {
        Marks {
            chunks: Vec::new(),
            places: HashMap::new(),
            count: 0,
        }
    }

    pub(super) fn insert(&mut self, space: S, address: u64) {
        let next = self.chunks.len() as u32;
        let place = *self.places.entry((space, address / CHUNK)).or_insert(next);
        if place == next {
            push_tight(&mut self.chunks, [0; CHUNK as usize / 64]);
        }
        let word = &mut self.chunks[place as usize][(address % CHUNK / 64) as usize];
        let bit = 1 << (address % 64);
        self.count += u64::from(*word & bit == 0);
        *word |= bit;
    }

    /// Whether the address was met.
    pub(super) fn contains(&self, space: S, address: u64) -> bool {
        let place = self.places.get(&(space, address / CHUNK));
        place.is_some_and(|&place| {
            let word = self.chunks[place as usize][(address % CHUNK / 64) as usize];
            word & 1 << (address % 64) != 0
        })
    }

    /// All addresses, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (S, u64)>
    where
        S: Copy,
    {
        self.places.iter().flat_map(|(&(space, chunk), &place)| {
            let words = self.chunks[place as usize];
            let met = move |at: &u64| words[(at / 64) as usize] & 1 << (at % 64) != 0;
            (0..CHUNK)
                .filter(met)
                .map(move |at| (space, chunk * CHUNK + at))
        })
    }

    /// The number of distinct addresses.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        list_bytes(&self.chunks) + self.places.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::Marks;

    #[test]
    fn each_address_counts_once_in_each_space() {
        let mut marks = Marks::new();
        let addresses = [0, 63, 64, 255, 256, u64::MAX, 63, 256];
        for (space, address) in [1, 2].into_iter().flat_map(|s| addresses.map(|a| (s, a))) {
            assert!(!marks.contains(space + 2, address));
            marks.insert(space, address);
            assert!(marks.contains(space, address) && !marks.contains(space, 62));
        }
        assert_eq!(marks.count(), 12);
        let mut all: Vec<_> = marks.iter().collect();
        all.sort_unstable();
        let one = [0, 63, 64, 255, 256, u64::MAX];
        let expected: Vec<_> = [1, 2]
            .into_iter()
            .flat_map(|s| one.map(|a| (s, a)))
            .collect();
        assert_eq!(all, expected);
        // Five chunks of 256 addresses with a bit for each, and their index.
        let bytes = marks.bytes();
        assert!((5 * 32 + 1..4096).contains(&bytes), "{bytes}");
    }
}

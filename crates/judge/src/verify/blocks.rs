//! Finds what is known about a block of code again, in another process or after images have changed.
//!
//! What is known depends on the bytes, on the rows of the images that they are in, and on the row at
//! the end of the block, which can be the return address of a call. A block has at most two pages,
//! so the places of its start and end are those of all its bytes.

use super::places::{NOWHERE, PlaceId, Places};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::ops::Range;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_unwind::image;

/// What is mapped at addresses, including mappings that are not code.
pub(super) struct PlaceOf<'a> {
    places: &'a mut Places,
    space: &'a image::AddressSpace,
}

impl<'a> PlaceOf<'a> {
    pub(super) fn new(places: &'a mut Places, space: &'a image::AddressSpace) -> PlaceOf<'a> {
        PlaceOf { places, space }
    }

    /// The place of `address`, as [`Places::at`] gives it, but another number than [`NOWHERE`] for
    /// a mapping that is not a place: an unwinder may have a row there.
    pub(super) fn at(&mut self, address: u64) -> PlaceId {
        let place = self.places.at(self.space, address);
        if place == NOWHERE && self.space.find(address).is_some() {
            NOWHERE - 1
        } else {
            place
        }
    }
}

/// The identity of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    start: u64,
    /// A hash of the bytes, their number, the number of operations, and the place of the end.
    digest: u64,
    place: PlaceId,
}

/// The known blocks. A key holds everything on which what is known of a block depends: a block with the
/// same key is the same one, in any process, and also after images have changed.
#[derive(Default)]
pub(super) struct Blocks {
    /// Each with its index in the list of blocks.
    all: HashTable<(Key, u32)>,
    hasher: DefaultHashBuilder,
}

impl Blocks {
    /// The identity of the block of this number of operations at `range`. An instruction by itself
    /// is another one than a block of one instruction.
    pub(super) fn key(
        &self,
        memory: &AddressSpace,
        range: Range<u64>,
        (operations, is_single): (usize, bool),
        place_of: &mut PlaceOf<'_>,
    ) -> Key {
        // The same in every run.
        let mut digest = DefaultHasher::new();
        fetch(memory, &range).hash(&mut digest);
        (operations, is_single, place_of.at(range.end)).hash(&mut digest);
        Key {
            start: range.start,
            digest: digest.finish(),
            place: place_of.at(range.start),
        }
    }

    /// The index of a block.
    pub(super) fn get(&self, key: &Key) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        let found = self.all.find(hash, |(known, _)| known == key)?;
        Some(found.1)
    }

    /// Adds a block that is not known.
    pub(super) fn insert(&mut self, key: Key, at: u32) {
        let hasher = &self.hasher;
        let hash = hasher.hash_one(key);
        let hash_of = |(known, _): &(Key, u32)| hasher.hash_one(known);
        self.all.insert_unique(hash, (key, at), hash_of);
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.all.allocation_size()
    }
}

/// The bytes of a block, up to the first one that cannot be fetched.
fn fetch(memory: &AddressSpace, range: &Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; range.end.wrapping_sub(range.start) as usize];
    if let Err(fault) = memory.fetch(range.start, &mut bytes) {
        bytes.truncate(fault.address.wrapping_sub(range.start) as usize);
    }
    bytes
}

//! What was found out about the code of an image. It takes longer to find than a walk, and is asked
//! for again and again.

use super::code::Facts;
use hashbrown::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::Image;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::row::TableKind;

/// The number of places that are kept for each image.
const PLACES_MAX: usize = 1 << 16;

/// A place in the code of an image: its own address, and whether that is the instruction's, not a
/// return address.
pub(crate) type Spot = (u64, bool);

/// What is known of an image's code.
#[derive(Default)]
pub(crate) struct Known(Mutex<Maps>);

#[derive(Default)]
struct Maps {
    causes: HashMap<Spot, Code>,
    facts: HashMap<Spot, Facts>,
    leads: HashMap<(u64, u64), bool>,
    entry: Option<Range<u64>>,
}

impl Known {
    /// That of an image.
    pub(crate) fn of_image(image: &Image, cache: &mut Cache) -> Arc<Known> {
        cache.index(image.id(), TableKind::FramePointer, Known::default)
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why rbp is not the frame pointer at a place.
    pub(crate) fn cause(&self, spot: Spot, find: impl FnOnce() -> Code) -> Code {
        *bounded(&mut self.maps().causes)
            .entry(spot)
            .or_insert_with(find)
    }

    /// What the code at a place says, if it was found.
    pub(super) fn facts(&self, spot: Spot) -> Option<Facts> {
        self.maps().facts.get(&spot).copied()
    }

    /// Keeps what the code at a place says.
    pub(super) fn keep_facts(&self, spot: Spot, facts: Facts) {
        bounded(&mut self.maps().facts).insert(spot, facts);
    }

    /// Whether a call of the first address may lead to the function at the second.
    pub(super) fn leads(&self, way: (u64, u64), find: impl FnOnce() -> bool) -> bool {
        *bounded(&mut self.maps().leads)
            .entry(way)
            .or_insert_with(find)
    }

    /// The extent of the entry function.
    pub(super) fn entry(&self, find: impl FnOnce() -> Range<u64>) -> Range<u64> {
        self.maps().entry.get_or_insert_with(find).clone()
    }
}

/// The same map, emptied if it is full.
fn bounded<K: Eq + Hash, V>(map: &mut HashMap<K, V>) -> &mut HashMap<K, V> {
    if map.len() >= PLACES_MAX {
        map.clear();
    }
    map
}

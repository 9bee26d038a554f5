//! The bytes of generated code around findings, as they were when it ran. Such code may have been
//! written after its table was registered, and is often replaced later.

use super::places::PlaceId;
use hashbrown::HashMap;
use std::ops::Range;
use unwind_sim_unwind::memory::Memory;

/// How many bytes before and after the address of a finding are kept.
const AROUND: u64 = 256;

/// The bytes around each address, by place.
#[derive(Debug, Default)]
pub(super) struct Shown(HashMap<(PlaceId, u64), Snapshot>);

/// Bytes of the memory at a time.
#[derive(Debug)]
pub(super) struct Snapshot {
    start: u64,
    bytes: Vec<u8>,
}

impl Shown {
    /// Keeps the bytes around an address in `range`, what is mapped there, unless it has some.
    pub(super) fn keep(
        &mut self,
        place: PlaceId,
        address: u64,
        range: &Range<u64>,
        memory: &dyn Memory,
    ) {
        self.0.entry((place, address)).or_insert_with(|| {
            let start = address.saturating_sub(AROUND).max(range.start);
            let end = address.saturating_add(AROUND).min(range.end);
            let mut bytes = vec![0; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
            if memory.read(start, &mut bytes).is_err() {
                bytes.clear();
            }
            Snapshot { start, bytes }
        });
    }

    /// What was kept around an address.
    pub(super) fn around(&self, place: PlaceId, address: u64) -> Option<&Snapshot> {
        let snapshot = self.0.get(&(place, address));
        snapshot.filter(|snapshot| !snapshot.bytes.is_empty())
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let each = self.0.values().map(|snapshot| snapshot.bytes.capacity());
        self.0.allocation_size() + each.sum::<usize>()
    }
}

impl Snapshot {
    /// At most `len` bytes at `address`.
    pub(super) fn at(&self, address: u64, len: usize) -> &[u8] {
        let at = address.checked_sub(self.start);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.bytes.get(at..));
        bytes.map_or(&[], |bytes| &bytes[..bytes.len().min(len)])
    }
}

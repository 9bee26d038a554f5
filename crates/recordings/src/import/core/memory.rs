//! The memory of a core, accessed by address.

use super::super::error::{CoreErrorKind, ImportError};
use std::ops::Range;
use unwind_sim_unwind::image::{Bytes, Owner};
use unwind_sim_unwind::memory::MappedMemory;

/// A `PT_LOAD` segment of the core.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Addresses.
    pub(super) range: Range<u64>,
    /// File range of its bytes; shorter than `range` if not all were dumped.
    pub(super) file: Range<u64>,
    /// Its permissions.
    pub(super) readable: bool,
    pub(super) writable: bool,
    pub(super) executable: bool,
}

/// All dumped memory.
pub(super) struct Memory<'m> {
    bytes: &'m [u8],
    /// Sorted, without overlaps.
    segments: Vec<Segment>,
}

impl<'m> Memory<'m> {
    /// Whether the file ends before the bytes of a segment do.
    pub(super) fn is_cut(&self) -> bool {
        let size = self.bytes.len() as u64;
        self.segments.iter().any(|segment| segment.file.end > size)
    }

    /// Sorts the segments. Drops empty ones, and all but the first of overlapping ones.
    pub(super) fn new(bytes: &'m [u8], mut segments: Vec<Segment>) -> Memory<'m> {
        segments.retain(|s| !s.range.is_empty());
        segments.sort_by_key(|s| s.range.start);
        let mut end = 0;
        segments.retain(|s| {
            let apart = s.range.start >= end;
            if apart {
                end = s.range.end;
            }
            apart
        });
        Memory { bytes, segments }
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// The segment that contains `address`.
    pub(super) fn segment(&self, address: u64) -> Option<&Segment> {
        let at = self.segments.partition_point(|s| s.range.end <= address);
        self.segments.get(at).filter(|s| s.range.contains(&address))
    }

    /// The first segment above `address`, if it starts within `distance` bytes.
    pub(super) fn segment_above(&self, address: u64, distance: u64) -> Option<&Segment> {
        let at = self.segments.partition_point(|s| s.range.end <= address);
        let above = self.segments.get(at)?;
        let gap = above.range.start.checked_sub(address)?;
        (gap <= distance).then_some(above)
    }

    /// Up to `size` bytes from `address`, as far as one segment has them in the file.
    pub(super) fn bytes(&self, address: u64, size: u64) -> &'m [u8] {
        let found = self.segment(address).and_then(|s| {
            let start = s.file.start.checked_add(address - s.range.start)?;
            let left = s.range.end - address;
            let end = start.checked_add(size.min(left))?.min(s.file.end);
            let end = usize::try_from(end)
                .unwrap_or(usize::MAX)
                .min(self.bytes.len());
            self.bytes.get(usize::try_from(start).ok()?..end)
        });
        found.unwrap_or(&[])
    }

    /// The word at `address`, if it was dumped.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let bytes = self.bytes(address, 8);
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    /// A copy of `size` bytes from `address`; bytes that were not dumped are zero.
    pub(super) fn copy(&self, address: u64, size: u64) -> Vec<u8> {
        let mut out = vec![0; usize::try_from(size).unwrap_or(0)];
        let end = address.saturating_add(size);
        for s in &self.segments {
            let (from, to) = (s.range.start.max(address), s.range.end.min(end));
            if from >= to {
                continue;
            }
            let bytes = self.bytes(from, to - from);
            let at = usize::try_from(from - address).unwrap_or(usize::MAX);
            let place = at
                .checked_add(bytes.len())
                .and_then(|end| out.get_mut(at..end));
            if let Some(place) = place {
                place.copy_from_slice(bytes);
            }
        }
        out
    }

    /// All memory, read in place: what was dumped, and what `file` has of a read-only segment that
    /// was not. `file` returns the bytes mapped from an address on.
    pub(super) fn process(
        &self,
        owner: &Owner,
        file: &dyn Fn(u64) -> Option<Bytes>,
        unlisted: &[u64],
    ) -> MappedMemory {
        let dumped = self.segments.iter().filter_map(|s| {
            let size = self.bytes(s.range.start, s.range.end - s.range.start).len();
            // Read in place: a core may be larger than memory.
            let start = usize::try_from(s.file.start).ok()?;
            Some((
                s.range.start,
                Bytes::new(owner.clone(), start..start + size)?,
            ))
        });

        // Kernels and gdb omit what is equal to the file: code and constants. What a program may
        // write is not.
        let omitted = self
            .segments
            .iter()
            .filter(|s| !s.writable)
            .filter_map(|s| {
                let size = self.bytes(s.range.start, s.range.end - s.range.start).len() as u64;
                let start = s
                    .range
                    .start
                    .checked_add(size)
                    .filter(|at| *at < s.range.end)?;
                let bytes = file(start)?;
                let left = usize::try_from(s.range.end - start).unwrap_or(usize::MAX);
                Some((start, bytes.part(0..left.min(bytes.len()))?))
            });

        let unlisted = unlisted
            .iter()
            .filter_map(|&start| Some((start, file(start)?)));

        MappedMemory::new(dumped.chain(omitted).chain(unlisted))
    }

    /// The error if the file ends before its last segment. It counts what is missing of all.
    pub(super) fn cut(&self) -> Option<ImportError> {
        let file = self.bytes.len() as u64;
        let beyond = |s: &&Segment| !s.file.is_empty() && s.file.end > file;
        let beyond = self.segments.iter().filter(beyond);
        let missing = beyond
            .clone()
            .map(|s| s.file.end - s.file.start.max(file))
            .fold(0_u64, u64::saturating_add);
        let offset = beyond.map(|s| s.file.start).min()?;
        Some(ImportError::Core {
            what: CoreErrorKind::Cut { missing, file },
            section: "PT_LOAD",
            offset,
        })
    }
}

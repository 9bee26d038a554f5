//! Batches of samples for workers: their places in the file, and their tasks.

use super::task::Task;
use std::ops::Range;
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::RawRecord;

/// The number of samples in a batch.
pub(super) const SAMPLES: usize = 512;
/// The maximum number of copied bytes in a batch.
const COPIES: usize = 4 << 20;

/// A sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    place: Place,
    /// The index of its task.
    pub(super) task: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// At this offset in the file.
    File(u64),
    /// Copied, because it was compressed; an index in [`Batch::copied`].
    Copied(u32),
}

/// A run of samples, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The number of the batch.
    pub(super) number: u64,
    pub(super) entries: Vec<Entry>,
    pub(super) tasks: Vec<Task>,
    copied: Vec<Copied>,
    copies: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Copied {
    kind: u32,
    misc: u16,
    offset: u64,
    body: Range<usize>,
}

impl Batch {
    /// An empty batch with this number.
    pub(super) fn numbered(number: u64) -> Batch {
        Batch {
            number,
            ..Batch::default()
        }
    }

    /// Adds a sample of the task with this index.
    pub(super) fn add(&mut self, raw: &RawRecord<'_>, task: u32) {
        let place = if raw.unpacked {
            let start = self.copies.len();
            self.copies.extend_from_slice(raw.body);
            let body = start..self.copies.len();
            let RawRecord {
                kind, misc, offset, ..
            } = *raw;
            self.copied.push(Copied {
                kind,
                misc,
                offset,
                body,
            });
            Place::Copied((self.copied.len() - 1) as u32)
        } else {
            Place::File(raw.offset)
        };
        self.entries.push(Entry { place, task });
    }

    /// Whether the batch is full.
    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= SAMPLES || self.copies.len() >= COPIES
    }

    /// The record of a sample.
    #[inline]
    pub(super) fn raw<'r>(
        &'r self,
        file: &'r PerfFile<'_>,
        entry: &Entry,
    ) -> Option<RawRecord<'r>> {
        match entry.place {
            Place::File(offset) => file.record_at(offset).ok(),
            // A record that was compressed is not in the file as it is, so the batch has a copy.
            Place::Copied(at) => {
                let Copied {
                    kind,
                    misc,
                    offset,
                    body,
                } = self.copied.get(at as usize)?;
                let body = self.copies.get(body.clone())?;
                Some(RawRecord {
                    kind: *kind,
                    misc: *misc,
                    unpacked: true,
                    offset: *offset,
                    body,
                })
            }
        }
    }

    /// Empties the batch and gives it the next number.
    pub(super) fn reset(&mut self) {
        self.number += 1;
        self.entries.clear();
        self.tasks.clear();
        self.copied.clear();
        self.copies.clear();
    }
}

//! Buffers records until all records with earlier times have arrived.
//!
//! The recorder drains the CPUs' rings one after another and writes `FINISHED_ROUND` after each
//! round. A record can lag behind others by at most one round. So at the end of a round, everything
//! up to the latest time seen at the end of the previous round is complete
//! (`tools/perf/util/ordered-events.c`, Linux 7.2). Only times and locations are sorted. Records
//! are copied only if they were compressed, because their buffer is reused.

use std::ops::ControlFlow;

use super::file::PerfFile;
use super::le;
use super::order::Deliverer;
use super::record::Event;
use super::walk::{HEADER, RawRecord, Records, record_type as rt};

/// Maximum number of buffered records (64 MiB of locations).
const PENDING_MAX: usize = 4 << 20;
/// Maximum bytes of buffered copies of unpacked records.
const COPIES_MAX: usize = 128 << 20;
/// Size of the prefix of each copy: the file offset of the compressed record that contained it.
const COPY_OFFSET: usize = 8;

/// The time and location of a buffered record.
#[derive(Clone, Copy)]
struct Pending {
    time: u64,
    /// File offset; with [`COPIED`], an offset in [`Queue::copies`].
    place: u64,
}

/// Flag in a location: the record is in the copies.
const COPIED: u64 = 1 << 63;

/// Records buffered until their round is complete.
pub(super) struct Queue {
    pending_max: usize,
    copies_max: usize,
    /// In file order; the first `sorted` are sorted by time.
    pending: Vec<Pending>,
    sorted: usize,
    copies: Vec<u8>,
    /// Buffer for the copies kept at a flush; swapped with `copies`.
    spare: Vec<u8>,
    /// Latest time seen.
    latest: u64,
    /// Latest time seen at the end of the previous round.
    latest_of_last_round: u64,
    /// Latest time delivered.
    flushed: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(PENDING_MAX, COPIES_MAX)
    }
}

impl Queue {
    /// A queue for at most this many records, and this many bytes of copies.
    pub(super) fn new(pending_max: usize, copies_max: usize) -> Self {
        Self {
            pending_max,
            copies_max,
            pending: Vec::new(),
            sorted: 0,
            copies: Vec::new(),
            spare: Vec::new(),
            latest: 0,
            latest_of_last_round: 0,
            flushed: 0,
        }
    }

    /// Buffers a record, or delivers it if it has no time.
    #[inline]
    pub(super) fn add<F: FnMut(Event<'_>) -> ControlFlow<()>>(
        &mut self,
        raw: RawRecord<'_>,
        out: &mut Deliverer<'_, '_, F>,
    ) -> ControlFlow<()> {
        // Every ring was drained once more: what is no later than the previous round is complete.
        if raw.kind == rt::FINISHED_ROUND {
            self.flush(self.latest_of_last_round, out)?;
            self.latest_of_last_round = self.latest;
            return out.deliver(raw);
        }

        let Some(time) = out.file.time_of(&raw) else {
            return out.deliver(raw);
        };

        // Without rounds, or with very long ones, the buffer would grow with the file.
        if self.pending.len() >= self.pending_max || self.copies.len() >= self.copies_max {
            self.flush_half(out)?;
        }

        out.summary.late += u64::from(time < self.flushed);
        self.latest = self.latest.max(time);

        // The unpacker reuses its memory; other records stay in the file.
        let place = if raw.unpacked {
            self.copy(&raw) | COPIED
        } else {
            raw.offset
        };
        self.pending.push(Pending { time, place });
        ControlFlow::Continue(())
    }

    /// Copies an unpacked record and returns its offset in `copies`.
    fn copy(&mut self, raw: &RawRecord<'_>) -> u64 {
        let place = self.copies.len() as u64;
        let size = (raw.body.len() + HEADER) as u16;
        self.copies.extend_from_slice(&raw.offset.to_le_bytes());
        self.copies.extend_from_slice(&raw.kind.to_le_bytes());
        self.copies.extend_from_slice(&raw.misc.to_le_bytes());
        self.copies.extend_from_slice(&size.to_le_bytes());
        self.copies.extend_from_slice(raw.body);
        place
    }

    /// Delivers the older half, although records with those times may still arrive.
    #[cold]
    fn flush_half<F: FnMut(Event<'_>) -> ControlFlow<()>>(
        &mut self,
        out: &mut Deliverer<'_, '_, F>,
    ) -> ControlFlow<()> {
        out.summary.early_flushes += 1;
        self.sort();
        let half = self.pending.len().div_ceil(2);
        self.hand_out(half, out)
    }

    /// Delivers everything up to and including `limit`.
    pub(super) fn flush<F: FnMut(Event<'_>) -> ControlFlow<()>>(
        &mut self,
        limit: u64,
        out: &mut Deliverer<'_, '_, F>,
    ) -> ControlFlow<()> {
        self.sort();
        let count = self
            .pending
            .partition_point(|pending| pending.time <= limit);
        self.hand_out(count, out)
    }

    /// Sorts by time. The sort is stable, so equal times stay in file order, and fast for sorted
    /// runs, which the rings of several CPUs produce.
    fn sort(&mut self) {
        if self.sorted < self.pending.len() {
            self.pending.sort_by_key(|pending| pending.time);
            self.sorted = self.pending.len();
        }
    }

    /// Delivers the first `count` records.
    fn hand_out<F: FnMut(Event<'_>) -> ControlFlow<()>>(
        &mut self,
        count: usize,
        out: &mut Deliverer<'_, '_, F>,
    ) -> ControlFlow<()> {
        for pending in &self.pending[..count] {
            self.flushed = self.flushed.max(pending.time);
            let flow = match record_at(out.file, &self.copies, pending.place) {
                Some(raw) => out.deliver(raw),
                None => ControlFlow::Continue(()),
            };
            flow?;
        }
        self.pending.drain(..count);
        self.sorted = self.pending.len();
        self.keep_copies();
        ControlFlow::Continue(())
    }

    /// Moves the copies that are still buffered to the front.
    fn keep_copies(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        self.spare.clear();
        for pending in self
            .pending
            .iter_mut()
            .filter(|pending| pending.place & COPIED != 0)
        {
            let start = (pending.place & !COPIED) as usize;
            let size = le::u16_at(&self.copies, start + COPY_OFFSET + 6).unwrap_or(0);
            pending.place = self.spare.len() as u64 | COPIED;
            let end = start + COPY_OFFSET + usize::from(size);
            self.spare.extend_from_slice(&self.copies[start..end]);
        }
        std::mem::swap(&mut self.copies, &mut self.spare);
    }
}

/// A buffered record. It was read before, so it exists.
#[inline]
fn record_at<'r>(file: &'r PerfFile<'_>, copies: &'r [u8], place: u64) -> Option<RawRecord<'r>> {
    if place & COPIED == 0 {
        return file.record_at(place).ok();
    }
    let copy = &copies[(place & !COPIED) as usize..];
    let offset = le::u64_at(copy, 0)?;
    let mut records = Records::new(&copy[COPY_OFFSET..], offset);
    let raw = records.next()?.ok()?;
    Some(RawRecord {
        offset,
        unpacked: true,
        ..raw
    })
}

//! Holds records back until their turn in time has come.
//!
//! The recorder drains the CPUs' rings one after another and writes `FINISHED_ROUND` after each
//! turn. A record can lag behind others by at most one turn, so at the end of a round everything
//! up to the latest time seen by the end of the round before is complete
//! (`tools/perf/util/ordered-events.c`, Linux 7.2). Only times and places are sorted; records are
//! copied only if they were compressed, because the buffer they are in is reused.

use std::ops::ControlFlow;

use super::file::PerfFile;
use super::le;
use super::order::Deliverer;
use super::record::Event;
use super::walk::{HEADER, RawRecord, Records, record_type as rt};

/// Most records held back for ordering (64 MiB of places).
const PENDING_MAX: usize = 4 << 20;
/// Most bytes of unpacked records held back for ordering.
const COPIES_MAX: usize = 128 << 20;
/// Bytes before each copy: the file offset of the compressed record it came out of.
const COPY_OFFSET: usize = 8;

/// Where a record that is held back is.
#[derive(Clone, Copy)]
struct Pending {
    time: u64,
    /// File offset; with [`COPIED`], offset in [`Queue::copies`].
    place: u64,
}

/// Marks a place as one among the copies.
const COPIED: u64 = 1 << 63;

/// Records held back until their round is complete.
pub(super) struct Queue {
    pending_max: usize,
    copies_max: usize,
    /// In file order; the first `sorted` of them by time.
    pending: Vec<Pending>,
    sorted: usize,
    copies: Vec<u8>,
    /// Copies of the last flush that were kept; swapped with `copies`.
    spare: Vec<u8>,
    /// Latest time seen.
    latest: u64,
    /// Latest time seen when the round before this one was finished.
    latest_of_last_round: u64,
    /// Latest time handed out.
    flushed: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new(PENDING_MAX, COPIES_MAX)
    }
}

impl Queue {
    /// A queue that holds back at most so many records, and so many bytes of copies.
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

    /// Takes a record: holds it back, or hands it on if it has no time.
    #[inline]
    pub(super) fn add<F: FnMut(Event<'_>) -> ControlFlow<()>>(
        &mut self,
        raw: RawRecord<'_>,
        out: &mut Deliverer<'_, '_, F>,
    ) -> ControlFlow<()> {
        if raw.kind == rt::FINISHED_ROUND {
            self.flush(self.latest_of_last_round, out)?;
            self.latest_of_last_round = self.latest;
            return out.deliver(raw);
        }
        let Some(time) = out.file.time_of(&raw) else {
            return out.deliver(raw);
        };
        if self.pending.len() >= self.pending_max || self.copies.len() >= self.copies_max {
            self.flush_half(out)?;
        }
        out.summary.late += u64::from(time < self.flushed);
        self.latest = self.latest.max(time);
        let place = if raw.unpacked {
            self.copy(&raw) | COPIED
        } else {
            raw.offset
        };
        self.pending.push(Pending { time, place });
        ControlFlow::Continue(())
    }

    /// Keeps a copy of an unpacked record and tells where.
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

    /// Hands out the older half, though records of its time may still come.
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

    /// Hands out everything up to and including `limit`.
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

    /// Sorts by time. Stable, so that equal times stay in file order; and made for runs, which
    /// is what the rings of several CPUs are.
    fn sort(&mut self) {
        if self.sorted < self.pending.len() {
            self.pending.sort_by_key(|pending| pending.time);
            self.sorted = self.pending.len();
        }
    }

    /// Hands out the first `count` records.
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

    /// Moves the copies that are still held back to the front.
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

/// A record that was held back. It was read before, so it is there.
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

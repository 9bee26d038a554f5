//! Ring buffers: records in the order in which room for them was reserved.
//!
//! Source: `kernel/bpf/ringbuf.c`, Linux 6.18. A record needs 8 bytes more, in units of 8, and one
//! that cannot be had is lost. Not here: waking of consumers, and the overwriting mode of Linux
//! 6.19.

use super::Errno;
use std::collections::VecDeque;

/// Bytes before each record.
const HEADER: u64 = 8;
/// The largest record (`RINGBUF_MAX_RECORD_SZ`).
const RECORD_MAX: u64 = (u32::MAX / 4) as u64;
/// Rings are made of pages.
const PAGE: u32 = 4096;

/// The results of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Given to the consumer, or waiting for it.
    pub submitted: u64,
    /// Given back by the program.
    pub discarded: u64,
    /// Lost, because there was no room.
    pub lost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Reserved,
    Submitted(Vec<u8>),
    Discarded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    /// Bytes that it takes in the ring.
    length: u64,
    state: State,
}

/// A map of type `BPF_MAP_TYPE_RINGBUF`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    size: u32,
    /// Positions of the reader and the writer, bytes since the start.
    consumer: u64,
    producer: u64,
    /// The records between the two.
    records: VecDeque<Record>,
    /// Number of the first of them.
    first: u64,
    stats: RingStats,
}

impl Ring {
    /// An empty ring of `size` bytes; `EINVAL` unless that is a power of two and whole pages.
    pub(super) fn new(size: u32) -> Result<Self, Errno> {
        if !size.is_power_of_two() || !size.is_multiple_of(PAGE) {
            return Err(Errno::Einval);
        }
        Ok(Self {
            size,
            consumer: 0,
            producer: 0,
            records: VecDeque::new(),
            first: 0,
            stats: RingStats::default(),
        })
    }

    /// The results of records.
    pub fn stats(&self) -> RingStats {
        self.stats
    }

    /// Reserves room for a record. Returns its number; `None` if there is not enough room.
    pub(crate) fn reserve(&mut self, size: u64) -> Option<u64> {
        let length = (size + HEADER).next_multiple_of(8);
        let end = self.producer + length;
        // The ring is never quite full: the kernel compares with its mask.
        if size > RECORD_MAX || end - self.consumer >= u64::from(self.size) {
            self.stats.lost += 1;
            return None;
        }
        self.producer = end;
        let state = State::Reserved;
        self.records.push_back(Record { length, state });
        Some(self.first + self.records.len() as u64 - 1)
    }

    /// Ends a reservation, with the data written or with nothing.
    pub(crate) fn commit(&mut self, number: u64, data: Option<Vec<u8>>) {
        let at = number
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok());
        let Some(record) = at.and_then(|at| self.records.get_mut(at)) else {
            return;
        };
        match data {
            Some(data) => {
                self.stats.submitted += 1;
                record.state = State::Submitted(data);
            }
            None => {
                self.stats.discarded += 1;
                record.state = State::Discarded;
            }
        }
    }

    /// Takes what was submitted, up to the first record that is not finished, as a consumer does.
    pub fn consume(&mut self) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        while let Some(record) = self.records.front_mut() {
            match std::mem::replace(&mut record.state, State::Discarded) {
                State::Reserved => {
                    record.state = State::Reserved;
                    break;
                }
                State::Submitted(data) => taken.push(data),
                State::Discarded => {}
            }
            self.consumer += record.length;
            self.first += 1;
            self.records.pop_front();
        }
        taken
    }

    /// The answer of `ringbuf_query`; 0 for an unknown question.
    pub(crate) fn query(&self, what: u64) -> u64 {
        match what {
            0 => self.producer - self.consumer,
            1 => u64::from(self.size),
            2 => self.consumer,
            3 => self.producer,
            _ => 0,
        }
    }
}

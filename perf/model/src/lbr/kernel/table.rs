//! Memory for branch records that belongs to tasks: `struct perf_ctx_data`, its count of users
//! and its end by RCU (`kernel/events/core.c`, Linux 7.2).

use super::{Data, DataId, Table, TaskContext};
use crate::lbr::layout::{CONTEXT_HEADER_BYTES, Layout};
use std::collections::BTreeMap;

/// Memory handed out and given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Pieces ever handed out.
    pub allocated: u64,
    /// Pieces given back.
    pub freed: u64,
    /// Times that memory already given back was given back.
    pub freed_twice: u64,
    /// Times that memory already given back was used.
    pub used_after_free: u64,
    /// Bytes handed out now.
    pub bytes: u64,
    /// The most bytes there ever were.
    pub bytes_max: u64,
}

/// What happened to a piece of memory or to a ring; pieces have numbers that are used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Memory was handed out for a task.
    Allocated {
        /// Which.
        piece: u64,
        /// For whom.
        tid: i32,
    },
    /// A switch found the memory that it is going to write.
    Found {
        /// Which.
        piece: u64,
    },
    /// The ring was written there.
    Saved {
        /// Which.
        piece: u64,
    },
    /// The ring was filled from there.
    Restored {
        /// Which.
        piece: u64,
    },
    /// The ring still holds what was saved there last: nothing was written.
    Skipped {
        /// Which.
        piece: u64,
    },
    /// A ring was wiped.
    Wiped {
        /// Of which CPU.
        cpu: usize,
    },
    /// Memory was given back.
    Freed {
        /// Which.
        piece: u64,
    },
}

/// A section in which memory found stays (`rcu_read_lock`).
#[derive(Debug)]
pub struct Reader(u64);

impl Table {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            data: BTreeMap::new(),
            next: 1,
            piece_bytes: CONTEXT_HEADER_BYTES + layout.bytes(),
            readers: BTreeMap::new(),
            next_reader: 0,
            period: 0,
            condemned: Vec::new(),
            free_at_once: false,
            ledger: Ledger::default(),
            journal: None,
        }
    }

    pub(super) fn note(&mut self, step: Step) {
        if let Some(journal) = &mut self.journal {
            journal.push(step);
        }
    }

    pub(super) fn allocate(&mut self, tid: i32, global: bool) -> DataId {
        let id = self.next;
        self.next += 1;
        self.note(Step::Allocated { piece: id, tid });
        self.data.insert(
            id,
            Data {
                refcount: 1,
                global,
                saved: TaskContext::default(),
            },
        );
        let ledger = &mut self.ledger;
        ledger.allocated += 1;
        ledger.bytes += self.piece_bytes;
        ledger.bytes_max = ledger.bytes_max.max(ledger.bytes);
        id
    }

    /// The memory as a dump finds it; this does not count as a use.
    pub(super) fn look(&self, id: DataId) -> Option<&Data> {
        self.data.get(&id)
    }

    /// The memory, if it is still there; using it afterwards is a fault that is counted.
    pub(super) fn get(&mut self, id: DataId) -> Option<&mut Data> {
        let found = self.data.get_mut(&id);
        self.ledger.used_after_free += u64::from(found.is_none());
        found
    }

    /// Frees memory that nobody else has seen.
    fn free(&mut self, id: DataId) {
        self.note(Step::Freed { piece: id });
        if self.data.remove(&id).is_some() {
            self.ledger.freed += 1;
            self.ledger.bytes -= self.piece_bytes;
        } else {
            self.ledger.freed_twice += 1;
        }
    }

    /// `call_rcu`: frees when no reader can have it any more.
    pub(super) fn free_later(&mut self, id: DataId) {
        if self.free_at_once {
            self.free(id);
            return;
        }
        self.condemned.push((self.period, id));
        self.period += 1;
        self.free_condemned();
    }

    pub(super) fn lock(&mut self) -> Reader {
        let number = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(number, self.period);
        Reader(number)
    }

    pub(super) fn unlock(&mut self, reader: Reader) {
        self.readers.remove(&reader.0);
        self.free_condemned();
    }

    fn free_condemned(&mut self) {
        let oldest = self.readers.values().min().copied().unwrap_or(u64::MAX);
        // A reader that began in the period of the call may have it.
        let over = self
            .condemned
            .partition_point(|&(period, _)| period < oldest);
        let over: Vec<_> = self.condemned.drain(..over).collect();
        for (_, id) in over {
            self.free(id);
        }
    }
}

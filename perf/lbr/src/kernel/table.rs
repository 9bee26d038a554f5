//! Memory of tasks for branch records: `struct perf_ctx_data`, its reference count, and its
//! release by RCU (`kernel/events/core.c`, Linux 7.2).

use super::{Data, DataId, Table, TaskContext};
use crate::layout::{CONTEXT_HEADER_BYTES, Layout};
use std::collections::BTreeMap;

/// The memory allocated and freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Pieces allocated so far.
    pub allocated: u64,
    /// Pieces freed so far.
    pub freed: u64,
    /// The number of double frees.
    pub freed_twice: u64,
    /// The number of uses after free.
    pub used_after_free: u64,
    /// Bytes allocated now.
    pub bytes: u64,
    /// The most bytes allocated at any time.
    pub bytes_max: u64,
}

/// A step of a piece of memory or of a ring. The numbers of pieces are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Memory was allocated for a task.
    Allocated {
        /// The number of the piece.
        piece: u64,
        /// The thread; 0 for the idle task.
        tid: i32,
    },
    /// A switch found the memory to save to.
    Found {
        /// The number of the piece.
        piece: u64,
    },
    /// The ring was saved to the memory.
    Saved {
        /// The number of the piece.
        piece: u64,
    },
    /// The ring was restored from the memory.
    Restored {
        /// The number of the piece.
        piece: u64,
    },
    /// The ring still holds the records of the memory, so nothing was restored.
    Skipped {
        /// The number of the piece.
        piece: u64,
    },
    /// A ring was wiped.
    Wiped {
        /// The CPU.
        cpu: usize,
    },
    /// Memory was freed.
    Freed {
        /// The number of the piece.
        piece: u64,
    },
}

/// An RCU read section (`rcu_read_lock`): memory found in it is not freed.
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

    /// The memory as a crash dump finds it, which does not count as a use.
    pub(super) fn look(&self, id: DataId) -> Option<&Data> {
        self.data.get(&id)
    }

    /// The memory, if it still exists. A use after free is counted.
    pub(super) fn get(&mut self, id: DataId) -> Option<&mut Data> {
        let found = self.data.get_mut(&id);
        self.ledger.used_after_free += u64::from(found.is_none());
        found
    }

    /// Frees memory at once.
    fn free(&mut self, id: DataId) {
        self.note(Step::Freed { piece: id });
        if self.data.remove(&id).is_some() {
            self.ledger.freed += 1;
            self.ledger.bytes -= self.piece_bytes;
        } else {
            self.ledger.freed_twice += 1;
        }
    }

    /// `call_rcu`: frees memory once no reader can use it any more.
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
        // A reader that began in the period of the call may still use it.
        let over = self
            .condemned
            .partition_point(|&(period, _)| period < oldest);
        let over: Vec<_> = self.condemned.drain(..over).collect();
        for (_, id) in over {
            self.free(id);
        }
    }
}

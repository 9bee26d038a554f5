//! POSIX message queues. Not here: the calls (`calls::mq`).
//!
//! Source: Linux 6.12 `ipc/mqueue.c`.

use super::identity::Identity;
use std::collections::BTreeMap;

/// Who is told that a message has come to an empty queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notify {
    pub(super) process: u32,
    /// The signal that it gets; none if it only keeps others from asking.
    pub(super) signal: Option<u8>,
    pub(super) value: u64,
}

/// A message queue.
#[derive(Clone, Debug)]
pub(super) struct MessageQueue {
    /// Its name; none once it was removed.
    pub(super) name: Option<Vec<u8>>,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Its permissions.
    pub(super) mode: u32,
    /// How many messages it holds, and the size of the largest one, bytes.
    pub(super) count_max: u64,
    pub(super) size_max: u64,
    /// The messages and their priorities: the next one to be received first.
    pub(super) messages: Vec<(u32, Vec<u8>)>,
    pub(super) notify: Option<Notify>,
}

impl MessageQueue {
    /// What it may need, as `RLIMIT_MSGQUEUE` counts, bytes.
    pub(super) fn bytes(count_max: u64, size_max: u64) -> u64 {
        /// Sizes of `struct msg_msg` and `struct posix_msg_tree_node`, and the number of priorities.
        const MESSAGE: u64 = 48;
        const NODE: u64 = 48;
        const PRIORITIES: u64 = 32768;
        count_max * (size_max + MESSAGE) + count_max.min(PRIORITIES) * NODE
    }

    /// Whether a process has all of these permissions: 4 read, 2 write.
    pub(super) fn allows(&self, who: &Identity, wanted: u32) -> bool {
        let shift = if who.user.file == self.uid {
            6
        } else if who.is_in(self.gid) {
            3
        } else {
            0
        };
        wanted & !(self.mode >> shift) == 0 || who.is_capable_with_files()
    }

    pub(super) fn is_full(&self) -> bool {
        self.messages.len() as u64 >= self.count_max
    }

    /// Adds a message behind those of the same priority.
    pub(super) fn send(&mut self, priority: u32, bytes: Vec<u8>) {
        let at = self
            .messages
            .partition_point(|(other, _)| *other >= priority);
        self.messages.insert(at, (priority, bytes));
    }
}

/// All message queues, by number.
#[derive(Clone, Default, Debug)]
pub(super) struct MessageQueues {
    pub(super) all: BTreeMap<u64, MessageQueue>,
    next: u64,
}

impl MessageQueues {
    pub(super) fn named(&self, name: &[u8]) -> Option<u64> {
        let mut all = self.all.iter();
        all.find(|(_, queue)| queue.name.as_deref() == Some(name))
            .map(|(number, _)| *number)
    }

    pub(super) fn add(&mut self, queue: MessageQueue) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, queue);
        number
    }
}

//! What can be waited for, by number: what each object is, and who waits for it with `epoll`. Not
//! here: open files (`files`), the calls.
//!
//! Objects are plain data, which a snapshot copies; they name each other by number.

mod epoll;

pub(super) use epoll::{Epoll, Item, Key, PRIVATE};

use super::files::{Others, Shared};
use super::handle::{Handle, Note, Notes, Sort, ev};
use std::collections::BTreeMap;

/// The objects of the standard streams have the numbers of their descriptors.
const FIRST: u32 = 3;

/// What can be waited for.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// One end of a pipe; the number of the other end.
    Pipe {
        other: u32,
    },
    /// `eventfd`.
    Counter {
        count: u64,
        /// Whether a read takes 1 (`EFD_SEMAPHORE`).
        semaphore: bool,
    },
    /// `timerfd_create`.
    Timer {
        /// Its clock, by number.
        clock: u64,
        /// Expirations that were not read.
        expired: u64,
    },
    /// `signalfd`: the signals that it reads.
    Signals {
        set: u64,
        /// Those that were pending when it was last looked at.
        seen: u64,
    },
    /// `pidfd_open`: the number of the process.
    Process {
        number: u32,
    },
    Epoll(Epoll),
}

/// All objects.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    all: BTreeMap<u32, Object>,
    /// The epolls that watch an object, with the descriptor that they know it by.
    watchers: BTreeMap<u32, Vec<(u32, u32)>>,
    /// The objects of `signalfd`.
    signals: Vec<u32>,
    next: u32,
    pub(super) notes: Notes,
}

impl Objects {
    pub(super) fn new() -> Objects {
        Objects {
            all: BTreeMap::new(),
            watchers: BTreeMap::new(),
            signals: Vec::new(),
            next: FIRST,
            notes: Notes::default(),
        }
    }

    /// A copy. The open files that it holds and watches are still the original's.
    pub(super) fn copy(&self) -> Objects {
        Objects {
            notes: Notes::default(),
            ..self.clone()
        }
    }

    /// The open files that objects hold and watch.
    pub(super) fn others(&mut self) -> Others<'_> {
        let held: Vec<&mut Shared> = Vec::new();
        let mut watched = Vec::new();
        for object in self.all.values_mut() {
            if let Object::Epoll(epoll) = object {
                watched.extend(epoll.watched());
            }
        }
        Others {
            notes: self.notes.clone(),
            held,
            watched,
        }
    }

    /// Adds an object; the open file to which the handle belongs keeps it.
    pub(super) fn add(&mut self, object: Object) -> Handle {
        let sort = match &object {
            Object::Pipe { .. } => Sort::Pipe,
            Object::Counter { .. } => Sort::Counter,
            Object::Timer { .. } => Sort::Timer,
            Object::Signals { .. } => Sort::Signals,
            Object::Process { .. } => Sort::Process,
            Object::Epoll(_) => Sort::Epoll,
        };
        let id = self.next;
        self.next += 1;
        if sort == Sort::Signals {
            self.signals.push(id);
        }
        self.all.insert(id, object);
        Handle::new(id, sort, &self.notes)
    }

    /// Adds both ends of a pipe: the reader, the writer.
    pub(super) fn add_pipe(&mut self) -> (Handle, Handle) {
        let other = self.next + 1;
        let reader = self.add(Object::Pipe { other });
        let writer = self.add(Object::Pipe { other: reader.id });
        (reader, writer)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Object> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Object> {
        self.all.get_mut(&id)
    }

    pub(super) fn epoll(&mut self, id: u32) -> Option<&mut Epoll> {
        match self.all.get_mut(&id) {
            Some(Object::Epoll(epoll)) => Some(epoll),
            _ => None,
        }
    }

    /// The numbers of the objects of which this is true.
    pub(super) fn find(&self, is_it: impl Fn(&Object) -> bool) -> Vec<u32> {
        let all = self.all.iter().filter(|(_, object)| is_it(object));
        all.map(|(&id, _)| id).collect()
    }

    /// Whether a signal can be read.
    pub(super) fn reads_signal(&self, signal: u8) -> bool {
        let mut sets = self.signals.iter().map(|id| match self.all.get(id) {
            Some(Object::Signals { set, .. }) => *set,
            _ => 0,
        });
        sets.any(|set| set & 1 << (signal - 1) != 0)
    }

    /// Whether any object reads signals.
    pub(super) fn read_signals(&self) -> bool {
        !self.signals.is_empty()
    }

    /// These signals are pending.
    pub(super) fn see_signals(&mut self, pending: u64) {
        for id in self.signals.clone() {
            if let Some(Object::Signals { set, seen }) = self.all.get_mut(&id) {
                let new = pending & *set & !*seen;
                *seen = pending;
                if new != 0 {
                    self.wake(id, ev::READABLE);
                }
            }
        }
    }

    /// Lets an epoll watch an object.
    pub(super) fn watch(&mut self, epoll: u32, (fd, id): Key) {
        self.watchers.entry(id).or_default().push((epoll, fd));
    }

    pub(super) fn unwatch(&mut self, epoll: u32, (fd, id): Key) {
        if let Some(watchers) = self.watchers.get_mut(&id) {
            watchers.retain(|watcher| *watcher != (epoll, fd));
        }
    }

    /// These events became possible; 0 for any.
    pub(super) fn wake(&mut self, id: u32, events: u32) {
        // An epoll that is watched by another one passes it on; there are no cycles.
        let mut todo = vec![(id, events)];
        while let Some((id, events)) = todo.pop() {
            for (epoll, fd) in self.watchers.get(&id).cloned().unwrap_or_default() {
                let woken = self.epoll(epoll).is_some_and(|e| e.wake((fd, id), events));
                if woken {
                    todo.push((epoll, ev::READABLE));
                }
            }
        }
    }

    /// Acts on what happened; the numbers of the objects that were closed.
    pub(super) fn settle(&mut self) -> Vec<u32> {
        let mut closed = Vec::new();
        loop {
            let notes = self.notes.take();
            if notes.is_empty() {
                return closed;
            }
            for note in notes {
                match note {
                    Note::Woken(id, events) => self.wake(id, events),
                    Note::Closed(id) => {
                        closed.push(id);
                        self.close(id);
                    }
                }
            }
        }
    }

    fn close(&mut self, id: u32) {
        for (epoll, fd) in self.watchers.remove(&id).unwrap_or_default() {
            if let Some(epoll) = self.epoll(epoll) {
                epoll.remove((fd, id));
            }
        }
        self.signals.retain(|&other| other != id);
        match self.all.remove(&id) {
            Some(Object::Pipe { other }) => {
                self.wake(other, ev::READABLE | ev::WRITABLE | ev::ERR | ev::HUP);
            }
            Some(Object::Epoll(epoll)) => {
                for key in epoll.keys() {
                    self.unwatch(id, key);
                }
            }
            _ => {}
        }
    }
}

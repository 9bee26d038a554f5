//! Pipes and FIFOs: what their ends share. Not here: reading and writing (`description`), opening a
//! FIFO (`calls::fifo`).
//!
//! Source: Linux 6.12 `fs/pipe.c`.

use crate::linux::handle::{Handle, ev};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

/// Capacity of a new pipe, bytes.
pub(in crate::linux) const PIPE_SIZE: usize = 65536;

/// The events that may begin when an end is opened or closed.
const ALL: u32 = ev::READABLE | ev::WRITABLE | ev::HUP | ev::ERR;

/// A pipe, or an open FIFO.
#[derive(Debug)]
pub(in crate::linux) struct Pipe {
    pub(in crate::linux) bytes: VecDeque<u8>,
    /// Bytes that it can hold.
    pub(in crate::linux) capacity: usize,
    /// The number of a pipe without a name.
    pub(super) number: u32,
    /// The permissions that `fchmod` gave a pipe without a name.
    pub(super) mode: Option<u32>,
    /// The open files that can read, and write.
    pub(in crate::linux) open: [u32; 2],
    /// How often it was opened to read, and to write.
    pub(in crate::linux) opened: [u64; 2],
    /// The objects of its ends.
    ids: BTreeSet<u32>,
}

impl Default for Pipe {
    fn default() -> Self {
        Pipe {
            bytes: VecDeque::new(),
            capacity: PIPE_SIZE,
            number: 0,
            mode: None,
            open: [0; 2],
            opened: [0; 2],
            ids: BTreeSet::new(),
        }
    }
}

/// The ends of a pipe share it.
pub(in crate::linux) type PipeRef = Rc<RefCell<Pipe>>;

/// An open file of a pipe or FIFO: one end, or both. `F` is a reference to the file of a FIFO.
#[derive(Debug)]
pub(in crate::linux) struct PipeEnd<F> {
    pub(in crate::linux) pipe: PipeRef,
    /// Whether it can read, and write.
    can: [bool; 2],
    /// How often the other end of the FIFO had been opened, if it was closed when this one was
    /// opened.
    pub(in crate::linux) alone_since: Option<u64>,
    pub(in crate::linux) handle: Handle,
    /// The file of a FIFO; a pipe has none.
    pub(in crate::linux) fifo: Option<F>,
}

impl<F> PipeEnd<F> {
    /// Opens an end of a pipe, or both: whether it can read, and write.
    pub(in crate::linux) fn new(
        pipe: &PipeRef,
        can: [bool; 2],
        handle: Handle,
        fifo: Option<F>,
    ) -> PipeEnd<F> {
        for (opened, _) in pipe
            .borrow_mut()
            .opened
            .iter_mut()
            .zip(can)
            .filter(|(_, can)| *can)
        {
            *opened += 1;
        }
        let end = PipeEnd::register(pipe, can, handle, fifo);
        end.wake(ALL);
        end
    }

    fn register(pipe: &PipeRef, can: [bool; 2], handle: Handle, fifo: Option<F>) -> PipeEnd<F> {
        let mut shared = pipe.borrow_mut();
        for (open, _) in shared.open.iter_mut().zip(can).filter(|(_, can)| *can) {
            *open += 1;
        }
        shared.ids.insert(handle.id);
        PipeEnd {
            pipe: pipe.clone(),
            can,
            alone_since: None,
            handle,
            fifo,
        }
    }

    /// The reader and the writer of a new pipe.
    pub(in crate::linux) fn pair((reader, writer): (Handle, Handle)) -> (PipeEnd<F>, PipeEnd<F>) {
        let pipe = PipeRef::default();
        pipe.borrow_mut().number = reader.id;
        (
            PipeEnd::new(&pipe, [true, false], reader, None),
            PipeEnd::new(&pipe, [false, true], writer, None),
        )
    }

    /// The same end of a copy of the pipe.
    pub(super) fn copy(&self, pipe: &PipeRef, handle: Handle, fifo: Option<F>) -> PipeEnd<F> {
        let mut end = PipeEnd::register(pipe, self.can, handle, fifo);
        end.alone_since = self.alone_since;
        end
    }

    /// Whether nobody can write what is read here.
    pub(in crate::linux) fn lacks_writer(&self) -> bool {
        self.pipe.borrow().open[1] == 0
    }

    /// Whether nobody can read what is written here.
    pub(in crate::linux) fn lacks_reader(&self) -> bool {
        self.pipe.borrow().open[0] == 0
    }

    /// Whether it can read.
    pub(in crate::linux) fn reads(&self) -> bool {
        self.can[0]
    }

    /// Whether it can write.
    pub(in crate::linux) fn writes(&self) -> bool {
        self.can[1]
    }

    /// Whether the other end has been opened since this one was, or before.
    pub(in crate::linux) fn was_joined(&self) -> bool {
        let other = usize::from(self.reads());
        self.alone_since != Some(self.pipe.borrow().opened[other])
    }

    /// Bytes in the pipe.
    pub(in crate::linux) fn len(&self) -> usize {
        self.pipe.borrow().bytes.len()
    }

    /// Bytes that can be written without waiting.
    pub(in crate::linux) fn room(&self) -> usize {
        let pipe = self.pipe.borrow();
        pipe.capacity.saturating_sub(pipe.bytes.len())
    }

    pub(in crate::linux) fn is_same(&self, other: &PipeEnd<F>) -> bool {
        Rc::ptr_eq(&self.pipe, &other.pipe)
    }

    /// What can be done with it without waiting (`pipe_poll`).
    pub(in crate::linux) fn events(&self) -> u32 {
        let pipe = self.pipe.borrow();
        let mut events = 0;
        if self.reads() {
            // An end that was never opened cannot hang up.
            let has_hung_up = pipe.open[1] == 0 && self.alone_since != Some(pipe.opened[1]);
            events |= if pipe.bytes.is_empty() {
                0
            } else {
                ev::READABLE
            };
            events |= if has_hung_up { ev::HUP } else { 0 };
        }
        if self.writes() {
            events |= if pipe.bytes.len() < pipe.capacity {
                ev::WRITABLE
            } else {
                0
            };
            events |= if pipe.open[0] == 0 { ev::ERR } else { 0 };
        }
        events
    }

    /// These events became possible for those who wait for an end.
    pub(in crate::linux) fn wake(&self, events: u32) {
        for &id in &self.pipe.borrow().ids {
            self.handle.wake(id, events);
        }
    }
}

impl<F> Drop for PipeEnd<F> {
    fn drop(&mut self) {
        {
            let mut pipe = self.pipe.borrow_mut();
            for (open, _) in pipe.open.iter_mut().zip(self.can).filter(|(_, can)| *can) {
                *open -= 1;
            }
            pipe.ids.remove(&self.handle.id);
        }
        self.wake(ALL);
    }
}

/// The pipe of a FIFO, while it is open.
#[derive(Debug, Default)]
pub(super) struct Fifo(Weak<RefCell<Pipe>>);

impl Fifo {
    /// The pipe, which is new if nobody has the FIFO open.
    pub(super) fn pipe(&mut self) -> PipeRef {
        let open = self.0.upgrade();
        let pipe = open.unwrap_or_default();
        self.0 = Rc::downgrade(&pipe);
        pipe
    }

    /// Makes it that of a copied FIFO.
    pub(super) fn set(&mut self, pipe: &PipeRef) {
        self.0 = Rc::downgrade(pipe);
    }
}

/// A copy of a pipe, without its ends.
pub(super) fn copy(pipe: &PipeRef) -> PipeRef {
    let pipe = pipe.borrow();
    Rc::new(RefCell::new(Pipe {
        bytes: pipe.bytes.clone(),
        capacity: pipe.capacity,
        number: pipe.number,
        mode: pipe.mode,
        opened: pipe.opened,
        ..Pipe::default()
    }))
}

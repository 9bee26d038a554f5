//! References from open files to objects of the kernel that can be waited for: pipes, sockets,
//! counters, timers. Not here: the objects (`objects`).
//!
//! An open file has a [`Handle`]. What happens to it is noted in a list that all handles share, and
//! the kernel acts on it when the call has been answered.

use std::cell::RefCell;
use std::rc::Rc;

/// Events of `poll` and `epoll` (Linux 6.12 `include/uapi/linux/eventpoll.h`).
pub(super) mod ev {
    pub(in crate::linux) const IN: u32 = 1;
    pub(in crate::linux) const PRI: u32 = 2;
    pub(in crate::linux) const OUT: u32 = 4;
    pub(in crate::linux) const ERR: u32 = 8;
    pub(in crate::linux) const HUP: u32 = 0x10;
    pub(in crate::linux) const NVAL: u32 = 0x20;
    /// Same as [`IN`] and [`OUT`] for "normal" data.
    pub(in crate::linux) const RDNORM: u32 = 0x40;
    pub(in crate::linux) const RDBAND: u32 = 0x80;
    pub(in crate::linux) const WRNORM: u32 = 0x100;
    pub(in crate::linux) const WRBAND: u32 = 0x200;
    pub(in crate::linux) const RDHUP: u32 = 0x2000;
    pub(in crate::linux) const READABLE: u32 = IN | RDNORM;
    pub(in crate::linux) const WRITABLE: u32 = OUT | WRNORM;
}

/// What an open file refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandleKind {
    Pipe,
    /// `eventfd`.
    Counter,
    /// `timerfd_create`.
    Timer,
    /// `signalfd`.
    Signals,
    /// `pidfd_open`.
    Process,
    Epoll,
    Socket,
    /// `inotify_init`.
    Inotify,
    /// A POSIX message queue.
    Queue,
    /// A pseudo-terminal: its master, or what `/dev/pts/N` opens.
    Terminal,
    /// What an open file has locks by, or is watched by.
    Lock,
}

impl HandleKind {
    /// What `/proc/self/fd` shows.
    pub(super) fn name(self) -> &'static str {
        match self {
            HandleKind::Pipe => "pipe:",
            HandleKind::Counter => "anon_inode:[eventfd]",
            HandleKind::Timer => "anon_inode:[timerfd]",
            HandleKind::Signals => "anon_inode:[signalfd]",
            HandleKind::Process => "anon_inode:[pidfd]",
            HandleKind::Epoll => "anon_inode:[eventpoll]",
            HandleKind::Socket => "socket:",
            HandleKind::Inotify => "anon_inode:inotify",
            HandleKind::Queue => "mqueue:",
            HandleKind::Terminal => "terminal",
            HandleKind::Lock => "",
        }
    }
}

/// Something that happened to an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Note {
    /// The last descriptor of the open file was closed.
    Closed(u32),
    /// These events became possible.
    Woken(u32, u32),
}

/// What has happened and was not yet acted on.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes(Rc<RefCell<Vec<Note>>>);

impl Notes {
    fn add(&self, note: Note) {
        self.0.borrow_mut().push(note);
    }

    /// Takes all notes.
    pub(super) fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}

/// A reference from an open file to its object. Dropping it releases the object.
#[derive(Debug)]
pub(super) struct Handle {
    /// The number of the object: each open file has its own.
    pub(super) id: u32,
    pub(super) sort: HandleKind,
    notes: Notes,
}

impl Handle {
    pub(super) fn new(id: u32, sort: HandleKind, notes: &Notes) -> Handle {
        Handle {
            id,
            sort,
            notes: notes.clone(),
        }
    }

    /// A reference to the copy of the object.
    pub(super) fn copy(&self, notes: &Notes) -> Handle {
        Handle::new(self.id, self.sort, notes)
    }

    /// Notes that these events became possible for those who wait for another object.
    pub(super) fn wake(&self, other: u32, events: u32) {
        self.notes.add(Note::Woken(other, events));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.notes.add(Note::Closed(self.id));
    }
}

//! What can be waited for, by number: what each object is, and who waits for it with `epoll`. Not
//! here: open files (`files`), the calls.
//!
//! Objects are plain data, which a snapshot copies; they name each other by number.

mod address;
mod ends;
mod epoll;
mod inotify;
mod socket;
pub(super) mod terminal;

pub(super) use address::{Address, Family};
pub(super) use ends::TerminalEnd;
pub(super) use epoll::{Epoll, Item, ItemKey, PRIVATE};
pub(super) use inotify::{Inotify, event};
pub(super) use socket::{Credentials, Message, Socket, State, Type};

use super::files::{OtherReferences, Shared};
use super::handle::{Handle, HandleKind, Note, Notes, ev};
use crate::address_space::ObjectId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use terminal::Terminal;

/// The objects of the standard streams have the numbers of their descriptors.
const FIRST: u32 = 3;
/// The events that may begin when the other side of something is closed.
const ALL: u32 = ev::READABLE | ev::WRITABLE | ev::HUP | ev::RDHUP | ev::ERR;

/// What can be waited for.
#[derive(Clone, Debug)]
pub(super) enum Object {
    /// One end of a pipe.
    Pipe,
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
    Socket(Box<Socket>),
    Inotify(Inotify),
    /// An open file of a POSIX message queue, by number.
    Queue {
        queue: u64,
    },
    /// An open file of a pseudo-terminal.
    Terminal(TerminalEnd),
    /// What an open file has locks by, or is watched by.
    Lock,
}

/// Who gets a signal when something can be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    /// A process, or a group if negative; 0 for none.
    pub(super) target: i32,
    /// The signal; 0 for `SIGIO`.
    pub(super) signal: u8,
    /// Whether it is sent (`O_ASYNC`).
    pub(super) is_async: bool,
}

/// A file that is shown by an object in memory.
#[derive(Clone, Debug)]
pub(super) struct MappedFile {
    /// An open file of its own, to read and write it.
    pub(super) open: Shared,
    pub(super) memory: ObjectId,
}

/// The path of an open file, its device and inode number, and whether it is written to.
type WatchedOpen = (Vec<u8>, (u64, u64), bool);

/// All objects.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    all: BTreeMap<u32, Object>,
    /// The pseudo-terminals, by number.
    terminals: BTreeMap<u32, Terminal>,
    /// Those whose masters were closed and whose processes have not been told.
    hung_up: Vec<u32>,
    /// The files that are mapped and shared, by device and inode number.
    pub(super) files: BTreeMap<(u64, u64), MappedFile>,
    /// Watched files without a name that are still open.
    pub(super) doomed: BTreeSet<(u64, u64)>,
    /// The last number that joins the two events of a renaming.
    pub(super) cookie: u32,
    /// Whether files were ever watched.
    pub(super) has_inotify: bool,
    /// The open files whose end is told, by the number of [`Object::Lock`]: the path, the file, and
    /// whether it is written to.
    pub(super) watched_open: BTreeMap<u32, WatchedOpen>,
    /// The epolls that watch an object, with the descriptor that they know it by.
    watchers: BTreeMap<u32, Vec<(u32, u32)>>,
    /// The owners of those that were given one.
    owners: BTreeMap<u32, Owner>,
    /// Owners that get a signal.
    signalled: Vec<Owner>,
    /// The objects of `signalfd`.
    signals: Vec<u32>,
    next: u32,
    /// The last port that was chosen.
    port: u16,
    pub(super) notes: Notes,
}

impl Objects {
    pub(super) fn new() -> Objects {
        Objects {
            all: BTreeMap::new(),
            terminals: BTreeMap::new(),
            hung_up: Vec::new(),
            files: BTreeMap::new(),
            doomed: BTreeSet::new(),
            cookie: 0,
            has_inotify: false,
            watched_open: BTreeMap::new(),
            watchers: BTreeMap::new(),
            owners: BTreeMap::new(),
            signalled: Vec::new(),
            signals: Vec::new(),
            next: FIRST,
            port: 0,
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
    pub(super) fn others(&mut self) -> OtherReferences<'_> {
        let files = self.files.values_mut();
        let mut held: Vec<&mut Shared> = files.map(|file| &mut file.open).collect();
        let mut watched = Vec::new();
        for object in self.all.values_mut() {
            match object {
                Object::Epoll(epoll) => watched.extend(epoll.watched()),
                Object::Socket(socket) => {
                    let messages = socket.inbox.iter_mut();
                    held.extend(messages.flat_map(|message| &mut message.rights));
                }
                _ => {}
            }
        }
        OtherReferences {
            notes: self.notes.clone(),
            held,
            watched,
        }
    }

    /// Adds an object; the open file to which the handle belongs keeps it.
    pub(super) fn add(&mut self, object: Object) -> Handle {
        let sort = match &object {
            Object::Pipe => HandleKind::Pipe,
            Object::Counter { .. } => HandleKind::Counter,
            Object::Timer { .. } => HandleKind::Timer,
            Object::Signals { .. } => HandleKind::Signals,
            Object::Process { .. } => HandleKind::Process,
            Object::Epoll(_) => HandleKind::Epoll,
            Object::Socket(_) => HandleKind::Socket,
            Object::Inotify(_) => HandleKind::Inotify,
            Object::Queue { .. } => HandleKind::Queue,
            Object::Terminal(_) => HandleKind::Terminal,
            Object::Lock => HandleKind::Lock,
        };
        let id = self.next;
        self.next += 1;
        if sort == HandleKind::Signals {
            self.signals.push(id);
        }
        self.all.insert(id, object);
        Handle::new(id, sort, &self.notes)
    }

    /// Adds a socket that no open file refers to yet.
    pub(super) fn add_socket(&mut self, socket: Socket) -> u32 {
        let id = self.next;
        self.next += 1;
        self.all.insert(id, Object::Socket(Box::new(socket)));
        id
    }

    /// The number of objects.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// A reference to such a socket.
    pub(super) fn handle(&self, socket: u32) -> Handle {
        Handle::new(socket, HandleKind::Socket, &self.notes)
    }

    /// A port from which to look for a free one.
    pub(super) fn next_port(&mut self, ports: RangeInclusive<u16>) -> u16 {
        self.port = match self.port.wrapping_add(1) {
            port if ports.contains(&port) => port,
            _ => *ports.start(),
        };
        self.port
    }

    pub(super) fn socket(&self, id: u32) -> Option<&Socket> {
        match self.all.get(&id) {
            Some(Object::Socket(socket)) => Some(socket),
            _ => None,
        }
    }

    pub(super) fn socket_mut(&mut self, id: u32) -> Option<&mut Socket> {
        match self.all.get_mut(&id) {
            Some(Object::Socket(socket)) => Some(socket),
            _ => None,
        }
    }

    /// All sockets, by number.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (u32, &Socket)> {
        self.all.iter().filter_map(|(&id, object)| match object {
            Object::Socket(socket) => Some((id, &**socket)),
            _ => None,
        })
    }

    /// Whether the other side of a socket has room for more.
    pub(super) fn has_room(&self, socket: &Socket) -> bool {
        // A quarter of the buffer must be free (`unix_writable`).
        let buffer = socket.buffer(7) as usize;
        let limit = if socket.is_tcp() { buffer } else { buffer / 4 };
        match socket.peer().map(|peer| self.socket(peer)) {
            Some(Some(peer)) if peer.peer().is_some() || !peer.has_connection() => {
                socket.kind == Type::Datagram && peer.peer().is_some() || peer.room(limit) > 0
            }
            Some(_) => true,
            None => !socket.is_listening() && !socket.is_tcp(),
        }
    }

    /// Adds both ends of a pipe: the reader, the writer.
    pub(super) fn add_pipe(&mut self) -> (Handle, Handle) {
        (self.add(Object::Pipe), self.add(Object::Pipe))
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
    pub(super) fn watch(&mut self, epoll: u32, (fd, id): ItemKey) {
        self.watchers.entry(id).or_default().push((epoll, fd));
    }

    pub(super) fn unwatch(&mut self, epoll: u32, (fd, id): ItemKey) {
        if let Some(watchers) = self.watchers.get_mut(&id) {
            watchers.retain(|watcher| *watcher != (epoll, fd));
        }
    }

    /// The owner of an object, which may be none yet.
    pub(super) fn owner(&mut self, id: u32) -> &mut Owner {
        self.owners.entry(id).or_default()
    }

    /// Takes the owners that get a signal.
    pub(super) fn take_signalled(&mut self) -> Vec<Owner> {
        std::mem::take(&mut self.signalled)
    }

    /// These events became possible; 0 for any.
    pub(super) fn wake(&mut self, id: u32, events: u32) {
        let owner = self.owners.get(&id);
        if let Some(owner) = owner.filter(|owner| owner.is_async && events & ev::IN != 0) {
            self.signalled.push(*owner);
        }
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

    /// Tells the other sides of a socket that it was closed.
    fn close_socket(&mut self, id: u32, socket: &Socket) {
        if let State::Listening { waiting, .. } = &socket.state {
            for &other in waiting {
                if let Some(Object::Socket(other_socket)) = self.all.remove(&other) {
                    self.reset_peer(other, &other_socket, true);
                }
            }
        }
        // `SO_LINGER` with a time of 0 resets the connection.
        let aborts = socket.is_tcp() && socket.linger[0] != 0 && socket.linger[1] == 0;
        self.reset_peer(id, socket, aborts || !socket.inbox.is_empty());
        if !socket.has_connection() {
            // Those who send to it learn that it is gone.
            let peers = self.sockets().filter(|(_, other)| other.peer() == Some(id));
            let peers: Vec<u32> = peers.map(|(other, _)| other).collect();
            for other in peers {
                self.wake(other, ALL);
            }
        }
    }

    fn reset_peer(&mut self, id: u32, socket: &Socket, reset: bool) {
        if !socket.has_connection() {
            return;
        }
        let Some(peer) = socket.peer() else {
            return;
        };
        if let Some(other) = self
            .socket_mut(peer)
            .filter(|other| other.peer() == Some(id))
        {
            other.peer_closed(reset);
            self.wake(peer, ALL);
        }
    }

    fn close(&mut self, id: u32) {
        for (epoll, fd) in self.watchers.remove(&id).unwrap_or_default() {
            if let Some(epoll) = self.epoll(epoll) {
                epoll.remove((fd, id));
            }
        }
        self.signals.retain(|&other| other != id);
        self.owners.remove(&id);
        match self.all.remove(&id) {
            Some(Object::Socket(socket)) => self.close_socket(id, &socket),
            Some(Object::Terminal(end)) => self.close_end(id, end),
            Some(Object::Epoll(epoll)) => {
                for key in epoll.keys() {
                    self.unwatch(id, key);
                }
            }
            _ => {}
        }
    }
}

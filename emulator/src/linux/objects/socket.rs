//! A socket: its names, its connection, what it has received. Not here: finding the other side, the
//! calls (`calls::sockets`).
//!
//! Source: Linux 6.12 `net/unix/af_unix.c`, `net/core/sock.c`, `net/ipv4/tcp.c` (`tcp_poll`),
//! `net/core/datagram.c` (`datagram_poll`).

use super::address::{Address, Family};
use crate::linux::errno::Errno;
use crate::linux::files::Shared;
use crate::linux::handle::ev;
use std::collections::{BTreeMap, VecDeque};

/// Default of `SO_SNDBUF` and `SO_RCVBUF` (`net.core.wmem_default`), bytes.
pub(in crate::linux) const BUFFER: u32 = 212_992;
/// The same for TCP (`net.ipv4.tcp_wmem`, `net.ipv4.tcp_rmem`), bytes.
const TCP_SEND_BUFFER: u32 = 16384;
const TCP_RECEIVE_BUFFER: u32 = 131_072;
/// Bytes that a TCP connection holds for its reader. Linux adapts it, up to some megabytes.
const WINDOW: usize = 1 << 20;
/// Datagrams that wait for a reader of a Unix socket, less one (`net.unix.max_dgram_qlen`).
const DATAGRAMS: usize = 10;

/// How a socket transfers bytes, by the numbers of `SOCK_STREAM` and the like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Type {
    Stream = 1,
    Datagram = 2,
    Raw = 3,
    /// Messages on a connection.
    SeqPacket = 5,
}

/// The user of a socket: process, user, group.
pub(in crate::linux) type Credentials = [u32; 3];

/// What was sent at once.
#[derive(Clone, Debug)]
pub(in crate::linux) struct Message {
    pub(in crate::linux) bytes: VecDeque<u8>,
    pub(in crate::linux) from: Address,
    /// The open files that go with it.
    pub(in crate::linux) rights: Vec<Shared>,
    pub(in crate::linux) sender: Credentials,
}

impl Message {
    /// What it takes of a buffer, bytes: the kernel's memory for it, roughly.
    fn size(&self) -> usize {
        const HEADERS: usize = 256;
        const SHARED: usize = 320;
        const PAGE: usize = 4096;
        let data = self.bytes.len() + SHARED;
        HEADERS
            + match data {
                ..=PAGE => data.next_power_of_two().max(512),
                _ => data.next_multiple_of(PAGE),
            }
    }
}

/// What a socket is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::linux) enum State {
    /// Not connected.
    Idle,
    /// It accepts connections; these wait to be accepted.
    Listening {
        backlog: usize,
        waiting: VecDeque<u32>,
    },
    /// Connected to this socket, which may be closed.
    Connected(u32),
    /// It was connected, and the other side has reset the connection.
    Reset,
}

#[derive(Clone, Debug)]
pub(in crate::linux) struct Socket {
    pub(in crate::linux) family: Family,
    pub(in crate::linux) kind: Type,
    pub(in crate::linux) protocol: u32,
    pub(in crate::linux) state: State,
    pub(in crate::linux) local: Address,
    pub(in crate::linux) remote: Address,
    /// The inode of the file to whose path it is bound.
    pub(in crate::linux) inode: Option<(u64, u64)>,
    pub(in crate::linux) inbox: VecDeque<Message>,
    /// Whether it will not receive, or send, any more.
    pub(in crate::linux) read_shut: bool,
    pub(in crate::linux) write_shut: bool,
    /// An error to be reported.
    pub(in crate::linux) error: Option<Errno>,
    /// Whether `connect` has returned before the connection was established.
    pub(in crate::linux) is_connecting: bool,
    /// Who made it, and who is on the other side.
    pub(in crate::linux) owner: Credentials,
    pub(in crate::linux) peer_owner: Credentials,
    /// The user who made it.
    pub(in crate::linux) user: u32,
    /// What was set, by level and name, where it is not the default.
    pub(in crate::linux) options: BTreeMap<(u32, u32), i32>,
    /// `SO_LINGER`, and the time-outs `SO_RCVTIMEO` and `SO_SNDTIMEO` in nanoseconds.
    pub(in crate::linux) linger: [u32; 2],
    pub(in crate::linux) read_timeout: Option<u64>,
    pub(in crate::linux) write_timeout: Option<u64>,
}

impl Socket {
    pub(in crate::linux) fn new(family: Family, kind: Type, protocol: u32) -> Socket {
        Socket {
            family,
            kind,
            protocol,
            state: State::Idle,
            local: Address::none(family),
            remote: Address::none(family),
            inode: None,
            inbox: VecDeque::new(),
            read_shut: false,
            write_shut: false,
            error: None,
            is_connecting: false,
            owner: [0, u32::MAX, u32::MAX],
            peer_owner: [0, u32::MAX, u32::MAX],
            user: 0,
            options: BTreeMap::new(),
            linger: [0; 2],
            read_timeout: None,
            write_timeout: None,
        }
    }

    /// A socket for a connection that this one accepts.
    pub(in crate::linux) fn accepted(&self) -> Socket {
        let mut options = self.options.clone();
        if self.family == Family::Unix {
            // Only the internet's sockets inherit.
            options.clear();
        }
        Socket {
            local: self.local.clone(),
            inode: None,
            owner: self.owner,
            user: self.user,
            options,
            ..Socket::new(self.family, self.kind, self.protocol)
        }
    }

    pub(in crate::linux) fn option(&self, level: u32, name: u32) -> i32 {
        self.options.get(&(level, name)).copied().unwrap_or(0)
    }

    /// The other side of the connection, which may be closed.
    pub(in crate::linux) fn peer(&self) -> Option<u32> {
        match self.state {
            State::Connected(peer) => Some(peer),
            _ => None,
        }
    }

    pub(in crate::linux) fn is_listening(&self) -> bool {
        matches!(self.state, State::Listening { .. })
    }

    /// Whether it transfers bytes on a connection, without regard to messages.
    pub(in crate::linux) fn is_stream(&self) -> bool {
        self.kind == Type::Stream
    }

    /// Whether it is connected before it transfers anything.
    pub(in crate::linux) fn has_connection(&self) -> bool {
        matches!(self.kind, Type::Stream | Type::SeqPacket)
    }

    pub(in crate::linux) fn is_tcp(&self) -> bool {
        self.is_stream() && self.family.is_internet()
    }

    /// The bytes that can be read.
    pub(in crate::linux) fn bytes(&self) -> usize {
        self.inbox.iter().map(|message| message.bytes.len()).sum()
    }

    /// The memory that waiting messages take.
    fn held(&self) -> usize {
        self.inbox.iter().map(Message::size).sum()
    }

    /// How many bytes a sender with a buffer of this size may add; 0 if it must wait.
    pub(in crate::linux) fn room(&self, buffer: usize) -> usize {
        match (self.is_tcp(), self.family) {
            (true, _) => WINDOW.saturating_sub(self.bytes()),
            (_, Family::Unix) => {
                let is_full = self.kind == Type::Datagram && self.inbox.len() > DATAGRAMS;
                let left = if is_full { 0 } else { buffer };
                left.saturating_sub(self.held())
            }
            _ => usize::MAX,
        }
    }

    /// Whether a datagram of the internet is dropped.
    pub(in crate::linux) fn drops(&self) -> bool {
        self.held() > self.buffer(8) as usize
    }

    /// The size of a buffer: `SO_SNDBUF` (7) or `SO_RCVBUF` (8).
    pub(in crate::linux) fn buffer(&self, name: u32) -> u32 {
        let set = self.options.get(&(1, name));
        let before = match (self.is_tcp(), name) {
            (true, 7) => TCP_SEND_BUFFER,
            (true, _) => TCP_RECEIVE_BUFFER,
            _ => BUFFER,
        };
        set.map_or(before, |&set| set.cast_unsigned())
    }

    /// Its events; `room` says whether the other side has room.
    pub(in crate::linux) fn events(&self, room: bool) -> u32 {
        let has_data = !self.inbox.is_empty();
        let error = if self.error.is_some() { ev::ERR } else { 0 };

        if let State::Listening { waiting, .. } = &self.state {
            let is_shut = self.read_shut && self.family == Family::Unix;
            let shut = if is_shut { ev::READABLE | ev::RDHUP } else { 0 };
            let waits = if waiting.is_empty() { 0 } else { ev::READABLE };
            return shut | waits | error;
        }

        let mut events = error;
        // HUP means that both directions are shut, RDHUP that the peer writes no more (poll(2)).
        let is_unconnected = self.has_connection() && self.peer().is_none();
        if self.read_shut && self.write_shut || is_unconnected {
            events |= ev::HUP;
        }

        if self.read_shut {
            events |= ev::READABLE | ev::RDHUP;
        }
        if has_data {
            events |= ev::READABLE;
        }

        // A shut TCP connection is writable: the write fails at once (`tcp_poll`).
        if room || self.is_tcp() && (self.write_shut || is_unconnected) {
            events |= ev::WRITABLE;
            if !self.is_tcp() {
                events |= ev::WRBAND;
            }
        }
        events
    }

    /// The other side has closed its socket; `reset` if it had not read everything.
    pub(in crate::linux) fn peer_closed(&mut self, reset: bool) {
        self.read_shut = true;
        if reset {
            self.error = Some(Errno::ECONNRESET);
        }
        if self.family == Family::Unix {
            self.write_shut = true;
        } else if reset {
            self.write_shut = true;
            self.state = State::Reset;
        }
    }
}

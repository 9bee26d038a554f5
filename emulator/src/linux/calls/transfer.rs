//! What sockets send and receive. Not here: `struct msghdr` (`messages`).
//!
//! Source: Linux 6.12 `net/unix/af_unix.c`, `net/ipv4/tcp.c`, `net/ipv4/udp.c`,
//! `net/core/stream.c` (`sk_stream_error`).

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::Shared;
use crate::linux::handle::ev;
use crate::linux::objects::{Address, Credentials, Family, Message, Socket, State, Type};
use crate::linux::signals::{Info, SIGPIPE};
use std::collections::VecDeque;

/// Flags of `send` and `recv`.
pub(super) mod msg {
    pub(in crate::linux) const OOB: u32 = 1;
    pub(in crate::linux) const PEEK: u32 = 2;
    pub(in crate::linux) const CTRUNC: u32 = 8;
    pub(in crate::linux) const TRUNC: u32 = 0x20;
    pub(in crate::linux) const DONTWAIT: u32 = 0x40;
    pub(in crate::linux) const WAITALL: u32 = 0x100;
    pub(in crate::linux) const ERRQUEUE: u32 = 0x2000;
    pub(in crate::linux) const NOSIGNAL: u32 = 0x4000;
    pub(in crate::linux) const WAITFORONE: u32 = 0x1_0000;
    pub(in crate::linux) const CMSG_CLOEXEC: u32 = 0x4000_0000;
}

/// Bytes that a stream transfers at once.
const PIECE: usize = 1 << 16;
/// The longest datagram of UDP, bytes.
const UDP_MAX: u64 = 65507;
const SOL_SOCKET: u32 = 1;
const PASSCRED: u32 = 16;

/// What a program sends.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) vectors: Vec<(u64, u64)>,
    pub(super) flags: u32,
    /// A `struct sockaddr`.
    pub(super) to: Option<Vec<u8>>,
    pub(super) rights: Vec<Shared>,
    pub(super) sender: Option<Credentials>,
}

/// What a program has received, besides the bytes.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) count: u64,
    /// A `struct sockaddr`, or nothing.
    pub(super) from: Vec<u8>,
    pub(super) rights: Vec<Shared>,
    /// Whom to report as the sender.
    pub(super) sender: Option<Credentials>,
    /// `msg_flags`.
    pub(super) flags: u32,
}

fn total(vectors: &[(u64, u64)]) -> u64 {
    vectors.iter().fold(0_u64, |sum, v| sum.saturating_add(v.1))
}

/// The vectors without their first bytes.
pub(super) fn rest(vectors: &[(u64, u64)], skipped: u64) -> Vec<(u64, u64)> {
    let mut skipped = skipped;
    let rest = vectors.iter().filter_map(|&(base, size)| {
        let gone = skipped.min(size);
        skipped -= gone;
        (gone < size).then(|| (base.wrapping_add(gone), size - gone))
    });
    rest.collect()
}

impl Kernel {
    /// Reads bytes from vectors of memory, at most `most`.
    pub(super) fn gather(&self, vectors: &[(u64, u64)], most: usize) -> Answer<Vec<u8>> {
        let mut bytes = Vec::new();
        for &(base, size) in vectors {
            let count = (most - bytes.len()).min(usize::try_from(size).unwrap_or(usize::MAX));
            let start = bytes.len();
            bytes.resize(start + count, 0);
            self.get(base, &mut bytes[start..])?;
        }
        Ok(bytes)
    }

    pub(super) fn send(&mut self, open: &Shared, out: Outgoing) -> Answer {
        let id = self.socket_of(open)?;
        let waits = Kernel::waits(open) && out.flags & msg::DONTWAIT == 0;
        if out.flags & msg::OOB != 0 {
            return self.not_modelled("out-of-band data", Errno::EOPNOTSUPP);
        }
        let socket = self.the_socket(id)?;
        match (socket.family, socket.kind) {
            (Family::Netlink, _) => self.send_netlink(id, &self.gather(&out.vectors, PIECE)?),
            (_, Type::Stream) => self.send_stream(id, out, waits),
            (Family::Unix, _) => self.send_unix(id, out, waits),
            _ => self.send_udp(id, &out),
        }
    }

    /// Sends `SIGPIPE` unless the sender does not want it.
    fn broken(&mut self, flags: u32) -> Errno {
        if flags & msg::NOSIGNAL == 0 {
            self.process
                .signals
                .send_to_thread(Info::from_kernel(SIGPIPE));
        }
        Errno::EPIPE
    }

    fn send_stream(&mut self, id: u32, out: Outgoing, waits: bool) -> Answer {
        let is_unix = self.the_socket(id)?.family == Family::Unix;
        // `unix_stream_sendmsg`: a stream has one partner, so an address is an error.
        if out.to.is_some() && is_unix {
            return Err(match self.the_socket(id)?.peer() {
                Some(_) => Errno::EISCONN,
                None => Errno::EOPNOTSUPP,
            });
        }

        let (all, mut rights) = (total(&out.vectors), out.rights);
        // A call that waited has sent the first bytes already.
        let mut done = self.transferred().min(all);
        loop {
            let failed = match self.stream_peer(id) {
                Ok(_) if done == all => return Ok(done),
                Ok(peer) => {
                    let socket = self.the_socket(id)?;
                    let buffer = socket.buffer(7) as usize;

                    let left = usize::try_from(all - done).unwrap_or(usize::MAX);
                    let room = match self.objects.socket(peer) {
                        Some(other) => other.room(buffer).min(PIECE),
                        None => left,
                    };

                    match self.gather(&rest(&out.vectors, done), room.min(left)) {
                        Ok(bytes) if bytes.is_empty() => {
                            let timeout = self.the_socket(id)?.write_timeout;
                            self.wait_for_socket(waits, timeout).err()
                        }
                        Ok(bytes) => {
                            done += bytes.len() as u64;
                            // Descriptors go with the first piece only (`unix_stream_sendmsg`).
                            self.deliver(id, peer, bytes, std::mem::take(&mut rights), out.sender)?;
                            if done == all {
                                return Ok(done);
                            }
                            None
                        }
                        Err(error) => Some(error),
                    }
                }
                Err(error) => Some(error),
            };

            match failed {
                None => {}
                Some(Errno::WAITS) => {
                    self.note_transferred(done);
                    return Err(Errno::WAITS);
                }
                // An error counts only if nothing was sent; the next call meets it again.
                Some(_) if done > 0 => return Ok(done),
                // SIGPIPE, unless MSG_NOSIGNAL is set.
                Some(Errno::EPIPE) => return Err(self.broken(out.flags)),
                Some(error) => return Err(error),
            }
        }
    }

    /// Sends bytes that are not the program's, as many as there is room for; `None` if it would
    /// have to wait.
    pub(super) fn send_bytes(&mut self, open: &Shared, bytes: &[u8]) -> Answer<Option<usize>> {
        let id = self.socket_of(open)?;
        if !self.the_socket(id)?.is_stream() {
            self.not_modelled::<()>("sendfile to a socket of messages", Errno::EINVAL)?;
        }
        let peer = match self.stream_peer(id) {
            Err(Errno::EPIPE) => return Err(self.broken(0)),
            peer => peer?,
        };
        let buffer = self.the_socket(id)?.buffer(7) as usize;
        let room = self.objects.socket(peer).map(|other| other.room(buffer));
        let count = bytes.len().min(room.unwrap_or(bytes.len()));
        if count == 0 && !bytes.is_empty() {
            return if Kernel::waits(open) {
                Ok(None)
            } else {
                Err(Errno::EAGAIN)
            };
        }
        self.deliver(id, peer, bytes[..count].to_vec(), Vec::new(), None)?;
        Ok(Some(count))
    }

    /// The other side of a connection to which bytes can be sent.
    fn stream_peer(&mut self, id: u32) -> Answer<u32> {
        let socket = self.the_socket_mut(id)?;
        let (peer, is_unix) = (socket.peer(), socket.family == Family::Unix);
        if !is_unix && let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.write_shut || peer.is_none() && !is_unix {
            return Err(Errno::EPIPE);
        }
        let peer = peer.ok_or(Errno::ENOTCONN)?;
        match self.objects.socket(peer) {
            Some(other) if is_unix && other.read_shut => Err(Errno::EPIPE),
            None if is_unix => Err(Errno::EPIPE),
            _ => Ok(peer),
        }
    }

    /// Puts bytes into the other side's inbox.
    fn deliver(
        &mut self,
        id: u32,
        peer: u32,
        bytes: Vec<u8>,
        rights: Vec<Shared>,
        sender: Option<Credentials>,
    ) -> Answer<()> {
        let socket = self.the_socket(id)?;
        let (from, is_tcp) = (socket.local.clone(), socket.is_tcp());
        let own = self.own_credentials();

        let Some(other) = self.objects.socket_mut(peer) else {
            // The other side answers that it is gone.
            let socket = self.the_socket_mut(id)?;
            socket.error = Some(Errno::EPIPE);
            (socket.read_shut, socket.write_shut) = (true, true);
            socket.state = State::Reset;
            self.objects.wake(id, ev::ERR | ev::HUP | ev::READABLE);
            return Ok(());
        };

        match other.inbox.back_mut() {
            // Nothing separates what was sent on a TCP connection.
            Some(last) if is_tcp && last.bytes.len() < PIECE => last.bytes.extend(bytes),
            _ => other.inbox.push_back(Message {
                bytes: VecDeque::from(bytes),
                from,
                rights,
                sender: sender.unwrap_or(own),
            }),
        }

        self.objects.wake(peer, ev::READABLE | ev::RDBAND | ev::PRI);
        Ok(())
    }

    /// Those that a message shows: the real user and group.
    pub(super) fn own_credentials(&self) -> Credentials {
        let identity = &self.files.own.identity;
        [self.process.number, identity.user.real, identity.group.real]
    }

    fn send_unix(&mut self, id: u32, out: Outgoing, waits: bool) -> Answer {
        let socket = self.the_socket(id)?;
        let (buffer, timeout) = (socket.buffer(7) as usize, socket.write_timeout);
        let (kind, peer) = (socket.kind, socket.peer());
        let is_shut = socket.write_shut;

        let target = match &out.to {
            Some(bytes) if kind == Type::Datagram => {
                let address = Address::read(Family::Unix, bytes)?;
                self.unix_socket(&address)?
            }
            _ => peer.ok_or(Errno::ENOTCONN)?,
        };

        // `unix_dgram_sendmsg` keeps 32 bytes of the buffer for itself.
        if total(&out.vectors) > buffer as u64 - 32 {
            return Err(Errno::EMSGSIZE);
        }

        let bytes = self.gather(&out.vectors, buffer)?;
        if is_shut {
            return Err(Errno::EPIPE);
        }

        let Some(other) = self.objects.socket(target) else {
            if kind == Type::Datagram {
                // The socket forgets a partner that is gone, and may connect again
                // (`unix_dgram_sendmsg`).
                self.the_socket_mut(id)?.state = State::Idle;
                return Err(Errno::ECONNREFUSED);
            }
            return Err(Errno::EPIPE);
        };

        if other.kind != kind {
            return Err(Errno::EPROTOTYPE);
        }
        if other.peer().is_some_and(|peer| peer != id) {
            return Err(Errno::EPERM);
        }
        if other.read_shut {
            return Err(Errno::EPIPE);
        }
        // A message goes into an empty buffer, however long it is.
        if other.room(buffer) == 0 {
            return self.wait_for_socket(waits, timeout);
        }

        let count = bytes.len() as u64;
        self.deliver(id, target, bytes, out.rights, out.sender)?;
        Ok(count)
    }

    fn send_udp(&mut self, id: u32, out: &Outgoing) -> Answer {
        let family = self.the_socket(id)?.family;
        if total(&out.vectors) > UDP_MAX {
            return Err(Errno::EMSGSIZE);
        }

        let remote = self.the_socket(id)?.remote.clone();
        // A sender without a port gets one (udp(7)).
        self.bind_udp(id)?;

        let to = match &out.to {
            // `AF_UNSPEC` is as good as the socket's family.
            Some(bytes) if family == Family::Inet && bytes.starts_with(&[0, 0]) => {
                Address::read(family, &[&[2, 0], &bytes[2..]].concat())?
            }
            // An IPv6 socket also takes IPv4 addresses.
            Some(bytes) if bytes.starts_with(&[2, 0]) => Address::read(Family::Inet, bytes)?,
            Some(bytes) => Address::read(family, bytes)?,
            None if remote.is_none() => return Err(Errno::EDESTADDRREQ),
            None => remote.clone(),
        };

        if to.is_none() {
            return Err(Errno::EINVAL);
        }
        let to = self.destination(self.the_socket(id)?, &to)?;

        // An error of an earlier message is reported by the next call (udp(7)).
        if let Some(error) = self.the_socket_mut(id)?.error.take() {
            return Err(error);
        }
        if self.the_socket(id)?.write_shut {
            return Err(Errno::EPIPE);
        }

        let bytes = self.gather(&out.vectors, UDP_MAX as usize)?;
        let count = bytes.len() as u64;
        let from = self.udp_sender(id, to.ip())?;

        match self.udp_socket(to, from) {
            None if remote.internet() == Some(to) => {
                // Only a connected socket learns that nobody listens (udp(7)).
                self.the_socket_mut(id)?.error = Some(Errno::ECONNREFUSED);
                self.objects.wake(id, ev::ERR);
            }
            None => {}
            Some(target) => {
                let other = self.the_socket_mut(target)?;
                if !other.drops() {
                    other.inbox.push_back(Message {
                        bytes: VecDeque::from(bytes),
                        from: Address::Internet(from),
                        rights: Vec::new(),
                        sender: [0; 3],
                    });
                    self.objects.wake(target, ev::READABLE | ev::RDBAND);
                }
            }
        }
        Ok(count)
    }

    pub(super) fn receive(
        &mut self,
        open: &Shared,
        vectors: &[(u64, u64)],
        flags: u32,
    ) -> Answer<Incoming> {
        let id = self.socket_of(open)?;
        let waits = Kernel::waits(open) && flags & msg::DONTWAIT == 0;
        if flags & msg::ERRQUEUE != 0 {
            Err(Errno::EAGAIN)
        } else if flags & msg::OOB != 0 {
            self.not_modelled("out-of-band data", Errno::EOPNOTSUPP)
        } else if self.the_socket(id)?.is_stream() {
            self.receive_stream(id, vectors, flags, waits)
        } else {
            self.receive_message(id, vectors, flags, waits)
        }
    }

    /// Why there is nothing to receive: an error, or `None` at the end.
    pub(super) fn why_nothing(&mut self, id: u32, waits: bool) -> Answer<()> {
        let socket = self.the_socket_mut(id)?;
        let is_unix = socket.family == Family::Unix;
        let is_connected = socket.peer().is_some();
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if socket.has_connection() && !is_connected && socket.state != State::Reset {
            return Err(match (is_unix, socket.kind) {
                (true, Type::Stream) => Errno::EINVAL,
                _ => Errno::ENOTCONN,
            });
        }
        if socket.read_shut && (socket.has_connection() || waits) {
            return Ok(());
        }
        let timeout = socket.read_timeout;
        self.wait_for_socket(waits, timeout).map(|_| ())
    }

    fn receive_stream(
        &mut self,
        id: u32,
        vectors: &[(u64, u64)],
        flags: u32,
        waits: bool,
    ) -> Answer<Incoming> {
        let all = total(vectors);

        // A call that waited has got the first bytes already.
        let mut done = self.transferred().min(all);
        let mut incoming = Incoming::default();

        loop {
            let left = rest(vectors, done);
            let socket = self.the_socket(id)?;
            let has_data = !socket.inbox.is_empty() && !socket.is_listening();
            if !has_data {
                match self.why_nothing(id, waits) {
                    Ok(()) => break,
                    // What has come is enough unless MSG_WAITALL asks for more.
                    Err(Errno::WAITS) if done > 0 && flags & msg::WAITALL == 0 => break,
                    Err(Errno::WAITS) => {
                        if done > 0 {
                            self.note_transferred(done);
                        }
                        return Err(Errno::WAITS);
                    }
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }

            let (bytes, ends) = self.take_stream(id, total(&left), flags, &mut incoming)?;
            let stored = match (flags & msg::TRUNC, self.the_socket(id)?.is_tcp()) {
                // The bytes are dropped.
                (1.., true) => Ok(bytes.len() as u64),
                _ => self.scatter(&left, &bytes),
            };

            if let Err(error) = stored {
                return if done > 0 { break } else { Err(error) };
            }

            // Only what was stored leaves the inbox.
            if flags & msg::PEEK == 0 {
                self.consume(id, bytes.len())?;
            }

            done += bytes.len() as u64;

            // It goes on only if all bytes are wanted, and nothing that came with them ends the
            // read.
            let goes_on = flags & msg::WAITALL != 0 && flags & msg::PEEK == 0 && !ends;
            if !goes_on || done == all {
                break;
            }
        }

        incoming.count = done;
        Ok(incoming)
    }

    /// Copies the next bytes of a stream, up to a change of what goes with them; whether there is
    /// one.
    pub(super) fn take_stream(
        &mut self,
        id: u32,
        most: u64,
        flags: u32,
        incoming: &mut Incoming,
    ) -> Answer<(Vec<u8>, bool)> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let socket: &mut Socket = self.the_socket_mut(id)?;
        let (family, is_unix) = (socket.family, socket.family == Family::Unix);
        let shows = socket.option(SOL_SOCKET, PASSCRED) != 0;

        let mut bytes = Vec::new();
        for message in &mut socket.inbox {
            // With SO_PASSCRED a read does not mix the bytes of several senders (unix(7)).
            let is_other = shows
                && incoming
                    .sender
                    .is_some_and(|sender| sender != message.sender);
            if bytes.len() >= most || is_other {
                return Ok((bytes, is_other));
            }

            if is_unix {
                incoming.from = if message.from.is_none() {
                    Vec::new()
                } else {
                    message.from.write(family)
                };
            }
            if shows {
                incoming.sender = Some(message.sender);
            }

            // Copied, not taken: with MSG_PEEK they stay.
            let count = message.bytes.len().min(most - bytes.len());
            bytes.extend(message.bytes.range(..count));

            // A read ends behind descriptors, so that they stay with their bytes (unix(7)).
            if !message.rights.is_empty() {
                incoming.rights = match flags & msg::PEEK {
                    0 => std::mem::take(&mut message.rights),
                    _ => message.rights.clone(),
                };
                return Ok((bytes, true));
            }
        }
        Ok((bytes, false))
    }

    /// Removes bytes that were read from a stream.
    pub(super) fn consume(&mut self, id: u32, count: usize) -> Answer<()> {
        let socket = self.the_socket_mut(id)?;
        let peer = socket.peer();
        let mut left = count;
        while let Some(first) = socket.inbox.front_mut() {
            let gone = left.min(first.bytes.len());
            first.bytes.drain(..gone);
            left -= gone;
            if !first.bytes.is_empty() {
                break;
            }
            socket.inbox.pop_front();
        }
        if let Some(peer) = peer.filter(|_| count > 0) {
            self.objects.wake(peer, ev::WRITABLE | ev::WRBAND);
        }
        Ok(())
    }

    fn receive_message(
        &mut self,
        id: u32,
        vectors: &[(u64, u64)],
        flags: u32,
        waits: bool,
    ) -> Answer<Incoming> {
        let socket = self.the_socket_mut(id)?;
        let (family, kind) = (socket.family, socket.kind);
        let shows = socket.option(SOL_SOCKET, PASSCRED) != 0;

        // `unix_seqpacket_recvmsg`: only while it is connected.
        if kind == Type::SeqPacket && socket.peer().is_none() {
            return Err(Errno::ENOTCONN);
        }

        let peeked = match flags & msg::PEEK {
            0 => socket.inbox.pop_front(),
            _ => socket.inbox.front().cloned(),
        };

        let Some(message) = peeked else {
            self.why_nothing(id, waits)?;
            return Ok(Incoming::default());
        };

        if flags & msg::PEEK == 0 {
            // All who send to it may have waited.
            let senders = self.objects.sockets();
            let senders = senders.filter(|(_, other)| other.peer() == Some(id));
            let senders: Vec<u32> = senders.map(|(other, _)| other).collect();
            for other in senders {
                self.objects.wake(other, ev::WRITABLE | ev::WRBAND);
            }
        }

        let bytes = Vec::from(message.bytes);

        // What does not fit is lost with the message (recv(2)).
        let stored = self.scatter(vectors, &bytes)?;
        let is_short = stored < bytes.len() as u64;

        Ok(Incoming {
            // With MSG_TRUNC the real length is returned (recv(2)).
            count: match flags & msg::TRUNC {
                0 => stored,
                _ => bytes.len() as u64,
            },
            from: if message.from.is_none() && family == Family::Unix {
                Vec::new()
            } else {
                message.from.write(family)
            },
            rights: message.rights,
            sender: shows.then_some(message.sender),
            flags: if is_short { msg::TRUNC } else { 0 },
        })
    }
}

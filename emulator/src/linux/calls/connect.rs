//! `connect` and `accept`.
//!
//! Source: Linux 6.12 `net/unix/af_unix.c` (`unix_stream_connect`, `unix_dgram_connect`),
//! `net/ipv4/af_inet.c` (`__inet_stream_connect`), `net/ipv4/tcp_input.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Shared, o};
use crate::linux::handle::ev;
use crate::linux::objects::{Address, Family, Socket, State};
use crate::linux::threads::WaitCondition;

impl Kernel {
    /// Waits for a socket, at most as long as its time-out says.
    ///
    /// # Errors
    /// `EAGAIN` if it must not wait, or has waited long enough.
    pub(super) fn wait_for_socket(&mut self, waits: bool, timeout: Option<u64>) -> Answer {
        if !waits {
            return Err(Errno::EAGAIN);
        }
        let until = timeout.map(|t| self.clock.real().saturating_add(t));
        match self.wait_until(until, WaitCondition::Change)? {
            false => Err(Errno::EAGAIN),
            // A call with a time-out is not restarted.
            true if timeout.is_some() => Err(Errno::EINTR),
            true => Err(Errno::ERESTARTSYS),
        }
    }

    pub(super) fn waits(open: &Shared) -> bool {
        open.borrow().flags & o::NONBLOCK == 0
    }

    pub(super) fn sys_connect(&mut self, fd: u64, at: u64, size: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        let id = self.socket_of(&open)?;
        let bytes = self.address_bytes(at, size)?;
        let socket = self.the_socket(id)?;
        let (family, has_connection) = (socket.family, socket.has_connection());

        // Not even a family.
        if bytes.len() < 2 {
            return Err(Errno::EINVAL);
        }

        // An address of `AF_UNSPEC` ends the association (connect(2)).
        if Address::family_of(&bytes) == Some(0) && (!has_connection || family.is_internet()) {
            self.disconnect(id)?;
            return Ok(0);
        }

        // There is only the kernel to talk to.
        if family == Family::Netlink {
            self.the_socket_mut(id)?.remote = Address::read(family, &bytes)?;
            return Ok(0);
        }

        let waits = Kernel::waits(&open);
        if family.is_internet() && has_connection {
            return self.connect_tcp(id, &bytes, waits);
        }

        let address = Address::read(family, &bytes)?;
        match (family, has_connection) {
            (Family::Unix, true) => self.connect_unix(id, &address, waits),
            (Family::Unix, false) => self.connect_datagrams(id, address),
            _ => self.connect_udp(id, &address),
        }
    }

    /// Ends the connection of a socket, as for a new one.
    fn disconnect(&mut self, id: u32) -> Answer<()> {
        let socket = self.the_socket_mut(id)?;
        let family = socket.family;
        if socket.is_tcp() {
            if socket.is_listening() {
                socket.state = State::Idle;
            }
            let (peer, tcp) = (socket.peer(), socket);
            (tcp.read_shut, tcp.write_shut, tcp.is_connecting) = (false, false, false);
            tcp.inbox.clear();
            tcp.state = State::Idle;
            if let Some(peer) = peer.and_then(|peer| self.objects.socket_mut(peer)) {
                peer.peer_closed(true);
            }
            if let Some(peer) = peer {
                self.objects.wake(peer, ev::READABLE | ev::ERR | ev::HUP);
            }
        }
        let socket = self.the_socket_mut(id)?;
        socket.state = State::Idle;
        socket.remote = Address::none(family);
        Ok(())
    }

    fn connect_unix(&mut self, id: u32, address: &Address, waits: bool) -> Answer {
        let target = self.unix_socket(address)?;
        let socket = self.the_socket(id)?;
        let other = self.the_socket(target)?;
        let (timeout, kind) = (socket.write_timeout, socket.kind);

        if other.kind != kind {
            return Err(Errno::EPROTOTYPE);
        }

        // Nobody listens there.
        let (backlog, count) = match &other.state {
            State::Listening { backlog, waiting } => (*backlog, waiting.len()),
            _ => return Err(Errno::ECONNREFUSED),
        };
        if other.read_shut {
            return Err(Errno::ECONNREFUSED);
        }

        // `unix_recvq_full`: one more than the backlog may wait.
        if count > backlog {
            return self.wait_for_socket(waits, timeout);
        }

        match socket.state {
            State::Idle => {}
            State::Connected(_) => return Err(Errno::EISCONN),
            _ => return Err(Errno::EINVAL),
        }

        // At once, without the other one's `accept`.
        self.establish(id, target)?;
        Ok(0)
    }

    /// Connects a socket to one that accepts the connection later.
    pub(super) fn establish(&mut self, id: u32, listener: u32) -> Answer<()> {
        self.may_add_objects(1)?;
        let owner = self.credentials();

        let client = self.the_socket(id)?;
        let remote = client.local.clone();
        let server = self.the_socket(listener)?;
        let is_unix = server.family == Family::Unix;
        let (server_owner, server_name) = (server.owner, server.local.clone());

        // The server's end exists before `accept` is called: the client can write to it at once.
        let mut accepted = server.accepted();
        accepted.state = State::Connected(id);
        accepted.remote = remote;
        accepted.peer_owner = owner;
        // The connection has the address that the client asked for, not the listener's.
        if !is_unix {
            accepted.local = client.remote.clone();
        }
        let accepted = self.objects.add_socket(accepted);
        if let State::Listening { waiting, .. } = &mut self.the_socket_mut(listener)?.state {
            waiting.push_back(accepted);
        }

        let client = self.the_socket_mut(id)?;
        client.state = State::Connected(accepted);
        if is_unix {
            client.remote = server_name;
            client.peer_owner = server_owner;
        }

        self.objects.wake(id, ev::WRITABLE);
        self.objects.wake(listener, ev::READABLE);
        Ok(())
    }

    /// Sets where a Unix datagram socket sends to.
    fn connect_datagrams(&mut self, id: u32, address: Address) -> Answer {
        let target = self.unix_socket(&address)?;
        let (kind, other) = (self.the_socket(id)?.kind, self.the_socket(target)?);
        if other.kind != kind {
            return Err(Errno::EPROTOTYPE);
        }
        if other.peer().is_some_and(|peer| peer != id) {
            return Err(Errno::EPERM);
        }
        let owner = other.owner;
        let socket = self.the_socket_mut(id)?;
        socket.state = State::Connected(target);
        (socket.remote, socket.peer_owner) = (address, owner);
        Ok(0)
    }

    pub(super) fn sys_accept(&mut self, fd: u64, at: u64, size_at: u64, flags: u64) -> Answer {
        // SOCK_CLOEXEC and SOCK_NONBLOCK have the numbers of O_CLOEXEC and O_NONBLOCK.
        if flags as u32 & !(o::CLOEXEC | o::NONBLOCK) != 0 {
            return Err(Errno::EINVAL);
        }

        let open = self.files.own.table.get(fd)?;
        let id = self.socket_of(&open)?;
        let socket = self.the_socket(id)?;
        if !socket.has_connection() {
            return Err(Errno::EOPNOTSUPP);
        }

        let State::Listening { waiting, .. } = &socket.state else {
            return Err(Errno::EINVAL);
        };
        let (next, timeout) = (waiting.front().copied(), socket.read_timeout);
        let is_shut = socket.read_shut;

        // Linux reserves the number before it waits, so EMFILE comes first (`__sys_accept4_file`).
        let limit = self.descriptors_max();
        self.files.own.table.needs_free(limit)?;

        let Some(next) = next else {
            return if is_shut {
                Err(Errno::EINVAL)
            } else {
                self.wait_for_socket(Kernel::waits(&open), timeout)
            };
        };

        if let State::Listening { waiting, .. } = &mut self.the_socket_mut(id)?.state {
            waiting.pop_front();
        }
        // Those who wait for room in the queue.
        self.objects.wake(id, ev::WRITABLE);

        let socket: &Socket = self.the_socket(next)?;
        let name = socket.remote.write(socket.family);
        let fd = self.open_socket(next, flags)?;

        // If the address cannot be stored, the connection is lost, too (`do_accept`).
        if at != 0
            && let Err(error) = self.put_address(&name, at, size_at)
        {
            self.files.own.table.close(fd)?;
            return Err(error);
        }
        Ok(fd)
    }
}

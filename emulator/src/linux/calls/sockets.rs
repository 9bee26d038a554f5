//! Sockets: making them, naming them, and asking for their names.
//!
//! Source: Linux 6.12 `net/socket.c`, `net/unix/af_unix.c`, `net/ipv4/af_inet.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Description, Kind, Node, S_IFMT, Shared, o};
use crate::linux::handle::{HandleKind, ev};
use crate::linux::objects::{Address, Family, Object, Socket, State, Type};
use std::net::IpAddr;

/// The type of a socket, and the flags that may be combined with it: `SOCK_CLOEXEC`,
/// `SOCK_NONBLOCK`.
const SOCK_TYPE: u32 = 0xf;
const SOCK_FLAGS: u32 = o::CLOEXEC | o::NONBLOCK;
/// Number of socket types, and of address families.
const SOCK_MAX: u32 = 11;
const FAMILIES: i32 = 46;
/// Size of the largest `struct sockaddr`, bytes.
const ADDRESS_MAX: u64 = 128;
/// Largest backlog (`net.core.somaxconn`).
const BACKLOG_MAX: u32 = 4096;
const S_IFSOCK: u32 = 0o140_000;
pub(super) const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;

impl Kernel {
    /// A new socket, or the error that says why there is none.
    fn new_socket(&mut self, family: u64, kind: u64, protocol: u64) -> Answer<Socket> {
        let (number, kind, protocol) = (family as i32, kind as u32, protocol as u32);
        if kind & !(SOCK_TYPE | SOCK_FLAGS) != 0 {
            return Err(Errno::EINVAL);
        }

        let (family, kind) = match (number, kind & SOCK_TYPE) {
            // `__sock_create` checks the type before it looks for the family.
            (0..FAMILIES, SOCK_MAX..) => return Err(Errno::EINVAL),
            // AF_UNIX, AF_INET, AF_INET6, AF_NETLINK.
            (1, kind) => (Family::Unix, kind),
            (2, kind) => (Family::Inet, kind),
            (10, kind) => (Family::Inet6, kind),
            (16, kind) => (Family::Netlink, kind),
            // As in a kernel without them.
            _ => return Err(Errno::EAFNOSUPPORT),
        };

        let known = match (family, kind, protocol) {
            (Family::Unix, _, 2..) => return Err(Errno::EPROTONOSUPPORT),
            (Family::Unix, 1, _) => Type::Stream,
            // 3|`unix_create` turns SOCK_RAW into SOCK_DGRAM.
            (Family::Unix, 2 | 3, _) => Type::Datagram,
            (Family::Unix, 5, _) => Type::SeqPacket,
            (Family::Inet | Family::Inet6, 1, 0 | IPPROTO_TCP) => Type::Stream,
            (Family::Inet | Family::Inet6, 2, 0 | IPPROTO_UDP) => Type::Datagram,
            // Nobody may send pings (`net.ipv4.ping_group_range`).
            (Family::Inet, 2, 1) | (Family::Inet6, 2, 58) => return Err(Errno::EACCES),
            (Family::Inet | Family::Inet6, 1 | 2, 0..256) => return Err(Errno::EPROTONOSUPPORT),
            (Family::Inet | Family::Inet6, 3, 1..256) => {
                return self.not_modelled("raw sockets", Errno::EPERM);
            }
            (Family::Inet | Family::Inet6, 3, 0) => return Err(Errno::EPROTONOSUPPORT),
            (Family::Inet | Family::Inet6, 1..=3, _) => return Err(Errno::EINVAL),
            (Family::Netlink, 2, 0) => Type::Datagram,
            (Family::Netlink, 3, 0) => Type::Raw,
            (Family::Netlink, 2 | 3, 1..32) => {
                return self.not_modelled(
                    "netlink sockets other than for routes",
                    Errno::EPROTONOSUPPORT,
                );
            }
            (Family::Netlink, 2 | 3, _) => return Err(Errno::EPROTONOSUPPORT),
            _ => return Err(Errno::ESOCKTNOSUPPORT),
        };

        let protocol = match (family, known) {
            (Family::Inet | Family::Inet6, Type::Stream) => IPPROTO_TCP,
            (Family::Inet | Family::Inet6, Type::Datagram) => IPPROTO_UDP,
            _ => 0,
        };

        Ok(Socket {
            owner: self.credentials(),
            user: self.files.own.identity.user.file,
            ..Socket::new(family, known, protocol)
        })
    }

    /// Those of the running process.
    pub(super) fn credentials(&self) -> [u32; 3] {
        let identity = &self.files.own.identity;
        [
            self.process.number,
            identity.user.effective,
            identity.group.effective,
        ]
    }

    /// Opens a socket that exists.
    pub(super) fn open_socket(&mut self, id: u32, flags: u64) -> Answer {
        let kept = flags as u32 & o::NONBLOCK | o::RDWR;
        let handle = self.objects.handle(id);
        let open = Description::new(Kind::Object(handle), kept, b"socket:");
        self.add_open(open.shared(), flags)
    }

    pub(super) fn sys_socket(&mut self, family: u64, kind: u64, protocol: u64) -> Answer {
        let socket = self.new_socket(family, kind, protocol)?;
        let flags = u64::from(kind as u32 & SOCK_FLAGS);
        self.may_add_objects(1)?;
        let id = self.objects.add_socket(socket);
        self.open_socket(id, flags)
    }

    /// The descriptors are released again after an error, but were written before.
    pub(super) fn sys_socketpair(
        &mut self,
        family: u64,
        kind: u64,
        protocol: u64,
        to: u64,
    ) -> Answer {
        if kind as u32 & !(SOCK_TYPE | SOCK_FLAGS) != 0 {
            return Err(Errno::EINVAL);
        }

        // Both numbers are reserved and stored before there is a socket (`__sys_socketpair`).
        let mut free =
            (0..self.descriptors_max()).filter(|&fd| self.files.own.table.slot(fd).is_err());
        let (Some(first), Some(second)) = (free.next(), free.next()) else {
            return Err(Errno::EMFILE);
        };
        self.put(to, &(first | second << 32).to_le_bytes())?;

        let mut socket = self.new_socket(family, kind, protocol)?;

        // Of the families here, only this one has pairs.
        if socket.family != Family::Unix {
            return Err(Errno::EOPNOTSUPP);
        }

        socket.peer_owner = socket.owner;
        self.may_add_objects(2)?;
        let one = self.objects.add_socket(socket.clone());
        let two = self.objects.add_socket(socket);

        for (id, peer) in [(one, two), (two, one)] {
            if let Some(socket) = self.objects.socket_mut(id) {
                socket.state = State::Connected(peer);
            }
        }

        let flags = u64::from(kind as u32 & SOCK_FLAGS);
        self.open_socket(one, flags)?;
        self.open_socket(two, flags)?;
        Ok(0)
    }

    /// The number of an open socket.
    pub(super) fn socket_of(&self, open: &Shared) -> Answer<u32> {
        match &open.borrow().kind {
            Kind::Object(handle) if handle.sort == HandleKind::Socket => Ok(handle.id),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// The number of a descriptor's socket.
    pub(super) fn socket_at(&self, fd: u64) -> Answer<u32> {
        self.socket_of(&self.files.own.table.get(fd)?)
    }

    /// A socket that is known to exist.
    pub(super) fn the_socket(&self, id: u32) -> Answer<&Socket> {
        self.objects.socket(id).ok_or(Errno::ENOTSOCK)
    }

    pub(super) fn the_socket_mut(&mut self, id: u32) -> Answer<&mut Socket> {
        self.objects.socket_mut(id).ok_or(Errno::ENOTSOCK)
    }

    /// The bytes of a `struct sockaddr`.
    pub(super) fn address_bytes(&self, at: u64, size: u64) -> Answer<Vec<u8>> {
        let size = u64::from(size as u32);
        if size > ADDRESS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut bytes = vec![0; size as usize];
        self.get(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Stores an address: as much as there is room for, and its whole size.
    pub(super) fn put_address(&mut self, address: &[u8], at: u64, size_at: u64) -> Answer<()> {
        let room = self.u32_at(size_at)?;
        if (room as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let count = address.len().min(room as usize);
        self.put(at, &address[..count])?;
        self.put_u32(size_at, address.len() as u32)
    }

    pub(super) fn sys_getsockname(&mut self, fd: u64, at: u64, size_at: u64) -> Answer {
        let id = self.socket_at(fd)?;
        let socket = self.the_socket(id)?;
        let bytes = socket.local.write(socket.family);
        self.put_address(&bytes, at, size_at)?;
        Ok(0)
    }

    pub(super) fn sys_getpeername(&mut self, fd: u64, at: u64, size_at: u64) -> Answer {
        let id = self.socket_at(fd)?;
        let socket = self.the_socket(id)?;
        let is_connected = match socket.family {
            Family::Netlink => true,
            Family::Unix => socket.peer().is_some(),
            _ => socket.peer().is_some() && !socket.is_connecting || !socket.remote.is_none(),
        };
        if !is_connected || socket.state == State::Reset {
            return Err(Errno::ENOTCONN);
        }
        let bytes = socket.remote.write(socket.family);
        self.put_address(&bytes, at, size_at)?;
        Ok(0)
    }

    pub(super) fn sys_bind(&mut self, fd: u64, at: u64, size: u64) -> Answer {
        let id = self.socket_at(fd)?;
        let bytes = self.address_bytes(at, size)?;

        let socket = self.the_socket(id)?;
        let (family, is_named) = (socket.family, !socket.local.is_none());
        // An address without a path asks for any abstract name (unix(7), autobind).
        if family == Family::Unix && bytes.len() == 2 && Address::family_of(&bytes) == Some(1) {
            self.bind_anywhere(id)?;
            return Ok(0);
        }

        let mut bytes = bytes;
        if family == Family::Inet && Address::family_of(&bytes) == Some(0) && bytes.len() >= 16 {
            // `AF_UNSPEC` is allowed for no address.
            match bytes[4..8] {
                [0, 0, 0, 0] => bytes[0] = 2,
                _ => return Err(Errno::EAFNOSUPPORT),
            }
        }

        let address = Address::read(family, &bytes)?;
        match &address {
            Address::Unix(path) if path.first() == Some(&0) => {
                // A leading NUL marks a name in the abstract namespace (unix(7)).
                if is_named {
                    return Err(Errno::EINVAL);
                }
                if self
                    .objects
                    .sockets()
                    .any(|(_, other)| other.local == address)
                {
                    return Err(Errno::EADDRINUSE);
                }
            }
            // A path is a file, too (unix(7)).
            Address::Unix(path) => {
                let inode = self.make_socket_file(&path.clone(), is_named)?;
                self.the_socket_mut(id)?.inode = Some(inode);
            }
            Address::Internet(wanted) => {
                let port = match wanted.port() {
                    0 => None,
                    port => Some(port),
                };
                return self.bind_port(id, wanted.ip(), port).map(|()| 0);
            }
            Address::Netlink(_) => return self.bind_netlink(id, &address),
        }

        self.the_socket_mut(id)?.local = address;
        Ok(0)
    }

    /// Makes the file of a socket with a path.
    fn make_socket_file(&mut self, path: &[u8], is_named: bool) -> Answer<(u64, u64)> {
        let cwd = self.files.own.cwd.clone();
        match self.files.make_node(&cwd, path, S_IFSOCK | 0o777) {
            Err(Errno::EEXIST) => Err(Errno::EADDRINUSE),
            // It exists then on Linux too, until it is removed again.
            Ok(_) if is_named => {
                self.files.unlink(&cwd, path, false)?;
                Err(Errno::EINVAL)
            }
            made => made,
        }
    }

    /// Gives a Unix socket an abstract name.
    pub(super) fn bind_anywhere(&mut self, id: u32) -> Answer<()> {
        if !self.the_socket(id)?.local.is_none() {
            return Ok(());
        }
        for number in 0..1 << 20 {
            let name = Address::Unix([&[0], format!("{number:05x}").as_bytes()].concat());
            if self.objects.sockets().all(|(_, other)| other.local != name) {
                self.the_socket_mut(id)?.local = name;
                return Ok(());
            }
        }
        Err(Errno::ENOSPC)
    }

    /// The socket with a Unix address.
    ///
    /// # Errors
    /// Those of the path; `ECONNREFUSED` if there is no such socket.
    pub(super) fn unix_socket(&self, address: &Address) -> Answer<u32> {
        let Address::Unix(path) = address else {
            return Err(Errno::EINVAL);
        };
        if path.first() == Some(&0) {
            let mut all = self.objects.sockets();
            let found = all.find(|(_, other)| other.local == *address);
            return found.map(|(id, _)| id).ok_or(Errno::ECONNREFUSED);
        }
        let resolved = self.files.find(&self.files.own.cwd, path, true)?;
        let attributes = self.files.attributes(&resolved);
        if !self.files.allows(&attributes, 2) {
            return Err(Errno::EACCES);
        }
        let is_socket = attributes.mode & S_IFMT == S_IFSOCK;
        let is_ours = matches!(resolved.node, Node::Memory(_));
        let inode = Some((attributes.device, attributes.inode));
        let mut all = self.objects.sockets();
        let found = all.find(|(_, other)| is_socket && is_ours && other.inode == inode);
        found.map(|(id, _)| id).ok_or(Errno::ECONNREFUSED)
    }

    pub(super) fn sys_listen(&mut self, fd: u64, backlog: u64) -> Answer {
        let id = self.socket_at(fd)?;
        let socket = self.the_socket(id)?;
        if !socket.has_connection() {
            return Err(Errno::EOPNOTSUPP);
        }

        let is_free = matches!(socket.state, State::Idle | State::Listening { .. });
        let is_unix = socket.family == Family::Unix;
        if !is_free || is_unix && socket.local.is_none() {
            return Err(Errno::EINVAL);
        }

        // Without an address it listens on any free port (ip(7)).
        if !is_unix {
            if socket.local.is_none() {
                self.bind_port(id, IpAddr::from([0, 0, 0, 0]), None)?
            } else {
                self.check_listen(id)?
            }
        }

        // SO_PEERCRED of a client shows who called `listen` (unix(7)).
        let owner = self.credentials();
        let socket = self.the_socket_mut(id)?;
        let most = (backlog as u32).min(BACKLOG_MAX) as usize;
        // A second call changes only the backlog.
        match &mut socket.state {
            State::Listening { backlog, .. } => *backlog = most,
            state => {
                *state = State::Listening {
                    backlog: most,
                    waiting: Default::default(),
                };
            }
        }

        socket.owner = owner;
        Ok(0)
    }

    pub(super) fn sys_shutdown(&mut self, fd: u64, how: u64) -> Answer {
        let id = self.socket_at(fd)?;
        let how = how as u32;
        if how > 2 {
            return Err(Errno::EINVAL);
        }

        // SHUT_RD, SHUT_WR, SHUT_RDWR.
        let (reads, writes) = (how != 1, how != 0);
        let socket = self.the_socket_mut(id)?;
        let peer = socket.peer();
        let is_unix = socket.family == Family::Unix;
        if socket.family == Family::Netlink {
            return Err(Errno::EOPNOTSUPP);
        }

        let is_tcp = socket.is_tcp();
        if is_tcp && socket.is_listening() {
            // SHUT_RD ends the listening, and SHUT_WR changes nothing (`inet_shutdown`).
            if reads {
                socket.state = State::Idle;
            }
            return Ok(0);
        }

        let is_missing = !is_unix && peer.is_none() && socket.remote.is_none();
        let is_missing = is_missing || socket.state == State::Reset;
        // Even then.
        socket.read_shut |= reads;
        socket.write_shut |= writes;
        if is_missing {
            return Err(Errno::ENOTCONN);
        }

        let has_connection = socket.has_connection();
        if let Some(peer) = peer.filter(|_| has_connection) {
            let is_other = |other: &&mut Socket| other.peer() == Some(id);
            if let Some(other) = self.objects.socket_mut(peer).filter(is_other) {
                // A reader of TCP that has gone is not told.
                other.read_shut |= writes;
                other.write_shut |= reads && is_unix;
                let events = ev::READABLE | ev::RDHUP | ev::HUP | ev::WRITABLE;
                self.objects.wake(peer, events);
            }
        }

        let events = ev::READABLE | ev::RDHUP | ev::HUP | ev::WRITABLE;
        self.objects.wake(id, events);
        Ok(0)
    }

    /// Whether an open file is a socket.
    pub(super) fn is_socket(&self, open: &Shared) -> bool {
        self.socket_of(open)
            .is_ok_and(|id| matches!(self.objects.get(id), Some(Object::Socket(_))))
    }
}

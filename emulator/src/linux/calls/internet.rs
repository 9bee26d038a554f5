//! The internet inside the machine: ports, and TCP and UDP on the loopback interface. Nothing
//! leaves the machine, and there is no route to any other address.
//!
//! Source: Linux 6.12 `net/ipv4/inet_connection_sock.c`, `net/ipv4/tcp_ipv4.c`, `net/ipv4/udp.c`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::handle::ev;
use crate::linux::objects::{Address, Family, Socket, State};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The ports that the kernel chooses (`net.ipv4.ip_local_port_range`).
const PORTS: std::ops::RangeInclusive<u16> = 32768..=60999;
/// The first port that needs no privilege.
const UNPRIVILEGED: u16 = 1024;
const SOL_SOCKET: u32 = 1;
const REUSEADDR: u32 = 2;
const REUSEPORT: u32 = 15;
const IPPROTO_IPV6: u32 = 41;
const V6ONLY: u32 = 26;

/// Whether an address is one of the machine's: that of the loopback interface, or any.
fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

/// Whether a socket that is bound to an address gets what is sent to `ip`.
fn receives(socket: &Socket, ip: IpAddr) -> bool {
    let Some(local) = socket.local.internet() else {
        return false;
    };
    let is_any = local.ip().is_unspecified();
    match (socket.family, ip) {
        (Family::Inet, IpAddr::V6(_)) => false,
        (Family::Inet6, IpAddr::V4(_)) => {
            let both = socket.option(IPPROTO_IPV6, V6ONLY) == 0;
            local.ip() == ip || is_any && both
        }
        _ => local.ip() == ip || is_any,
    }
}

/// Whether two bound sockets could get the same.
fn overlap(one: &Socket, other: &Socket) -> bool {
    let ips = [one, other].map(|socket| socket.local.internet().map(|local| local.ip()));
    let [Some(one_ip), Some(other_ip)] = ips else {
        return false;
    };
    let loopback = match (one.family, other.family) {
        (Family::Inet6, Family::Inet6) => IpAddr::from(Ipv6Addr::LOCALHOST),
        _ => Ipv4Addr::LOCALHOST.into(),
    };
    match (one_ip.is_unspecified(), other_ip.is_unspecified()) {
        (true, true) => receives(one, loopback) && receives(other, loopback),
        (false, _) => receives(other, one_ip),
        (_, false) => receives(one, other_ip),
    }
}

impl Kernel {
    /// Whether a bound socket excludes another one from its port.
    fn conflicts(&self, id: u32, socket: &Socket) -> bool {
        let port = socket.local.internet().map(|local| local.port());
        let own = |name| socket.option(SOL_SOCKET, name) != 0;
        self.objects.sockets().any(|(other_id, other)| {
            let theirs = |name| other.option(SOL_SOCKET, name) != 0;
            let is_same = other.family.is_internet()
                && other.kind == socket.kind
                && other.local.internet().map(|local| local.port()) == port;
            if other_id == id || !is_same || !overlap(socket, other) {
                return false;
            }
            let reuses = own(REUSEADDR) && theirs(REUSEADDR);
            let listens = socket.is_tcp() && (other.is_listening() || socket.is_listening());
            let shares = own(REUSEPORT) && theirs(REUSEPORT) && other.user == socket.user;
            !(reuses && !listens || shares)
        })
    }

    /// Binds a socket to an address, and a port or any.
    pub(super) fn bind_port(&mut self, id: u32, ip: IpAddr, port: Option<u16>) -> Answer<()> {
        let socket = self.the_socket(id)?;

        if !is_here(ip) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        // Ports below `net.ipv4.ip_unprivileged_port_start` need CAP_NET_BIND_SERVICE.
        if port.is_some_and(|port| port < UNPRIVILEGED) && !self.files.own.identity.is_capable() {
            return Err(Errno::EACCES);
        }
        // A socket is bound only once (bind(2)).
        if !socket.local.is_none() {
            return Err(Errno::EINVAL);
        }

        let ip = match socket.family {
            Family::Inet6 if ip.is_unspecified() => Ipv6Addr::UNSPECIFIED.into(),
            _ => ip,
        };

        let mut wanted = socket.clone();
        let candidates: Vec<u16> = match port {
            Some(port) => vec![port],
            None => self.free_ports(),
        };

        for port in candidates {
            wanted.local = Address::Internet(SocketAddr::new(ip, port));
            if !self.conflicts(id, &wanted) {
                self.the_socket_mut(id)?.local = wanted.local;
                return Ok(());
            }
        }
        Err(Errno::EADDRINUSE)
    }

    /// The ports that no socket has, the next one first.
    fn free_ports(&mut self) -> Vec<u16> {
        let used: std::collections::BTreeSet<u16> = self
            .objects
            .sockets()
            .filter_map(|(_, socket)| Some(socket.local.internet()?.port()))
            .collect();
        let next = self.objects.next_port(PORTS);
        let all = (next..=*PORTS.end()).chain(*PORTS.start()..next);
        all.filter(|port| !used.contains(port)).take(1).collect()
    }

    /// Checks that a bound socket may listen.
    pub(super) fn check_listen(&self, id: u32) -> Answer<()> {
        let mut socket = self.the_socket(id)?.clone();
        socket.state = State::Listening {
            backlog: 0,
            waiting: Default::default(),
        };
        let port = socket.local.internet();
        let is_taken = self.objects.sockets().any(|(other_id, other)| {
            let shares = [&socket, other].map(|s| s.option(SOL_SOCKET, REUSEPORT) != 0);
            let is_same = other.local.internet().map(|a| a.port()) == port.map(|a| a.port());
            let others = other_id != id && other.is_tcp() && other.is_listening() && is_same;
            others && overlap(&socket, other) && shares != [true; 2]
        });
        if is_taken {
            Err(Errno::EADDRINUSE)
        } else {
            Ok(())
        }
    }

    /// Where something sent to an address goes.
    ///
    /// # Errors
    /// `ENETUNREACH` if it is not in the machine; `EINVAL` without a port.
    pub(super) fn destination(&self, socket: &Socket, address: &Address) -> Answer<SocketAddr> {
        let to = address.internet().ok_or(Errno::EINVAL)?;
        let ip = match to.ip() {
            ip if ip.is_loopback() => ip,
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            _ => return Err(Errno::ENETUNREACH),
        };
        let only = socket.family == Family::Inet6 && socket.option(IPPROTO_IPV6, V6ONLY) != 0;
        if only && ip.is_ipv4() {
            Err(Errno::ENETUNREACH)
        } else {
            Ok(SocketAddr::new(ip, to.port()))
        }
    }

    /// Gives a socket the address from which it sends, and a port if it has none.
    fn bind_sender(&mut self, id: u32, to: IpAddr) -> Answer<()> {
        let socket = self.the_socket(id)?;
        let local = socket.local.internet().ok_or(Errno::EINVAL)?;
        let port = match local.port() {
            0 => *self.free_ports().first().ok_or(Errno::EADDRNOTAVAIL)?,
            port => port,
        };
        let ip = if local.ip().is_unspecified() {
            to
        } else {
            local.ip()
        };
        self.the_socket_mut(id)?.local = Address::Internet(SocketAddr::new(ip, port));
        Ok(())
    }

    pub(super) fn connect_tcp(&mut self, id: u32, bytes: &[u8], waits: bool) -> Answer {
        let socket = self.the_socket_mut(id)?;
        let family = socket.family;

        if socket.is_connecting {
            // The answer to an earlier call.
            socket.is_connecting = false;
            return match socket.error.take() {
                Some(error) => {
                    socket.state = State::Idle;
                    Err(error)
                }
                None => Ok(0),
            };
        }

        match socket.state {
            State::Connected(_) | State::Listening { .. } => return Err(Errno::EISCONN),
            State::Idle | State::Reset => {}
        }

        let address = Address::read(family, bytes)?;
        let to = self.destination(self.the_socket(id)?, &address)?;
        let before = self.the_socket(id)?.local.clone();
        self.bind_sender(id, to.ip())?;

        let socket = self.the_socket_mut(id)?;
        socket.remote = Address::Internet(to);
        (socket.read_shut, socket.write_shut) = (false, false);
        socket.is_connecting = !waits;

        // On the loopback interface the other side answers at once.
        let refused = match self.listener(to) {
            Some(listener) => self.establish(id, listener).map(|()| None)?,
            None => Some(Errno::ECONNREFUSED),
        };

        // `bind_sender` chose an address for this attempt only.
        if refused.is_some() {
            self.the_socket_mut(id)?.local = before;
        }

        match (refused, waits) {
            (None, true) => Ok(0),
            (Some(error), true) => {
                self.the_socket_mut(id)?.remote = Address::none(family);
                Err(error)
            }
            (refused, false) => {
                // A caller that does not wait learns the result from `SO_ERROR` or the next
                // `connect`.
                let socket = self.the_socket_mut(id)?;
                socket.error = refused;
                if refused.is_some() {
                    (socket.read_shut, socket.write_shut) = (true, true);
                    socket.state = State::Reset;
                }
                self.objects.wake(id, ev::WRITABLE | ev::ERR | ev::HUP);
                Err(Errno::EINPROGRESS)
            }
        }
    }

    /// The socket that accepts connections to an address: one that is bound to just this one
    /// before one that is bound to any.
    fn listener(&self, to: SocketAddr) -> Option<u32> {
        let all = self.objects.sockets().filter(|(_, socket)| {
            let port = socket.local.internet().map(|local| local.port());
            socket.is_tcp()
                && socket.is_listening()
                && port == Some(to.port())
                && receives(socket, to.ip())
        });
        let exact = |socket: &Socket| socket.local.internet() == Some(to);
        all.max_by_key(|(id, socket)| (exact(socket), std::cmp::Reverse(*id)))
            .map(|(id, _)| id)
    }

    /// Sets where a UDP socket sends to, and from where it receives.
    pub(super) fn connect_udp(&mut self, id: u32, address: &Address) -> Answer {
        let to = self.destination(self.the_socket(id)?, address)?;
        self.bind_sender(id, to.ip())?;
        self.the_socket_mut(id)?.remote = Address::Internet(to);
        Ok(0)
    }

    /// The socket that gets a datagram.
    pub(super) fn udp_socket(&self, to: SocketAddr, from: SocketAddr) -> Option<u32> {
        let all = self.objects.sockets().filter(|(_, socket)| {
            let local = socket.local.internet();
            let is_udp = socket.family.is_internet() && !socket.has_connection();
            let takes = socket.remote.is_none() || socket.remote.internet() == Some(from);
            is_udp
                && local.is_some_and(|local| local.port() == to.port())
                && receives(socket, to.ip())
                && takes
        });
        let rank = |socket: &Socket| {
            (
                !socket.remote.is_none(),
                socket.local.internet() == Some(to),
            )
        };
        all.max_by_key(|(id, socket)| (rank(socket), *id))
            .map(|(id, _)| id)
    }

    /// Gives a UDP socket a port before it sends, if it has none.
    pub(super) fn bind_udp(&mut self, id: u32) -> Answer<()> {
        let socket = self.the_socket(id)?;
        if !socket.local.is_none() {
            return Ok(());
        }
        let any = match socket.family {
            Family::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        let port = *self.free_ports().first().ok_or(Errno::EAGAIN)?;
        self.the_socket_mut(id)?.local = Address::Internet(SocketAddr::new(any, port));
        Ok(())
    }

    /// The address from which a UDP socket sends, to `to`.
    pub(super) fn udp_sender(&self, id: u32, to: IpAddr) -> Answer<SocketAddr> {
        let local = self.the_socket(id)?.local.internet();
        let local = local.ok_or(Errno::EINVAL)?;
        let ip = if local.ip().is_unspecified() {
            to
        } else {
            local.ip()
        };
        Ok(SocketAddr::new(ip, local.port()))
    }
}

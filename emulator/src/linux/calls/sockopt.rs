//! `getsockopt`, `setsockopt`, and `ioctl` of sockets.
//!
//! Source: Linux 6.12 `net/core/sock.c`, `net/ipv4/{tcp,ip_sockglue}.c`,
//! `net/ipv6/ipv6_sockglue.c`, `net/unix/af_unix.c`.

use crate::linux::Kernel;
use crate::linux::clock::SECOND;
use crate::linux::errno::{Answer, Errno};
use crate::linux::handle::ev;
use crate::linux::objects::{Family, Socket, Type};

const SOL_SOCKET: u32 = 1;
const IPPROTO_IP: u32 = 0;
const IPPROTO_TCP: u32 = 6;
const IPPROTO_UDP: u32 = 17;
const IPPROTO_IPV6: u32 = 41;
const SOL_NETLINK: u32 = 270;

/// Options of `SOL_SOCKET` with a meaning of their own.
const TYPE: u32 = 3;
const ERROR: u32 = 4;
const SNDBUF: u32 = 7;
const RCVBUF: u32 = 8;
const LINGER: u32 = 13;
const PEERCRED: u32 = 17;
const RCVTIMEO: u32 = 20;
const SNDTIMEO: u32 = 21;
const ACCEPTCONN: u32 = 30;
const PROTOCOL: u32 = 38;
const DOMAIN: u32 = 39;
const TCP_INFO: u32 = 11;
const TCP_CONGESTION: u32 = 13;

/// The limit of buffer sizes that a program asks for (`net.core.wmem_max`), bytes.
const BUFFER_MAX: i32 = 212_992;
/// The smallest buffers (`SOCK_MIN_SNDBUF`, `SOCK_MIN_RCVBUF`), bytes.
const SNDBUF_MIN: i32 = 4608;
const RCVBUF_MIN: i32 = 2304;

/// How an option's value is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Bool,
    /// From a least to a greatest value.
    Int(i32, i32),
}

/// Options that are numbers and change nothing that a program sees otherwise, or only what their
/// user looks up: level, name, value before it is set, values.
const NUMBERS: [(u32, u32, i32, How); 34] = {
    use How::{Bool, Int};
    const ANY: How = Int(i32::MIN, i32::MAX);
    [
        (SOL_SOCKET, 1, 0, Bool),               // SO_DEBUG
        (SOL_SOCKET, 2, 0, Bool),               // SO_REUSEADDR
        (SOL_SOCKET, 5, 0, Bool),               // SO_DONTROUTE
        (SOL_SOCKET, 6, 0, Bool),               // SO_BROADCAST
        (SOL_SOCKET, 9, 0, Bool),               // SO_KEEPALIVE
        (SOL_SOCKET, 10, 0, Bool),              // SO_OOBINLINE
        (SOL_SOCKET, 11, 0, Bool),              // SO_NO_CHECK
        (SOL_SOCKET, 12, 0, ANY),               // SO_PRIORITY
        (SOL_SOCKET, 15, 0, Bool),              // SO_REUSEPORT
        (SOL_SOCKET, 16, 0, Bool),              // SO_PASSCRED
        (SOL_SOCKET, 18, 1, ANY),               // SO_RCVLOWAT
        (IPPROTO_TCP, 1, 0, Bool),              // TCP_NODELAY
        (IPPROTO_TCP, 3, 0, Bool),              // TCP_CORK
        (IPPROTO_TCP, 4, 7200, Int(1, 32767)),  // TCP_KEEPIDLE
        (IPPROTO_TCP, 5, 75, Int(1, 32767)),    // TCP_KEEPINTVL
        (IPPROTO_TCP, 6, 9, Int(1, 127)),       // TCP_KEEPCNT
        (IPPROTO_TCP, 7, 6, Int(1, 127)),       // TCP_SYNCNT
        (IPPROTO_TCP, 9, 0, ANY),               // TCP_DEFER_ACCEPT
        (IPPROTO_TCP, 12, 1, Bool),             // TCP_QUICKACK
        (IPPROTO_TCP, 18, 0, Int(0, i32::MAX)), // TCP_USER_TIMEOUT
        (IPPROTO_TCP, 23, 0, Int(0, i32::MAX)), // TCP_FASTOPEN
        (IPPROTO_IP, 1, 0, ANY),                // IP_TOS
        (IPPROTO_IP, 2, 64, Int(1, 255)),       // IP_TTL
        (IPPROTO_IP, 10, 1, Int(0, 5)),         // IP_MTU_DISCOVER
        (IPPROTO_IP, 11, 0, Bool),              // IP_RECVERR
        (IPPROTO_IP, 15, 0, Bool),              // IP_FREEBIND
        (IPPROTO_IP, 24, 0, Bool),              // IP_BIND_ADDRESS_NO_PORT
        (IPPROTO_IP, 33, 1, Int(0, 255)),       // IP_MULTICAST_TTL
        (IPPROTO_IP, 34, 1, Bool),              // IP_MULTICAST_LOOP
        (IPPROTO_IPV6, 16, 64, Int(1, 255)),    // IPV6_UNICAST_HOPS
        (IPPROTO_IPV6, 23, 1, Int(0, 5)),       // IPV6_MTU_DISCOVER
        (IPPROTO_IPV6, 25, 0, Bool),            // IPV6_RECVERR
        (IPPROTO_IPV6, 26, 0, Bool),            // IPV6_V6ONLY
        (IPPROTO_IPV6, 67, 0, Int(0, 255)),     // IPV6_TCLASS
    ]
};

fn known(level: u32, name: u32) -> Option<(i32, How)> {
    let found = NUMBERS.iter().find(|(l, n, ..)| (*l, *n) == (level, name));
    found.map(|&(_, _, before, how)| (before, how))
}

/// Whether a level exists for a socket.
fn has_level(socket: &Socket, level: u32) -> bool {
    match level {
        SOL_SOCKET => true,
        IPPROTO_TCP => socket.is_tcp(),
        IPPROTO_UDP => socket.family.is_internet() && socket.kind == Type::Datagram,
        IPPROTO_IP => socket.family.is_internet(),
        IPPROTO_IPV6 => socket.family == Family::Inet6,
        SOL_NETLINK => socket.family == Family::Netlink,
        _ => false,
    }
}

impl Kernel {
    pub(super) fn sys_setsockopt(&mut self, args: [u64; 6]) -> Answer {
        let [fd, level, name, at, size, _] = args;
        let id = self.socket_at(fd)?;
        let (level, name, size) = (level as u32, name as u32, size as u32);
        if (size as i32) < 0 {
            return Err(Errno::EINVAL);
        }

        let socket = self.the_socket(id)?;
        if !has_level(socket, level) {
            return Err(match socket.family {
                Family::Unix => Errno::EOPNOTSUPP,
                _ => Errno::ENOPROTOOPT,
            });
        }

        match (level, name) {
            (SOL_SOCKET, TYPE | ERROR | ACCEPTCONN | PROTOCOL | DOMAIN | PEERCRED) => {
                // These can only be read.
                return Err(Errno::ENOPROTOOPT);
            }
            (SOL_SOCKET, LINGER) => {
                if size < 8 {
                    return Err(Errno::EINVAL);
                }
                let linger = [self.u32_at(at)?, self.u32_at(at.wrapping_add(4))?];
                self.the_socket_mut(id)?.linger = [u32::from(linger[0] != 0), linger[1]];
                return Ok(0);
            }
            (SOL_SOCKET, RCVTIMEO | SNDTIMEO) => {
                if size < 16 {
                    return Err(Errno::EINVAL);
                }
                let (seconds, micros) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
                if micros >= 1_000_000 {
                    return Err(Errno::EDOM);
                }

                let nanoseconds = seconds.saturating_mul(SECOND) + micros * 1000;
                // No time is no limit, and a negative one has passed.
                let timeout = match seconds.cast_signed() {
                    ..0 => Some(0),
                    _ if nanoseconds == 0 => None,
                    _ => Some(nanoseconds),
                };

                let socket = self.the_socket_mut(id)?;
                match name {
                    RCVTIMEO => socket.read_timeout = timeout,
                    _ => socket.write_timeout = timeout,
                }
                return Ok(0);
            }
            (IPPROTO_TCP, TCP_CONGESTION) => {
                let name = self.name_at(at, (size as usize).min(15))?;
                return match &name[..] {
                    b"cubic" => Ok(0),
                    b"reno" => self.not_modelled("TCP congestion control", Errno::ENOENT),
                    _ => Err(Errno::ENOENT),
                };
            }
            _ => {}
        }

        // All other options are an `int`.
        if size < 4 {
            return Err(Errno::EINVAL);
        }

        let value = self.u32_at(at)?.cast_signed();
        let capable = self.files.own.identity.is_capable();
        // SO_SNDBUFFORCE and SO_RCVBUFFORCE. Their sizes have the same bound here, which is one of memory.
        if level == SOL_SOCKET && matches!(name, 32 | 33) && !capable {
            return Err(Errno::EPERM);
        }

        let value = match (level, name, known(level, name)) {
            // The kernel doubles the size, for its own needs (socket(7)).
            (SOL_SOCKET, SNDBUF | 32, _) => (value.clamp(0, BUFFER_MAX) * 2).max(SNDBUF_MIN),
            (SOL_SOCKET, RCVBUF | 33, _) => (value.clamp(0, BUFFER_MAX) * 2).max(RCVBUF_MIN),
            // SO_PRIORITY: a higher one needs CAP_NET_ADMIN.
            (SOL_SOCKET, 12, _) if !(0..=6).contains(&value) && !capable => {
                return Err(Errno::EPERM);
            }
            // IP_TOS.
            (IPPROTO_IP, 1, _) => value & 0xff,
            (_, _, Some((_, How::Bool))) => i32::from(value != 0),
            // -1 is the default: IP_TTL, IPV6_UNICAST_HOPS (ip(7), ipv6(7)).
            (IPPROTO_IP, 2, _) | (IPPROTO_IPV6, 16, _) if value == -1 => 64,
            (_, _, Some((_, How::Int(least, most)))) => {
                if value < least || value > most {
                    return Err(Errno::EINVAL);
                }
                value
            }
            // What is received then is not modelled; not to ask for it changes nothing.
            (_, _, None) if value == 0 && level != SOL_SOCKET => return Ok(0),
            (SOL_SOCKET, 80.., _) => return Err(Errno::ENOPROTOOPT),
            (SOL_NETLINK, 1..=12, _) => return Ok(0),
            _ => return self.not_modelled("an option of sockets", Errno::ENOPROTOOPT),
        };

        let name = match (level, name) {
            (SOL_SOCKET, 32) => SNDBUF,
            (SOL_SOCKET, 33) => RCVBUF,
            _ => name,
        };

        let socket = self.the_socket_mut(id)?;
        socket.options.insert((level, name), value);
        Ok(0)
    }

    pub(super) fn sys_getsockopt(&mut self, args: [u64; 6]) -> Answer {
        let [fd, level, name, at, size_at, _] = args;
        let id = self.socket_at(fd)?;
        let (level, name) = (level as u32, name as u32);
        let room = self.u32_at(size_at)?;
        if (room as i32) < 0 {
            return Err(Errno::EINVAL);
        }

        let socket = self.the_socket(id)?;
        if !has_level(socket, level) {
            return Err(match socket.family {
                Family::Netlink => Errno::ENOPROTOOPT,
                _ => Errno::EOPNOTSUPP,
            });
        }

        let number = |value: i32| value.to_le_bytes().to_vec();
        let bytes = match (level, name, known(level, name)) {
            (SOL_SOCKET, TYPE, _) => number(socket.kind as i32),
            (SOL_SOCKET, ERROR, _) => {
                // Reading the error clears it.
                let error = self.the_socket_mut(id)?.error.take();
                number(error.map_or(0, |error| -(error.to_rax() as i32)))
            }
            (SOL_SOCKET, SNDBUF | RCVBUF, _) => number(socket.buffer(name).cast_signed()),
            (SOL_SOCKET, LINGER, _) => socket.linger.map(u32::to_le_bytes).concat(),
            (SOL_SOCKET, PEERCRED, _) => socket.peer_owner.map(u32::to_le_bytes).concat(),
            (SOL_SOCKET, RCVTIMEO, _) => timeout_bytes(socket.read_timeout),
            (SOL_SOCKET, SNDTIMEO, _) => timeout_bytes(socket.write_timeout),
            (SOL_SOCKET, ACCEPTCONN, _) => number(socket.is_listening().into()),
            (SOL_SOCKET, PROTOCOL, _) => number(socket.protocol.cast_signed()),
            (SOL_SOCKET, DOMAIN, _) => number(socket.family.number().into()),
            // SO_PEERSEC: there is no security module.
            (SOL_SOCKET, 31, _) => return Err(Errno::ENOPROTOOPT),
            // TCP_MAXSEG.
            (IPPROTO_TCP, 2, _) => number(32768),
            (IPPROTO_TCP, TCP_INFO, _) => tcp_info(socket),
            (IPPROTO_TCP, TCP_CONGESTION, _) => {
                let mut name = b"cubic".to_vec();
                name.resize(16, 0);
                name
            }
            (_, _, Some((before, _))) => {
                let set = socket.options.get(&(level, name));
                number(set.copied().unwrap_or(before))
            }
            // Options that cannot be on: SO_PASSSEC, SO_TIMESTAMP and others of time, SO_MARK,
            // SO_RXQ_OVFL, SO_WIFI_STATUS, SO_NOFCS, SO_LOCK_FILTER, SO_SELECT_ERR_QUEUE,
            // SO_BUSY_POLL, SO_INCOMING_NAPI_ID, SO_ZEROCOPY.
            (SOL_SOCKET, 29 | 34..=37 | 40 | 41 | 43..=46 | 56 | 60 | 63 | 64, _) => number(0),
            (SOL_SOCKET, 80.., _) => return Err(Errno::ENOPROTOOPT),
            _ => return self.not_modelled("an option of sockets", Errno::ENOPROTOOPT),
        };

        // A short buffer gets the first bytes, and the size says how many.
        let count = bytes.len().min(room as usize);
        self.put(at, &bytes[..count])?;
        self.put_u32(size_at, count as u32)?;
        Ok(0)
    }

    /// `FIONREAD` and the like of a socket; `None` for other commands.
    pub(super) fn socket_ioctl(&mut self, id: u32, command: u32, arg: u64) -> Option<Answer> {
        const SIOCOUTQ: u32 = 0x5411;
        const FIONREAD: u32 = 0x541b;
        let socket = self.objects.socket(id)?;
        let count = match command {
            FIONREAD if socket.is_listening() => return Some(Err(Errno::EINVAL)),
            FIONREAD if socket.has_connection() => socket.bytes(),
            FIONREAD => socket.inbox.front().map_or(0, |first| first.bytes.len()),
            SIOCOUTQ if socket.is_listening() => return Some(Err(Errno::EINVAL)),
            SIOCOUTQ => match socket.peer().and_then(|peer| self.objects.socket(peer)) {
                // TCP counts what was not acknowledged: nothing.
                Some(other) if !socket.is_tcp() => other.bytes(),
                _ => 0,
            },
            _ => return None,
        };
        Some(self.put_u32(arg, count as u32).map(|()| 0))
    }

    /// The events of a socket.
    pub(super) fn socket_events(&self, socket: &Socket) -> u32 {
        socket.events(self.objects.has_room(socket)) & !ev::PRI
    }
}

fn timeout_bytes(timeout: Option<u64>) -> Vec<u8> {
    let nanoseconds = timeout.unwrap_or(0);
    let words = [nanoseconds / SECOND, nanoseconds % SECOND / 1000];
    words.map(u64::to_le_bytes).concat()
}

/// The first fields of a `struct tcp_info`: `tcpi_state`, ..., `tcpi_rto`, `tcpi_ato`,
/// `tcpi_snd_mss`, `tcpi_rcv_mss`.
fn tcp_info(socket: &Socket) -> Vec<u8> {
    const SIZE: usize = 248;
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT: u8 = 4;
    const CLOSED: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    const LISTEN: u8 = 10;
    let state = match (socket.read_shut, socket.write_shut) {
        _ if socket.is_listening() => LISTEN,
        _ if socket.peer().is_none() => CLOSED,
        (_, true) => FIN_WAIT,
        (true, false) => CLOSE_WAIT,
        _ => ESTABLISHED,
    };
    let mut bytes = vec![0; SIZE];
    bytes[0] = state;
    for (at, value) in [(8, 200_000_u32), (12, 40_000), (16, 32768), (20, 536)] {
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

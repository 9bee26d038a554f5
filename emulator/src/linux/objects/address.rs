//! Addresses of sockets, as programs give and get them.
//!
//! Source: Linux 6.12 `include/uapi/linux/{un,in,in6,netlink}.h`, `net/unix/af_unix.c`
//! (`unix_mkname_bsd`), `net/ipv4/af_inet.c`, `net/ipv6/af_inet6.c`.

use crate::linux::errno::{Answer, Errno};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Size of a `struct sockaddr_un`, bytes.
const UNIX_MAX: usize = 110;
/// Size of a `struct sockaddr_in`, bytes.
const INET: usize = 16;
/// Size of a `struct sockaddr_in6`, bytes, and without its scope.
const INET6: usize = 28;
const INET6_MIN: usize = 24;

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::linux) enum Family {
    Unix,
    Inet,
    Inet6,
    Netlink,
}

impl Family {
    /// Its number; 0 is `AF_UNSPEC`.
    pub(in crate::linux) fn number(self) -> u16 {
        match self {
            Family::Unix => 1,
            Family::Inet => 2,
            Family::Inet6 => 10,
            Family::Netlink => 16,
        }
    }

    pub(in crate::linux) fn is_internet(self) -> bool {
        matches!(self, Family::Inet | Family::Inet6)
    }
}

/// The address of a socket.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::linux) enum Address {
    /// `sun_path`: a path; after a NUL, an abstract name; or nothing.
    Unix(Vec<u8>),
    /// An IPv4 address is never written as an IPv6 one here.
    Internet(SocketAddr),
    /// The port of a netlink socket; that of the kernel is 0.
    Netlink(u32),
}

impl Address {
    /// The address of a socket that has none.
    pub(in crate::linux) fn none(family: Family) -> Address {
        match family {
            Family::Unix => Address::Unix(Vec::new()),
            Family::Inet => Address::Internet((Ipv4Addr::UNSPECIFIED, 0).into()),
            Family::Inet6 => Address::Internet((Ipv6Addr::UNSPECIFIED, 0).into()),
            Family::Netlink => Address::Netlink(0),
        }
    }

    /// The family that a `struct sockaddr` names.
    pub(in crate::linux) fn family_of(bytes: &[u8]) -> Option<u16> {
        bytes
            .first_chunk()
            .map(|family| u16::from_le_bytes(*family))
    }

    /// Reads a `struct sockaddr` for a socket of this family.
    ///
    /// # Errors
    /// `EINVAL` if it is too short; `EAFNOSUPPORT` or, for others than those of the internet,
    /// `EINVAL` if it is of another family.
    pub(in crate::linux) fn read(family: Family, bytes: &[u8]) -> Answer<Address> {
        // A Unix address needs at least one byte of its name; the others have a fixed size.
        let shortest = match family {
            Family::Unix => 3,
            Family::Inet => INET,
            Family::Inet6 => INET6_MIN,
            Family::Netlink => 12,
        };

        if bytes.len() < shortest || family == Family::Unix && bytes.len() > UNIX_MAX {
            return Err(Errno::EINVAL);
        }

        if Address::family_of(bytes) != Some(family.number()) {
            return Err(if family.is_internet() {
                Errno::EAFNOSUPPORT
            } else {
                Errno::EINVAL
            });
        }

        // Ports are in network byte order.
        let port = || u16::from_be_bytes([bytes[2], bytes[3]]);
        Ok(match family {
            Family::Unix => {
                // An abstract name may contain NULs; a path ends at the first one.
                let path = &bytes[2..];
                let end = match path[0] {
                    0 => path.len(),
                    _ => path.iter().position(|&b| b == 0).unwrap_or(path.len()),
                };
                Address::Unix(path[..end].to_vec())
            }
            Family::Inet => {
                let ip: [u8; 4] = std::array::from_fn(|i| bytes[4 + i]);
                Address::Internet((ip, port()).into())
            }
            Family::Inet6 => {
                let ip: [u8; 16] = std::array::from_fn(|i| bytes[8 + i]);
                // An IPv4-mapped address is an IPv4 address (ipv6(7)).
                Address::Internet((IpAddr::from(ip).to_canonical(), port()).into())
            }
            Family::Netlink => {
                let port: [u8; 4] = std::array::from_fn(|i| bytes[4 + i]);
                Address::Netlink(u32::from_le_bytes(port))
            }
        })
    }

    /// The `struct sockaddr` that a socket of this family reports.
    pub(in crate::linux) fn write(&self, family: Family) -> Vec<u8> {
        let mut bytes = family.number().to_le_bytes().to_vec();

        match self {
            Address::Unix(path) => {
                bytes.extend(path);
                // A path is reported with its NUL, an abstract name has none (unix(7)).
                if path.first().is_some_and(|&byte| byte != 0) {
                    bytes.push(0);
                }
            }
            Address::Internet(address) => {
                bytes.extend(address.port().to_be_bytes());
                let ip = address.ip();
                match (family, ip) {
                    (Family::Inet6, ip) => {
                        let ip = match ip {
                            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                            IpAddr::V6(ip) => ip,
                        };
                        // `sin6_flowinfo`.
                        bytes.extend([0; 4]);
                        bytes.extend(ip.octets());
                        // `sin6_scope_id`.
                        bytes.resize(INET6, 0);
                    }
                    (_, IpAddr::V4(ip)) => bytes.extend(ip.octets()),
                    (_, IpAddr::V6(_)) => bytes.extend([0; 4]),
                }
                if family == Family::Inet {
                    // `sin_zero`.
                    bytes.resize(INET, 0);
                }
            }
            Address::Netlink(port) => {
                // `struct sockaddr_nl`: two bytes of padding, the port, and the groups, which are
                // not modelled.
                bytes.extend([0; 2]);
                bytes.extend(port.to_le_bytes());
                bytes.extend([0; 4]);
            }
        }

        bytes
    }

    /// The internet address.
    pub(in crate::linux) fn internet(&self) -> Option<SocketAddr> {
        match self {
            Address::Internet(address) => Some(*address),
            _ => None,
        }
    }

    /// Whether it is that of a socket without a name.
    pub(in crate::linux) fn is_none(&self) -> bool {
        match self {
            Address::Unix(path) => path.is_empty(),
            Address::Internet(address) => address.port() == 0,
            Address::Netlink(port) => *port == 0,
        }
    }
}

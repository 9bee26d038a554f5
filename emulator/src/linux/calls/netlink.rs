//! Netlink sockets for routes: they list the one interface, `lo`, its addresses and no routes.
//!
//! Source: Linux 6.12 `net/netlink/af_netlink.c`, `net/core/rtnetlink.c`, `net/ipv4/devinet.c`,
//! `include/uapi/linux/{netlink,rtnetlink,if_link,if_addr}.h`.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::handle::ev;
use crate::linux::objects::{Address, Message};
use std::collections::VecDeque;

/// Size of a `struct nlmsghdr`, bytes.
const HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const NLM_F_MULTI: u16 = 2;
const NLM_F_DUMP: u16 = 0x300;
/// The number and the MTU of `lo`.
const LOOPBACK: u32 = 1;
const MTU: u32 = 65536;
/// `IFF_UP | IFF_LOOPBACK | IFF_RUNNING | IFF_LOWER_UP`.
const FLAGS: u32 = 0x1_0049;
const ARPHRD_LOOPBACK: u16 = 772;

/// A `struct nlmsghdr` with what follows.
fn message(kind: u16, flags: u16, sequence: u32, port: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + data.len()) as u32).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(port.to_le_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A `struct rtattr`.
fn attribute(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = ((4 + data.len()) as u16).to_le_bytes().to_vec();
    bytes.extend(kind.to_le_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The interface: a `struct ifinfomsg` with `IFLA_IFNAME`, `IFLA_TXQLEN`, `IFLA_OPERSTATE`,
/// `IFLA_MTU`, `IFLA_ADDRESS`, `IFLA_BROADCAST`.
fn link() -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(ARPHRD_LOOPBACK.to_le_bytes());
    bytes.extend(LOOPBACK.to_le_bytes());
    bytes.extend(FLAGS.to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(attribute(3, b"lo\0"));
    bytes.extend(attribute(13, &1000_u32.to_le_bytes()));
    bytes.extend(attribute(16, &[0]));
    bytes.extend(attribute(4, &MTU.to_le_bytes()));
    bytes.extend(attribute(1, &[0; 6]));
    bytes.extend(attribute(2, &[0; 6]));
    bytes
}

/// An address of the interface: a `struct ifaddrmsg` with `IFA_ADDRESS`, `IFA_LOCAL`, `IFA_LABEL`,
/// `IFA_FLAGS`.
fn address(family: u8, prefix: u8, ip: &[u8]) -> Vec<u8> {
    const PERMANENT: u8 = 0x80;
    const HOST: u8 = 254;
    let mut bytes = vec![family, prefix, PERMANENT, HOST];
    bytes.extend(LOOPBACK.to_le_bytes());
    bytes.extend(attribute(1, ip));
    if family == 2 {
        bytes.extend(attribute(2, ip));
        bytes.extend(attribute(3, b"lo\0"));
    }
    bytes.extend(attribute(8, &u32::from(PERMANENT).to_le_bytes()));
    bytes
}

impl Kernel {
    pub(super) fn bind_netlink(&mut self, id: u32, wanted: &Address) -> Answer {
        let port = match wanted {
            Address::Netlink(0) => {
                let own = Address::Netlink(self.process.number);
                let is_taken = self.objects.sockets().any(|(_, other)| other.local == own);
                if is_taken {
                    u32::MAX - id
                } else {
                    self.process.number
                }
            }
            Address::Netlink(port) => *port,
            _ => return Err(Errno::EINVAL),
        };
        let socket = self.the_socket_mut(id)?;
        if socket.local.is_none() {
            socket.local = Address::Netlink(port);
        }
        Ok(0)
    }

    /// Answers requests.
    pub(super) fn send_netlink(&mut self, id: u32, bytes: &[u8]) -> Answer {
        self.bind_netlink(id, &Address::Netlink(0))?;
        let Address::Netlink(port) = self.the_socket(id)?.local else {
            return Err(Errno::EINVAL);
        };
        let mut rest = bytes;
        while rest.len() >= HEADER {
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| rest[at + i]));
            let length = word(0) as usize;
            if length < HEADER || length > rest.len() {
                break;
            }
            let (kind, flags) = (word(4) as u16, (word(4) >> 16) as u16);
            let family = rest.get(HEADER).copied().unwrap_or(0);
            self.answer_netlink(id, kind, flags, family, [word(8), port], &rest[..length])?;
            rest = &rest[length.next_multiple_of(4).min(rest.len())..];
        }
        Ok(bytes.len() as u64)
    }

    fn answer_netlink(
        &mut self,
        id: u32,
        kind: u16,
        flags: u16,
        family: u8,
        [sequence, port]: [u32; 2],
        request: &[u8],
    ) -> Answer<()> {
        let one = |kind, data: &[u8]| message(kind, NLM_F_MULTI, sequence, port, data);
        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        let mut found = Vec::new();

        match kind {
            RTM_GETLINK if is_dump => found.extend(one(RTM_NEWLINK, &link())),
            RTM_GETLINK => {
                let answer = message(RTM_NEWLINK, 0, sequence, port, &link());
                return self.reply(id, answer);
            }
            RTM_GETADDR if is_dump => {
                // 0 is any family, 2 is AF_INET, and 10 is AF_INET6: the loopback address of each.
                if matches!(family, 0 | 2) {
                    found.extend(one(RTM_NEWADDR, &address(2, 8, &[127, 0, 0, 1])));
                }
                if matches!(family, 0 | 10) {
                    let mut ip = [0; 16];
                    ip[15] = 1;
                    found.extend(one(RTM_NEWADDR, &address(10, 128, &ip)));
                }
            }
            // There are no routes.
            RTM_GETROUTE if is_dump => {}
            _ => {
                // The error repeats the header of the request (`netlink_ack`).
                let error = Errno::EOPNOTSUPP.to_rax() as u32;
                let data = [&error.to_le_bytes()[..], &request[..HEADER]].concat();
                self.reply(id, message(NLMSG_ERROR, 0, sequence, port, &data))?;
                return self
                    .not_modelled("netlink requests other than for lists", Errno::EOPNOTSUPP);
            }
        }

        if !found.is_empty() {
            self.reply(id, found)?;
        }

        // A list ends with NLMSG_DONE, even if it is empty.
        self.reply(id, one(NLMSG_DONE, &[0; 4]))
    }

    fn reply(&mut self, id: u32, bytes: Vec<u8>) -> Answer<()> {
        self.the_socket_mut(id)?.inbox.push_back(Message {
            bytes: VecDeque::from(bytes),
            from: Address::Netlink(0),
            rights: Vec::new(),
            sender: [0; 3],
        });
        self.objects.wake(id, ev::READABLE);
        Ok(())
    }
}

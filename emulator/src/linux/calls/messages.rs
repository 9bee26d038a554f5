//! `send` and `recv` in all forms, with `struct msghdr` and what goes with a message.
//!
//! Source: Linux 6.12 `net/socket.c`, `net/core/scm.c`.

use super::transfer::{Incoming, Outgoing, msg};
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Shared, o};
use crate::linux::objects::Family;

/// Size of a `struct cmsghdr`, bytes.
const HEADER: usize = 16;
/// Linux `SCM_MAX_FD`.
const RIGHTS_MAX: usize = 253;
/// Size of a `struct mmsghdr`, bytes, and where it has the number of bytes.
const MULTIPLE: u64 = 64;
const LENGTH_AT: u64 = 56;
const SOL_SOCKET: u32 = 1;
const SCM_RIGHTS: u32 = 1;
const SCM_CREDENTIALS: u32 = 2;
/// Linux `net.core.optmem_max` since 6.8, bytes.
const CONTROL_MAX: u64 = 128 << 10;
/// Linux `UIO_MAXIOV`.
const VECTORS_MAX: u64 = 1024;

/// A `struct msghdr`.
struct Header {
    at: u64,
    name: u64,
    name_size: u32,
    vectors: Vec<(u64, u64)>,
    control: u64,
    control_size: u64,
}

impl Kernel {
    pub(super) fn sys_sendto(&mut self, args: [u64; 6]) -> Answer {
        let [fd, at, count, flags, to, size] = args;
        self.accessible(at, count)?;
        let open = self.files.own.table.get(fd)?;
        self.socket_of(&open)?;
        let to = match to {
            0 => None,
            to => Some(self.address_bytes(to, size)?),
        };
        let out = Outgoing {
            vectors: vec![(at, count)],
            flags: flags as u32,
            to,
            ..Outgoing::default()
        };
        self.send(&open, out)
    }

    pub(super) fn sys_recvfrom(&mut self, args: [u64; 6]) -> Answer {
        let [fd, at, count, flags, from, size_at] = args;
        self.accessible(at, count)?;
        let open = self.files.own.table.get(fd)?;
        let incoming = self.receive(&open, &[(at, count)], flags as u32)?;
        if from != 0 {
            self.put_address(&incoming.from, from, size_at)?;
        }
        Ok(incoming.count)
    }

    fn header_at(&self, at: u64) -> Answer<Header> {
        let word = |index: u64| self.u64_at(at.wrapping_add(8 * index));
        let name_size = self.u32_at(at.wrapping_add(8))?;
        if (name_size as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let (vectors, count) = (word(2)?, word(3)?);
        if count > VECTORS_MAX {
            return Err(Errno::EMSGSIZE);
        }
        Ok(Header {
            at,
            name: word(0)?,
            name_size: name_size.min(128),
            vectors: self.vectors(vectors, count)?,
            control: word(4)?,
            control_size: word(5)?,
        })
    }

    pub(super) fn sys_sendmsg(&mut self, fd: u64, at: u64, flags: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        self.socket_of(&open)?;
        self.send_header(&open, at, flags as u32)
    }

    fn send_header(&mut self, open: &Shared, at: u64, flags: u32) -> Answer {
        let header = self.header_at(at)?;
        let to = match (header.name, header.name_size) {
            (0, _) | (_, 0) => None,
            (name, size) => Some(self.address_bytes(name, size.into())?),
        };

        let mut out = Outgoing {
            vectors: header.vectors,
            flags,
            to,
            ..Outgoing::default()
        };

        // Linux allocates as much, within this bound (`____sys_sendmsg`, `sock_kmalloc`).
        if header.control_size >= CONTROL_MAX {
            return Err(Errno::ENOBUFS);
        }

        if header.control_size > 0 && header.control != 0 {
            let id = self.socket_of(open)?;
            let mut control = vec![0; header.control_size as usize];
            self.get(header.control, &mut control)?;
            if self.the_socket(id)?.family == Family::Unix {
                self.read_control(&control, &mut out)?;
            }
        }
        self.send(open, out)
    }

    /// Reads what goes with a message (`__scm_send`).
    fn read_control(&mut self, control: &[u8], out: &mut Outgoing) -> Answer<()> {
        let mut rest = control;
        while rest.len() >= HEADER {
            // `struct cmsghdr`: `cmsg_len` has 8 bytes, `cmsg_level` and `cmsg_type` have 4 each.
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| rest[at + i]));
            let length = u64::from(word(0)) | u64::from(word(4)) << 32;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length < HEADER || length > rest.len() {
                return Err(Errno::EINVAL);
            }

            let data = &rest[HEADER..length];
            let words: Vec<u32> = data
                .as_chunks::<4>()
                .0
                .iter()
                .map(|bytes| u32::from_le_bytes(*bytes))
                .collect();

            match (word(8), word(12)) {
                (SOL_SOCKET, SCM_RIGHTS) => {
                    // SCM_MAX_FD, for each header and for all together.
                    if words.len() > RIGHTS_MAX {
                        return Err(Errno::EINVAL);
                    }
                    for fd in words {
                        let open = self.files.own.table.get_named(fd.into())?;
                        out.rights.push(open);
                    }
                    if out.rights.len() > RIGHTS_MAX {
                        return Err(Errno::EINVAL);
                    }
                }
                (SOL_SOCKET, SCM_CREDENTIALS) => {
                    let &[process, user, group] = &words[..] else {
                        return Err(Errno::EINVAL);
                    };

                    let identity = &self.files.own.identity;
                    let own_user = [
                        identity.user.real,
                        identity.user.effective,
                        identity.user.saved,
                    ];
                    let own_group = [
                        identity.group.real,
                        identity.group.effective,
                        identity.group.saved,
                    ];

                    // Nobody without privileges can claim to be another process
                    // (`scm_check_creds`).
                    let is_own = process == self.process.number
                        && own_user.contains(&user)
                        && own_group.contains(&group);
                    if !is_own && !identity.is_capable() {
                        return Err(Errno::EPERM);
                    }
                    out.sender = Some([process, user, group]);
                }
                (SOL_SOCKET, _) => return Err(Errno::EINVAL),
                // Messages of other levels are skipped, as in `__scm_send`.
                _ => {}
            }

            // Headers start at multiples of 8 (`CMSG_ALIGN`).
            rest = &rest[length.next_multiple_of(8).min(rest.len())..];
        }
        Ok(())
    }

    pub(super) fn sys_recvmsg(&mut self, fd: u64, at: u64, flags: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        self.socket_of(&open)?;
        self.receive_header(&open, at, flags as u32)
    }

    fn receive_header(&mut self, open: &Shared, at: u64, flags: u32) -> Answer {
        let header = self.header_at(at)?;
        let mut incoming = self.receive(open, &header.vectors, flags)?;
        if header.name != 0 {
            self.put_address(&incoming.from, header.name, header.at.wrapping_add(8))?;
        }
        incoming.flags |= flags & msg::CMSG_CLOEXEC;
        let used = self.put_control(&header, &mut incoming)?;
        self.put_u32(header.at.wrapping_add(48), incoming.flags)?;
        self.put_u64(header.at.wrapping_add(40), used)?;
        Ok(incoming.count)
    }

    /// Stores what came with a message; the number of bytes.
    fn put_control(&mut self, header: &Header, incoming: &mut Incoming) -> Answer {
        let size = match header.control {
            0 => 0,
            _ => usize::try_from(header.control_size).unwrap_or(usize::MAX),
        };

        let mut used = 0;
        if let Some(sender) = incoming.sender {
            let data: Vec<u8> = sender.iter().flat_map(|id| id.to_le_bytes()).collect();
            // A message that does not fit is cut off, and `MSG_CTRUNC` says so (`put_cmsg`).
            let room = size.saturating_sub(HEADER).min(data.len());
            if size < HEADER || room < data.len() {
                incoming.flags |= msg::CTRUNC;
            }
            if size >= HEADER {
                self.put_one(header.control, SCM_CREDENTIALS, &data[..room])?;
                used = (HEADER + room).next_multiple_of(8).min(size);
            }
        }

        // Descriptors come behind the credentials (`scm_recv`).
        let rights = std::mem::take(&mut incoming.rights);
        if rights.is_empty() {
            return Ok(used as u64);
        }

        // A descriptor takes 4 bytes.
        let room = (size - used).saturating_sub(HEADER) / 4;
        let close = match incoming.flags & msg::CMSG_CLOEXEC {
            0 => 0,
            _ => o::CLOEXEC.into(),
        };

        // Files without room or a free descriptor are dropped (`scm_detach_fds`).
        let (count, mut fds) = (rights.len(), Vec::new());
        for open in rights.into_iter().take(room) {
            match self.add_open(open, close) {
                Ok(fd) => fds.extend((fd as u32).to_le_bytes()),
                Err(_) => break,
            }
        }

        // MSG_CTRUNC says that some are lost.
        if fds.len() / 4 < count {
            incoming.flags |= msg::CTRUNC;
        }

        if !fds.is_empty() {
            let at = header.control.wrapping_add(used as u64);
            self.put_one(at, SCM_RIGHTS, &fds)?;
            used += (HEADER + fds.len()).next_multiple_of(8).min(size - used);
        }
        Ok(used as u64)
    }

    fn put_one(&mut self, at: u64, kind: u32, data: &[u8]) -> Answer<()> {
        self.put_u64(at, (HEADER + data.len()) as u64)?;
        self.put_u32(at.wrapping_add(8), SOL_SOCKET)?;
        self.put_u32(at.wrapping_add(12), kind)?;
        self.put(at.wrapping_add(HEADER as u64), data)
    }

    /// How many messages a call transfers. On a stream it may be fewer than were asked for: the
    /// place in a message and in the list cannot both be kept while it waits.
    fn messages_max(&self, open: &Shared, count: u64) -> Answer {
        let is_stream = self.the_socket(self.socket_of(open)?)?.is_stream();
        let count = u64::from(count as u32).min(VECTORS_MAX);
        Ok(if is_stream { count.min(1) } else { count })
    }

    pub(super) fn sys_sendmmsg(&mut self, fd: u64, at: u64, count: u64, flags: u64) -> Answer {
        let open = self.files.own.table.get(fd)?;
        self.socket_of(&open)?;
        let count = self.messages_max(&open, count)?;
        // The messages that were sent before the call waited.
        let mut done = self.transferred().min(count);
        while done < count {
            let each = at.wrapping_add(MULTIPLE * done);
            match self.send_header(&open, each, flags as u32) {
                Ok(sent) => self.put_u32(each.wrapping_add(LENGTH_AT), sent as u32)?,
                Err(Errno::WAITS) => {
                    self.note_transferred(done);
                    return Err(Errno::WAITS);
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
            done += 1;
        }
        Ok(done)
    }

    pub(super) fn sys_recvmmsg(&mut self, args: [u64; 6]) -> Answer {
        let [fd, at, count, flags, timeout, _] = args;
        let end = match timeout {
            0 => None,
            timeout => Some(self.wait_begun().saturating_add(self.duration_at(timeout)?)),
        };

        let open = self.files.own.table.get(fd)?;
        self.socket_of(&open)?;
        let (count, flags) = (self.messages_max(&open, count)?, flags as u32);

        // A call that waited has received the first messages already.
        let mut done = self.transferred().min(count);
        while done < count {
            let each = at.wrapping_add(MULTIPLE * done);
            // With MSG_WAITFORONE only the first message is waited for.
            let waits = done == 0 || flags & msg::WAITFORONE == 0;
            let asked = flags & !msg::WAITFORONE | if waits { 0 } else { msg::DONTWAIT };
            match self.receive_header(&open, each, asked) {
                Ok(got) => self.put_u32(each.wrapping_add(LENGTH_AT), got as u32)?,
                Err(Errno::WAITS) => {
                    self.note_transferred(done);
                    return Err(Errno::WAITS);
                }
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }

            done += 1;
            // It is looked at only after a message.
            if end.is_some_and(|end| self.clock.real() >= end) {
                break;
            }
        }
        Ok(done)
    }
}

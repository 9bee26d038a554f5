//! Open files: reading, writing, seeking. Not here: which descriptor is which open file
//! (`table`), the program's memory.

use super::inode::InodeRef;
use super::special::Device;
use super::{Answer, Errno, Files, o};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::{Rc, Weak};

/// What a pipe holds at most, bytes.
pub(in crate::linux) const PIPE_SIZE: usize = 65536;

/// An open file that descriptors share.
pub(in crate::linux) type Shared = Rc<RefCell<Description>>;

/// An open file.
#[derive(Debug)]
pub(in crate::linux) struct Description {
    pub(in crate::linux) kind: Kind,
    /// As `open` was given them.
    pub(in crate::linux) flags: u32,
    pub(in crate::linux) position: u64,
    /// The path it was found at.
    pub(in crate::linux) path: Vec<u8>,
}

/// What is open.
#[derive(Debug)]
pub(in crate::linux) enum Kind {
    /// A regular file of the host.
    Host(Rc<File>),
    /// A file in memory.
    Memory(InodeRef),
    /// A directory; what is in it, from the first time that somebody asks.
    Directory(Option<Vec<(Vec<u8>, u8)>>),
    /// With `O_PATH`.
    Path,
    PipeReader(PipeEnd),
    PipeWriter(PipeEnd),
    Stdin,
    Stdout,
    Stderr,
    Device(Device),
    /// What the kernel says, as it was when it was opened.
    Text(Vec<u8>),
    /// An `eventfd`.
    Event {
        counter: u64,
        /// A read takes 1 (`EFD_SEMAPHORE`).
        semaphore: bool,
    },
}

/// One of the two ends of a pipe.
#[derive(Debug)]
pub(in crate::linux) struct PipeEnd {
    pub(in crate::linux) bytes: Rc<RefCell<VecDeque<u8>>>,
    /// Lives as long as this end.
    pub(super) own: Rc<()>,
    pub(super) other: Weak<()>,
}

impl PipeEnd {
    pub(in crate::linux) fn pair() -> (PipeEnd, PipeEnd) {
        let bytes = Rc::new(RefCell::new(VecDeque::new()));
        let (reader, writer) = (Rc::new(()), Rc::new(()));
        let end = |own: &Rc<()>, other: &Rc<()>| PipeEnd {
            bytes: bytes.clone(),
            own: own.clone(),
            other: Rc::downgrade(other),
        };
        (end(&reader, &writer), end(&writer, &reader))
    }

    /// Is nobody at the other end?
    pub(in crate::linux) fn is_alone(&self) -> bool {
        debug_assert!(Rc::strong_count(&self.own) > 0);
        self.other.strong_count() == 0
    }
}

impl Description {
    pub(in crate::linux) fn new(kind: Kind, flags: u32, path: &[u8]) -> Description {
        Description {
            kind,
            flags,
            position: 0,
            path: path.to_vec(),
        }
    }

    pub(in crate::linux) fn shared(self) -> Shared {
        Rc::new(RefCell::new(self))
    }

    pub(in crate::linux) fn can_read(&self) -> bool {
        self.flags & o::ACCMODE != o::WRONLY
    }

    pub(in crate::linux) fn can_write(&self) -> bool {
        self.flags & o::ACCMODE != o::RDONLY
    }

    /// Does reading or writing move on? It does not in a device or a stream.
    fn has_position(&self) -> bool {
        matches!(self.kind, Kind::Host(_) | Kind::Memory(_) | Kind::Text(_))
    }

    /// Can it be read or written at a given position?
    pub(in crate::linux) fn is_seekable(&self) -> bool {
        use Kind::{PipeReader, PipeWriter, Stderr, Stdin, Stdout};
        !matches!(
            self.kind,
            PipeReader(_) | PipeWriter(_) | Stdin | Stdout | Stderr | Kind::Event { .. }
        )
    }

    /// Bytes of a file that has positions.
    ///
    /// # Errors
    /// `ESPIPE` if it has none.
    pub(in crate::linux) fn size(&self) -> Answer<u64> {
        Ok(match &self.kind {
            Kind::Host(file) => file.metadata()?.len(),
            Kind::Memory(inode) => inode.borrow().data().len() as u64,
            Kind::Text(text) => text.len() as u64,
            Kind::Directory(_) | Kind::Device(_) => 0,
            Kind::Path => return Err(Errno::EBADF),
            _ => return Err(Errno::ESPIPE),
        })
    }
}

impl Files {
    /// Reads at `position`, or where it stands; gives how many bytes, `None` if it would have to
    /// wait for ever.
    pub(in crate::linux) fn read(
        &mut self,
        open: &Shared,
        position: Option<u64>,
        buffer: &mut [u8],
    ) -> Answer<Option<usize>> {
        let open = &mut *open.borrow_mut();
        if !open.can_read() {
            return Err(Errno::EBADF);
        }
        let at = position.unwrap_or(open.position);
        let count = match &mut open.kind {
            Kind::Host(file) => loop {
                match file.read_at(buffer, at) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    read => break read?,
                }
            },
            Kind::Memory(inode) => inode.borrow().read(at, buffer),
            Kind::Text(text) => {
                let rest = usize::try_from(at).ok().and_then(|at| text.get(at..));
                let rest = rest.unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                count
            }
            Kind::Device(device) => match device {
                Device::Null | Device::Terminal => 0,
                Device::Zero | Device::Full => {
                    buffer.fill(0);
                    buffer.len()
                }
                Device::Random => {
                    self.random.fill(buffer);
                    buffer.len()
                }
            },
            Kind::Directory(_) => return Err(Errno::EISDIR),
            Kind::Path | Kind::PipeWriter(_) | Kind::Stdout | Kind::Stderr => {
                return Err(Errno::EBADF);
            }
            _ if position.is_some() => return Err(Errno::ESPIPE),
            Kind::Stdin => self.streams.read(buffer)?,
            Kind::PipeReader(end) => {
                let mut bytes = end.bytes.borrow_mut();
                if bytes.is_empty() && !end.is_alone() && !buffer.is_empty() {
                    return would_block(open.flags);
                }
                let count = bytes.len().min(buffer.len());
                for (to, from) in buffer.iter_mut().zip(bytes.drain(..count)) {
                    *to = from;
                }
                count
            }
            Kind::Event { counter, semaphore } => {
                let to = buffer.first_chunk_mut::<8>().ok_or(Errno::EINVAL)?;
                let taken = if *semaphore { 1 } else { *counter };
                if *counter == 0 {
                    return would_block(open.flags);
                }
                *to = taken.to_le_bytes();
                *counter -= taken;
                8
            }
        };
        if position.is_none() && open.has_position() {
            open.position += count as u64;
        }
        Ok(Some(count))
    }

    /// Takes a read back whose bytes did not get into the program's memory.
    pub(in crate::linux) fn unread(&mut self, open: &Shared, position: Option<u64>, bytes: &[u8]) {
        let open = &mut *open.borrow_mut();
        match &open.kind {
            Kind::PipeReader(end) => {
                let mut pipe = end.bytes.borrow_mut();
                bytes.iter().rev().for_each(|&byte| pipe.push_front(byte));
            }
            Kind::Stdin => self.streams.unread(bytes),
            _ if position.is_none() && open.has_position() => {
                open.position -= bytes.len() as u64;
            }
            _ => {}
        }
    }

    /// Writes at `position`, or where it stands; gives how many bytes, `None` if it would have to
    /// wait for ever.
    pub(in crate::linux) fn write(
        &mut self,
        open: &Shared,
        position: Option<u64>,
        bytes: &[u8],
    ) -> Answer<Option<usize>> {
        let now = self.now;
        let open = &mut *open.borrow_mut();
        if !open.can_write() {
            return Err(Errno::EBADF);
        }
        // `pwrite` too, whatever its position.
        let appends = open.flags & o::APPEND != 0;
        let at = match position {
            _ if appends => open.size().unwrap_or(0),
            Some(at) => at,
            None => open.position,
        };
        let count = match &mut open.kind {
            Kind::Host(file) => file.write_at(bytes, at)?,
            Kind::Memory(inode) => {
                let mut inode = inode.borrow_mut();
                inode.write(at, bytes)?;
                (inode.modified, inode.changed) = (now, now);
                bytes.len()
            }
            Kind::Device(Device::Full) => return Err(Errno::ENOSPC),
            Kind::Device(_) => bytes.len(),
            Kind::Directory(_) | Kind::Path | Kind::PipeReader(_) | Kind::Stdin => {
                return Err(Errno::EBADF);
            }
            Kind::Text(_) => return Err(Errno::EACCES),
            _ if position.is_some() => return Err(Errno::ESPIPE),
            Kind::Stdout => self.streams.write(false, bytes)?,
            Kind::Stderr => self.streams.write(true, bytes)?,
            Kind::PipeWriter(end) if end.is_alone() => return Err(Errno::EPIPE),
            Kind::PipeWriter(end) => {
                let mut pipe = end.bytes.borrow_mut();
                let count = bytes.len().min(PIPE_SIZE - pipe.len().min(PIPE_SIZE));
                if count == 0 && !bytes.is_empty() {
                    return would_block(open.flags);
                }
                pipe.extend(&bytes[..count]);
                count
            }
            Kind::Event { counter, .. } => {
                let added = bytes.first_chunk().ok_or(Errno::EINVAL)?;
                let added = u64::from_le_bytes(*added);
                if added == u64::MAX {
                    return Err(Errno::EINVAL);
                }
                let sum = counter.checked_add(added);
                match sum.filter(|&sum| sum != u64::MAX) {
                    Some(sum) => *counter = sum,
                    None => return would_block(open.flags),
                }
                8
            }
        };
        if position.is_none() && open.has_position() {
            open.position = at + count as u64;
        }
        Ok(Some(count))
    }
}

fn would_block(flags: u32) -> Answer<Option<usize>> {
    match flags & o::NONBLOCK {
        0 => Ok(None),
        _ => Err(Errno::EAGAIN),
    }
}

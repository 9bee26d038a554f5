//! The kernel's access to the program's memory: memory that cannot be used is `EFAULT`.

use super::errno::{Answer, Errno};
use super::kernel::Kernel;
use crate::address_space::{Access, Fault, FaultKind, PAGE_SIZE, TASK_SIZE};

/// Linux `PATH_MAX`.
const PATH_MAX: usize = 4096;
/// Size of the longest string that `execve` accepts, with its NUL (Linux `MAX_ARG_STRLEN`), bytes.
const STRING_MAX: usize = 32 * PAGE_SIZE as usize;
/// The limit of all strings together, whatever the size of the stack: three quarters of 8 MiB.
const STRINGS_MAX: usize = 6 << 20;
/// Linux `UIO_MAXIOV`.
const VECTORS_MAX: u64 = 1024;

impl From<Fault> for Errno {
    fn from(fault: Fault) -> Errno {
        match fault.kind {
            FaultKind::OutOfPages => Errno::ENOMEM,
            _ => Errno::EFAULT,
        }
    }
}

impl Kernel {
    pub(super) fn get(&self, at: u64, buffer: &mut [u8]) -> Answer<()> {
        Ok(self.machine.core.memory.read(at, buffer)?)
    }

    pub(super) fn put(&mut self, at: u64, bytes: &[u8]) -> Answer<()> {
        Ok(self.machine.core.memory.write(at, bytes)?)
    }

    /// Checks that a range is in user space. It need not be mapped. (Linux `access_ok`.)
    pub(super) fn accessible(&self, at: u64, size: u64) -> Answer<()> {
        let end = at.checked_add(size).filter(|&end| end <= TASK_SIZE);
        end.map(|_| ()).ok_or(Errno::EFAULT)
    }

    /// The number of leading bytes, of `size`, that can be written.
    pub(super) fn writable(&self, at: u64, size: usize) -> usize {
        self.usable(at, size, Access::Write)
    }

    /// The number of leading bytes, of `size`, that can be read.
    pub(super) fn readable(&self, at: u64, size: usize) -> usize {
        self.usable(at, size, Access::Read)
    }

    fn usable(&self, at: u64, size: usize, access: Access) -> usize {
        let end = at.saturating_add(size as u64);
        let mut next = at;
        while next < end {
            match self.machine.core.memory.area(next) {
                Some((range, area)) if area.permissions().allow(access) => next = range.end,
                _ => break,
            }
        }
        (next.min(end) - at) as usize
    }

    pub(super) fn bytes<const N: usize>(&self, at: u64) -> Answer<[u8; N]> {
        let mut bytes = [0; N];
        self.get(at, &mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn u32_at(&self, at: u64) -> Answer<u32> {
        self.bytes(at).map(u32::from_le_bytes)
    }

    pub(super) fn u64_at(&self, at: u64) -> Answer<u64> {
        self.bytes(at).map(u64::from_le_bytes)
    }

    pub(super) fn put_u32(&mut self, at: u64, value: u32) -> Answer<()> {
        self.put(at, &value.to_le_bytes())
    }

    pub(super) fn put_u64(&mut self, at: u64, value: u64) -> Answer<()> {
        self.put(at, &value.to_le_bytes())
    }

    pub(super) fn put_words(&mut self, at: u64, words: &[u64]) -> Answer<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(at, &bytes)
    }

    /// Reads a string of at most `max` bytes, without its NUL; `None` if it is longer.
    fn string(&self, at: u64, max: usize) -> Answer<Option<Vec<u8>>> {
        let mut string = Vec::new();
        let mut at = at;
        while string.len() <= max {
            let mut page = [0; PAGE_SIZE as usize];
            let page = &mut page[..(PAGE_SIZE - at % PAGE_SIZE) as usize];
            self.get(at, page)?;
            match page.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    string.extend_from_slice(&page[..end]);
                    return Ok((string.len() <= max).then_some(string));
                }
                None => string.extend_from_slice(page),
            }
            at = at.wrapping_add(page.len() as u64);
        }
        Ok(None)
    }

    pub(super) fn path_at(&self, at: u64) -> Answer<Vec<u8>> {
        let path = self.string(at, PATH_MAX - 1)?;
        path.ok_or(Errno::ENAMETOOLONG)
    }

    /// Reads a name, truncated to `max` bytes.
    pub(super) fn name_at(&self, at: u64, max: usize) -> Answer<Vec<u8>> {
        let mut name = Vec::new();
        while name.len() < max {
            match self.bytes::<1>(at.wrapping_add(name.len() as u64))? {
                [0] => break,
                [byte] => name.push(byte),
            }
        }
        Ok(name)
    }

    /// Reads the strings of a list that ends with a null pointer.
    pub(super) fn strings(&self, at: u64) -> Answer<Vec<Vec<u8>>> {
        let (mut strings, mut left) = (Vec::new(), STRINGS_MAX);
        if at == 0 {
            return Ok(strings);
        }
        for index in 0.. {
            let pointer = self.u64_at(at.wrapping_add(8 * index))?;
            if pointer == 0 {
                break;
            }
            let string = self.string(pointer, left.min(STRING_MAX - 1))?;
            let string = string.ok_or(Errno::E2BIG)?;
            let rest = left.checked_sub(string.len() + 9);
            left = rest.ok_or(Errno::E2BIG)?;
            strings.push(string);
        }
        Ok(strings)
    }

    /// Reads an array of `struct iovec`: addresses and lengths.
    pub(super) fn vectors(&self, at: u64, count: u64) -> Answer<Vec<(u64, u64)>> {
        if count > VECTORS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut vectors = Vec::new();
        for index in 0..count {
            let at = at.wrapping_add(16 * index);
            let (base, size) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
            if size > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            self.accessible(base, size)?;
            vectors.push((base, size));
        }
        Ok(vectors)
    }
}

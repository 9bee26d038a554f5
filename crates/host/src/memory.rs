//! Memory of another process.

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::IoSliceMut;

/// The memory of a traced process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessMemory {
    pid: i32,
}

const PAGE: u64 = 4096;

impl ProcessMemory {
    pub(crate) const fn new(pid: i32) -> ProcessMemory {
        ProcessMemory { pid }
    }

    /// Reads from `address` until `buf` is full or a page is unreadable; returns the bytes read.
    pub fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        let whole = self.read_once(address, buf);
        if whole > 0 || buf.is_empty() {
            return whole;
        }
        // The kernel reads nothing if the first page of a request fails, and cuts an entry that
        // crosses into an unreadable page at the page boundary.
        let first = (PAGE - address % PAGE).min(buf.len() as u64) as usize;
        self.read_once(address, &mut buf[..first])
    }

    fn read_once(&self, address: u64, buf: &mut [u8]) -> usize {
        let Ok(base) = usize::try_from(address) else {
            return 0;
        };
        let remote = [RemoteIoVec {
            base,
            len: buf.len(),
        }];
        let mut local = [IoSliceMut::new(buf)];
        process_vm_readv(Pid::from_raw(self.pid), &mut local, &remote).unwrap_or(0)
    }

    /// The 8 bytes at `address`, little-endian.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        (self.read(address, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_our_own_memory_and_no_other() {
        let here = *b"sixteen bytes...";
        let memory = ProcessMemory::new(std::process::id() as i32);
        let mut buf = [0; 16];
        assert_eq!(memory.read(here.as_ptr() as u64, &mut buf), 16);
        assert_eq!(buf, here);
        let word = u64::from_le_bytes(*b"sixteen ");
        assert_eq!(memory.word(here.as_ptr() as u64), Some(word));
        assert_eq!(memory.read(8, &mut buf), 0);
        assert_eq!(memory.word(u64::MAX - 3), None);
    }
}

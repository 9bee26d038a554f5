//! Memory that remembers what was read.

use std::cell::RefCell;
use std::ops::Range;
use unwind_sim_unwind::memory::{Memory, MemoryError, Regions};

/// A part of memory: its first address, and its length in bytes.
pub(super) type Part = (u64, u64);

/// Memory that remembers which parts were read. What could not be read is not among them.
pub(super) struct Watched<'a> {
    inner: Regions<'a>,
    read: RefCell<Vec<Part>>,
}

impl<'a> Watched<'a> {
    pub(super) fn new(inner: Regions<'a>) -> Watched<'a> {
        Watched {
            inner,
            read: RefCell::default(),
        }
    }

    /// The memory of a profiler that copied `len` bytes from `rsp` upwards.
    pub(super) fn copy(&self, rsp: u64, len: u64) -> Watched<'a> {
        Watched::new(self.inner.profiler_copy(rsp, len))
    }

    /// The parts that were read, in order and each once.
    pub(super) fn into_read(self) -> Vec<Part> {
        let mut read = self.read.into_inner();
        read.sort_unstable();
        read.dedup();
        read
    }
}

impl Memory for Watched<'_> {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let word = self.inner.read_u64(address)?;
        self.read.borrow_mut().push((address, 8));
        Ok(word)
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.inner.read(address, buf)?;
        self.read.borrow_mut().push((address, buf.len() as u64));
        Ok(())
    }

    fn stack_bounds(&self, sp: u64) -> Option<Range<u64>> {
        self.inner.stack_bounds(sp)
    }
}

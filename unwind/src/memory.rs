//! Memory as seen by an unwinder: reads that can fail, with a reason.
//!
//! A CPU sees everything that is mapped; a profiler's copy starts at rsp and ends somewhere above
//! it. The [`Memory`] implementation decides which of these a walk sees, not the unwinder.

use alloc::vec::Vec;

mod mapped;

pub use mapped::MappedMemory;

/// Why a word could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Nothing is recorded or mapped at this address.
    #[error("{address:#x} is not mapped or not recorded")]
    Unmapped {
        /// The address of the word.
        address: u64,
    },
    /// The address lies past the end of the recorded stack copy.
    #[error("{address:#x} lies beyond the stack copy, which ends at {end:#x}")]
    BeyondCopy {
        /// The address of the word.
        address: u64,
        /// The first address after the copy.
        end: u64,
    },
    /// The address lies below the start of the copy, which is rsp for a profiler's copy.
    #[error("{address:#x} lies below the stack copy, which starts at {start:#x}")]
    BelowCopy {
        /// The address of the word.
        address: u64,
        /// The first address of the copy.
        start: u64,
    },
}

impl MemoryError {
    /// The address that could not be read.
    pub const fn address(self) -> u64 {
        match self {
            MemoryError::Unmapped { address }
            | MemoryError::BeyondCopy { address, .. }
            | MemoryError::BelowCopy { address, .. } => address,
        }
    }
}

/// Little-endian reads. Implementations never panic, whatever the address.
pub trait Memory {
    /// The 8 bytes at `address`, which need not be aligned.
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError>;

    /// Fills `buf` from `address`. After an error the contents of `buf` are unspecified.
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError>;

    /// The bounds of the recorded stack that contains `sp`, if known.
    fn stack_bounds(&self, sp: u64) -> Option<core::ops::Range<u64>> {
        let _ = sp;
        None
    }
}

impl<M: Memory + ?Sized> Memory for &M {
    #[inline]
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        (**self).read_u64(address)
    }
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        (**self).read(address, buf)
    }
    fn stack_bounds(&self, sp: u64) -> Option<core::ops::Range<u64>> {
        (**self).stack_bounds(sp)
    }
}

/// A contiguous copy of memory, such as a profiler's stack copy.
#[derive(Clone, Copy, Debug)]
pub struct MemoryCopy<'a> {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes from `address` on.
    pub bytes: &'a [u8],
}

impl<'a> MemoryCopy<'a> {
    /// `bytes` copied from `address`.
    pub const fn new(address: u64, bytes: &'a [u8]) -> Self {
        MemoryCopy { address, bytes }
    }

    /// The first address after the copy.
    pub const fn end(&self) -> u64 {
        self.address.wrapping_add(self.bytes.len() as u64)
    }

    /// The part of the copy at or above `start`, cut to at most `len` bytes.
    #[must_use]
    pub fn window(&self, start: u64, len: u64) -> MemoryCopy<'a> {
        let skip = start
            .saturating_sub(self.address)
            .min(self.bytes.len() as u64) as usize;
        let bytes = &self.bytes[skip..];
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
        MemoryCopy {
            address: self.address + skip as u64,
            bytes: &bytes[..len],
        }
    }

    #[cold]
    fn error(&self, address: u64) -> MemoryError {
        if address < self.address {
            MemoryError::BelowCopy {
                address,
                start: self.address,
            }
        } else {
            MemoryError::BeyondCopy {
                address,
                end: self.end(),
            }
        }
    }

    fn slice(&self, address: u64, len: usize) -> Option<&'a [u8]> {
        let start = usize::try_from(address.wrapping_sub(self.address)).ok()?;
        self.bytes.get(start..start.checked_add(len)?)
    }
}

impl Memory for MemoryCopy<'_> {
    #[inline]
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let start = address.wrapping_sub(self.address) as usize;
        match self.bytes.get(start..).and_then(|b| b.first_chunk::<8>()) {
            Some(b) => Ok(u64::from_le_bytes(*b)),
            None => Err(self.error(address)),
        }
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        match self.slice(address, buf.len()) {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(self.error(address)),
        }
    }

    fn stack_bounds(&self, sp: u64) -> Option<core::ops::Range<u64>> {
        (self.address <= sp && sp <= self.end()).then(|| self.address..self.end())
    }
}

/// Several copies, searched in order: stacks (usually one) and read-only data of images.
#[derive(Clone, Debug, Default)]
pub struct Regions<'a> {
    /// The copies. For an address in none of them, the first one nearby determines the error.
    pub parts: Vec<MemoryCopy<'a>>,
    /// All other memory of the process, for what is in no copy.
    pub rest: Option<&'a MappedMemory>,
}

impl<'a> Regions<'a> {
    /// Uses these copies; the sampled stack comes first.
    pub fn new(parts: Vec<MemoryCopy<'a>>) -> Self {
        Regions { parts, rest: None }
    }

    /// The same copies, and `rest` for what is in none of them.
    #[must_use]
    pub fn with_rest(self, rest: Option<&'a MappedMemory>) -> Self {
        Regions { rest, ..self }
    }

    /// The memory seen by a profiler that copied at most `len` bytes from `rsp` upwards, and
    /// nothing else.
    #[must_use]
    pub fn profiler_copy(&self, rsp: u64, len: u64) -> Regions<'a> {
        let parts = self
            .parts
            .iter()
            .filter(|p| p.address <= rsp && rsp < p.end());
        Regions::new(parts.map(|p| p.window(rsp, len)).collect())
    }

    #[cold]
    fn error(&self, address: u64) -> MemoryError {
        // Misses close to a stack are distinguished from wild addresses: a larger copy would have
        // contained an address within 1 MiB.
        const NEAR: u64 = 1 << 20;
        for part in &self.parts {
            if address < part.address && part.address - address <= NEAR {
                return MemoryError::BelowCopy {
                    address,
                    start: part.address,
                };
            }
            if address.wrapping_add(8) > part.end() && address.saturating_sub(part.end()) <= NEAR {
                return MemoryError::BeyondCopy {
                    address,
                    end: part.end(),
                };
            }
        }
        MemoryError::Unmapped { address }
    }
}

impl Memory for Regions<'_> {
    #[inline]
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        for part in &self.parts {
            let start = address.wrapping_sub(part.address) as usize;
            if let Some(b) = part.bytes.get(start..).and_then(|b| b.first_chunk::<8>()) {
                return Ok(u64::from_le_bytes(*b));
            }
        }
        match self.rest.map(|rest| rest.read_u64(address)) {
            Some(Ok(word)) => Ok(word),
            _ => Err(self.error(address)),
        }
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        for part in &self.parts {
            if let Some(bytes) = part.slice(address, buf.len()) {
                buf.copy_from_slice(bytes);
                return Ok(());
            }
        }
        match self.rest.map(|rest| rest.read(address, buf)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.error(address)),
        }
    }

    fn stack_bounds(&self, sp: u64) -> Option<core::ops::Range<u64>> {
        let copied = self.parts.iter().find_map(|p| p.stack_bounds(sp));
        copied.or_else(|| self.rest?.stack_bounds(sp))
    }
}

#[cfg(test)]
mod tests;

//! Checked little-endian reads from byte slices, and a cursor that tracks its file offset.

use super::error::{PerfError, PerfErrorKind};

#[inline]
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// The 64-bit word at byte `at`.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// The 32-bit word at byte `at`.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

/// The 16-bit word at byte `at`.
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

/// The bytes up to the first NUL, or all of them.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    // Names are padded to whole words, so the search is by word.
    const LOW: u64 = 0x0101_0101_0101_0101;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // The lowest set bit is in the first zero byte.
        let zeros = word.wrapping_sub(LOW) & !word & (LOW << 7);
        if zeros != 0 {
            return &bytes[..8 * index + zeros.trailing_zeros() as usize / 8];
        }
    }
    let tail = rest
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(rest.len());
    &bytes[..8 * words.len() + tail]
}

/// Reads the bytes of one part of the file in sequence.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    /// File offset of `rest[0]`.
    offset: u64,
    part: &'static str,
}

impl<'a> Cursor<'a> {
    #[inline]
    pub(crate) fn new(bytes: &'a [u8], offset: u64, part: &'static str) -> Self {
        Self {
            rest: bytes,
            offset,
            part,
        }
    }

    /// An error at the current position.
    #[cold]
    pub(crate) fn error(&self, kind: PerfErrorKind) -> PerfError {
        PerfError::new(kind, self.offset, self.part)
    }

    #[cold]
    fn short(&self, need: u64) -> PerfError {
        self.error(PerfErrorKind::Short {
            need,
            have: self.rest.len() as u64,
        })
    }

    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], PerfError> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                self.offset = self.offset.wrapping_add(count as u64);
                Ok(taken)
            }
            None => Err(self.short(count as u64)),
        }
    }

    /// Takes `count` entries of `size` bytes each; the product cannot overflow.
    #[inline]
    pub(crate) fn take_many(&mut self, count: u64, size: usize) -> Result<&'a [u8], PerfError> {
        let room = self.rest.len() / size;
        match usize::try_from(count) {
            Ok(fits) if fits <= room => self.take(fits * size),
            _ => Err(self.error(PerfErrorKind::Count {
                count,
                room: room as u64,
            })),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], PerfError> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                self.offset = self.offset.wrapping_add(N as u64);
                Ok(*taken)
            }
            None => Err(self.short(N as u64)),
        }
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64, PerfError> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32, PerfError> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn i32(&mut self) -> Result<i32, PerfError> {
        self.array().map(i32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, PerfError> {
        self.array().map(u16::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_at_the_first_nul_wherever_it_is() {
        for length in 0..40 {
            for nul in 0..length {
                for other in [1u8, 0x7f, 0x80, 0x81, 0xff] {
                    let mut bytes = vec![other; length];
                    assert_eq!(until_nul(&bytes), bytes);
                    bytes[nul] = 0;
                    assert_eq!(until_nul(&bytes), &bytes[..nul]);
                    bytes[length - 1] = 0;
                    assert_eq!(until_nul(&bytes).len(), nul);
                }
            }
        }
    }
}

//! Stored rows: a start, an info byte, data words.
//!
//! The meaning of the words is in `row`.

use super::fde::{Fde, FreType};
use super::header::{Header, Malformed, get};

/// A stored row (FRE).
#[derive(Clone, Copy, Debug)]
pub struct Fre<'a> {
    /// Offset in the section, bytes.
    pub offset: u64,
    /// Offset from the start of the function or of the repeated block, bytes.
    pub start: u32,
    /// The info byte.
    pub info: u8,
    words: &'a [u8],
}

impl<'a> Fre<'a> {
    /// A row from its parts; the number and size of the data words in `words` must match `info`.
    pub(crate) fn new(offset: u64, start: u32, info: u8, words: &'a [u8]) -> Option<Fre<'a>> {
        let len = word_len(info)? * count(info);
        (words.len() == len).then_some(Fre {
            offset,
            start,
            info,
            words,
        })
    }

    /// The number of data words.
    pub fn count(&self) -> usize {
        count(self.info)
    }

    /// Data word `index`, signed.
    pub fn signed(&self, index: usize) -> Option<i32> {
        let len = word_len(self.info)?;
        let word = self.words.get(index * len..(index + 1) * len)?;
        Some(match *word {
            [a] => i32::from(a as i8),
            [a, b] => i32::from(i16::from_le_bytes([a, b])),
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
            _ => return None,
        })
    }

    /// Data word `index`, unsigned, like control words.
    pub fn unsigned(&self, index: usize) -> Option<u32> {
        let mask = match word_len(self.info)? {
            1 => 0xff,
            2 => 0xffff,
            _ => u32::MAX,
        };
        self.signed(index).map(|w| w as u32 & mask)
    }

    /// Whether the CFA's base register is the stack pointer. (Default rows only.)
    pub const fn base_is_sp(&self) -> bool {
        self.info & 1 != 0
    }
}

const fn count(info: u8) -> usize {
    (info >> 1 & 0xf) as usize
}

/// The size of a data word, bytes.
const fn word_len(info: u8) -> Option<usize> {
    match info >> 5 & 3 {
        0 => Some(1),
        1 => Some(2),
        2 => Some(4),
        _ => None,
    }
}

/// Iterates over the rows of a function, in stored order; ends after the first error.
#[derive(Clone, Debug)]
pub struct Fres<'a> {
    bytes: &'a [u8],
    at: u64,
    left: u32,
    fre_type: FreType,
}

impl<'a> Fres<'a> {
    pub(crate) fn new(header: &Header, bytes: &'a [u8], fde: &Fde) -> Self {
        let end = usize::try_from(header.fres_end()).unwrap_or(usize::MAX);
        Fres {
            bytes: &bytes[..end.min(bytes.len())],
            at: fde.fres,
            left: fde.num_fres,
            fre_type: fde.fre_type,
        }
    }

    /// The offset in the section of the next row.
    pub(super) fn offset(&self) -> u64 {
        self.at
    }

    fn read(&self) -> Result<(Fre<'a>, u64), Malformed> {
        let (bytes, at) = (self.bytes, self.at);
        let short = Malformed::new(at, "the FREs end within a row");
        let start = match self.fre_type {
            FreType::Addr1 => get::<1>(bytes, at).map(|b| b[0].into()),
            FreType::Addr2 => get(bytes, at).map(|b| u16::from_le_bytes(b).into()),
            FreType::Addr4 => get(bytes, at).map(u32::from_le_bytes),
        };
        let info_at = at + self.fre_type.byte_len();
        let [info] = get(bytes, info_at).ok_or(short)?;
        let Some(len) = word_len(info) else {
            return Err(Malformed::new(info_at, "invalid data word size code 3"));
        };
        let first = info_at as usize + 1;
        let end = first + len * count(info);
        let words = bytes.get(first..end).ok_or(short)?;
        let fre = Fre {
            offset: at,
            start: start.ok_or(short)?,
            info,
            words,
        };
        Ok((fre, end as u64))
    }
}

impl<'a> Iterator for Fres<'a> {
    type Item = Result<Fre<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match self.read() {
            Ok((fre, next)) => {
                self.at = next;
                Some(Ok(fre))
            }
            Err(error) => {
                self.left = 0;
                Some(Err(error))
            }
        }
    }
}

#[cfg(test)]
mod tests;

//! Writes unwind tables: functions and their rows in, the bytes of sections out.
//!
//! - [`sframe`]: SFrame V1, V2 and V3;
//! - [`orc`]: `.orc_unwind_ip`, `.orc_unwind`, `.orc_header`, `.orc_lookup`;
//! - [`eh_frame`]: `.eh_frame_hdr` and `.eh_frame`.
//!
//! A [`Writer`] says which rules its format can hold, and writes only those. Dividing a function at
//! rows that cannot be held is the job of [`crate::convert`]; placing a section in an ELF file that
//! of [`crate::elf_write`].

pub mod eh_frame;
pub mod orc;
pub mod sframe;

use crate::convert::LossReason;
use unwind_sim_unwind::rule::Rule;

/// A section that a file gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSection {
    /// Its name, `.sframe`.
    pub name: &'static str,
    /// The section type, `sh_type`.
    pub kind: u32,
    /// Its address (svma); its contents depend on it.
    pub address: u64,
    /// `sh_addralign`, bytes.
    pub align: u64,
    /// `sh_entsize`, bytes; 0 if entries differ in size.
    pub entry_size: u64,
    /// `p_type` of the program header through which it is found at run time, if there is one.
    pub program: Option<u32>,
    /// Its contents.
    pub bytes: Vec<u8>,
}

impl NewSection {
    /// The first address (svma) after it.
    pub fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes.len() as u64)
    }
}

/// Why a table cannot be written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A function has more rows than the format can count.
    #[error("{format}: the function at {start:#x} has {rows} rows; the format counts up to {max}")]
    TooManyRows {
        /// The format.
        format: &'static str,
        /// The function's start address (svma).
        start: u64,
        /// The number of rows of the function.
        rows: usize,
        /// The number of rows that the format allows.
        max: usize,
    },
    /// A function lies too far from its table.
    #[error(
        "{format}: the function at {start:#x} lies {distance:#x} bytes from the table; its offset \
         has {bits} bits"
    )]
    TooFar {
        /// The format.
        format: &'static str,
        /// The function's start address (svma).
        start: u64,
        /// Distance from the field that should hold it, bytes.
        distance: i64,
        /// The width of that field, bits.
        bits: u32,
    },
    /// Two functions have the same start, or are out of order.
    #[error("{format}: the functions at {before:#x} and {start:#x} overlap or are out of order")]
    Overlap {
        /// The format.
        format: &'static str,
        /// The start address (svma) of the one before.
        before: u64,
        /// The start address (svma) of the second.
        start: u64,
    },
    /// The table is too large for its own offsets.
    #[error(
        "{format}: the table is larger than {max:#x} bytes, which is all that its offsets reach"
    )]
    TooLarge {
        /// The format.
        format: &'static str,
        /// The maximum, bytes.
        max: u64,
    },
    /// The code is too large for a lookup table.
    #[error("{format}: the code covers {size:#x} bytes; a lookup table covers up to {max:#x}")]
    TextTooLarge {
        /// The format.
        format: &'static str,
        /// From the first to the last executable address, bytes.
        size: u64,
        /// The maximum, bytes.
        max: u64,
    },
    /// A function without rows, or whose first row does not start where the function does.
    #[error("{format}: the function at {start:#x} has no row at its start")]
    NoFirstRow {
        /// The format.
        format: &'static str,
        /// The function's start address (svma).
        start: u64,
    },
}

/// Part of a function, all of whose addresses have rows that the format can hold.
#[derive(Clone, Copy, Debug)]
pub struct Function<'a, R> {
    /// Start address (svma).
    pub start: u64,
    /// Size, bytes.
    pub size: u32,
    /// If the rows repeat: after how many bytes.
    pub repeat: Option<u8>,
    /// Whether its frame is a signal frame.
    pub signal: bool,
    /// The rows: offset from the start of the function or of the repeated block, and contents. The
    /// first is at 0, the offsets increase, and neighbours differ.
    pub rows: &'a [(u32, R)],
}

/// A table being written.
pub trait Writer {
    /// A row in the format's own terms.
    type Row: Copy + PartialEq;

    /// Whether the format has rbx and r12 to r15.
    const HOLDS_CALLEE_SAVED: bool;

    /// Whether a function's rows can repeat.
    fn repeats(&self) -> bool {
        false
    }

    /// The maximum number of rows of a function.
    fn rows_max(&self) -> usize {
        usize::MAX
    }

    /// The maximum size of a function, bytes.
    fn size_max(&self) -> u32 {
        u32::MAX
    }

    /// The row for `rule`, or why the format cannot hold it.
    ///
    /// # Errors
    /// The first part of the rule that the format cannot express.
    fn row(&self, rule: &Rule) -> Result<Self::Row, LossReason>;

    /// Whether the row belongs to a signal frame, where the format marks that for a whole function;
    /// `None` if the row fits either kind of function.
    fn signal(&self, _: &Self::Row) -> Option<bool> {
        None
    }

    /// Adds a function. Functions come by address and do not overlap.
    ///
    /// # Errors
    /// If a limit of the format is exceeded.
    fn function(&mut self, function: &Function<'_, Self::Row>) -> Result<(), WriteError>;

    /// The sections, the first of them at `address` (svma) or, if it needs a larger alignment,
    /// after it.
    ///
    /// # Errors
    /// If a function lies too far away, or the table is too large.
    fn finish(&self, address: u64) -> Result<Vec<NewSection>, WriteError>;
}

/// Checks that functions come in order and start with a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OrderCheck {
    last: Option<(u64, u64)>,
}

impl OrderCheck {
    /// Accepts the next function of `format`.
    pub(crate) fn accept<R>(
        &mut self,
        format: &'static str,
        function: &Function<'_, R>,
    ) -> Result<(), WriteError> {
        let start = function.start;
        if function.rows.first().is_none_or(|row| row.0 != 0) {
            return Err(WriteError::NoFirstRow { format, start });
        }
        if let Some((before, end)) = self.last
            && (start < end || start == before)
        {
            return Err(WriteError::Overlap {
                format,
                before,
                start,
            });
        }
        self.last = Some((start, start.saturating_add(function.size.into())));
        Ok(())
    }
}

/// `to - from` in 32 bits.
pub(crate) fn relative32(format: &'static str, to: u64, from: u64) -> Result<i32, WriteError> {
    let distance = to.wrapping_sub(from).cast_signed();
    i32::try_from(distance).map_err(|_| WriteError::TooFar {
        format,
        start: to,
        distance,
        bits: 32,
    })
}

/// Bytes copied into place at `address` aligned to `align`.
pub(crate) fn aligned(address: u64, align: u64) -> u64 {
    address.checked_next_multiple_of(align).unwrap_or(address)
}

#[cfg(test)]
mod tests;

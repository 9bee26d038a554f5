//! DWARF call frame information: `.eh_frame`, `.eh_frame_hdr`, `.debug_frame`.
//!
//! - `read`: the sections' entries (CIE, FDE), byte by byte;
//! - `program`: their instructions, run into rows;
//! - `index`: which FDE covers an address;
//! - `unwinder`: [`Dwarf`], the finder over all of them;
//! - [`expression`]: evaluates DWARF expressions.
//!
//! The entries are read here and not by gimli, because a row has to know the offset of the
//! instruction that made it, and because rows before a malformed instruction stay usable. gimli
//! gives the primitive reads and decodes expressions; a test holds all rows equal to its own.

pub mod expression;
mod index;
mod program;
mod read;
mod unwinder;

pub use index::{Unit, Units};
pub(crate) use program::Common;
pub use program::STATES_MAX;
pub use unwinder::{Compiled, Dwarf, compile_all, compile_unit, units};
pub(crate) use unwinder::{FdePlace, Transcribe, compile_all_as};

#[cfg(test)]
mod tests;

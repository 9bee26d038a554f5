//! DWARF call frame information: `.eh_frame`, `.eh_frame_hdr`, `.debug_frame`.
//!
//! - `read`: the sections' entries (CIE, FDE), byte by byte;
//! - `program`: runs their instructions to produce rows (`instruction`: each one; `state`: the
//!   rules meanwhile);
//! - `items`: the instructions that made a row;
//! - `index`: finds the FDE that covers an address;
//! - `unwinder`: [`Dwarf`], the finder that uses all of these;
//! - [`expression`]: evaluates DWARF expressions.
//!
//! The entries are not read with gimli, because a row must know the offset of the instruction that
//! made it, and because rows before a malformed instruction stay usable. gimli provides the
//! primitive reads and decodes expressions. A test checks that all rows equal gimli's.

pub mod expression;
mod index;
mod instruction;
mod items;
mod program;
mod read;
mod state;
mod unwinder;

pub use index::{Unit, Units};
pub(crate) use items::{row_bytes, unit_range};
pub(crate) use program::Common;
pub use state::STATES_MAX;
pub use unwinder::{Compiled, Dwarf, compile_all, compile_unit, unfound, units};
pub(crate) use unwinder::{FdePlace, Transcribe, compile_all_as};

#[cfg(test)]
mod tests;

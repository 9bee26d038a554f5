//! SFrame: the `.sframe` section of V1, V2 (both errata) and V3 with flexible FDEs.
//!
//! [`Table`] reads a section in place; [`Sframe`] is the unwinder, strict or not as its
//! [`Profile`] says, and derives rows from `.eh_frame` for images without a section
//! ([`derived`]). `sframe` alone is the specification's reading, which looks up return addresses
//! as they stand.
//!
//! Sources: "The SFrame format" and `include/sframe.h` of binutils 2.40, 2.44, 2.46 and 2.47.
//! Not here: other machines than AMD64, writing whole sections.

pub mod derived;
mod dump;
mod encode;
mod fde;
mod fre;
mod header;
mod profile;
mod read;
mod row;
mod unwinder;

pub use dump::{TextRow, text_rows};
pub use encode::WordBytes;
pub use fde::{Fde, FreType, V1_REP_SIZE, V3_ATTRIBUTE_LEN};
pub use fre::{Fre, Fres};
pub use header::{
    ABI_AMD64, FLAG_FDE_SORTED, FLAG_FRAME_POINTER, FLAG_FUNC_START_PCREL, HEADER_LEN, Header,
    MAGIC, Malformed, Version,
};
pub use profile::Profile;
pub use read::{Order, Table, TableRow};
pub use row::{Location, SframeRow, Track};
pub use unwinder::{Sframe, compile_unit};

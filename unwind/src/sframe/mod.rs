//! SFrame: the `.sframe` section of V1, V2 (both errata) and V3 with flexible FDEs.
//!
//! [`Table`] reads a section in place. [`Sframe`] is the unwinder, as strict as its [`Profile`]; it
//! derives rows from `.eh_frame` for images without a section ([`derived`]). `sframe` without a
//! profile follows the specification, which looks up return addresses unadjusted.
//!
//! Sources: "The SFrame format" and `include/sframe.h` of binutils 2.40, 2.44, 2.46 and 2.47. Out
//! of scope: machines other than AMD64, writing whole sections.

pub mod derived;
mod dump;
mod encode;
mod fde;
mod fre;
mod header;
mod items;
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
pub(crate) use items::{derived_bytes, row_bytes};
pub use profile::Profile;
pub use read::{Order, Table, TableRow};
pub use row::{Location, SframeRow, Track};
pub use unwinder::{Sframe, compile_blocks, compile_unit};

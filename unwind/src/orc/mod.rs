//! ORC: Linux's own tables, `.orc_unwind` and `.orc_unwind_ip`.
//!
//! [`Table`] reads them in place, [`Sorted`] and [`Blocks`] search like `orc_find`, and [`Entry`]
//! is one entry in any [`Layout`]. [`Orc`] is the unwinder, which derives entries from `.eh_frame`
//! for images without a table ([`derived`]).
//!
//! The kernel's own loop with its stacks and `struct unwind_state` is in `kernel`. Not supported:
//! other formats called ORC (LoongArch has one), and entries of big-endian machines.

pub mod derived;
mod detect;
mod entry;
mod index;
mod layout;
mod read;
mod unwinder;

pub use detect::{by_entries, detect, other_than};
pub use entry::{ENTRY_LEN, Entry, EntryType};
pub use index::Index;
pub use layout::{Encoding, Layout, OrcReg, SpIndirect};
pub use read::{Blocks, LOOKUP_BLOCK_SIZE, Malformed, Sorted, Table};
pub use unwinder::{Orc, compile_all};

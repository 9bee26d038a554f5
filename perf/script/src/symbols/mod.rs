//! Finds symbols as perf does.
//!
//! [`KernelSymbols`] has those of a kernel and its modules, [`Files`] also those of files: which
//! files perf opens for a mapping, in which order, and which symbols it takes from them. What they
//! need of the program around them comes through [`Helper`]. Without the feature `text` there are
//! only the kernel's, which profiles need, too.

#[cfg(feature = "text")]
mod elf;
#[cfg(feature = "text")]
mod files;
mod helper;
#[cfg(feature = "text")]
mod inlines;
mod kallsyms;
mod kernel;
mod kernel_list;
#[cfg(feature = "text")]
mod lines;
mod objects;
#[cfg(feature = "text")]
mod perf_map;
mod places;
#[cfg(feature = "text")]
mod plt;
#[cfg(feature = "text")]
mod tree;

#[cfg(feature = "text")]
pub use files::{Files, source_lines};
pub use helper::{Compression, Helper, Owner};
pub use kernel::KernelSymbols;
#[cfg(feature = "text")]
pub use lines::Lines;
pub use objects::{NoSymbols, SourceLine, Symbol, Symbols};
pub use places::Places;

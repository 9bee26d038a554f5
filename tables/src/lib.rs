//! The workshop for unwind tables: reads them, proves them from the code, compares, converts and
//! writes them, all without running the program.
//!
//! - [`file`]: an ELF file as the workshop needs it: code, data, symbols, tables;
//! - [`table`]: a table's functions and rows, whatever its format;
//! - [`convert`]: one format into another;
//! - [`merge`]: several SFrame tables in one section into one;
//! - [`mod@write`]: the bytes of each format;
//! - [`elf_write`]: an ELF file with a section added or replaced.
#![forbid(unsafe_code)]

pub mod convert;
pub mod elf_write;
pub mod file;
pub mod merge;
pub mod table;
pub mod write;

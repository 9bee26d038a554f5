//! The workshop for unwind tables: reads them, proves them from the code, compares, converts and
//! writes them, all without running the program.
//!
//! - [`file`]: an ELF file as the workshop needs it: code, data, symbols, tables;
//! - [`relocatable`]: addresses for relocatable objects, which have none;
//! - [`table`]: a table's functions and rows, whatever its format;
//! - [`dump`]: tables as text, as other tools print them;
//! - [`diff`]: where two tables disagree.
#![forbid(unsafe_code)]

pub mod diff;
pub mod dump;
pub mod file;
pub mod relocatable;
pub mod table;

//! The workshop for unwind tables: reads them, proves them from the code, compares, converts and
//! writes them, all without running the program.
//!
//! - [`mod@file`]: an ELF file as the workshop needs it: code, data, symbols, tables;
//! - [`relocatable`]: addresses for relocatable objects, which have none;
//! - [`table`]: a table's functions and rows, whatever its format;
//! - [`dump`]: tables as text, as other tools print them;
//! - [`diff`]: where two tables disagree;
//! - [`proof`]: checks what a table says of code against what the code does;
//! - [`mod@blame`]: what wrong rows have in common;
//! - [`check`]: the proof of all rows of a file;
//! - [`index`]: whether searches find what the tables have;
//! - [`ground`]: rules that are proven, for code whose caller must be known for certain;
//! - [`convert`]: one format into another;
//! - [`mod@generate`]: a table from the code alone;
//! - [`hints`]: what assembly of the kernel tells objtool about itself;
//! - [`kernel`]: what kernel modules say of their code beside the code;
//! - [`merge`]: several SFrame tables in one section into one;
//! - [`mod@write`]: the bytes of each format;
//! - [`elf_write`]: an ELF file with a section added or replaced, or a new one;
//! - [`selftest`]: what the proof does with wrong rows.
//!
//! The rows of a file, and which of them its code proves:
//!
//! ```
//! use std::sync::Arc;
//! use unwind_sim_tables::check::{self, check};
//! use unwind_sim_tables::file::File;
//! use unwind_sim_tables::table::Table;
//! use unwind_sim_unwind::row::TableKind;
//!
//! let bytes = std::fs::read("corpus/sframe/t_2.46")?;
//! let file = File::read("t_2.46", Arc::new(bytes))?;
//!
//! let table = Table::read(&file, TableKind::Sframe).expect("it has one");
//! for function in table.functions() {
//!     for row in table.rows(function) {
//!         println!("{:#x}..{:#x}: {}", row.start, row.end, row.rule);
//!     }
//! }
//!
//! let report = check(&file, &check::Options::default());
//! let totals = report.totals();
//! // A linker described an entry of the procedure linkage table by the formula for other entries.
//! assert_eq!(totals.contradicted.functions, 1);
//! assert_eq!((totals.rows_proven, totals.all.rows), (39, 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod batches;
pub mod blame;
pub mod check;
pub mod convert;
pub mod diff;
pub mod dump;
mod dynamic;
pub mod elf_write;
mod facts;
pub mod file;
pub mod generate;
mod gopclntab;
pub mod ground;
mod headers;
pub mod hints;
pub mod index;
pub mod kernel;
pub mod merge;
mod pointers;
pub mod proof;
#[path = "../tests/common/random.rs"]
mod random;
pub mod relocatable;
pub mod selftest;
pub mod table;
pub mod write;

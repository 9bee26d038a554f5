//! Results as text, JSON and profiles.
//!
//! [`text`] and [`listing`] are for people, [`explain`] says why a chain is wrong, [`json`] is JSON
//! Lines with a schema, [`profile`] writes profiles, [`inspect`] shows files, [`tables`] unwind
//! tables, and [`sweep`] proves those of many files. [`code_rules`] is code with the rules of unwinders
//! beside it, [`source_lines`] its source. [`timeline`] is the model of what shows states one
//! after the other; `unwind-sim-show` does.
#![forbid(unsafe_code)]

mod again;
pub mod code_rules;
#[cfg(feature = "machine")]
pub mod confirmation;
pub mod console;
#[cfg(feature = "machine")]
pub mod deadlock;
pub mod doctor;
pub mod explain;
mod fold;
pub mod inspect;
pub mod json;
pub mod kernel;
#[cfg(feature = "machine")]
pub mod kernel_walks;
pub mod listing;
pub mod pages;
#[cfg(feature = "perf")]
pub mod perf;
pub mod profile;
mod saved;
pub mod source_lines;
pub mod sweep;
pub mod symbol_files;
pub mod tables;
pub mod text;
pub mod timeline;
#[cfg(feature = "machine")]
pub mod verification;

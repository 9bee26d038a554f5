//! Recorded stacks: the trace format, importers, kernel images and case files.

pub mod case;
pub mod files;
pub mod import;
pub mod kernel;
pub mod mapped;
pub mod model;
pub mod output_file;
pub mod trace;
pub mod world;

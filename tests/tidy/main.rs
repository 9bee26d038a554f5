//! What has to hold of the repository as a whole: sizes of files, words that may not stand in
//! them, arrows between the packages, cases and snapshots that nothing uses, links.
//!
//! Not here: format and lints, which `.ci/run` asks of cargo, and the commands in the pages,
//! which `docs_commands` runs.

mod arrows;
mod cases;
mod circles;
mod pages;
mod repository;
mod source;

/// Fails with one line for each of `faults`.
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

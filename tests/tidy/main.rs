//! Rules for the repository as a whole: sizes of files, forbidden words, dependencies between
//! packages, complete packages, unused cases and snapshots, links.
//!
//! Not here: format and lints, which `.ci/run` checks with cargo, and the commands in the pages,
//! which `docs_commands` runs.

mod arrows;
mod builds;
mod cases;
mod circles;
mod environment;
mod generators;
mod machine;
mod packages;
mod pages;
#[path = "../common/random.rs"]
mod random;
mod repository;
#[path = "../common/skip.rs"]
mod skip;
mod source;
mod ways;

/// Fails with one line for each of `faults`.
fn none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

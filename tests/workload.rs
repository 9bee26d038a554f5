//! The stored workload of a kernel is what its sources make.

use crate::common::skip::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/workload")
}

/// What the script that builds it prints; `None` if a tool that it needs is missing.
fn script(argument: &str) -> Option<String> {
    let script = folder().join("build.sh");
    let output = Command::new(script).arg(argument).output().ok()?;
    let printed = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(printed)
}

/// The versions of what it was built with, and the hash of its sources.
fn recorded() -> (String, String) {
    let recorded = fs::read_to_string(folder().join("workload.built")).expect("the corpus");
    let end = recorded.trim_end().rfind('\n').expect("several lines") + 1;
    let (tools, sources) = recorded.split_at(end);
    (tools.to_owned(), sources.to_owned())
}

#[test]
fn the_stored_program_is_that_of_the_sources() {
    let (_, sources) = recorded();
    let now = script("--sources").expect("sha256sum");
    assert_eq!(
        now, sources,
        "the sources have changed: run corpus/workload/build.sh"
    );
}

#[test]
fn the_same_compiler_makes_the_same_program() {
    let (tools, _) = recorded();
    if script("--tools").is_none_or(|found| found != tools) {
        skip(
            "the_same_compiler_makes_the_same_program",
            "another compiler than the one that the workload was built with",
        );
        return;
    }
    let scratch = tempfile::tempdir().expect("a folder");
    let built = scratch.path().join("workload");
    script(&built.display().to_string()).expect("it can be built");
    let stored = fs::read(folder().join("workload")).expect("the corpus");
    assert!(fs::read(built).expect("it was built") == stored);
}

//! The one way for a test to say that it cannot run on this machine.
//!
//! `.ci/run` collects what was skipped and holds it against `tests/skips.txt`, so that no test
//! disappears unseen. Not here: the decision that something is missing.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// The file, named by this variable, to which skips are appended.
const FILE: &str = "UNWIND_SIM_SKIPS";

/// Says that the test, or the part of a test, called `name` is skipped, and why. The words must
/// be the same on every run.
pub(crate) fn skip(name: &str, reason: impl Display) {
    eprintln!("skipped: {name}: {reason}");
    let Some(path) = std::env::var_os(FILE) else {
        return;
    };
    let line = format!("{name}: {reason}\n");
    let file = OpenOptions::new().append(true).create(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .unwrap_or_else(|error| panic!("{FILE}={}: {error}", path.display()));
}

//! The only way for a test to report that it cannot run on this machine.
//!
//! `cargo test-all` collects the skips and sums them up by the classes of `tests/skips.txt`, so
//! that no test disappears unnoticed. Not here: deciding that something is missing.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the file to append skips to.
const FILE: &str = "UNWIND_SIM_SKIPS";

/// Reports that the test `name`, or a part of a test, is skipped, and why: a constant text, without
/// versions or paths, that contains one of `tests/skips.txt`.
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

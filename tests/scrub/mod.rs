//! `scrub` and `extract --scrub`: of a thousand secrets that a program held, none is in the output.

mod files;
mod planted;

use planted::{Secrets, decoded, frames};
use std::path::Path;

/// What `compare` says of a recording, without the places of its files.
fn compared(tool: impl Fn(&[&str]) -> std::process::Output, file: &str) -> String {
    let output = tool(&["compare", "--unwinder", "all", file]);
    let text = String::from_utf8(output.stdout).expect("text");
    text.replace(file, "FILE")
}

/// Every secret of which eight bytes in a row are in the file: as it is, in what it has compressed,
/// or in what its reader gives.
fn found(secrets: &Secrets, file: &Path) -> Vec<usize> {
    let bytes = std::fs::read(file).expect("the file");
    let mut found = secrets.found(&bytes);
    for frame in frames(&bytes) {
        found.extend(secrets.found(&frame));
    }
    found.extend(secrets.found(&decoded(file)));
    found.into_iter().collect()
}

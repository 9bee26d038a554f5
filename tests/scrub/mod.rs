//! `scrub` and `extract --scrub`: of a thousand secrets that a program held, none is in the output.

mod files;
mod planted;

use planted::{Secrets, decoded, frames};
use std::collections::BTreeSet;
use std::path::Path;
use unwind_sim_judge::unwinders::TABLES;

/// What `compare` says of a recording, without the places of its files. The row of an unwinder without a
/// table may give any word, and so a secret: of those it is only compared that they give one.
fn compared(tool: impl Fn(&[&str]) -> std::process::Output, file: &str) -> String {
    let output = tool(&["compare", "--unwinder", "all", file]);
    let text = String::from_utf8(output.stdout).expect("text");
    let text = text.replace(file, "FILE");

    let mut has_table = true;
    let plain = text.lines().map(|line| {
        if let Some((name, _)) = line.split_once(": first divergences") {
            has_table = TABLES.contains(&name);
        }
        match line.split_once(", the row gives ") {
            Some((before, _)) if !has_table => format!("{before}, the row gives another\n"),
            _ => format!("{line}\n"),
        }
    });
    plain.collect()
}

/// Every secret of which eight bytes in a row are in the file: as it is, in what it has compressed,
/// or in what its reader gives.
fn found(secrets: &Secrets, file: &Path) -> Vec<usize> {
    let mut parts = stored(file);
    parts.push(decoded(file));
    let found = parts.iter().flat_map(|part| secrets.found(part));
    let found: BTreeSet<usize> = found.collect();
    found.into_iter().collect()
}

/// Whether a text is in the file, as it is or compressed. (What its reader gives has the file's own name.)
fn has_text(text: &str, file: &Path) -> bool {
    let has = |part: &Vec<u8>| memchr::memmem::find(part, text.as_bytes()).is_some();
    stored(file).iter().any(has)
}

/// The bytes of a file, and what it has compressed.
fn stored(file: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(file).expect("the file");
    let mut parts = frames(&bytes);
    parts.push(bytes);
    parts
}

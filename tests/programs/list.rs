//! Reads the lists of command lines. Not here: running them.

use std::path::Path;

/// A command line of a list.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// The list and the number in it, from 1: `chosen/017`. Stable, for machines.
    pub(crate) key: String,
    /// The programs that must be installed.
    pub(crate) needs: Vec<String>,
    /// What bash is given.
    pub(crate) text: String,
    /// What bash is given before, on this computer; empty for nothing.
    pub(crate) prepare: String,
    /// Seed of the machine's random numbers: the number in the list.
    pub(crate) seed: u64,
}

impl Line {
    /// The first needed program that is not in `PATH`.
    pub(crate) fn missing(&self) -> Option<&str> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = |name: &&String| !std::env::split_paths(&path).any(|d| d.join(name).is_file());
        self.needs.iter().find(found).map(String::as_str)
    }
}

/// Reads a list: `PROGRAM[,PROGRAM]: LINE`, and below it, indented, `prepare: LINE`. Before the
/// first line, the latter is for all that have none.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let name = path.file_stem().expect("a list").to_string_lossy();
    let text = std::fs::read_to_string(path).expect("a list");
    let mut lines: Vec<Line> = Vec::new();
    let mut for_all = String::new();

    for (at, row) in text.lines().enumerate() {
        if row.is_empty() || row.starts_with('#') {
            continue;
        }

        if let Some(prepare) = row.strip_prefix("    prepare: ") {
            match lines.last_mut() {
                Some(line) => line.prepare = prepare.to_owned(),
                None => for_all = prepare.to_owned(),
            }
            continue;
        }

        // A line that is not understood ends the test: left out, it would silently not be compared.
        let split = row.split_once(": ");
        let (needs, text) = split.unwrap_or_else(|| panic!("{}:{}", path.display(), at + 1));
        lines.push(Line {
            // Numbered by position: a new line belongs at the end.
            key: format!("{name}/{:03}", lines.len() + 1),
            needs: needs.split(',').map(str::to_owned).collect(),
            text: text.to_owned(),
            prepare: for_all.clone(),
            // A seed of its own, which it keeps as long as its position.
            seed: lines.len() as u64 + 1,
        });
    }
    lines
}

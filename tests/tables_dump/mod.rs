//! `tables dump` against the tools whose forms it has: readelf, objdump and objtool.
//!
//! `UNWIND_SIM_SLOW=1` compares every ELF file of /usr/bin and /usr/lib/x86_64-linux-gnu with
//! readelf, and says how many files, functions and rows there were.

mod command;
mod damage;
mod orc;
mod readelf;
mod sframe;

use std::path::{Path, PathBuf};
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_tables::dump::{DumpSummary, Filter};
use unwind_sim_tables::file::File;

fn corpus(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("corpus").join(name)
}

fn open(path: &Path) -> File {
    let owner = map_file(path).expect("readable");
    File::read(&path.to_string_lossy(), owner).expect("an ELF file")
}

/// What `write` writes of a file, which must have no problem.
fn text(
    path: &Path,
    write: impl Fn(&File, &Filter, &mut Vec<u8>) -> std::io::Result<DumpSummary>,
) -> (String, DumpSummary) {
    let mut out = Vec::new();
    let dumped = write(&open(path), &Filter::ALL, &mut out).expect("a vector");
    let problems: Vec<String> = dumped.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, [""; 0], "{}", path.display());
    (String::from_utf8(out).expect("text"), dumped)
}

/// The first line in which two texts differ, not counting blank lines and spaces at the end.
fn first_difference(ours: &str, theirs: &str) -> Option<String> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| line.trim_end().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let at = (0..ours.len().max(theirs.len())).find(|&i| ours.get(i) != theirs.get(i))?;
    let show = |lines: &[String]| lines.get(at).cloned().unwrap_or("(end)".into());
    Some(format!(
        "line {at}\n  ours:   {}\n  theirs: {}",
        show(&ours),
        show(&theirs)
    ))
}

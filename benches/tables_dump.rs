//! Compares `unwind-sim tables dump` with `readelf --debug-dump=frames-interp`: whole processes, in
//! turn, with discarded output, on the largest library at hand. The two texts are compared first.
//!
//! `cargo bench --bench tables_dump`; with `--test` nothing is measured.
mod common;

use common::process::{BenchedProcess, Clock};
use common::report;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 9;
/// At least as fast as readelf.
const GOAL: f64 = 1.0;
const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// The libraries of LLVM, which have some 95,000 FDEs; otherwise libc.
fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    let paths = entries.filter_map(|entry| entry.path().canonicalize().ok());
    let is_llvm = |path: &PathBuf| {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("libLLVM") && name.ends_with(".so.1"))
    };
    let mut found: Vec<PathBuf> = paths.filter(is_llvm).collect();
    found.sort();
    found.dedup();
    if found.is_empty() {
        found.push(Path::new(FOLDER).join("libc.so.6"));
    }
    found
}

fn measure(path: &Path, test: bool) -> Result<(), String> {
    let title = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let title = title.unwrap_or_default();

    let ours = |form: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
        command.args(["tables", "dump", "--table", "eh_frame", "--as", form]);
        command.arg(path);
        command
    };

    // readelf prints frames with -wF, and N keeps it from following links to debug files.
    let mut theirs = Command::new("readelf");
    theirs.arg("-wFN").arg(path);
    let mut all = [
        BenchedProcess::new("readelf", theirs),
        BenchedProcess::new("ours, as readelf", ours("readelf")),
        BenchedProcess::new("ours, as equations", ours("equations")),
    ];

    // Equal text is the point: times of different work would say nothing.
    let [theirs, ours] = [all[0].text()?, all[1].text()?];
    let lines = theirs.split(|&byte| byte == b'\n').count();
    let same = if theirs == ours {
        "the same"
    } else {
        "ANOTHER"
    };
    println!("{title:<14} {lines} lines, {same} text");

    // A test is about the text alone: times of a busy machine say nothing.
    if test {
        return Ok(());
    }

    // In turn, so that a change of the machine's speed meets all.
    for _ in 0..ROUNDS {
        for contestant in &mut all {
            contestant.run()?;
        }
    }

    for (clock, name) in [(Clock::Cpu, "CPU"), (Clock::Wall, "wall")] {
        let figures = all.each_ref().map(|c| c.figure(clock, lines as f64));
        report::print(
            &format!("{title} {name}"),
            "line",
            &figures,
            figures.first(),
        );

        // Per line of readelf's text, for the equations, too, which have other lines.
        for ours in &figures[1..] {
            let work = format!("{} {title}, {name}", ours.name);
            report::row(&work, "line", ours, &figures[0], Some(GOAL));
        }
    }

    report::note_load();
    Ok(())
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    for path in files() {
        if let Err(reason) = measure(&path, test) {
            println!("skipped: {}: {reason}", path.display());
        }
    }
    report::finish();
}

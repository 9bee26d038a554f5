//! Compares `unwind-sim tables check` on one thread with `objdump -d` of the same file: whole
//! processes, in turn, with discarded output, on large files at hand. Both read every instruction;
//! the proof also follows it.
//!
//! `cargo bench --bench tables_check`, with files as arguments if others are wanted; with `--test`
//! nothing is measured.
mod common;

use common::process::{BenchedProcess, Clock};
use common::report;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 5;
/// FDEs a second of CPU time.
const GOAL: f64 = 100_000.0;
const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// Programs with thousands of functions, and the libraries of LLVM, which have some 95,000 FDEs.
fn files() -> Vec<PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&folders).collect();
    let program = |name: &str| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find(|path| path.is_file())
    };
    let mut found: Vec<PathBuf> = ["git", "gdb"].into_iter().filter_map(program).collect();
    found.push(Path::new(FOLDER).join("libc.so.6"));
    let entries = std::fs::read_dir(FOLDER).into_iter().flatten().flatten();
    found.extend(entries.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libLLVM") && name.contains(".so")
    }));
    let paths = found.into_iter().filter_map(|p| p.canonicalize().ok());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    paths.dedup();
    paths
}

fn ours(path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command
        .args(["tables", "check", "--threads", "1"])
        .arg(path);
    command
}

/// The number of functions and of proven ones, as the program counts them.
fn count(path: &Path) -> Result<(f64, f64), String> {
    let output = ours(path).arg("--json").output();
    let output = output.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let sums = text.lines().find_map(|line| {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        (value["type"] == "check").then_some(value)
    });
    let sums = sums.ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    let number = |of: &str| sums[of]["functions"].as_f64().filter(|&n| n > 0.0);
    let all = number("all").ok_or("no functions")?;
    Ok((all, number("proven").unwrap_or_default()))
}

fn measure(path: &Path, test: bool) -> Result<(), String> {
    let title = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let title = title.unwrap_or_default();
    let (functions, proven) = count(path)?;
    println!("{title:<14} {functions} functions, {proven} proven");
    if test {
        return Ok(());
    }

    let mut theirs = Command::new("objdump");
    theirs.arg("-d").arg(path);
    let mut all = [
        BenchedProcess::new("objdump -d", theirs),
        // Contradicted rows are what is looked for.
        BenchedProcess::new("tables check", ours(path)).accepting(1),
    ];

    // Both take turns, so that a change of the machine's speed meets both.
    for _ in 0..ROUNDS {
        for contestant in &mut all {
            contestant.run()?;
        }
    }

    for (clock, name) in [(Clock::Cpu, "CPU"), (Clock::Wall, "wall")] {
        let figures = all.each_ref().map(|c| c.figure(clock, functions));
        let title = format!("tables check {title}, {name}");
        report::print(&title, "FDE", &figures, figures.first());
        report::head();
        report::row(&title, "FDE", &figures[1], &figures[0], None);
        if clock == Clock::Cpu {
            // The goal is a rate, so it needs no peer; the least time is the least disturbed.
            let rate = 1e9 / figures[1].min_ns();
            let verdict = if rate >= GOAL { "met" } else { "MISSED" };
            println!("{title:<14} {rate:.0} FDEs/s on one core (goal >= {GOAL:.0}: {verdict})");
        }
    }

    report::note_load();
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let test = arguments.iter().any(|argument| argument == "--test");
    let named = arguments.iter().filter(|a| !a.starts_with('-'));
    let mut paths: Vec<PathBuf> = named.map(PathBuf::from).collect();
    if paths.is_empty() {
        paths = files();
    }
    for path in paths {
        if let Err(reason) = measure(&path, test) {
            println!("skipped: {}: {reason}", path.display());
        }
    }
    report::finish();
}

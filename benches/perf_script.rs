//! Compares `unwind-sim perf script` with `perf script --no-inline`: whole processes, in turn, one
//! thread each, with discarded output. The two texts are compared first.
//!
//! `cargo bench --bench perf_script` records its own inputs, one with frame pointers and one with
//! stack copies; `UNWIND_SIM_BENCH_RECORDINGS=FILE:FILE` uses others. `UNWIND_SIM_PERF=PROGRAM` is
//! the perf to compare with. With `--test` nothing is measured.
mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::process::{Clock, Contestant};
use common::programs::{self, Scratch};
use common::report;

const OURS: &str = "ours";
const ROUNDS: usize = 11;
const GOAL_TIMES: f64 = 5.0;
/// Forks, libraries, the kernel, and mangled names.
const WORK: &str = "for i in 1 2 3 4; do find /usr -name '*.so*' | sort -R | md5sum; \
    c++ -x c++ -std=c++17 -fsyntax-only - <<< '#include <regex>'; done";
const KINDS: [(&str, &[&str]); 2] = [
    ("frame-pointers", &["-F", "20000", "-g"]),
    (
        "stack-copies",
        &["-F", "2000", "--call-graph", "dwarf,4096"],
    ),
];

fn perf() -> OsString {
    std::env::var_os("UNWIND_SIM_PERF").unwrap_or_else(|| "perf".into())
}

/// The number of lines that differ between two texts, and of lines in the second.
fn differing(a: &[u8], b: &[u8]) -> (usize, usize) {
    let mut count_by_line = std::collections::HashMap::new();
    for line in a.split(|&byte| byte == b'\n') {
        *count_by_line.entry(line).or_insert(0i64) += 1;
    }
    let mut all = 0;
    for line in b.split(|&byte| byte == b'\n') {
        *count_by_line.entry(line).or_insert(0) -= 1;
        all += 1;
    }
    let missing = count_by_line.values().filter(|&&count| count < 0);
    (missing.map(|count| -count as usize).sum(), all)
}

fn measure(title: &str, recording: &Path, test: bool) -> Result<(), String> {
    let mut theirs = Command::new(perf());
    theirs.args(["script", "--no-inline", "-i"]).arg(recording);
    let mut ours = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    ours.args(["perf", "script"]).arg(recording);
    let mut all = [Contestant::new("perf", theirs), Contestant::new(OURS, ours)];
    let [theirs, ours] = [all[0].text()?, all[1].text()?];
    let (differ, lines) = differing(&ours, &theirs);
    println!(
        "{title:<14} {} bytes of text, {differ} of {lines} lines differ",
        theirs.len()
    );
    if test {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        for contestant in &mut all {
            contestant.run()?;
        }
    }
    for (clock, name) in [(Clock::Cpu, "CPU"), (Clock::Wall, "wall")] {
        let figures = all.each_ref().map(|c| c.figure(clock, lines as f64));
        report::print(&format!("{title} {name}"), "line", &figures, None);
        report::ratio(title, &figures[1], &figures[0], Some(1.0 / GOAL_TIMES));
        println!(
            "{title:<14} {:.2} times perf's speed, {name}",
            1.0 / figures[1].ratio_to(&figures[0])
        );
    }
    report::note_load();
    Ok(())
}

/// Makes a recording.
fn record(scratch: &Scratch, name: &str, how: &[&str]) -> Result<PathBuf, String> {
    let output = scratch.join(name);
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-m", "16M"]);
    command.args(how).arg("-o").arg(&output);
    command.args(["--", "bash", "-c", WORK]);
    programs::run(&mut command)?;
    Ok(output)
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let scratch = Scratch::new();
    let recordings: Vec<(String, Result<PathBuf, String>)> =
        match std::env::var_os("UNWIND_SIM_BENCH_RECORDINGS") {
            Some(paths) => std::env::split_paths(&paths)
                .map(|path| {
                    (
                        path.file_name()
                            .map_or_else(String::new, |n| n.to_string_lossy().into()),
                        Ok(path),
                    )
                })
                .collect(),
            None => KINDS
                .iter()
                .map(|(name, how)| ((*name).to_owned(), record(&scratch, name, how)))
                .collect(),
        };
    for (name, recording) in recordings {
        let measured = recording.and_then(|path| measure(&name, &path, test));
        if let Err(reason) = measured {
            println!("skipped: {name}: {reason}");
        }
    }
}

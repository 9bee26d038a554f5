//! Compares `unwind-sim perf script` with `perf script --no-inline`: whole processes, in turn, one
//! thread each, with discarded output. The two texts are compared first.
//!
//! `cargo bench --bench perf_script` records its own inputs: one with frame pointers, one with stack
//! copies, and a small one. Each is measured once with the home folder, where perf keeps lists of the
//! kernel's symbols, and once without; `UNWIND_SIM_BENCH_RECORDINGS=FILE:FILE` uses others. `UNWIND_SIM_PERF=PROGRAM` is
//! the perf to compare with. With `--test` nothing is measured.
mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::process::{BenchedProcess, Clock};
use common::programs::{self, Scratch};
use common::report;
use common::timing::Timing;

const OURS: &str = "ours";
const ROUNDS: usize = 11;
const GOAL_TIMES: f64 = 6.0;
/// The goal where perf has kept no list of the kernel's symbols.
const GOAL_TIMES_WITHOUT_LIST: f64 = 4.0;
/// A recording of about a hundred samples.
const SMALL: &str = "small";
const SMALL_WORK: &str = "find /usr/lib -name '*.so' | sort | md5sum";
/// Forks, libraries, the kernel, and mangled names.
const WORK: &str = "for i in 1 2 3 4; do find /usr -name '*.so*' | sort -R | md5sum; \
    c++ -x c++ -std=c++17 -fsyntax-only - <<< '#include <regex>'; done";
const KINDS: [(&str, &[&str], &str); 3] = [
    ("frame-pointers", &["-F", "20000", "-g"], WORK),
    (
        "stack-copies",
        &["-F", "2000", "--call-graph", "dwarf,4096"],
        WORK,
    ),
    (SMALL, &["-F", "2000", "-g"], SMALL_WORK),
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

/// Work, ours, perf's, and the highest ratio wanted.
type Comparison = (String, Timing, Timing, Option<f64>);

/// Measures both on one recording. With `home`, that is the home folder, in which perf has kept
/// nothing.
fn measure(
    title: &str,
    recording: &Path,
    home: Option<&Path>,
    test: bool,
) -> Result<Vec<Comparison>, String> {
    // Without inlined functions on both sides.
    let mut theirs = Command::new(perf());
    theirs.args(["script", "--no-inline", "-i"]).arg(recording);
    let mut ours = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    ours.args(["perf", "script", "--no-inline"]).arg(recording);

    // perf keeps files below HOME, and reads them in later runs.
    if let Some(home) = home {
        theirs.env("HOME", home);
        ours.env("HOME", home);
    }

    let mut all = [
        BenchedProcess::new("perf", theirs),
        BenchedProcess::new(OURS, ours),
    ];

    // Both texts are compared before anything is measured.
    let [theirs, ours] = [all[0].text()?, all[1].text()?];
    let (differ, lines) = differing(&ours, &theirs);
    println!(
        "{title:<14} {} bytes of text, {differ} of {lines} lines differ",
        theirs.len()
    );

    if test {
        return Ok(Vec::new());
    }

    // In turn, so that a change of the machine's speed meets both.
    for _ in 0..ROUNDS {
        for contestant in &mut all {
            contestant.run()?;
        }
    }

    let times = home.map_or(GOAL_TIMES, |_| GOAL_TIMES_WITHOUT_LIST);
    let clocks = [
        (Clock::Cpu, "CPU", Some(1.0 / times)),
        (Clock::Wall, "wall", None),
    ];
    let lines = clocks.map(|(clock, name, goal)| {
        let [theirs, ours] = all.each_ref().map(|c| c.figure(clock, lines as f64));
        (format!("{title}, {name}"), ours, theirs, goal)
    });

    report::note_load();
    Ok(lines.into())
}

/// Makes a recording.
fn record(scratch: &Scratch, name: &str, how: &[&str], work: &str) -> Result<PathBuf, String> {
    let output = scratch.join(name);
    let mut command = Command::new("perf");
    command.args(["record", "-q", "-e", "cpu-clock", "-m", "16M"]);
    command.args(how).arg("-o").arg(&output);
    command.args(["--", "bash", "-c", work]);
    programs::run(&mut command)?;
    Ok(output)
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let scratch = Scratch::new();
    let recordings: Vec<(String, Result<PathBuf, String>)> =
        // Recordings of one's own, or some that are made now.
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
                .map(|(name, how, work)| {
                    let recording = record(&scratch, name, how, work);
                    ((*name).to_owned(), recording)
                })
                .collect(),
        };

    let mut lines = Vec::new();
    for (name, recording) in recordings {
        // The second run has a home folder in which perf has kept nothing.
        let without = format!("{name}, no list");
        let measured = recording.and_then(|path| {
            let mut lines = measure(&name, &path, None, test)?;
            lines.extend(measure(&without, &path, Some(&scratch.join("home")), test)?);
            Ok(lines)
        });
        match measured {
            Ok(more) => lines.extend(more),
            // A recording that cannot be made, for want of perf or of permission, does not stop the
            // others.
            Err(reason) => println!("skipped: {name}: {reason}"),
        }
    }

    if !test {
        report::head();
    }
    for (work, ours, theirs, goal) in &lines {
        report::row(work, "line", ours, theirs, *goal);
    }
    report::finish();
}

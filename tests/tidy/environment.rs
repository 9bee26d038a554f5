//! `tests/environment.txt` names every test source that depends on what surrounds it, so that
//! `.ci/full` runs it in each of its environments.
//!
//! Not here: the environments.

use crate::none;
use crate::repository::{File, files, text};
use std::collections::{BTreeMap, BTreeSet};

/// The list: one path on each line, with ` slow` after it where `.ci/environment` runs it seldom, and ` timed`
/// where time matters.
const LIST: &str = "tests/environment.txt";

/// What starts programs, or touches files, clocks, terminals or other processes.
const SIGNS: [&str; 13] = [
    "Command::new",
    "tempfile::",
    "Scratch::new",
    "Instant::now",
    "SystemTime::now",
    "Duration::from_",
    "may_trace(",
    "no_ptrace",
    "Stepper::new() {",
    "/dev/ptmx",
    "crate::cli::",
    "cli::snapshot",
    "std::fs::write",
];

/// What waits, reads a clock, ends or traces a process, or uses a terminal, so that a busy machine may
/// change its outcome.
const TIMED: [&str; 12] = [
    "Instant::now",
    "SystemTime::now",
    "Duration::from_",
    "may_trace(",
    "no_ptrace",
    "Stepper::new() {",
    "/dev/ptmx",
    "--timeout",
    "sleep(",
    "SIGKILL",
    "SIGTERM",
    "kill(",
];

/// Folders whose files are shared by tests, or are not tests.
const EXCEPT: [&str; 6] = [
    "tests/common/",
    "/tests/common/",
    "tests/random/src/",
    "tests/random/examples/",
    "tests/tidy/",
    "tests/programs/files/",
];

fn is_test(path: &str) -> bool {
    let is_below = path.starts_with("tests/") || path.contains("/tests/");
    let is_unit = path.ends_with("/tests.rs");
    (is_below || is_unit)
        && !path.starts_with("fuzz/")
        && !EXCEPT
            .iter()
            .any(|part| path.starts_with(part) || (part.starts_with('/') && path.contains(part)))
}

fn depends(file: &File) -> bool {
    SIGNS.iter().any(|sign| file.text.contains(sign))
}

fn is_timed(file: &File) -> bool {
    TIMED.iter().any(|sign| file.text.contains(sign))
}

#[test]
fn every_test_of_its_surroundings_is_listed() {
    let list = text(LIST).expect("text");
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));

    let marked: BTreeMap<&str, Vec<&str>> = lines
        .filter_map(|line| {
            let mut words = line.split(' ');
            Some((words.next()?, words.collect()))
        })
        .collect();
    let listed: BTreeSet<&str> = marked.keys().copied().collect();

    let all = files(".rs");
    let found: BTreeSet<&str> = all
        .iter()
        .filter(|file| is_test(&file.path) && depends(file))
        .map(|file| file.path.as_str())
        .collect();

    let mut faults = Vec::new();
    for path in found.difference(&listed) {
        faults.push(format!("{path}: not in {LIST}"));
    }
    // A name that is there no more would be believed.
    for path in listed.difference(&found) {
        faults.push(format!("{LIST}: {path} is not such a test"));
    }

    for file in &all {
        let Some(marks) = marked.get(file.path.as_str()) else {
            continue;
        };
        if marks.contains(&"timed") != is_timed(file) {
            faults.push(format!("{LIST}: {}: `timed` is wrong", file.path));
        }
        let unknown = marks.iter().find(|mark| !["slow", "timed"].contains(mark));
        faults.extend(unknown.map(|mark| format!("{LIST}: {}: no mark `{mark}`", file.path)));
    }

    none(&faults);
}

#[test]
fn tests_of_their_surroundings_are_found() {
    let file = |text: &str| File {
        path: String::new(),
        text: text.to_owned(),
    };

    assert!(depends(&file("let a = Command::new(\"cc\");")));
    assert!(!depends(&file("assert_eq!(1 + 1, 2);")));
    assert!(is_timed(&file("let begin = Instant::now();")));
    assert!(!is_timed(&file("let a = Command::new(\"cc\");")));

    for path in [
        "tests/cli/files.rs",
        "crates/host/tests/record.rs",
        "crates/host/src/gdb/tests.rs",
    ] {
        assert!(is_test(path), "{path}");
    }
    for path in [
        "src/main.rs",
        "tests/common/skip.rs",
        "crates/host/tests/common/mod.rs",
        "fuzz/src/tests.rs",
    ] {
        assert!(!is_test(path), "{path}");
    }
}

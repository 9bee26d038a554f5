//! `--children`.

use super::{lines, of_type, program, run, text};
use crate::cli::{status, stderr, stdout};
use crate::common::compiler::Scratch;

const CALLS: &str = include_str!("programs/calls.c");

/// A program that starts another one, a copy of it with another name.
fn two(scratch: &Scratch) -> (String, String) {
    let first = program(scratch, "first", CALLS);
    let other = text(&scratch.path("other"));
    std::fs::copy(&first, &other).expect("copied");
    (first, other)
}

/// How many instructions were checked, and in which images something was found.
fn checked(choice: &str, first: &str, other: &str) -> (u64, Vec<String>) {
    let output = run(&[
        "verify",
        "-u",
        "fp",
        "--json",
        "--clear-env",
        "--children",
        choice,
        "--",
        first,
        other,
    ]);

    let lines = lines(&output);
    // The number of instructions shows whose code was checked, also where nothing was found.
    let summary = of_type(&lines, "summary");
    let found = of_type(&lines, "contradiction");

    // The libraries of this computer may have wrong rows of their own.
    let mut images: Vec<String> = found
        .iter()
        .filter_map(|line| Some(line["image"].as_str()?.to_owned()))
        .filter(|image| image == "first" || image == "other")
        .collect();
    images.sort();
    images.dedup();

    let count = summary[0]["instructions"].as_u64();
    (count.expect("a number"), images)
}

#[test]
fn chosen_processes_are_checked() {
    let scratch = Scratch::new();
    let (first, other) = two(&scratch);
    let count = |choice| checked(choice, &first, &other);
    let [all, of_first, of_other, both] = ["all", "first", "other", "other,first"].map(count);

    // Each process is in exactly one of both.
    assert_eq!(of_first.0 + of_other.0, all.0);
    assert_eq!(both, all);
    assert!(
        of_first.0 > 100_000 && of_other.0 > 100_000,
        "{of_first:?} {of_other:?}"
    );

    // _start of each has no frame pointer.
    assert_eq!(
        (of_first.1, of_other.1),
        (vec!["first".to_owned()], vec!["other".to_owned()])
    );

    let none = count("none").0;
    assert!(
        none < of_first.0 && none > of_first.0 / 2,
        "{none} of {}",
        of_first.0
    );

    // The statistics know of no gap: what is checked is known from its start.
    let output = run(&[
        "verify",
        "-u",
        "dwarf",
        "--children",
        "other",
        "--clear-env",
        "--",
        &first,
        &other,
    ]);
    let known = "truth unknown at 0, self-check failures 0";
    assert!(stdout(&output).contains(known), "{}", stdout(&output));
}

#[test]
fn a_program_that_never_runs_is_told() {
    let scratch = Scratch::new();
    let (first, _) = two(&scratch);
    let output = run(&["verify", "--children", "absent", "--", &first]);
    assert_eq!(status(&output), 3);
    let said = stderr(&output);
    assert!(
        said.contains("no process ran that --children names"),
        "{said}"
    );
    for wrong in ["all,x", "none,x", "a/b", "", "a,,b"] {
        let output = run(&["verify", "--children", wrong, "--", &first]);
        assert_eq!(status(&output), 2, "{wrong}");
    }
    let output = run(&["record", "--children", "none", "--", &first]);
    assert!(stderr(&output).contains("--children is for --engine emulator"));
}

/// The processes of the samples.
fn sampled(scratch: &Scratch, choice: &str, programs: [&str; 2]) -> Vec<u64> {
    let trace = text(&scratch.path("trace"));

    // The first program starts the second one.
    let output = run(&[
        "record",
        "--engine",
        "emulator",
        "--at",
        "target",
        "-o",
        &trace,
        "--children",
        choice,
        "--",
        programs[0],
        programs[1],
    ]);
    assert_eq!(status(&output), 0, "{}", stderr(&output));

    // A sample of one process with the mappings of the other would give a wrong chain.
    let chains = run(&["replay", &trace, "-u", "dwarf", "--json"]);
    let chains = of_type(&lines(&chains), "chain");
    assert!(
        chains.iter().all(|chain| chain["verdict"]["word"] == "ok"),
        "{choice}"
    );

    let pids = chains
        .iter()
        .map(|chain| chain["pid"].as_u64().expect("a number"));
    let mut pids: Vec<u64> = pids.collect();

    // Samples come in the order of time, so a process may come again.
    pids.dedup();
    pids
}

#[test]
fn chosen_processes_are_recorded() {
    let scratch = Scratch::new();
    let (first, other) = two(&scratch);
    let sampled = |choice| sampled(&scratch, choice, [&first, &other]);
    assert_eq!(sampled("none"), [1000]);
    // 1001 and 1002 are threads; 1003 is the child, 1004 becomes the other program.
    assert_eq!(sampled("first"), [1000, 1003]);
    assert_eq!(sampled("other"), [1004, 1007]);
    assert_eq!(sampled("all"), [1000, 1003, 1004, 1007]);
}

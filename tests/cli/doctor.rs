//! `doctor`: which code broke how many stacks.

use crate::{THROWS, ends_with, run, snapshot, status, stderr, without_places};
use serde_json::Value;

const MISSING: &str = "corpus/perfdata/norow.data";
const CHAINS: &str = "corpus/perfdata/fp-pipe.data";

fn lines(args: &[&str]) -> Vec<Value> {
    let text = ends_with(1, &[args, &["--json"]].concat());
    let parse = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(parse).collect()
}

#[test]
fn one_screen_says_what_broke_the_stacks() {
    snapshot("doctor-throws", &["doctor", THROWS]);
    let text = ends_with(1, &["doctor", THROWS]);
    assert!(text.lines().count() <= 40, "{text}");
}

/// As many stacks are broken as `compare` finds wrong, apart from the true ones whose root has no
/// mark.
#[test]
fn as_many_are_broken_as_compare_finds() {
    let report = lines(&["doctor", THROWS, "--unwinder", "dwarf"]);
    let (last, complaints) = report.split_last().expect("lines");
    assert_eq!(last["unwinders"][1]["unwinder"], "dwarf");
    let broken = last["unwinders"][1]["broken"].as_u64().expect("a number");
    let stacks = complaints
        .iter()
        .map(|c| c["stacks"].as_u64().expect("a number"));
    assert_eq!(stacks.sum::<u64>(), broken);
    let compared = ends_with(1, &["compare", THROWS, "--unwinder", "dwarf", "--json"]);
    let column: Value =
        serde_json::from_str(compared.lines().next().expect("a line")).expect("JSON");
    let verdicts = column["verdicts"].as_object().expect("verdicts");
    let wrong = ["wrong", "missing", "extra", "truncated"];
    let wrong: u64 = wrong
        .iter()
        .filter_map(|w| verdicts.get(*w)?.as_u64())
        .sum();
    assert_eq!(broken, wrong);
    let row = complaints
        .iter()
        .find(|c| c["kind"] == "wrong-row")
        .expect("a wrong row");
    assert_eq!(row["functions"][0]["function"], "_Unwind_RaiseException");
    assert_eq!(row["row"]["table"], "eh_frame");
}

#[test]
fn missing_files_and_generated_code_are_told_apart() {
    let report = lines(&["doctor", MISSING, "--symfs", "corpus"]);
    let dwarf = report.iter().filter(|c| c["unwinder"] == "dwarf");
    let kinds: Vec<&str> = dwarf.filter_map(|c| c["kind"].as_str()).collect();
    assert_eq!(kinds, ["no-file", "jit"]);
}

/// A recording without registers still has perf's chains. There is no sample that `explain` could
/// show.
#[test]
fn chains_without_registers_are_examined() {
    let report = lines(&["doctor", CHAINS, "--symfs", "corpus"]);
    let last = report.last().expect("a line");
    assert_eq!(last["unwinders"][0]["unwinder"], "perf");
    assert_eq!(last["unwinders"][0]["broken"], 14);
    assert_eq!(report[0]["kind"], "no-file");
    let text = ends_with(1, &["doctor", CHAINS, "--symfs", "corpus"]);
    assert!(!text.contains("unwind-sim explain"), "{text}");
}

/// The command that shows a stack shows the same fault.
#[test]
fn the_command_for_a_stack_works() {
    let text = ends_with(1, &["doctor", THROWS, "--unwinder", "fp"]);
    let command = text
        .lines()
        .find_map(|l| l.trim().strip_prefix("unwind-sim "));
    let words: Vec<&str> = command.expect("a command").split(' ').collect();
    let shown = ends_with(0, &words);
    assert!(shown.contains("US51"), "{shown}");
}

#[test]
fn nothing_to_judge_and_bad_input() {
    let empty = ends_with(3, &["doctor", "corpus/perfdata/G-empty-record.data"]);
    assert!(empty.contains("--call-graph dwarf"), "{empty}");
    for file in ["README.md", "corpus/perfdata", "no-such-file"] {
        let output = run(&["doctor", file]);
        assert_eq!(status(&output), 2, "{file}: {}", stderr(&output));
    }
    // Cut short at every length: an error or a part of the report, never a panic.
    let whole = std::fs::read("corpus/perfdata/norow.data").expect("a recording");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cut.data");
    for length in (0..whole.len()).step_by(whole.len() / 24) {
        std::fs::write(&path, &whole[..length]).expect("a file");
        let output = run(&["doctor", &path.to_string_lossy()]);
        assert!(
            [1, 2, 3].contains(&status(&output)),
            "{length}: {}",
            stderr(&output)
        );
    }
}

/// A proof that ends says where and why.
#[test]
fn explain_says_where_the_proof_ends() {
    let sample = ["explain", THROWS, "--sample", "2", "--against", "proof"];
    let shown = without_places(&ends_with(0, &sample));
    let line = shown
        .lines()
        .find(|l| l.starts_with("the proof ends with frame "));
    assert!(line.is_some(), "{shown}");
}

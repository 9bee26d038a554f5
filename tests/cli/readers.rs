//! A reader that goes away, a status without a word, a working folder without a path.

use crate::cli::report::wrong_row;
use crate::cli::{SEED, THROWS, run, status, stderr, tool};
use std::process::{Output, Stdio};

/// A trace with which the unwinders by fake registers differ.
const DIFFERS: [&str; 4] = ["--unwinder", "orc", "--regs", "fake:v5.1"];
/// perf makes other chains of this recording.
const LATE: &str = "corpus/perfdata/stitch/B-late-sample.data";

/// Runs the tool, and closes the other end of its output at once.
fn unread(args: &[&str]) -> Output {
    let mut command = tool(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool runs");
    drop(child.stdout.take());
    child.wait_with_output().expect("it ends")
}

/// What was found before the reader went away counts, whatever it did not read.
#[test]
fn a_difference_counts_though_nobody_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let object = wrong_row(folder.path());

    // A scenario whose expected output is wrong.
    let scenario = path("changed.txt");
    let known = "corpus/scenarios/lbr/execve-keeps-the-records.txt";
    let known = std::fs::read_to_string(crate::cli::root(known)).expect("a scenario");
    std::fs::write(&scenario, format!("{known}= something else\n")).expect("a file");
    let list = path("list");
    std::fs::write(&list, format!("{object}\n")).expect("a file");

    let [a, b, c, d] = DIFFERS;
    let quiz = "fp-loses-the-caller-after-pop-rbp";
    let fuzz = [
        "perf", "fuzz", "--seeds", "0..1", "--events", "3", "--mutant",
    ];

    // Every command that can find a difference, in each of its formats.
    let all: &[&[&str]] = &[
        &["replay", SEED, a, b, c, d],
        &["replay", SEED, "--json", a, b, c, d],
        &["replay", THROWS, "--unwinder", "orc", "--strict"],
        &["compare", SEED, a, b, c, d],
        &["compare", SEED, "--json", a, b, c, d],
        &["doctor", THROWS],
        &["doctor", THROWS, "--json"],
        &[
            "verify",
            "--defect",
            "corpus/cases/defect/wrong-slot-of-rbx.s",
        ],
        &["tables", "check", &object],
        &["tables", "check", "--json", &object],
        &["tables", "check", "--sarif", &object],
        &["tables", "check", "--files", &list, "--out", "-"],
        &["perf", "stitch", LATE, "--like", "perf-7.2"],
        &["perf", "run", &scenario],
        &[&fuzz[..], &["shared-buffer"]].concat(),
        &[
            "cases",
            "quiz",
            quiz,
            "--at",
            "after_pop",
            "--answer",
            "leaf",
        ],
    ];

    for args in all {
        // With a reader, which tells what the status has to be.
        let whole = status(&run(args));
        // Without a reader, what was found has to be known before the first write fails.
        let left = unread(args);
        assert_eq!(
            (whole, status(&left)),
            (1, 1),
            "{args:?}: {}",
            stderr(&left)
        );
        assert!(
            // A broken pipe is not an error of the command.
            !stderr(&left).contains("ipe"),
            "{args:?}: {}",
            stderr(&left)
        );
    }
}

/// Status 3 says on standard error why.
#[test]
fn nothing_is_without_a_word() {
    for args in [
        &["replay", SEED, "--unwinder", "lbr"][..],
        &["replay", "corpus/perfdata/dwarf.data", "--json"],
        &["replay", SEED, "--tid", "999999999", "--format", "folded"],
        &["compare", SEED, "--tid", "999999999"],
        &["doctor", SEED, "--tid", "999999999"],
        &["perf", "stitch", "corpus/perfdata/dwarf.data"],
    ] {
        let output = run(args);
        assert_eq!(status(&output), 3, "{args:?}: {}", stderr(&output));
        let told = stderr(&output);
        assert!(
            told.contains("unwind-sim: exit status 3: "),
            "{args:?}: {told}"
        );
    }
}

#[test]
fn a_folder_that_is_gone_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_unwind-sim");
    for command in ["inspect trace.bin", "emulate -- true", "compare trace.bin"] {
        let script = format!("rmdir \"$PWD\"; exec '{program}' {command}");
        let here = folder.path().join("gone");
        std::fs::create_dir(&here).expect("a folder");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(&here);
        let output = shell.output().expect("sh runs");
        assert_eq!(status(&output), 2, "{command}: {}", stderr(&output));
        let told = stderr(&output);
        assert!(
            told.contains("the working folder cannot be found"),
            "{told}"
        );
    }
}

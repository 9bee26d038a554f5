//! `compare` of the log of a kernel's console. The stacks of `corpus/kernel/6.12-console.log` are those of the
//! recordings beside it, made by `record --kernel --console-log` and `extract --scrub`.

use crate::cli::{THROWS, root, run, snapshot, status, stderr, stdout};

const LOG: &str = "corpus/kernel/6.12-console.log";
const WARNING: &str = "corpus/kernel/6.12-console-warning.bin";
const SLEEPING: &str = "corpus/kernel/6.12-console-sleeping.bin";

#[test]
fn each_printed_stack_is_judged_by_the_truth_of_its_moment() {
    for (name, recording) in [("warning", WARNING), ("sleeping", SLEEPING)] {
        let args = ["compare", LOG, "--recording", recording];
        snapshot(&format!("console-log-{name}"), &args);
    }
    let args = ["compare", LOG, "--recording", WARNING, "--json"];
    snapshot("console-log-json", &args);
}

/// A text says only what the kernel has printed.
#[test]
fn without_a_recording_nothing_is_judged() {
    let args = ["compare", LOG];
    snapshot("console-log-alone", &args);
}

#[test]
fn a_text_that_says_something_else_is_not_the_recorded_stack() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(root(LOG)).expect("a log");
    let whole = run(&["compare", LOG, "--recording", WARNING]);
    assert!(
        stdout(&whole).contains("\n1 of them in the recording"),
        "{}",
        stdout(&whole)
    );
    // What was behind a question mark is not, an offset is another, a line is missing.
    let first = text.find("? ").expect("a question mark");
    let line = text[..first].rfind('\n').expect("a line");
    let end = first + text[first..].find('\n').expect("a line");
    let offset = first + text[first..].find("+0x").expect("an offset") + 3;
    for (range, with) in [
        (first..first + 2, ""),
        (offset..offset + 1, "f"),
        (line..end, ""),
    ] {
        let mut other = text.clone();
        other.replace_range(range, with);
        let path = folder.path().join("console.log");
        std::fs::write(&path, other).expect("written");
        let path = path.display().to_string();
        let output = run(&["compare", &path, "--recording", WARNING]);
        assert_eq!(status(&output), 3, "{}", stderr(&output));
        let said = stdout(&output);
        assert!(said.contains("\n0 of them in the recording"), "{said}");
    }
}

#[test]
fn what_does_not_go_with_a_log_is_refused() {
    for (words, told) in [
        (
            &[LOG, "--unwinder", "orc:kernel"][..],
            "--unwinder does not go with the log",
        ),
        (
            &[LOG, "--against", "truth"],
            "--against does not go with the log",
        ),
        (&[LOG, "--sample", "1"], "--sample does not go with the log"),
        (&[LOG, "--recording", LOG], "is a text file, not"),
        (
            &[THROWS, "--recording", WARNING],
            "--recording goes with the log of a console",
        ),
        (&["README.md"], "is a text file, not"),
    ] {
        let output = run(&[&["compare"], words].concat());
        let said = stderr(&output);
        assert_eq!(status(&output), 2, "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
}

//! The cases that the program carries, used where there is no checkout.

use crate::cli::{root, status, stderr, stdout, tool};
use std::process::Output;
use tempfile::TempDir;

const CASE: &str = "corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s";

fn empty() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn run_in(folder: &TempDir, args: &[&str]) -> Output {
    let mut tool = tool(args);
    tool.current_dir(folder).output().expect("the tool runs")
}

#[test]
fn an_empty_folder_has_the_cases_of_the_corpus() {
    let folder = empty();
    for args in [
        &["cases", "list"][..],
        &["cases", "list", "--covers", "US203"],
        &["cases", "run", "fp-loses-the-caller-before-push-rbp"],
        &["cases", "show", "fp-loses-the-caller-before-push-rbp"],
        &["replay", CASE],
        &["compare", CASE],
        &["explain", CASE, "--sample", "0"],
        &["doctor", CASE],
        &["emulate", CASE],
        &["step", "--json", CASE],
        &["report", CASE, "-o", "page.html"],
    ] {
        let output = run_in(&folder, args);
        assert_eq!(status(&output), 0, "{args:?}\n{}", stderr(&output));
    }
}

/// Also the paths that it prints, so that what it tells to do next can be done.
#[test]
fn a_carried_case_gives_what_its_file_gives() {
    let folder = empty();
    for args in [
        &["cases", "run", "popped-slot-lies-outside-a-copy"][..],
        &["cases", "show", "popped-slot-lies-outside-a-copy"],
        &["verify", "--unwinder", "fp", CASE],
    ] {
        let carried = run_in(&folder, args);
        let file = tool(args)
            .current_dir(root(""))
            .output()
            .expect("the tool runs");
        assert_eq!(status(&carried), status(&file), "{args:?}");
        assert_eq!(stdout(&carried), stdout(&file), "{args:?}");
    }
}

#[test]
fn a_corpus_in_the_working_folder_is_used_instead() {
    let folder = empty();
    std::fs::create_dir_all(folder.path().join("corpus/cases")).expect("a folder");
    let output = run_in(&folder, &["cases", "list"]);
    assert_eq!(status(&output), 2);
    assert_eq!(stderr(&output), "unwind-sim: no case in corpus/cases\n");
    let output = run_in(&folder, &["replay", CASE]);
    assert!(
        stderr(&output).contains("No such file"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_carried_case_cannot_be_blessed() {
    let output = run_in(&empty(), &["cases", "bless", "popped-slot"]);
    assert_eq!(status(&output), 2);
    assert!(
        stderr(&output).contains("cases in the program cannot be blessed"),
        "{}",
        stderr(&output)
    );
}

/// It is not judged by rows that it is not about.
#[test]
fn a_case_about_another_assembler_says_so() {
    let folder = empty();
    let text = std::fs::read_to_string(root(CASE)).expect("a case");
    let text = text.replacen("#! right", "#! assembler: 0.1\n#! right", 1);
    let path = folder.path().join("old.s");
    std::fs::write(&path, text).expect("a file");
    std::fs::copy(
        root("corpus/cases/prelude.inc"),
        folder.path().join("prelude.inc"),
    )
    .expect("the prelude");
    let output = run_in(&folder, &["cases", "run", "old.s"]);
    assert_eq!(status(&output), 2, "{}", stderr(&output));
    let said = stdout(&output);
    assert!(said.starts_with("ERROR "), "{said}");
    assert!(said.contains("what GNU as 0.1 writes, and "), "{said}");
}

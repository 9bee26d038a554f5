//! Completions in each supported shell, including those of subcommands and values.

use crate::common::skip::skip;
use crate::common::tools::has_no_terminals;
use std::process::Command;

/// A command line whose last word is completed; words that must be offered; words that must not.
const LINES: [(&[&str], &[&str], &[&str]); 13] = [
    (&["rep"], &["replay"], &["compare"]),
    (&["replay", "--unw"], &["--unwinder"], &["--regs"]),
    (
        &["replay", "--unwinder", ""],
        &["dwarf", "sframe", "all"],
        &["truth"],
    ),
    (&["replay", "--unwinder", "sf"], &["sframe"], &["dwarf"]),
    (
        &["compare", "--against", ""],
        &["truth", "perf"],
        &["sframe"],
    ),
    (
        &["compare", "--group-by", ""],
        &["cause", "function", "insn"],
        &["dwarf"],
    ),
    (&["demo", ""], &["deadlock", "seed-004"], &["US103"]),
    (&["demo", "wr"], &["wrong-row"], &["deadlock"]),
    (&["explain", "US10"], &["US103", "US107"], &["US203"]),
    // A recording, too.
    (&["explain", "zsh"], &["zsh.zsh"], &["US103"]),
    (
        &["cases", "list", "--covers", "US20"],
        &["US203"],
        &["US103"],
    ),
    (&["perf", "script", "--sy"], &["--symfs"], &["--strict"]),
    (
        &["generate", "completions", "--shell", ""],
        &["bash", "zsh"],
        &["dwarf"],
    ),
];

/// Runs the shell with its script of `tests/completions` for each line.
fn check(shell: &str, program: &[&str]) {
    if Command::new(shell).arg("--version").output().is_err() {
        skip("completions", format!("{shell} is not installed"));
        return;
    }
    // zsh completes only on a terminal.
    if shell == "zsh" && has_no_terminals("completions_work_in_zsh") {
        return;
    }

    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");

    // The script as it would be installed.
    let completions = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
        .args(["generate", "completions", "--shell", shell])
        .output()
        .expect("it runs");
    std::fs::write(&script, completions.stdout).expect("written");

    for (words, wanted, unwanted) in LINES {
        let output = Command::new("timeout")
            // A shell that waits for input must not stop the test.
            .arg("60")
            .args(program)
            .arg(&script)
            .arg("unwind-sim")
            .args(words)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/completions"))
            .env("TERM", "xterm")
            // Wide enough that no word is cut off, and no settings of the user.
            .env("COLUMNS", "200")
            .env("HOME", folder.path())
            .output()
            .expect("timeout runs");

        let text = String::from_utf8_lossy(&output.stdout);
        let offered: Vec<&str> = text.split_whitespace().collect();
        for word in wanted {
            assert!(
                offered.contains(word),
                "{shell} {words:?}: no {word} in:\n{text}"
            );
        }
        for word in unwanted {
            assert!(
                !offered.contains(word),
                "{shell} {words:?}: {word} in:\n{text}"
            );
        }
    }
}

#[test]
fn completions_work_in_bash() {
    check("bash", &["bash", "--norc", "bash.sh"]);
}

#[test]
fn completions_work_in_zsh() {
    check("zsh", &["zsh", "-f", "zsh.zsh"]);
}

#[test]
fn completions_work_in_fish() {
    check("fish", &["fish", "--no-config", "fish.fish"]);
}

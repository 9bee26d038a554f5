//! `step` on programs of the emulated machine: screens, JSON, and a real terminal.

mod json;
mod screens;
mod speed;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const CASE: &str = "corpus/cases/frame/fp-loses-the-caller-before-push-rbp.s";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A copy of the case in `folder`, with what it includes.
fn copy_of_case(folder: &Path) -> PathBuf {
    let case = folder.join("edited.s");
    std::fs::copy(root(CASE), &case).expect("a copy");
    let included = root("corpus/cases/prelude.inc");
    std::fs::copy(included, folder.join("prelude.inc")).expect("a copy");
    case
}

/// The tool, at the repository's root, with nothing in the environment of programs.
fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.arg("step").args(args).current_dir(root(""));
    command.stdin(Stdio::null());
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn run(args: &[&str]) -> Output {
    tool(args).output().expect("the tool runs")
}

/// Standard output of a run that ends with status 0.
#[track_caller]
fn shown(args: &[&str]) -> String {
    let output = run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The screens of a script.
#[track_caller]
fn play(script: &str, size: &str, args: &[&str]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), script).expect("it is written");
    let path = file.path().to_str().expect("a path");
    let all = [&["--script", path, "--size", size], args].concat();
    shown(&all)
}

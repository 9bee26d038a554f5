//! The command line of the built binary: help, output, exit status, files.

mod carried;
mod commands;
mod confirm;
mod console_log;
mod cores;
mod doctor;
mod drawing;
mod emulate;
mod emulate_kernel;
mod extract;
mod faults;
mod files;
mod gaps;
mod guess_capture;
mod harm;
mod help;
mod hostile;
mod inputs;
mod json;
mod kinds;
mod limits;
mod opens;
mod output;
mod perf_script;
mod readers;
mod record;
mod record_kernel;
mod report;
mod status;
mod stdin;
mod step_kernel;
mod teaching;
mod threads;
mod tracers;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Small traces in the repository that include the truth.
const SEED: &str = "corpus/traces/seed-004.bin";
const THROWS: &str = "corpus/traces/throws.bin";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The tool, run at the repository's root without environment variables of the terminal.
fn tool(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(args).current_dir(root(""));
    command.stdin(Stdio::null());
    without_terminal(&mut command);
    command
}

/// Takes the variables away that the terminal of whoever runs the tests has set.
fn without_terminal(command: &mut Command) {
    for name in [
        "COLUMNS",
        "NO_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "RUST_BACKTRACE",
    ] {
        command.env_remove(name);
    }
}

fn run(args: &[&str]) -> Output {
    tool(args).output().expect("the tool runs")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("text")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("text")
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

/// Runs a command, which must end with this status, and returns its standard output.
fn ends_with(wanted: i32, args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(status(&output), wanted, "{args:?}\n{}", stderr(&output));
    stdout(&output).to_owned()
}

/// Removes what describes the machine on which a recording was made.
fn without_places(text: &str) -> String {
    let here = root("").to_string_lossy().into_owned();
    let text = text.replace(&here, "");
    let keep = |line: &&str| !line.starts_with("  made by ");
    let lines = text.split_inclusive('\n').filter(keep);
    let plain = |line: &str| match line.split_once("/tmp/unwind-sim-case-") {
        Some((before, path)) => {
            let name = path.split_once('/').map_or(path, |(_, name)| name);
            format!("{before}{name}")
        }
        None => line.to_owned(),
    };
    lines.map(plain).collect()
}

/// Compares everything that a command prints with its snapshot.
fn snapshot(name: &str, args: &[&str]) {
    let output = run(args);
    let mut text = format!("status {}\n", status(&output));
    for (title, part) in [("stdout", stdout(&output)), ("stderr", stderr(&output))] {
        if !part.is_empty() {
            text += &format!("--- {title}\n{}", without_places(part));
        }
    }
    snapshot_text(name, &format!("unwind-sim {}", args.join(" ")), &text);
}

/// Compares `text` with the snapshot `cli-NAME`.
fn snapshot_text(name: &str, description: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(root("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_description(description.to_owned());
    settings.bind(|| insta::assert_snapshot!(format!("cli-{name}"), text));
}

//! Threads and processes in the emulated machine, at the command line: schedules, deadlocks, chosen
//! processes, places in all of them, their branch records.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod children;
mod deadlock;
mod exact;
mod places;
mod schedule;
mod timeout;
mod traced;

use crate::cli::{stderr, stdout, tool};
use crate::common::compiler::Scratch;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// A program, compiled with `cc`.
fn program(scratch: &Scratch, name: &str, source: &str) -> String {
    let args = ["-O1", "-g0", "-pthread", "-fno-omit-frame-pointer"];
    let built = scratch.cc(&format!("{name}.c"), source, &args);
    let built = built.unwrap_or_else(|error| panic!("cc: {error}"));
    // Without an ending, so that its name is that of a program.
    let program = scratch.path(name);
    std::fs::rename(built, &program).expect("renamed");
    text(&program)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs the tool; both outputs must be text.
fn run(args: &[&str]) -> Output {
    let output = tool(args).output().expect("the tool runs");
    let _ = (stdout(&output), stderr(&output));
    output
}

/// The lines of JSON in an output.
fn lines(output: &Output) -> Vec<Value> {
    let lines = stdout(output).lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// The lines of this type.
fn of_type(lines: &[Value], wanted: &str) -> Vec<Value> {
    let is_it = |line: &&Value| line["type"] == wanted;
    lines.iter().filter(is_it).cloned().collect()
}

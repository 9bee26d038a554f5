//! Blink's interpreter, if it is installed: no package provides it, so it is not built here. It
//! runs the programs of `flat` as processes, with its JIT off. `BLINK` is its path, if it is not in
//! PATH.

use crate::timing::children_time;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The command that runs blink, from the environment or the path.
fn command() -> Command {
    let program = std::env::var_os("BLINK").unwrap_or_else(|| "blink".into());
    let mut command = Command::new(program);
    // Turns off the JIT.
    command.arg("-j");
    command
}

/// Blink's version, if it is installed.
pub fn version() -> Option<String> {
    let output = command().arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let line = text.lines().find(|line| !line.is_empty())?;
    Some(line.trim().to_owned())
}

/// The result and CPU time of a program, without the time of an empty program.
pub fn run(program: &Path, which: u64) -> (u64, Duration) {
    let (_, start) = process(program, crate::flat::PROGRAMS.len() as u64);
    let (result, time) = process(program, which);
    (result, time.saturating_sub(start))
}

/// Runs a program; the number of arguments selects which one.
fn process(program: &Path, which: u64) -> (u64, Duration) {
    let begin = children_time();
    let mut command = command();
    command.arg(program).args((0..which).map(|_| "x"));
    let output = command.output().expect("blink runs");
    let time = children_time() - begin;
    assert!(output.status.success(), "blink failed");
    let result = output.stdout.as_slice().try_into().expect("8 bytes");
    (u64::from_le_bytes(result), time)
}

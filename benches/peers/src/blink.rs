//! Blink's interpreter, if it is installed: it is no package of any kind, so it is not built here.
//! It runs the programs of `flat` as processes, with its JIT off. `BLINK` says where it is, if not
//! on the path.

use crate::timing::children_time;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The program, from the environment or the path.
fn command() -> Command {
    let program = std::env::var_os("BLINK").unwrap_or_else(|| "blink".into());
    let mut command = Command::new(program);
    // No JIT.
    command.arg("-j");
    command
}

/// Its version, if it is there.
pub fn version() -> Option<String> {
    let output = command().arg("-v").output().ok()?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let line = text.lines().find(|line| !line.is_empty())?;
    Some(line.trim().to_owned())
}

/// Its result and CPU time, without what a program takes that does nothing.
pub fn run(program: &Path, which: u64) -> (u64, Duration) {
    let (_, start) = process(program, crate::flat::PROGRAMS.len() as u64);
    let (result, time) = process(program, which);
    (result, time.saturating_sub(start))
}

/// Which program it is, is said by the number of arguments.
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

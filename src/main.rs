//! unwind-sim: record stacks, replay them through every unwinder, judge and explain the chains.
//!
//! Here is the command line: each subcommand is a file in `command/`. What they do is in the rooms
//! below (`ARCHITECTURE.md`).
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}

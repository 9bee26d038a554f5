//! unwind-sim: records stacks, unwinds them with every unwinder, and judges and explains the
//! results.
//!
//! This crate is the command line: each subcommand is a file in `command/`. The work is done by the
//! packages below it (`ARCHITECTURE.md`).
#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}

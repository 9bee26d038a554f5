//! unwind-sim: records stacks, unwinds them with every unwinder, and judges and explains the
//! results.
//!
//! This is the program. What it does is in the library beside it, so that tests can run many command
//! lines in one process.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    unwind_sim::run(std::env::args_os().collect()).into()
}

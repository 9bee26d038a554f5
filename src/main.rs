//! The command line of unwind-sim. Each subcommand is a file in `command/`; what they do is in
//! the library.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run()
}

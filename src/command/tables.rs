//! `tables`: unwind tables, without running the program. Each of its subcommands is a file.

mod convert;
mod merge;
mod written;

use super::status::Status;
use anyhow::Result;

/// Unwind tables, without running the program: convert them, merge them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim tables convert /usr/bin/git --to sframe-v3 -o git
  unwind-sim tables merge program -o merged")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Convert(convert::Args),
    Merge(merge::Args),
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    match &args.command {
        Command::Convert(args) => convert::run(args),
        Command::Merge(args) => merge::run(args),
    }
}

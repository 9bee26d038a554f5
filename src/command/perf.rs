//! `perf`: what perf does around an unwinder. One file for each of its subcommands.

mod script;

use super::Status;
use anyhow::Result;

/// What perf does around an unwinder: the text of its recordings.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf script perf.data")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Script(script::Args),
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    match &args.command {
        Command::Script(args) => script::run(args),
    }
}

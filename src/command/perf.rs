//! `perf`: what perf does around an unwinder. One file for each of its subcommands.

mod script;
mod stitch;

use super::Status;
use anyhow::Result;

/// What perf does around an unwinder: the text of its recordings, and deferred callchains.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf script perf.data
  unwind-sim perf stitch perf.data")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Script(script::Args),
    Stitch(stitch::Args),
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    match &args.command {
        Command::Script(args) => script::run(args),
        Command::Stitch(args) => stitch::run(args),
    }
}

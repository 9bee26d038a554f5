//! `perf`: what perf does around an unwinder. Each of its subcommands is a file.

mod bpf;
mod fuzz;
mod run;
mod script;
mod stitch;

pub(super) use script::explain as not_supported;

use super::again::Given;
use super::status::Status;
use anyhow::Result;

/// What perf does around an unwinder: the text of its recordings, deferred callchains, BPF
/// handlers, and a model of sampling.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf script perf.data
  unwind-sim perf stitch perf.data
  unwind-sim perf bpf corpus/bpf/profile.bpf.o perf.data
  unwind-sim perf run corpus/scenarios/upstream/d1_late-sample.txt
  unwind-sim perf fuzz --seeds 0..10000")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Bpf(bpf::Args),
    Script(script::Args),
    Stitch(stitch::Args),
    Run(run::Args),
    Fuzz(fuzz::Args),
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    match &args.command {
        Command::Bpf(args) => bpf::run(args),
        Command::Script(args) => script::run(args),
        Command::Stitch(args) => stitch::run(args),
        Command::Run(args) => run::run(args),
        Command::Fuzz(args) => fuzz::run(args, given),
    }
}

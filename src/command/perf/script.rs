//! `perf script`: a recording as perf's text.

use crate::command::{Status, output};
use anyhow::Result;
use std::path::PathBuf;
use unwind_sim::perf_tool::script::{self, Fields, Options};

/// Print a perf.data as `perf script --no-inline` does.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf script perf.data
  unwind-sim perf script --fields comm,tid,time,event,ip,sym perf.data")]
pub(crate) struct Args {
    /// The recording.
    #[arg(value_name = "FILE", default_value = "perf.data")]
    path: PathBuf,
    /// These fields, of every event: comm, tid, pid, time, cpu, event, trace, ip, sym, symoff,
    /// dso, addr, period.
    #[arg(long, short = 'F', value_name = "LIST", value_parser = Fields::parse)]
    fields: Option<Fields>,
    /// Times with nanoseconds.
    #[arg(long)]
    ns: bool,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let options = Options {
        fields: args.fields,
        nanoseconds: args.ns,
    };
    let summary = script::script(&args.path, options, &mut output::raw_stdout())?;
    if let Some(error) = summary.first_skipped {
        let n = summary.skipped;
        let s = unwind_sim::text::plural(n);
        anstream::eprintln!("{n} record{s} left out, the first: {error}");
    }
    if let unwind_sim_perf::Stop::Error(error) = summary.stop {
        return Err(error.into());
    }
    Ok(Status::AsExpected)
}

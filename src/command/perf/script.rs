//! `perf script`: prints a recording as perf does.

use crate::command::args::{ProfileFormat, text_file};
use crate::command::output;
use crate::command::status::Status;
use anyhow::{Result, bail};
use std::path::PathBuf;
use unwind_sim_perf_tool::script::{self, Asked, FieldList, Mode, Options};
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::symbols::Places;

/// The tool whose way of joining deferred callchains is imitated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Like {
    /// As perf 7.2 does.
    #[value(name = "perf-7.2")]
    Perf72,
    /// As proposed in 2023: by thread and order.
    Rfc2023,
}

/// Print a perf.data as `perf script --no-inline` does, or write it as a profile.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf script perf.data
  unwind-sim perf script --fields comm,tid,time,event,ip,sym perf.data
  unwind-sim perf script --format speedscope -o perf.speedscope.json perf.data")]
pub(crate) struct Args {
    /// The recording.
    #[arg(value_name = "FILE", default_value = "perf.data")]
    path: PathBuf,
    /// Look for all files below this folder.
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// The kernel's symbols, in the format of /proc/kallsyms.
    #[arg(long, value_name = "FILE")]
    kallsyms: Option<PathBuf>,
    /// The format to write.
    #[arg(long, value_enum, default_value = "perf-script")]
    format: ProfileFormat,
    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The fields to print for every event: comm, tid, pid, time, cpu, event, trace, ip, sym,
    /// symoff, dso, addr, period, bpf-output. A + adds a field to the default ones, a - removes it;
    /// hw:, sw:, trace:, raw:, break: or synth: before the list applies it to events of that type
    /// only.
    #[arg(long, short = 'F', value_name = "LIST", value_parser = FieldList::parse, allow_hyphen_values = true)]
    fields: Vec<FieldList>,
    /// Print deferred callchains separately instead of joining them with their samples.
    #[arg(long)]
    no_merge_callchains: bool,
    /// Join them as this tool does, including its defects.
    #[arg(long, value_enum)]
    like: Option<Like>,
    /// Extend stacks of branch records with those of earlier samples of the thread. This is a
    /// guess, made as perf makes it; it needs the ring's depth in the recording.
    #[arg(long)]
    stitch_lbr: bool,
    /// Print times to the nanosecond.
    #[arg(long)]
    ns: bool,
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let of_text = !args.fields.is_empty() || args.ns || args.no_merge_callchains;
    if of_text && args.format != ProfileFormat::PerfScript {
        bail!("--fields, --ns and --no-merge-callchains need --format perf-script");
    }
    FileKind::expect(&args.path, "a perf.data", &[FileKind::PerfData])?;
    text_file(args.kallsyms.as_deref())?;
    let options = Options {
        fields: Asked::of(&args.fields),
        nanoseconds: args.ns,
        stitch_lbr: args.stitch_lbr,
        join: match args.like {
            _ if args.no_merge_callchains => None,
            None => Some(Mode::Own),
            Some(Like::Perf72) => Some(Mode::Perf72),
            Some(Like::Rfc2023) => Some(Mode::Rfc2023),
        },
    };
    let places = Places {
        symfs: args.symfs.clone(),
        kallsyms: args.kallsyms.clone(),
        ..Places::default()
    };
    let path = args.output.as_deref();
    let report = output::to_file_or(path, output::raw_stdout(), |out| {
        let format = args.format.into();
        Ok(script::profile(&args.path, options, places, format, out)?)
    })?;
    anstream::eprint!("{}", report.losses);
    if report.guests != 0 {
        let (n, s) = (report.guests, unwind_sim_view::text::plural(report.guests));
        anstream::eprintln!("{n} sample{s} of guests left out");
    }
    let summary = report.summary;
    if let Some(error) = summary.first_skipped {
        let n = summary.skipped;
        let s = unwind_sim_view::text::plural(n);
        anstream::eprintln!("{n} record{s} left out, the first: {error}");
    }
    if let unwind_sim_perf_data::Stop::Error(error) = summary.stop {
        return Err(error.into());
    }
    Ok(Status::AsExpected)
}

//! `perf stitch`: joins deferred callchains with their samples.

use crate::command::output;
use crate::command::status::Status;
use crate::command::stdin;
use crate::command::suggest::not_one_of;
use anyhow::Result;
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_perf_data::stitch::{Judgement, Mode};
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_view::perf::stitch::{self, Show};

/// Join samples with the user frames that were recorded later, and say which have none, and why.
///
/// The result is compared with that of perf 7.2, or of the proposal of 2023, which had no cookies.
/// Exit status 1 means that the recording contradicts itself or, with --like, that a sample does
/// not get its own frames in that way.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf stitch perf.data
  unwind-sim perf stitch --samples --like rfc2023 perf.data")]
pub(crate) struct Args {
    /// The recording.
    #[arg(value_name = "FILE", default_value = "perf.data", value_parser = stdin::recording(), value_hint = clap::ValueHint::AnyPath)]
    path: PathBuf,
    /// Judge this way of stitching: perf-7.2 or rfc2023.
    #[arg(long, value_name = "WAY", value_parser = like)]
    like: Option<Mode>,
    /// Print a line for each deferred sample. With --like, in that way's order and with its chains.
    #[arg(long)]
    samples: bool,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
}

fn like(name: &str) -> Result<Mode, String> {
    match name {
        "perf-7.2" => Ok(Mode::Perf72),
        "rfc2023" => Ok(Mode::Rfc2023),
        _ => Err(not_one_of(name, &["perf-7.2", "rfc2023"])),
    }
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let recording = InputFile::expect(&args.path, "a perf.data", &[FileKind::PerfData])?;
    let stitching = stitch::stitch(&recording, args.like.unwrap_or(Mode::Perf72))?;
    let tally = stitching.tally();
    let right = tally.other.get(&Judgement::Right).copied().unwrap_or(0);
    let status = if tally.deferred == 0 {
        Status::NothingJudged
    } else if stitching.counts.conflicts > 0 || (args.like.is_some() && right < tally.deferred) {
        Status::Difference.known()
    } else {
        Status::AsExpected
    };
    let mut out = output::plain_stdout();
    let show = Show {
        samples: args.samples,
        other_chains: args.like.is_some(),
        json: args.json,
    };
    stitching.print(show, &output::command_line(), &mut out)?;
    out.flush()?;
    output::tell_summary(&args.path, &stitching.summary);
    Ok(status)
}

//! `doctor`: what broke the stacks of a recording, and what to do.

use super::again::{BROKEN, Given};
use super::args::{InputArgs, WalkArgs};
use super::output;
use super::status::Status;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::Write;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::doctor::{self, Complaint, PERF};
use unwind_sim_judge::input::{FileKind, Input, file_kind};
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::shell::path_argument;
use unwind_sim_recordings::progress::Progress;
use unwind_sim_view::{doctor as show, json};

/// The unwinders that are tried without `--unwinder`.
const DEFAULT: [&str; 2] = ["dwarf", "fp"];
/// The number of complaints on one screen.
const SHOWN: usize = 5;

/// Find out which code broke the stacks of a profile or a core, and what to do about it.
///
/// The chains that perf recorded are examined if there are any, or else those of the first
/// unwinder. They are judged by the recorded truth, or by the frames that the code proves (see
/// `compare --against proof`); beyond those, a chain that does not end at a root is broken. Broken
/// stacks are gathered by kind and file, those with the most first.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim doctor perf.data
  unwind-sim doctor perf.data --unwinder dwarf --all
  unwind-sim doctor core --json

Exit status: 0 no stack is broken; 1 one is; 2 usage error, I/O error or malformed input; 3 there
was no stack to judge.")]
pub(crate) struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    walk: WalkArgs,
    /// Show everything that broke stacks, not only the five that broke the most.
    #[arg(long)]
    all: bool,
    /// JSON Lines instead of text.
    #[arg(long)]
    json: bool,
}

/// Opens the recording. A perf.data without registers still has the chains that perf recorded.
fn open(args: &InputArgs) -> Result<(Input, bool)> {
    let input = args.open()?;
    let is_empty = input.first(|_| ()).is_none();
    if !is_empty || file_kind(&args.path)? != FileKind::PerfData {
        return Ok((input, false));
    }
    let options = unwind_sim_recordings::convert::OpenOptions {
        chains: true,
        ..args.kernel.options(args.symfs.clone())?
    };
    let input = Input::open(&args.path, &options);
    Ok((
        input.with_context(|| args.path.display().to_string())?,
        true,
    ))
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let (input, only_chains) = open(&args.input)?;
    let against = match input.has_truth() {
        true => "truth",
        false => "proof",
    };
    let run = Run {
        engines: args.walk.engines(&args.input, &DEFAULT)?,
        variants: args.walk.variants()?,
        setting: args.walk.setting(&args.input.path)?,
        against: Against::from_name(against)?,
        group_by: GroupBy::default(),
    };
    let filter = args.input.filter();
    let mut progress = Progress::new("samples", false);
    let report = doctor::examine(&input, &filter, &run, &mut |n| progress.tell(n))?;
    drop(progress);
    output::tell_left_out(&args.input.path, &input.gaps());
    let mut out = output::stdout();
    // With --unwinder, the first of those given; perf's chains are only counted.
    let by_name = (!args.walk.unwinder.is_empty()).then_some(1);
    let walked = |&subject: &usize| {
        let subject = &report.subjects[subject];
        subject.whole + subject.broken > 0
    };
    let main = by_name.filter(walked).or_else(|| report.main());
    if args.json {
        for line in json::doctor(&report, &output::command_line()) {
            serde_json::to_writer(&mut out, &line)?;
            writeln!(out)?;
        }
    } else if let Some(main) = main {
        let limit = if args.all { usize::MAX } else { SHOWN };
        let explain = |complaint: &Complaint| {
            let name = match report.subjects[complaint.subject].name.as_str() {
                PERF => "fp",
                name => name.split('@').next().unwrap_or(name),
            };
            let sample = complaint.example.sample.to_string();
            let mut own = vec![path_argument(&args.input.path)];
            let column = complaint
                .subject
                .checked_sub(1)
                .map(|index| run.columns()[index]);
            let regs = column.and_then(|column| column.variant);
            let rest = [
                "--sample",
                &sample,
                "--unwinder",
                name,
                "--against",
                against,
            ];
            own.extend(rest.map(OsString::from));
            if let Some(regs) = regs {
                own.extend(["--regs", regs.as_str()].map(OsString::from));
            }
            (!only_chains).then(|| given.command(&BROKEN, &own, &[]))
        };
        write!(out, "{}", show::doctor_text(&report, main, limit, &explain))?;
    } else {
        writeln!(
            out,
            "{} samples, none of which has a user stack to judge: record with `perf record \
             --call-graph dwarf,16384`",
            report.samples
        )?;
    }
    out.flush()?;
    Ok(match main {
        None => Status::NothingJudged,
        Some(main) if report.subjects[main].broken > 0 => Status::Difference,
        Some(_) => Status::AsExpected,
    })
}

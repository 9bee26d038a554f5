//! `doctor`: what broke the stacks of a recording, and what to do.

use super::again::{BROKEN, CHAIN, Given};
use super::args::{InputArgs, WalkArgs, open, open_file};
use super::output;
use super::status::Status;
use anyhow::{Context, Result};
use std::ffi::OsString;
use std::io::Write;
use unwind_sim_judge::compare::GroupBy;
use unwind_sim_judge::doctor::{self, Complaint, PERF, Report};
use unwind_sim_judge::input::{FileKind, Input};
use unwind_sim_judge::run::{Against, Run};
use unwind_sim_judge::shell::path_argument;
use unwind_sim_recordings::import::Skip;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::trace::Engine;
use unwind_sim_view::text::plural;
use unwind_sim_view::{doctor as show, json};

/// The unwinders that are tried without `--unwinder`, and before them those that are tried if branch
/// records were recorded.
const DEFAULT: [&str; 3] = ["dwarf", "fp", "dwarf+fp"];
const BRANCHES: [&str; 2] = ["lbr", "lbr:stitch"];
/// The number of complaints on one screen.
const SHOWN: usize = 5;

/// Find out which code broke the stacks of a profile or a core, and what to do about it.
///
/// The chains that perf recorded are examined if there are any, or else those of the first
/// unwinder. They are judged by the recorded truth, or by what the code says of their frames: a chain
/// is whole if each frame called the next and the last is where a program, a thread or a coroutine
/// starts. Broken stacks are gathered by kind and file, those with the most first, then those of which
/// it is not known. What to do is not what the recording already did, nor an unwinder that was tried
/// and is worse.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim doctor perf.data
  unwind-sim doctor perf.data --unwinder dwarf --all
  unwind-sim doctor core --json")]
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
fn opened(args: &InputArgs) -> Result<(Input, bool)> {
    let file = open_file(&args.path)?;
    let mut options = args.options(&file)?;
    options.check_age = true;
    let input = open(&file, &options)?;
    let is_empty = input.first(|_| ()).is_none();
    if !is_empty || file.kind() != FileKind::PerfData {
        return Ok((input, false));
    }

    // Read again with other options: its problems were reported.
    options.chains = true;
    let input = Input::of(&file, &options);
    let input = input.with_context(|| args.path.printable().to_string())?;
    Ok((input, true))
}

/// Why there is nothing to show, and what to do.
fn nothing(args: &Args, input: &Input, report: &Report) -> String {
    let (samples, made) = (report.samples, &report.made);
    if samples == 0 && input.first(|_| ()).is_some() {
        return "no sample passes --sample, --tid, --time or --limit".to_owned();
    }

    let head = format!("{samples} sample{}", plural(samples));

    // With --unwinder nothing may be left to walk, though perf's own chains are there.
    if let Some(main) = report.main() {
        let (asked, perf) = (args.walk.unwinder.join(","), &report.subjects[main]);
        return format!(
            "{head}, none of which {asked} can walk, as they lack what it needs; of the stacks by \
             {}, {} are whole, {} broken and {} unknown (leave out --unwinder to see why)",
            perf.name, perf.whole, perf.broken, perf.unknown
        );
    }

    // Advice only where the recording itself shows the cause; for anything else it would be a
    // guess.
    let gaps = input.gaps();
    let is_unread = samples == 0 && !(gaps.problems.is_empty() && gaps.later.is_empty());
    let advice = match made.engine {
        Engine::Import(FileKind::PerfData) if is_unread => {
            ": it ends, or cannot be read, before its first sample"
        }
        Engine::Import(FileKind::PerfData) if gaps.skipped.contains_key(&Skip::Bits32) => {
            ": the programs that it sampled are not 64-bit ones, and only those can be walked"
        }
        Engine::Import(FileKind::PerfData) if made.stack_copy == 0 => {
            ": record with `perf record --call-graph dwarf,16384`"
        }
        Engine::Import(FileKind::PerfData) => {
            ": perf copied stacks, but sampled no program in user space"
        }
        Engine::Import(FileKind::Core) if made.is_cut => {
            ": the core was cut short; let the next one be written whole (`ulimit -c unlimited`)"
        }
        _ => "",
    };

    format!("{head}, none of which has a user stack to judge{advice}")
}

/// The command that shows the one chain that perf recorded at this time.
fn chain_command(args: &Args, given: &Given<'_>, time: u64) -> Option<String> {
    const NS: u64 = 1_000_000_000;
    let at = format!("{}.{:09}", time / NS, time % NS);
    let own = [
        "--time".into(),
        format!("{at},{at}").into(),
        path_argument(&args.input.path),
    ];
    (cfg!(feature = "perf") && time > 0).then(|| given.command(&CHAIN, &own, &[]))
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let (input, only_chains) = opened(&args.input)?;
    // How `explain` is asked about one stack.
    let against = if input.has_truth() { "truth" } else { "proof" };

    // Without branch records the unwinders that read them would only add columns of nothing.
    let branches = input.made().branch_calls;
    let default: Vec<&str> = if branches {
        BRANCHES.into_iter().chain(DEFAULT).collect()
    } else {
        DEFAULT.to_vec()
    };

    let run = Run {
        engines: args.walk.engines(&input, &args.input.kernel, &default)?,
        variants: args.walk.variants()?,
        setting: args.walk.setting(&input)?,
        against: Against::Truth,
        group_by: GroupBy::default(),
    };

    let filter = args.input.filter();
    let mut progress = args.input.progress(&input);
    let report = doctor::examine(&input, &filter, &run, &mut |n| progress.tell(n))?;
    drop(progress);
    output::tell_left_out(&args.input.path, &input.gaps());

    let mut out = output::stdout();
    // With --unwinder, the first of those given that walked a stack; perf's chains are only counted.
    let main = if args.walk.unwinder.is_empty() {
        report.main()
    } else {
        report.main_of(1)
    };

    // Broken stacks count before whole ones. If all are unknown, nothing was judged.
    let status = match main {
        None => Status::NothingJudged,
        Some(main) if report.subjects[main].broken > 0 => Status::Difference.known(),
        Some(main) if report.subjects[main].whole > 0 => Status::AsExpected,
        Some(_) => Status::NothingJudged,
    };

    if args.json {
        for line in json::doctor(&report, &output::command_line()) {
            line.write(&mut out)?;
        }
    } else if let Some(main) = main {
        let limit = if args.all { usize::MAX } else { SHOWN };
        // The command shows the stack as it was judged here: the same sample, unwinder and start.
        let explain = |complaint: &Complaint| {
            let name = match report.subjects[complaint.subject].name.as_str() {
                PERF => "fp",
                name => name.split('@').next().unwrap_or(name),
            };
            let sample = complaint.example.sample.to_string();
            let mut own = vec![path_argument(&args.input.path)];
            // Subject 0 is perf itself, which has no column; the others are the columns in their
            // order.
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
            // Without registers there is nothing that `explain` could walk; the recorded chain can
            // be shown.
            if only_chains {
                chain_command(args, given, complaint.example.time)
            } else {
                Some(given.command(&BROKEN, &own, &[]))
            }
        };
        write!(out, "{}", show::doctor_text(&report, main, limit, &explain))?;
    } else {
        writeln!(out, "{}", nothing(args, &input, &report))?;
    }

    out.flush()?;
    Ok(status)
}

//! `perf run`: runs a scenario of the sampling model.

use crate::command::output::{self, tell};
use crate::command::status::Status;
use crate::command::suggest::not_one_of;
use crate::perf::run;
use anyhow::{Result, bail};
use std::io::Write;
use std::path::PathBuf;
use unwind_sim_perf_data::stitch::Mode;
use unwind_sim_perf_lbr::Storage;
use unwind_sim_perf_model::{SCENARIO_BYTES_MAX, World, join, perf_data};
use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;

/// Run a scenario of the sampling model: print what happens, and the stack each sample gets.
///
/// The file holds the expected output; exit status 1 means that the output differs.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf run corpus/scenarios/upstream/d1_late-sample.txt
  unwind-sim perf run --bless corpus/scenarios/upstream/d1_late-sample.txt
  unwind-sim perf run -o perf.data corpus/scenarios/upstream/d1_late-sample.txt
  unwind-sim perf run --seed 7 corpus/scenarios/upstream/d1_late-sample.txt
  unwind-sim perf run --seed 7 --events 100")]
pub(crate) struct Args {
    /// The scenario.
    #[arg(value_name = "SCENARIO", required_unless_present = "seed")]
    path: Option<PathBuf>,
    /// Write the output into the file as the expected one.
    #[arg(long, conflicts_with_all = ["seed", "cpus", "lbr_storage"])]
    bless: bool,
    /// Insert NMIs, interrupts and preemptions, drawn from this seed, between the scenario's steps,
    /// and print the result as a scenario. Without a scenario, make a random schedule. Exit status
    /// 1 means that a rule is broken.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// With --seed and no scenario: the number of events.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        requires = "seed",
        conflicts_with = "path"
    )]
    events: u32,
    /// The number of CPUs, overriding the scenario.
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    cpus: Option<u16>,
    /// Write the records to this file, as a perf.data.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Where branch records are kept while a task is not running, overriding the scenario: cpu
    /// (with the events, up to Linux 6.14), task, or cgroup (of tasks in a recorded cgroup).
    #[arg(long, value_name = "WHERE", value_parser = storage, conflicts_with = "seed")]
    lbr_storage: Option<Storage>,
}

fn storage(name: &str) -> Result<Storage, String> {
    Storage::from_name(name).ok_or_else(|| not_one_of(name, &["cpu", "task", "cgroup"]))
}

pub(crate) fn run(args: &Args) -> Result<Status> {
    let mut out = output::plain_stdout();

    let file = args.path.as_deref();
    let file = file.map(|path| InputFile::expect(path, "a scenario (text)", &[FileKind::Text]));
    let file = file.transpose()?;

    if let Some(seed) = args.seed {
        // With a scenario, the seed varies it; without one, it makes a schedule of its own.
        let (text, world) = match &file {
            Some(file) => run::run_varied(file, seed)?,
            None => run::run_seed(seed, args.events as usize)?,
        };

        write_records(args, &world)?;
        // No output is expected of a random run: it is judged only by whether a rule is broken.
        let status = if join(&world, Mode::Own).violations.is_empty() {
            Status::AsExpected
        } else {
            Status::Difference.known()
        };

        out.write_all(text.as_bytes())?;
        out.flush()?;
        if text.len() > SCENARIO_BYTES_MAX {
            // With a scenario, their number is that of its own actions.
            let shorter = match file {
                Some(_) => "a shorter scenario",
                None => "fewer --events",
            };
            tell!(
                "this has {} bytes and cannot be read as a scenario, which has at most \
                 {SCENARIO_BYTES_MAX}: with {shorter} it can",
                text.len()
            );
        }
        return Ok(status);
    }

    let Some(file) = &file else {
        bail!("no scenario given");
    };
    let path = file.path();

    let outcome = if args.bless {
        run::run_and_bless(file)?
    } else {
        run::run(file, args.cpus, args.lbr_storage)?
    };
    write_records(args, &outcome.world)?;

    // A scenario without an expectation shows what happens, and judges nothing.
    let is_same = outcome.output == outcome.expected;
    let status = if args.bless || is_same && !outcome.expected.is_empty() {
        Status::AsExpected
    } else if outcome.expected.is_empty() {
        Status::NothingJudged
    } else {
        Status::Difference.known()
    };

    out.write_all(outcome.output.as_bytes())?;
    out.flush()?;

    if args.bless && !is_same {
        tell!("{} changed", path.printable());
    }

    if status == Status::Difference {
        let lines = outcome.output.lines().zip(outcome.expected.lines());
        // If one of them is the start of the other, this is the first line that only one has.
        let line = 1 + lines.take_while(|(is, was)| is == was).count();
        tell!(
            "the output differs from the one expected in {}, from line {line} on",
            path.printable()
        );
    }

    Ok(status)
}

/// Writes the records to the file of `--output`.
fn write_records(args: &Args, world: &World) -> Result<()> {
    if let Some(path) = &args.output {
        let bytes = perf_data(world)?;
        output::write_file(path, &bytes)?;
    }
    Ok(())
}

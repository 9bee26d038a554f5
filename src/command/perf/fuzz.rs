//! `perf fuzz`: runs random schedules of the sampling model.

use crate::command::again::{FUZZ, Given};
use crate::command::output::{self, tell};
use crate::command::status::Status;
use crate::command::suggest::not_one_of;
use crate::perf::fuzz::{self, Plan};
use anyhow::Result;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Instant;
use unwind_sim_perf_model::Mutant;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::printable::PrintableName as _;

/// Run random schedules of the sampling model against its oracle.
///
/// Stops at the first seed that breaks a rule, with exit status 1. With --mutant a defect is put
/// into the model; then it is a failure not to find it.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  unwind-sim perf fuzz --seeds 0..10000
  unwind-sim perf fuzz --seeds 0..10000 --mutant shared-buffer --shrink found")]
pub(crate) struct Args {
    /// The seeds, end excluded.
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    seeds: Range<u64>,
    /// The number of events in each schedule.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    events: u32,
    /// A defect put into the model: shared-buffer, period-twice, lost-untold, stale-cache,
    /// cookie-reused, half-replaced-handler, skip-less, wipe-at-switch, use-after-free,
    /// double-free, leak-at-exit, swap-without-data, skip-without-log-id; or linux, for branch
    /// records as Linux 7.2 keeps them.
    #[arg(long, value_name = "NAME", value_parser = mutant)]
    mutant: Option<Mutant>,
    /// Shrink a schedule that fails, and write it to this folder as a scenario.
    #[arg(long, value_name = "DIR")]
    shrink: Option<PathBuf>,
    /// The number of threads; 0 means one for each processor.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = super::super::args::threads)]
    threads: usize,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parts = text.split_once("..");
    let range = parts.and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.ok_or_else(|| "not of the form A..B".to_owned())
}

fn mutant(name: &str) -> Result<Mutant, String> {
    Mutant::from_name(name).ok_or_else(|| {
        let all: Vec<_> = Mutant::ALL.iter().map(|mutant| mutant.as_str()).collect();
        not_one_of(name, &all)
    })
}

pub(crate) fn run(args: &Args, given: &Given<'_>) -> Result<Status> {
    let plan = Plan {
        seeds: args.seeds.clone(),
        events: args.events as usize,
        mutant: args.mutant,
        threads: args.threads,
    };

    let start = Instant::now();
    // With the lowest seed that fails, whatever the number of threads: the printed command gives
    // the same.
    let (failure, schedules) = fuzz::fuzz(&plan);
    let seconds = start.elapsed().as_secs_f64();
    // Of a shorter run, the rate would say nothing.
    if seconds >= 1.0 {
        let per_second = schedules as f64 / seconds;
        tell!(
            "{} in {seconds:.1} s, {per_second:.0} per second",
            counted(schedules, "schedule")
        );
    }

    let mut out = output::plain_stdout();
    let Some(failure) = failure else {
        // Not to find the defect of a mutant is a failure.
        let status = match (schedules, plan.mutant) {
            (0, _) => Status::NothingJudged,
            (_, Some(_)) => Status::Difference.known(),
            (_, None) => Status::AsExpected,
        };

        writeln!(
            out,
            "{} of {} events: no rule broken",
            counted(schedules, "schedule"),
            plan.events
        )?;
        out.flush()?;
        return Ok(status);
    };

    // A mutant has a known defect, so here it is right to find one.
    let status = match plan.mutant {
        Some(_) => Status::AsExpected,
        None => Status::Difference.known(),
    };
    // The first rule that was broken: later ones may follow from it.
    let violation = &failure.violation;
    writeln!(
        out,
        "seed {}: {}, at {}: {}",
        failure.seed,
        violation.rule.as_str(),
        violation.time,
        violation.what
    )?;

    let seed = failure.seed;
    // Each schedule is made from its seed alone, so one seed repeats the failure.
    let seeds = format!("{seed}..{}", seed.saturating_add(1));
    let again = given.command(&FUZZ, &["--seeds".into(), seeds.into()], &[]);
    writeln!(out, "{again}")?;

    if let Some(folder) = &args.shrink {
        let (path, actions) = fuzz::shrink(&plan, &failure, folder)?;
        let s = unwind_sim_view::text::plural(actions as u64);
        writeln!(out, "{}: {actions} action{s}", path.printable())?;
    }

    out.flush()?;
    Ok(status)
}

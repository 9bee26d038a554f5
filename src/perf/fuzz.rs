//! `perf fuzz`: runs random schedules of the model, judged by its oracle, and shrinks failures.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use unwind_sim_perf_model::{Mutant, Schedule, Violation, bless, output};
use unwind_sim_recordings::output_file;

/// The schedules to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Number of actions in a schedule.
    pub events: usize,
    /// A defect to inject into the model.
    pub mutant: Option<Mutant>,
    /// Number of threads; 0 for as many as there are processors.
    pub threads: usize,
}

/// A schedule that broke a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The schedule's seed.
    pub seed: u64,
    /// The first broken rule.
    pub violation: Violation,
}

/// Returns the failure with the lowest seed, and the minimum number of schedules run: all up to
/// that seed.
///
/// The result does not depend on the number of threads.
pub fn fuzz(plan: &Plan) -> (Option<Failure>, u64) {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if plan.threads == 0 {
        processors()
    } else {
        plan.threads
    };

    // Seeds are handed out one by one, since schedules differ in length.
    let next = AtomicU64::new(plan.seeds.start);
    let lowest = AtomicU64::new(plan.seeds.end);

    let work = || {
        let mut found: Option<Failure> = None;
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            // A failure of a higher seed cannot be the lowest any more.
            if seed >= lowest.load(Ordering::Relaxed) {
                return found;
            }

            let (_, violations) = Schedule::random_judged(seed, plan.events, plan.mutant);
            if let Some(violation) = violations.into_iter().next() {
                lowest.fetch_min(seed, Ordering::Relaxed);
                // Each thread's seeds ascend, so its first failure has its lowest seed.
                found.get_or_insert(Failure { seed, violation });
            }
        }
    };

    let all: Vec<Option<Failure>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // A worker that panicked has printed its message; the others' results remain valid.
        handles
            .into_iter()
            .filter_map(|handle| handle.join().ok())
            .collect()
    });

    // Which thread found it does not matter: all lower seeds were handed out before it.
    let first = all.into_iter().flatten().min_by_key(|failure| failure.seed);
    let end = first
        .as_ref()
        .map_or(plan.seeds.end, |failure| failure.seed + 1);

    (first, end.saturating_sub(plan.seeds.start))
}

/// Shrinks a failing schedule and writes it as a scenario; returns its path and the number of
/// actions left.
///
/// # Errors
/// If the file cannot be written.
pub fn shrink(plan: &Plan, failure: &Failure, folder: &Path) -> std::io::Result<(PathBuf, usize)> {
    let small = Schedule::random(failure.seed, plan.events, plan.mutant).shrink();
    let rule = failure.violation.rule.as_str();
    let about = format!("# Seed {}: breaks {rule}.\n{}", failure.seed, small.text());
    let text = match small.world() {
        Ok(mut world) => {
            small.run(&mut world);
            bless(&about, &output(&world))
        }
        Err(_) => about,
    };
    std::fs::create_dir_all(folder)?;
    let name = plan.mutant.map_or("model", Mutant::as_str);
    let path = folder.join(format!("{name}-{}.txt", failure.seed));
    output_file::write(&path, text.as_bytes())?;
    Ok((path, small.actions.len()))
}

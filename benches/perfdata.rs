//! From perf.data to addresses, in ns per stack: compares linux-perf-data + framehop with ours,
//! after checking that both give the same chains.
//!
//! `cargo bench --bench perfdata` records its own inputs (about 1 GB in the temporary directory,
//! removed at the end) with `perf record`; `UNWIND_SIM_BENCH_DATA=DIR` uses existing recordings.
//! `--test` only checks. The table at the end has the goals.
mod common;
mod ours;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::framehop_peer::Cache;
use common::perfdata_peer;
use common::programs::Scratch;
use common::recording::{self, RECIPES, RecordingSpec};
use common::report;
use common::timing::{Clock, Measured, Timing, cpu_time, duel};
use criterion::{Criterion, Throughput};

const PEER_FILE: &str = "framehop, file";
const PEER_UNWIND: &str = "framehop, unwind only";
const OURS: &str = "ours, file";
/// How many times as fast as the peer, from file to addresses.
const GOAL_TIMES: f64 = 4.0;
/// The time on two threads, relative to two processes side by side with one thread each.
const GOAL_TWO_THREADS: f64 = 1.0 / 0.9;
/// Maximum share of chains that may differ: framehop 0.16 keeps no register but rsp and rbp, so that
/// it loses `_dl_runtime_resolve` (its CFA is on rbx) and `__vfork` (its return address is in rdi);
/// it ends at signal frames; and it goes on by the bytes where there is no FDE
/// (`__do_global_dtors_aux`).
const DIFFERENT_MAX: f64 = 0.01;

/// How often each chain occurs, by hash.
#[derive(Default)]
struct Chains {
    count_by_hash: HashMap<u64, i64>,
    stacks: u64,
    frames: u64,
}

impl Chains {
    fn add(&mut self, chain: &[u64]) {
        let mut hasher = DefaultHasher::new();
        chain.hash(&mut hasher);
        *self.count_by_hash.entry(hasher.finish()).or_default() += 1;
        self.stacks += 1;
        self.frames += chain.len() as u64;
    }

    /// The number of chains of `self` that `other` does not have.
    fn missing_in(&self, other: &Chains) -> u64 {
        let missing = self.count_by_hash.iter().map(|(hash, count)| {
            let there = other.count_by_hash.get(hash).copied().unwrap_or(0);
            (count - there).max(0) as u64
        });
        missing.sum()
    }
}

/// Unwinds the file with both sides, which must agree; returns the peer's number of stacks.
fn check(title: &str, path: &Path) -> Result<u64, String> {
    let mut theirs = Chains::default();

    // The peer first: its chains are the reference.
    perfdata_peer::replay(path, &mut |chain| theirs.add(chain))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    let frames = theirs.frames as f64 / theirs.stacks.max(1) as f64;
    print!(
        "{title:<14} {} stacks, {frames:.1} frames each",
        theirs.stacks
    );

    let mut mine = Chains::default();
    if ours::replay(path, &mut |chain| mine.add(chain)).is_some() {
        let (missing, stacks) = (theirs.missing_in(&mine), theirs.stacks);
        print!("; ours agree but for {missing}");
        assert_eq!(
            mine.stacks, stacks,
            "{title}: the two sides found different samples"
        );

        // A few chains may differ, but not more than this share.
        assert!(
            missing as f64 <= stacks as f64 * DIFFERENT_MAX,
            "{title}: {missing} of {stacks} chains differ from framehop's"
        );
    }

    println!();
    Ok(theirs.stacks)
}

/// The rivals for one file.
fn rivals(path: &Path) -> Result<Vec<Measured<'_>>, String> {
    let loaded = perfdata_peer::load(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (mut cache, mut chain) = (Cache::new(), Vec::new());

    // Once before, to fill the cache and to count its hits.
    loaded.unwind(&mut cache, &mut chain);
    let stats = cache.stats();
    let hit_percent = stats.hits() as f64 * 100.0 / stats.total().max(1) as f64;
    println!("{:<14} framehop's cache hits: {hit_percent:.1} %", "");

    let mut rivals = vec![
        Measured::new(PEER_UNWIND, move || loaded.unwind(&mut cache, &mut chain).0),
        Measured::new(PEER_FILE, move || {
            let mut frames = 0;
            let stacks = perfdata_peer::replay(path, &mut |chain| frames += chain.len());
            std::hint::black_box(frames);
            stacks.unwrap_or(0)
        }),
    ];

    // Only if our side can read this file at all.
    if ours::replay(path, &mut |_| ()).is_some() {
        rivals.push(Measured::new(OURS, move || {
            let mut frames = 0;
            let stacks = ours::replay(path, &mut |chain| frames += chain.len());
            std::hint::black_box(frames);
            stacks.unwrap_or(0)
        }));
    }

    Ok(rivals)
}

/// Prints the figures in full, and returns the lines of the table.
fn conclude(title: &str, figures: &[Timing]) -> Vec<Comparison> {
    report::print(title, "stack", figures, figures.first());
    let Some(ours) = report::find(figures, OURS) else {
        return Vec::new();
    };
    let peers = [(PEER_FILE, Some(1.0 / GOAL_TIMES)), (PEER_UNWIND, None)];
    let lines = peers.into_iter().filter_map(|(name, goal)| {
        let peer = report::find(figures, name)?.clone();
        Some((title.to_owned(), ours.clone(), peer, goal))
    });
    lines.collect()
}

/// Work, ours, peer, and the highest ratio wanted.
type Comparison = (String, Timing, Timing, Option<f64>);

/// The argument with which this program only replays a file on one thread, so often: a program to
/// profile.
const ALONE: &str = "--replay-alone";

/// Two processes side by side, each replaying the whole file on one thread. Returns the number of
/// stacks of both.
fn two_processes(path: &Path, stacks: u64) -> u64 {
    let this = std::env::current_exe().expect("our own path");
    let start = || Command::new(&this).arg(ALONE).arg(path).spawn();
    for mut child in [start(), start()].map(|child| child.expect("a process")) {
        assert!(child.wait().is_ok_and(|status| status.success()));
    }
    2 * stacks
}

/// Compares two threads with one, and with two processes side by side, by wall time.
fn two_threads(title: &str, path: &Path, stacks: u64, rounds: usize) -> Vec<Comparison> {
    let on = |threads| move || ours::replay_on(path, threads).unwrap_or(0);
    let mut rivals = [
        Measured::new("2 processes", || two_processes(path, stacks)),
        Measured::new("ours, 1 thread", on(1)),
        Measured::new("ours, 2 threads", on(2)),
    ];
    let figures = duel(Clock::Wall, rounds, &mut rivals);
    report::print(title, "stack", &figures, figures.first());
    let title = format!("{title}, 2 threads, wall");
    let line = |peer: usize, goal| {
        (
            title.clone(),
            figures[2].clone(),
            figures[peer].clone(),
            goal,
        )
    };
    vec![line(0, Some(GOAL_TWO_THREADS)), line(1, None)]
}

fn measure(
    c: &mut Criterion,
    test: bool,
    recipe: &RecordingSpec,
    path: &Path,
) -> Result<Vec<Comparison>, String> {
    let title = recipe.name;
    let stacks = check(title, path)?;
    if test {
        return Ok(Vec::new());
    }

    let mut rivals = rivals(path)?;
    let mut group = c.benchmark_group(title);
    group.throughput(Throughput::Elements(stacks));

    // Criterion's many samples would take too long on a big file.
    for rival in rivals.iter_mut().filter(|_| !recipe.big) {
        group.bench_function(rival.name.as_str(), |b| {
            b.iter_custom(|calls| {
                cpu_time(|| {
                    std::hint::black_box((0..calls).map(|_| (rival.run)()).sum::<u64>());
                })
            });
        });
    }
    group.finish();

    // A big file takes long, so it gets fewer rounds.
    let rounds = if recipe.big { 5 } else { 21 };
    let mut lines = conclude(title, &duel(Clock::ThreadCpu, rounds, &mut rivals));

    // Two threads are measured only there.
    if recipe.big {
        report::note_load();
        lines.extend(two_threads(title, path, stacks, rounds));
    }
    Ok(lines)
}

fn main() {
    let mut arguments = std::env::args_os().skip(1);

    // The bench runs itself with this argument, to measure a whole process.
    if arguments.next().is_some_and(|first| first == ALONE) {
        let path = arguments.next().expect("a file");

        let times = arguments
            .next()
            .and_then(|times| times.to_str()?.parse().ok());
        // On one thread: two such processes are compared with one that has two threads.
        for _ in 0..times.unwrap_or(1) {
            ours::replay_on(path.as_ref(), 1).expect("a recording");
        }
        return;
    }

    let test = std::env::args().any(|a| a == "--test");
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();

    let scratch = Scratch::new();
    let mut lines = Vec::new();

    // A test leaves out the big recordings.
    for recipe in RECIPES.iter().filter(|r| !(test && r.big)) {
        let measured = recording::obtain(&scratch, recipe)
            .and_then(|path| measure(&mut criterion, test, recipe, &path));
        match measured {
            Ok(more) => lines.extend(more),
            Err(reason) => println!("skipped: {}: {reason}", recipe.name),
        }
    }

    criterion.final_summary();

    // A test has no figures.
    if !test {
        report::head();
    }
    for (work, ours, peer, goal) in &lines {
        report::row(work, "stack", ours, peer, *goal);
    }
    report::finish();
}

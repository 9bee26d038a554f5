//! From perf.data to addresses, in ns per stack: compares linux-perf-data + framehop with ours,
//! after checking that both give the same chains.
//!
//! `cargo bench --bench perfdata` records its own inputs (about 1 GB in the temporary directory,
//! removed at the end) with `perf record`; `UNWIND_SIM_BENCH_DATA=DIR` uses existing recordings.
//! `--test` only checks.
mod common;
mod ours;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use common::framehop_peer::Cache;
use common::perfdata_peer;
use common::programs::Scratch;
use common::recording::{self, RECIPES, Recipe};
use common::report;
use common::timing::{Clock, Figure, Rival, cpu_time, duel};
use criterion::{Criterion, Throughput};

const PEER_FILE: &str = "framehop, file";
const PEER_UNWIND: &str = "framehop, unwind only";
const OURS: &str = "ours, file";
/// Stacks per second on the machine where the goals were set, unwinding only: a big file and a
/// small one.
const KNOWN_BIG_PER_S: f64 = 1.04e6;
const KNOWN_SMALL_PER_S: f64 = 3.8e6;
const GOAL_BIG_TIMES: f64 = 1.3;
const GOAL_SMALL_TIMES: f64 = 2.0;
const GOAL_TWO_THREADS_TIMES: f64 = 1.7;
/// Maximum share of chains that may differ: framehop is known to be wrong with a CFA on a scratch
/// register.
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
        assert!(
            missing as f64 <= stacks as f64 * DIFFERENT_MAX,
            "{title}: {missing} of {stacks} chains differ from framehop's"
        );
    }
    println!();
    Ok(theirs.stacks)
}

/// The rivals for one file.
fn rivals(path: &Path) -> Result<Vec<Rival<'_>>, String> {
    let loaded = perfdata_peer::load(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (mut cache, mut chain) = (Cache::new(), Vec::new());
    loaded.unwind(&mut cache, &mut chain);
    let stats = cache.stats();
    let hit_percent = stats.hits() as f64 * 100.0 / stats.total().max(1) as f64;
    println!("{:<14} framehop's cache hits: {hit_percent:.1} %", "");
    let mut rivals = vec![
        Rival::new(PEER_UNWIND, move || loaded.unwind(&mut cache, &mut chain).0),
        Rival::new(PEER_FILE, move || {
            let mut frames = 0;
            let stacks = perfdata_peer::replay(path, &mut |chain| frames += chain.len());
            std::hint::black_box(frames);
            stacks.unwrap_or(0)
        }),
    ];
    if ours::replay(path, &mut |_| ()).is_some() {
        rivals.push(Rival::new(OURS, move || {
            let mut frames = 0;
            let stacks = ours::replay(path, &mut |chain| frames += chain.len());
            std::hint::black_box(frames);
            stacks.unwrap_or(0)
        }));
    }
    Ok(rivals)
}

/// Prints figures, ratios, and the peer's speed relative to the machine where the goals were set.
fn conclude(title: &str, recipe: &Recipe, figures: &[Figure]) {
    report::print(title, "stack", figures, figures.first());
    let per_s = |f: &Figure| 1e9 / f.median_ns();
    for f in figures {
        println!(
            "{title:<14} {:<26} {:>10.2} M stacks/s",
            f.name,
            per_s(f) / 1e6
        );
    }
    let times = if recipe.big {
        GOAL_BIG_TIMES
    } else {
        GOAL_SMALL_TIMES
    };
    if let Some(ours) = report::find(figures, OURS) {
        for peer in [PEER_FILE, PEER_UNWIND]
            .iter()
            .filter_map(|p| report::find(figures, p))
        {
            report::ratio(title, ours, peer, Some(1.0 / times));
        }
    }
    if recipe.name.starts_with("recurse")
        && let Some(peer) = report::find(figures, PEER_UNWIND)
    {
        let known = if recipe.big {
            KNOWN_BIG_PER_S
        } else {
            KNOWN_SMALL_PER_S
        };
        println!(
            "{title:<14} {PEER_UNWIND}: {:.2} times its speed where the goals were set",
            per_s(peer) / known
        );
    }
}

/// Compares one thread with two, by wall time.
fn two_threads(title: &str, path: &Path, rounds: usize) {
    if ours::replay_on(path, 2).is_none() {
        return;
    }
    let on = |threads| move || ours::replay_on(path, threads).unwrap_or(0);
    let mut rivals = [
        Rival::new("ours, 1 thread", on(1)),
        Rival::new("ours, 2 threads", on(2)),
    ];
    let figures = duel(Clock::Wall, rounds, &mut rivals);
    report::print(title, "stack", &figures, figures.first());
    report::ratio(
        title,
        &figures[1],
        &figures[0],
        Some(1.0 / GOAL_TWO_THREADS_TIMES),
    );
}

fn measure(c: &mut Criterion, test: bool, recipe: &Recipe, path: &Path) -> Result<(), String> {
    let title = recipe.name;
    let stacks = check(title, path)?;
    if test {
        return Ok(());
    }
    let mut rivals = rivals(path)?;
    let mut group = c.benchmark_group(title);
    group.throughput(Throughput::Elements(stacks));
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
    let rounds = if recipe.big { 5 } else { 21 };
    conclude(title, recipe, &duel(Clock::ThreadCpu, rounds, &mut rivals));
    if recipe.big {
        report::note_load();
        two_threads(title, path, rounds);
    }
    Ok(())
}

fn main() {
    let test = std::env::args().any(|a| a == "--test");
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .configure_from_args();
    let scratch = Scratch::new();
    for recipe in RECIPES.iter().filter(|r| !(test && r.big)) {
        let measured = recording::obtain(&scratch, recipe)
            .and_then(|path| measure(&mut criterion, test, recipe, &path));
        if let Err(reason) = measured {
            println!("skipped: {}: {reason}", recipe.name);
        }
    }
    criterion.final_summary();
}

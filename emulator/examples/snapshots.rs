//! Measures the cost of snapshots: a program runs with a snapshot every few hundred instructions,
//! in slices of the same length without snapshots, and in one piece; also the cost of a copy of the
//! process. All runs must print the same.
//!
//! `cargo run --release -p unwind-sim-emulator --example snapshots -- /usr/bin/lua5.4 loop.lua`

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use unwind_sim_emulator::linux::{Kernel, Outcome, ProcessOptions};

/// Instructions between snapshots.
const INTERVAL: u64 = 300;
/// Number of snapshots held.
const HELD: usize = 10_000;
/// Runs of each kind, alternating.
const ROUNDS: usize = 5;
/// Maximum number of instructions executed.
const INSTRUCTIONS_MAX: u64 = 60_000_000;
/// Instructions between copies.
const COPY_INTERVAL: u64 = 1_000_000;

/// Size of a snapshot in the last run, bytes.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// A way to run a process to its end, or to [`INSTRUCTIONS_MAX`].
struct RunStrategy {
    name: &'static str,
    run: fn(&mut Kernel),
    best: Duration,
}

fn in_slices(process: &mut Kernel, interval: u64, mut between: impl FnMut(&mut Kernel)) {
    while process.executed() < INSTRUCTIONS_MAX {
        between(process);
        if process.run(interval, &mut ()) != Outcome::Limit {
            return;
        }
    }
}

fn with_snapshots(process: &mut Kernel) {
    let mut held = VecDeque::with_capacity(HELD);
    in_slices(process, INTERVAL, |process| {
        if held.len() == HELD {
            // Only the newest are kept, so that memory does not grow with the run.
            held.pop_front();
        }
        held.push_back(process.snapshot());
    });
    // Back to the oldest snapshot, and forward to this point again.
    let executed = process.executed();
    let bytes = process.machine.core.memory.history_bytes();
    BYTES.store(bytes / held.len().max(1), Ordering::Relaxed);
    if let Some(first) = held.front() {
        process.restore(first).expect("there is a way back");
        process.run(executed - process.executed(), &mut ());
    }
}

fn main() {
    let args: Vec<Vec<u8>> = std::env::args().skip(1).map(String::into_bytes).collect();
    let Some(program) = args.first().cloned() else {
        eprintln!("usage: snapshots PROGRAM [ARGUMENT]...");
        std::process::exit(2);
    };

    // Each run starts a new process: one that has run cannot run again.
    let start = || {
        let options = ProcessOptions {
            args: args.clone(),
            ..ProcessOptions::default()
        };
        Kernel::start(&program, options).unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(1);
        })
    };

    let way = |name, run| RunStrategy {
        name,
        run,
        best: Duration::MAX,
    };

    // Slices show what interrupting alone costs.
    let mut ways = [
        way("in one piece", |p| drop(p.run(INSTRUCTIONS_MAX, &mut ()))),
        way("in slices", |p| in_slices(p, INTERVAL, |_| {})),
        way("with snapshots", with_snapshots),
        way("with copies", |p| {
            in_slices(p, COPY_INTERVAL, |p| drop(black_box(p.clone())));
        }),
    ];

    let mut expected = None;
    let mut executed = 0;

    // In turn, so that a change of the machine's speed meets all.
    for _ in 0..ROUNDS {
        for way in &mut ways {
            let mut process = start();
            let begin = Instant::now();
            (way.run)(&mut process);
            way.best = way.best.min(begin.elapsed());
            executed = process.executed();

            // All of them must have executed the same, or their times say nothing.
            let seen = (
                executed,
                process.machine.core.state.rip,
                process.stdout().to_vec(),
            );
            assert_eq!(expected.get_or_insert(seen.clone()), &seen, "{}", way.name);
        }
    }

    println!("{executed} instructions");
    let whole = ways[0].best;
    for way in &ways {
        let ratio = way.best.as_secs_f64() / whole.as_secs_f64();
        println!("{:<16}{:>9.1?} {ratio:6.2}x", way.name, way.best);
    }

    // The difference of two runs, divided by the number of snapshots or copies.
    let each = |way: usize, without: usize, interval: u64| {
        let more = ways[way].best.saturating_sub(ways[without].best);
        more.as_secs_f64() * 1e9 / (executed / interval).max(1) as f64
    };
    let (snapshot, copy) = (each(2, 1, INTERVAL), each(3, 0, COPY_INTERVAL));
    println!("a snapshot, its pages, and a way back: {snapshot:.0} ns");
    let bytes = BYTES.load(Ordering::Relaxed);

    println!("it keeps {bytes} bytes of memory");
    println!(
        "a copy of the process: {copy:.0} ns, {:.0}x",
        copy / snapshot
    );
}

//! Runs many command lines, drawn from seeds, in this process:
//!
//! ```text
//! cargo run --release -p unwind-sim-fuzz --example command_lines -- --runs 100000 --seed 0
//! ```
//!
//! It prints each run that fails, with its seed, which repeats it; `--keep` leaves the folder of the last
//! run, `--show` prints what each command says, and `--save` keeps the input of each run that failed, for
//! `corpus/command_line`. A run that takes minutes ends the process; what ran
//! then is in the file that is named at the start.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unwind_sim_fuzz::command_line::Runs;

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// Runs whose time is shown at the end.
const SLOWEST: usize = 10;

fn option(name: &str) -> Option<u64> {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == name)?;
    words.get(at + 1)?.parse().ok()
}

fn has(name: &str) -> bool {
    std::env::args().any(|word| word == name)
}

/// Ends the process if `run` stays the same for too long.
fn watch(run: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let (mut seen, mut since) = (u64::MAX, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = run.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() > PATIENCE {
                std::process::abort();
            }
        }
    });
}

fn main() -> io::Result<()> {
    let (runs_wanted, first) = (
        option("--runs").unwrap_or(1000),
        option("--seed").unwrap_or(0),
    );

    // Written before each run, because a run that does not end leaves no other trace.
    let path = std::env::temp_dir().join(format!("unwind-sim-command-lines-{first}"));
    let mut last = File::create(&path)?;
    println!(
        "seeds {first}..{}; the last run is in {}",
        first + runs_wanted,
        path.display()
    );

    let mut runs = Runs::new()?;
    let current = Arc::new(AtomicU64::new(first));

    // The watcher ends the whole process: a thread that runs a command cannot be stopped.
    watch(Arc::clone(&current));

    let mut slowest: Vec<(Duration, u64)> = Vec::new();
    let mut failed = 0;
    for seed in first..first + runs_wanted {
        current.store(seed, Ordering::Relaxed);
        let start = Instant::now();
        let data = runs.of_seed(seed);

        // The file must be emptied first: the line before it may be longer.
        let done = runs.run(&data, |line| {
            let _ = last.set_len(0).and_then(|()| last.rewind());
            let _ = writeln!(last, "seed {seed}: {line}");
        });

        if has("--show") {
            println!("seed {seed}: {}", runs.errors());
        }
        if let Err(failure) = done {
            failed += 1;
            println!("seed {seed} failed: {failure}");

            // The bytes, not the seed: a seed draws something else once an option is added.
            if has("--save") {
                let path = std::env::temp_dir().join(format!("command-line-{seed}"));
                std::fs::write(&path, &data)?;
                println!("  saved as {}", path.display());
            }
        }

        // Kept sorted and short, so that a run of hours needs no more memory than one of minutes.
        slowest.push((start.elapsed(), seed));
        slowest.sort();
        slowest.reverse();
        slowest.truncate(SLOWEST);
    }

    println!("{runs_wanted} runs, {failed} failed");
    for (status, count) in runs.statuses() {
        println!("status {status}: {count}");
    }
    let missing = runs.missing();
    println!(
        "{} of {} arguments drawn",
        runs.pairs() - missing.len(),
        runs.pairs()
    );

    // Every argument should be drawn in a long run; one that never is may not be reachable.
    missing
        .iter()
        .for_each(|name| println!("not drawn: {name}"));
    for (time, seed) in slowest {
        println!("seed {seed}: {time:.1?}");
    }

    // Last, because it consumes the runs.
    if has("--keep") {
        println!("{}", runs.keep().display());
    }
    Ok(())
}

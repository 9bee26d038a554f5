//! CPU time, and runs that take turns. Not here: what is run.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Number of rounds. Every run takes one turn in each round.
const ROUNDS: usize = 5;

/// CPU time of this thread.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock of the thread");
    Duration::from(time)
}

/// CPU time of all children that have ended.
pub fn children_time() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("usage of children");
    let time = usage.user_time() + usage.system_time();
    Duration::from_micros(time.num_microseconds().unsigned_abs())
}

/// One run of a program: returns its CPU time without the start-up.
pub type Run<'a> = Box<dyn FnMut() -> Duration + 'a>;

/// The best time of each run, after all have taken turns. Other work on the machine can only slow a
/// run down.
pub fn interleaved<const N: usize>(mut runs: [Run<'_>; N]) -> [Duration; N] {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (run, best) in runs.iter_mut().zip(&mut best) {
            *best = run().min(*best);
        }
    }
    best
}

/// The geometric mean.
pub fn mean(ratios: &[f64]) -> f64 {
    ratios
        .iter()
        .product::<f64>()
        .powf(1.0 / ratios.len() as f64)
}

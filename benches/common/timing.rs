//! Fair timing on a busy machine: CPU time of this thread, with the rivals taking turns, so that
//! other work slows all of them.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};

/// CPU time this thread has used.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("thread CPU clock")
        .into()
}

/// CPU time of `work` on this thread.
pub(crate) fn cpu_time(work: impl FnOnce()) -> Duration {
    let start = now();
    work();
    now() - start
}

/// User and system time of all children so far.
pub(crate) fn children_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage of children");
    let of = |t: nix::sys::time::TimeVal| {
        Duration::from_micros((t.tv_sec() * 1_000_000 + t.tv_usec()).unsigned_abs())
    };
    of(usage.user_time()) + of(usage.system_time())
}

/// One thing to measure.
pub(crate) struct Measured<'a> {
    pub(crate) name: String,
    /// Does the work of one round and returns the number of units (frames, stacks, rows).
    pub(crate) run: Box<dyn FnMut() -> u64 + 'a>,
}

impl<'a> Measured<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() -> u64 + 'a) -> Self {
        Measured {
            name: name.into(),
            run: Box::new(run),
        }
    }
}

/// The time of a rival per unit in ns, in each round.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub(crate) name: String,
    rounds_ns: Vec<f64>,
}

impl Timing {
    pub(crate) fn new(name: &str, rounds_ns: Vec<f64>) -> Timing {
        Timing {
            name: name.to_owned(),
            rounds_ns,
        }
    }

    pub(crate) fn min_ns(&self) -> f64 {
        self.rounds_ns.iter().copied().fold(f64::INFINITY, f64::min)
    }

    pub(crate) fn median_ns(&self) -> f64 {
        median(self.rounds_ns.clone())
    }

    /// The median of the ratios to `peer` in the same round, since slow rounds affect both.
    pub(crate) fn ratio_to(&self, peer: &Timing) -> f64 {
        median(
            self.rounds_ns
                .iter()
                .zip(&peer.rounds_ns)
                .map(|(a, b)| a / b)
                .collect(),
        )
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time to measure: the CPU time of this thread, or wall time if several threads work.
#[derive(Clone, Copy)]
pub(crate) enum Clock {
    ThreadCpu,
    Wall,
}

impl Clock {
    fn time(self, work: impl FnOnce()) -> Duration {
        match self {
            Clock::ThreadCpu => cpu_time(work),
            Clock::Wall => {
                let start = std::time::Instant::now();
                work();
                start.elapsed()
            }
        }
    }
}

/// The calls of a rival in a round.
struct Batch {
    calls: u32,
    /// Makes one more call, untimed, so that the rival finds its own data in the caches instead of
    /// the others'. A call over a big file leaves nothing in a cache anyway.
    warm_up: bool,
}

/// Chooses enough calls for about 2 ms, but at least one.
fn batch(run: &mut dyn FnMut() -> u64) -> Batch {
    const BATCH: Duration = Duration::from_millis(2);
    const WARM_UP_MAX: Duration = Duration::from_millis(50);
    const CALLS_MAX: u32 = 1 << 16;
    let mut calls = 1;
    loop {
        let spent = cpu_time(|| {
            std::hint::black_box((0..calls).map(|_| run()).sum::<u64>());
        });
        if spent >= BATCH || calls >= CALLS_MAX {
            return Batch {
                calls,
                warm_up: spent < WARM_UP_MAX,
            };
        }
        calls *= 2;
    }
}

/// Runs the rivals in turn, `rounds` times, and returns the times of each per unit.
pub(crate) fn duel(clock: Clock, rounds: usize, rivals: &mut [Measured<'_>]) -> Vec<Timing> {
    let batches: Vec<Batch> = rivals.iter_mut().map(|r| batch(&mut r.run)).collect();
    let mut times = vec![Vec::with_capacity(rounds); rivals.len()];
    for _ in 0..rounds {
        for ((rival, batch), times) in rivals.iter_mut().zip(&batches).zip(&mut times) {
            if batch.warm_up {
                std::hint::black_box((rival.run)());
            }
            let mut units = 0;
            let spent = clock.time(|| (0..batch.calls).for_each(|_| units += (rival.run)()));
            times.push(spent.as_nanos() as f64 / units.max(1) as f64);
        }
    }
    rivals
        .iter()
        .zip(times)
        .map(|(rival, times)| Timing::new(&rival.name, times))
        .collect()
}

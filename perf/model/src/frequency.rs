//! Frequency mode (`attr.freq`): the period is adjusted so that samples come at a rate
//! (`perf_adjust_period`, `perf_calculate_period`, `kernel/events/core.c`, Linux 7.2).
//!
//! Hardware counters only: a timer's period is fixed from the start. Here: how a period follows
//! from what was counted, and when. Not here: what a sample says of it (`overflow`).

use super::log::Fact;
use super::setup::PMU_PERIOD_MIN;
use super::world::{TICK_NS, World};

/// A counter is not loaded with more: it has 48 bits, of which one is its sign.
const PERIOD_MAX: u64 = 1 << 47;
/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// How a counter is adjusted (fields of `struct hw_perf_event`).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    /// What the counter was loaded with (`last_period`): what its next sample stands for.
    loaded: u64,
    /// What it is loaded with next (`sample_period`).
    period: u64,
    /// Events so far (`event->count`).
    count: u64,
    /// The same at the last tick (`freq_count_stamp`).
    count_stamp: u64,
    /// When the last overflow was (`freq_time_stamp`).
    time_stamp: u64,
}

impl Rate {
    /// Of a counter that is loaded with this period.
    pub(super) fn new(period: u64) -> Self {
        Self {
            loaded: period,
            period,
            ..Self::default()
        }
    }

    /// Events were counted.
    pub(super) const fn counted(&mut self, events: u64) {
        self.count += events;
    }
}

/// The period with which `count` events in `ns` nanoseconds would make `frequency` samples a
/// second. The kernel loses bits where a product has more than 64; this does not.
fn target(frequency: u64, ns: u64, count: u64) -> u64 {
    let dividend = u128::from(count) * SECOND_NS;
    let divisor = u128::from(ns) * u128::from(frequency);
    let period = dividend.checked_div(divisor).unwrap_or(dividend);
    u64::try_from(period).unwrap_or(u64::MAX >> 1)
}

/// The period after `period`, an eighth of the way to `target`, and a whole step at least. What a
/// hardware counter cannot be loaded with is not taken ([`PMU_PERIOD_MIN`]).
fn towards(period: u64, target: u64) -> u64 {
    let delta = i128::from(target) - i128::from(period);
    let delta = (delta + if delta >= 0 { 7 } else { -7 }) / 8;
    let next = i128::from(period) + delta;
    let longest = i128::from(PERIOD_MAX);
    u64::try_from(next.min(longest))
        .unwrap_or(0)
        .max(PMU_PERIOD_MIN)
}

impl World {
    /// What the sample of an overflow of a hardware counter stands for.
    pub(super) fn elapsed(&self, cpu: usize, event: u16) -> u64 {
        self.counters[self.index(event, cpu)].rate.loaded
    }

    /// A hardware counter overflowed: it is loaded again.
    pub(super) fn reload(&mut self, cpu: usize, event: u16) {
        let index = self.index(event, cpu);
        let rate = &mut self.counters[index].rate;
        let elapsed = std::mem::replace(&mut rate.loaded, rate.period);
        let period = rate.period;
        self.counters[index].left = period;
        if period != elapsed {
            self.say(
                cpu,
                Fact::Loaded {
                    event,
                    period,
                    dropped: 0,
                },
            );
        }
    }

    /// At an overflow (`__perf_event_account_interrupt`), by the time since the last one.
    pub(super) fn adjust_at_overflow(&mut self, cpu: usize, event: u16) {
        let index = self.index(event, cpu);
        let (now, rate) = (self.now, &mut self.counters[index].rate);
        let ns = now - std::mem::replace(&mut rate.time_stamp, now);
        // The kernel takes the period that was loaded just now, and the time of the one before.
        let count = rate.loaded;
        if (1..2 * TICK_NS).contains(&ns) {
            self.adjust(cpu, event, ns, count);
        }
    }

    /// At a tick (`perf_adjust_freq_unthr_events`), by the events since the last one.
    pub(super) fn adjust_at_tick(&mut self, cpu: usize, event: u16) {
        let index = self.index(event, cpu);
        let rate = &mut self.counters[index].rate;
        let count = rate.count - std::mem::replace(&mut rate.count_stamp, rate.count);
        if count > 0 {
            self.adjust(cpu, event, TICK_NS, count);
        }
    }

    /// `perf_adjust_period`: a counter with a long way to go is loaded anew, and what it counted
    /// on the way is in no sample.
    fn adjust(&mut self, cpu: usize, event: u16, ns: u64, count: u64) {
        let Some(frequency) = self.events[usize::from(event)].frequency else {
            return;
        };
        let index = self.index(event, cpu);
        let counter = &mut self.counters[index];
        counter.rate.period = towards(counter.rate.period, target(frequency, ns, count));
        let period = counter.rate.period;
        if counter.left <= period.saturating_mul(8) {
            return;
        }
        let dropped = counter.rate.loaded - counter.left;
        (counter.rate.loaded, counter.left) = (period, period);
        self.say(
            cpu,
            Fact::Loaded {
                event,
                period,
                dropped,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Body, Scenario};

    #[test]
    fn the_target_is_what_would_make_the_frequency() {
        // 4,000 samples a second of 3 events a nanosecond: one for 750,000 events.
        assert_eq!(target(4_000, 1_000_000, 3_000_000), 750_000);
        assert_eq!(target(1, 1, u64::MAX), u64::MAX >> 1);
        assert_eq!(target(0, 1, 7), 7_000_000_000);
    }

    #[test]
    fn a_period_goes_an_eighth_of_the_way() {
        assert_eq!(towards(8_000, 16_000), 9_000);
        assert_eq!(towards(16_000, 8_000), 15_000);
        assert_eq!(towards(8_000, 8_001), 8_001, "never less than a step");
        assert_eq!(towards(8_000, 7_999), 7_999);
        assert_eq!(towards(8_000, 8_000), 8_000);
        assert_eq!(towards(1_000, 0), PMU_PERIOD_MIN);
        assert_eq!(towards(1_000, u64::MAX), PERIOD_MAX);
    }

    /// A task in user code counts an event a nanosecond.
    #[test]
    fn samples_come_at_the_rate_that_was_asked_for() {
        for frequency in [4_000, 20_000, 100_000] {
            let text = format!(
                "event e pmu freq {frequency} no-defer\nsamples-per-tick 4000000\nstack s 0x1000\n\
                 task 1 s\nswitch 0 1\n{}",
                "run 0 500000\nstep 0\n".repeat(60)
            );
            let world = Scenario::parse(&text).and_then(|s| s.run()).expect("a run");
            let samples: Vec<(u64, u64)> = world
                .records()
                .iter()
                .filter_map(|record| match record.body {
                    Body::Sample { period, .. } => Some((record.time, period)),
                    _ => None,
                })
                .collect();
            let half = samples[samples.len() - 1].0 / 2;
            let late = samples.iter().filter(|(time, _)| *time > half).count() as u64;
            let wanted = half * frequency / 1_000_000_000;
            assert!(
                late.abs_diff(wanted) <= 1 + wanted / 10,
                "{frequency}: {late} samples, {wanted} wanted"
            );
            assert_eq!(samples[0].1, PMU_PERIOD_MIN);
            assert!(samples.windows(2).any(|pair| pair[0].1 != pair[1].1));
            assert!(crate::check(&world).is_empty());
        }
    }
}

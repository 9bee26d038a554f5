//! The events of a run, which of them are open, and their counters on each CPU.
//!
//! In frequency mode (`attr.freq`) the period of a hardware counter is adjusted so that samples
//! come at a rate (`perf_adjust_period`, `perf_calculate_period`, `kernel/events/core.c`, Linux
//! 7.2). A timer's period is fixed from the start.

use super::TICK_NS;
use crate::log::Fact;
use crate::setup::{EventSetup, Kind, PMU_PERIOD_MIN, TIMER_FLOOR_NS};
use std::ops::Range;

/// The largest value that a counter is loaded with: it has 48 bits, including the sign.
const PERIOD_MAX: u64 = 1 << 47;
/// Nanoseconds of a second.
const SECOND_NS: u128 = 1_000_000_000;

/// The events and their counters.
pub(super) struct Events {
    setups: Vec<EventSetup>,
    /// The events that are open, one bit each.
    open: u64,
    cpus: usize,
    /// For each event, one per CPU.
    counters: Vec<Counter>,
}

/// An event on a CPU.
#[derive(Clone, Default)]
struct Counter {
    /// Events until the overflow.
    left: u64,
    rate: Rate,
    /// When the timer fires, nanoseconds.
    due: u64,
    /// Overflows in this tick.
    in_tick: u32,
    throttled: bool,
    /// The form of 2023: an NMI asked for an unwind (`pending_unwind`).
    pending: bool,
    /// The form of 2023: the task whose list has the event's task work (`pending_task`).
    owner: Option<usize>,
}

/// How a counter is adjusted (fields of `struct hw_perf_event`).
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    /// What the counter was loaded with (`last_period`): what its next sample stands for.
    loaded: u64,
    /// What it is loaded with next (`sample_period`).
    period: u64,
    /// Events so far (`event->count`).
    count: u64,
    /// Events at the last tick (`freq_count_stamp`).
    count_stamp: u64,
    /// Time of the last overflow, nanoseconds (`freq_time_stamp`).
    time_stamp: u64,
}

impl Rate {
    /// The state of a counter that is loaded with this period.
    fn new(period: u64) -> Self {
        Self {
            loaded: period,
            period,
            ..Self::default()
        }
    }

    /// Events were counted.
    const fn counted(&mut self, events: u64) {
        self.count += events;
    }

    /// The counter is loaded again. Returns the value that it was loaded with before.
    const fn reload(&mut self) -> u64 {
        std::mem::replace(&mut self.loaded, self.period)
    }

    /// An overflow: the time since the last one and the events in it, unless it is too long ago.
    fn at_overflow(&mut self, now: u64) -> Option<(u64, u64)> {
        let ns = now - std::mem::replace(&mut self.time_stamp, now);
        // The kernel takes the period that was loaded just now, and the time of the one before.
        (1..2 * TICK_NS).contains(&ns).then_some((ns, self.loaded))
    }

    /// A tick: its length and the events in it, unless there were none.
    fn at_tick(&mut self) -> Option<(u64, u64)> {
        let count = self.count - std::mem::replace(&mut self.count_stamp, self.count);
        (count > 0).then_some((TICK_NS, count))
    }

    /// `perf_adjust_period`, after `count` events in `ns` nanoseconds. A counter with a long way to
    /// go (`left`) is loaded anew, and what it counted on the way is in no sample: returns that.
    fn adjust(&mut self, frequency: u64, (ns, count): (u64, u64), left: u64) -> Option<u64> {
        self.period = towards(self.period, target(frequency, ns, count));
        if left <= self.period.saturating_mul(8) {
            return None;
        }
        let dropped = self.loaded - left;
        self.loaded = self.period;
        Some(dropped)
    }
}

/// The period with which `count` events in `ns` nanoseconds would make `frequency` samples per
/// second. The kernel loses bits of products that need more than 64; this does not.
fn target(frequency: u64, ns: u64, count: u64) -> u64 {
    let dividend = u128::from(count) * SECOND_NS;
    let divisor = u128::from(ns) * u128::from(frequency);
    let period = dividend.checked_div(divisor).unwrap_or(dividend);
    u64::try_from(period).unwrap_or(u64::MAX >> 1)
}

/// The period after `period`: an eighth of the way to `target`, at least one further, and within
/// the limits of a hardware counter ([`PMU_PERIOD_MIN`], [`PERIOD_MAX`]).
fn towards(period: u64, target: u64) -> u64 {
    let delta = i128::from(target) - i128::from(period);
    let delta = (delta + if delta >= 0 { 7 } else { -7 }) / 8;
    let next = i128::from(period) + delta;
    let longest = i128::from(PERIOD_MAX);
    u64::try_from(next.min(longest))
        .unwrap_or(0)
        .max(PMU_PERIOD_MIN)
}

/// What a counter is loaded with: a timer does not fire more often than every [`TIMER_FLOOR_NS`].
fn first_period(event: &EventSetup) -> u64 {
    match event.kind {
        Kind::Timer => event.period.max(TIMER_FLOOR_NS),
        _ => event.period,
    }
}

impl Events {
    pub(super) fn new(setups: Vec<EventSetup>, cpus: usize) -> Self {
        let each = |event: &EventSetup| {
            let period = first_period(event);
            let is_late = event.is_opened_later;
            Counter {
                left: period,
                rate: Rate::new(period),
                due: if is_late { u64::MAX } else { period },
                ..Counter::default()
            }
        };
        let open = setups.iter().enumerate();
        let open = open.fold(0, |mask, (at, event)| {
            mask | u64::from(!event.is_opened_later) << at
        });
        Self {
            counters: setups.iter().flat_map(|e| vec![each(e); cpus]).collect(),
            open,
            cpus,
            setups,
        }
    }

    pub(super) fn setups(&self) -> &[EventSetup] {
        &self.setups
    }

    pub(super) fn setup(&self, event: u16) -> &EventSetup {
        &self.setups[usize::from(event)]
    }

    /// The setup of an event that may not exist.
    pub(super) fn get(&self, event: u16) -> Option<&EventSetup> {
        self.setups.get(usize::from(event))
    }

    pub(super) fn numbers(&self) -> Range<u16> {
        0..self.setups.len() as u16
    }

    /// The event that programs write to.
    pub(super) fn outputs(&self) -> Option<u16> {
        let is_output = |event: &EventSetup| event.kind == Kind::BpfOutput;
        self.setups.iter().position(is_output).map(|at| at as u16)
    }

    fn index(&self, event: u16, cpu: usize) -> usize {
        usize::from(event) * self.cpus + cpu
    }

    fn counter(&self, event: u16, cpu: usize) -> &Counter {
        &self.counters[self.index(event, cpu)]
    }

    fn counter_mut(&mut self, event: u16, cpu: usize) -> &mut Counter {
        let index = self.index(event, cpu);
        &mut self.counters[index]
    }

    /// The event's counters on all CPUs.
    fn all(&mut self, event: u16) -> &mut [Counter] {
        let from = self.index(event, 0);
        &mut self.counters[from..from + self.cpus]
    }

    /// The events that count a task from the start, one bit each.
    pub(super) fn at_start(&self, tid: i32, cgroup: Option<u16>) -> u64 {
        let counts = |event: &EventSetup| {
            event.tid.is_none_or(|only| only == tid)
                && (event.cgroup.is_none() || event.cgroup == cgroup)
                && !event.is_opened_later
        };
        let all = self.setups.iter().enumerate();
        all.fold(0, |mask, (at, event)| mask | u64::from(counts(event)) << at)
    }

    /// The events of a mask that a child inherits, one bit each.
    pub(super) fn inherited(&self, counted_by: u64) -> u64 {
        let all = self.setups.iter().enumerate();
        counted_by
            & all.fold(0, |mask, (at, event)| {
                mask | u64::from(event.tid.is_none() || event.inherit) << at
            })
    }

    /// The events of a mask that belong to a task and not to the whole system.
    pub(super) fn of_task(&self, counted_by: u64) -> impl Iterator<Item = u16> {
        let is_own = move |event: &u16| counted_by >> event & 1 != 0;
        let own = self.numbers().filter(is_own);
        own.filter(|&event| self.setup(event).tid.is_some())
    }

    /// The number of events of a mask that have branch records and belong to a task.
    pub(super) fn with_branches(&self, counted_by: u64) -> usize {
        let own = self.of_task(counted_by);
        own.filter(|&event| self.setup(event).branch_stack).count()
    }

    pub(super) const fn is_open(&self, event: u16) -> bool {
        self.open >> event & 1 != 0
    }

    pub(super) fn open(&mut self, event: u16, now: u64) {
        self.open |= 1 << event;
        let setup = self.setup(event);
        let (is_timer, period) = (setup.kind == Kind::Timer, setup.period);
        let first = first_period(setup);
        for counter in self.all(event) {
            (counter.left, counter.throttled, counter.in_tick) = (first, false, 0);
            counter.rate = Rate::new(period);
            if is_timer {
                counter.due = now + first;
            }
        }
    }

    pub(super) fn close(&mut self, event: u16) {
        self.open &= !(1 << event);
        for counter in self.all(event) {
            counter.throttled = false;
            counter.due = u64::MAX;
        }
    }

    /// Whether the event counts a task that is counted by these events; `None` for the idle task.
    pub(super) fn counts(&self, event: u16, counted_by: Option<u64>) -> bool {
        self.is_open(event)
            && match counted_by {
                None => {
                    let setup = self.setup(event);
                    setup.tid.is_none() && setup.cgroup.is_none()
                }
                Some(mask) => mask >> event & 1 != 0,
            }
    }

    /// The hardware counters that count now, one bit each, and the events until the first of them
    /// overflows.
    pub(super) fn running(&self, cpu: usize, counted_by: Option<u64>, user: bool) -> (u64, u64) {
        let (mut counting, mut until) = (0, u64::MAX);
        for (index, setup) in self.setups.iter().enumerate() {
            if setup.kind != Kind::Pmu {
                continue;
            }
            let (event, counter) = (index as u16, &self.counters[index * self.cpus + cpu]);
            let is_excluded = if user {
                setup.exclude_user
            } else {
                setup.exclude_kernel
            };
            let is_stopped = is_excluded || counter.throttled;
            if !is_stopped && self.counts(event, counted_by) {
                until = until.min(counter.left);
                counting |= 1 << event;
            }
        }
        (counting, until)
    }

    /// A hardware counter counted. Returns whether it overflows.
    pub(super) fn count(&mut self, event: u16, cpu: usize, by: u64) -> bool {
        let counter = self.counter_mut(event, cpu);
        counter.left -= by;
        counter.rate.counted(by);
        counter.left == 0
    }

    /// A hardware counter counts all events left until its overflow. Returns their number.
    pub(super) fn count_rest(&mut self, event: u16, cpu: usize) -> u64 {
        let counter = self.counter_mut(event, cpu);
        counter.rate.counted(counter.left);
        counter.left
    }

    /// A hardware counter overflowed and is loaded again. Returns the period of the sample.
    pub(super) fn reload(&mut self, event: u16, cpu: usize) -> (u64, Option<Fact>) {
        let counter = self.counter_mut(event, cpu);
        let elapsed = counter.rate.reload();
        let period = counter.rate.loaded;
        counter.left = period;
        let fact = Fact::Loaded {
            event,
            period,
            dropped: 0,
        };
        (elapsed, (period != elapsed).then_some(fact))
    }

    pub(super) fn is_throttled(&self, event: u16, cpu: usize) -> bool {
        self.counter(event, cpu).throttled
    }

    /// Accounts for an overflow (`__perf_event_account_interrupt`): one too many in a tick stops
    /// the event, and the period is adjusted by the time since the last one. Returns whether it
    /// stopped.
    pub(super) fn account(
        &mut self,
        (event, cpu): (u16, usize),
        now: u64,
        max: u32,
    ) -> (bool, Option<Fact>) {
        let counter = self.counter_mut(event, cpu);
        counter.in_tick += 1;
        let is_too_many = counter.in_tick >= max;
        let stops = is_too_many && !std::mem::replace(&mut counter.throttled, is_too_many);
        let measured = counter.rate.at_overflow(now);
        (stops, self.adjust(event, cpu, measured))
    }

    /// A new tick (`perf_adjust_freq_unthr_events`): an event that was stopped goes on, and the
    /// period is adjusted by the events since the last tick. Returns whether it was stopped.
    pub(super) fn tick(&mut self, event: u16, cpu: usize, now: u64) -> (bool, Option<Fact>) {
        let counter = self.counter_mut(event, cpu);
        counter.in_tick = 0;
        let was_stopped = std::mem::take(&mut counter.throttled);
        if was_stopped {
            counter.due = counter.due.max(now);
        }
        let measured = counter.rate.at_tick();
        (was_stopped, self.adjust(event, cpu, measured))
    }

    fn adjust(&mut self, event: u16, cpu: usize, measured: Option<(u64, u64)>) -> Option<Fact> {
        let frequency = self.setup(event).frequency?;
        let counter = self.counter_mut(event, cpu);
        let dropped = counter.rate.adjust(frequency, measured?, counter.left)?;
        let period = counter.rate.loaded;
        counter.left = period;
        Some(Fact::Loaded {
            event,
            period,
            dropped,
        })
    }

    /// When the timer fires on the CPU, nanoseconds; `None` if it is stopped or not a timer.
    fn due(&self, index: usize, cpu: usize) -> Option<u64> {
        if self.setups[index].kind != Kind::Timer {
            return None;
        }
        let counter = &self.counters[index * self.cpus + cpu];
        (!counter.throttled).then_some(counter.due)
    }

    /// When the next timer fires on the CPU, nanoseconds.
    pub(super) fn next_due(&self, cpu: usize) -> u64 {
        let mut next = u64::MAX;
        for index in 0..self.setups.len() {
            if let Some(due) = self.due(index, cpu) {
                next = next.min(due);
            }
        }
        next
    }

    /// Starts the timers that are due again. Returns them, the first event last.
    pub(super) fn fire(&mut self, cpu: usize, now: u64) -> Vec<u16> {
        let is_due = |&event: &u16| self.due(event.into(), cpu).is_some_and(|due| due <= now);
        let fired: Vec<u16> = self.numbers().rev().filter(is_due).collect();
        for &event in &fired {
            let next = now + first_period(self.setup(event));
            self.counter_mut(event, cpu).due = next;
        }
        fired
    }

    /// Makes a timer due now.
    pub(super) fn set_due(&mut self, event: u16, cpu: usize, now: u64) {
        self.counter_mut(event, cpu).due = now;
    }

    /// The form of 2023: an NMI asks for an unwind.
    pub(super) fn ask(&mut self, event: u16, cpu: usize) {
        self.counter_mut(event, cpu).pending = true;
    }

    /// Whether an NMI asked for an unwind; forgets it.
    pub(super) fn take_asked(&mut self, event: u16, cpu: usize) -> bool {
        std::mem::take(&mut self.counter_mut(event, cpu).pending)
    }

    /// Gives the event's task work to a task. Returns whether it was free.
    pub(super) fn claim(&mut self, event: u16, cpu: usize, task: usize) -> bool {
        let counter = self.counter_mut(event, cpu);
        let is_free = counter.owner.is_none();
        counter.owner.get_or_insert(task);
        is_free
    }

    /// The event's task work is free again.
    pub(super) fn release(&mut self, event: u16, task: usize) {
        for counter in self.all(event) {
            if counter.owner == Some(task) {
                counter.owner = None;
            }
        }
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

            // Time and period of each sample.
            let samples: Vec<(u64, u64)> = world
                .records()
                .iter()
                .filter_map(|record| match record.body {
                    Body::Sample { period, .. } => Some((record.time, period)),
                    _ => None,
                })
                .collect();

            // The first half is left out, in which the period still approaches the rate.
            let half = samples[samples.len() - 1].0 / 2;
            let late = samples.iter().filter(|(time, _)| *time > half).count() as u64;
            let wanted = half * frequency / 1_000_000_000;
            assert!(
                late.abs_diff(wanted) <= 1 + wanted / 10,
                "{frequency}: {late} samples, {wanted} wanted"
            );

            // The first period is the shortest, and later ones differ.
            assert_eq!(samples[0].1, PMU_PERIOD_MIN);
            assert!(samples.windows(2).any(|pair| pair[0].1 != pair[1].1));
            assert!(crate::check(&world).is_empty());
        }
    }
}

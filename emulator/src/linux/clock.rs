//! Virtual time: a nanosecond for each instruction, and what was slept. Timers run in it.

use super::files::Time;

/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// When a run begins, seconds since 1970: 2037-01-01 00:00:00 UTC. It is always the same, for the
/// same options to give the same run; it is late, for no file of the host to be newer than the
/// program's clock; and a year before 32 bits of seconds are over.
const START: i64 = 2_114_380_800;
/// How long the machine was up by then, seconds.
const UP: u64 = 1000;

/// Which time a timer goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    /// Passes while sleeping.
    Real,
    /// That of the processor.
    Processor,
}

/// Whose timer it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// `setitimer` and `alarm`, by `which`.
    Interval(u64),
    /// `timer_create`, by number.
    Posix(u64),
}

/// A timer.
#[derive(Clone, Debug)]
pub(super) struct Timer {
    pub(super) owner: Owner,
    pub(super) base: Base,
    /// The clock it was made for.
    pub(super) clock: u64,
    /// When it expires, in its base; `None` if it is not armed.
    pub(super) next: Option<u64>,
    /// Then again after this; 0 for once.
    pub(super) interval: u64,
    /// What it sends; 0 for nothing.
    pub(super) signal: u8,
    /// `sigev_value`.
    pub(super) value: u64,
    /// How often it expired while its signal was pending.
    pub(super) overruns: u64,
}

/// The clock.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Instructions that were executed.
    executed: u64,
    /// Nanoseconds that were slept.
    slept: u64,
    pub(super) timers: Vec<Timer>,
}

impl Clock {
    /// So many instructions were executed.
    pub(super) fn set(&mut self, executed: u64) {
        self.executed = executed;
    }

    /// Nanoseconds in a base.
    pub(super) fn now(&self, base: Base) -> u64 {
        match base {
            Base::Real => self.executed.saturating_add(self.slept),
            Base::Processor => self.executed,
        }
    }

    /// Nanoseconds since the machine was started.
    pub(super) fn up(&self) -> u64 {
        (UP * SECOND).saturating_add(self.now(Base::Real))
    }

    /// The time of day.
    pub(super) fn time(&self) -> Time {
        let now = self.now(Base::Real);
        Time {
            seconds: START + (now / SECOND) as i64,
            nanoseconds: (now % SECOND) as u32,
        }
    }

    /// Nanoseconds of [`Base::Real`] at a time of day.
    pub(super) fn at(seconds: i64, nanoseconds: u64) -> u64 {
        let seconds = u64::try_from(seconds.saturating_sub(START)).unwrap_or(0);
        seconds.saturating_mul(SECOND).saturating_add(nanoseconds)
    }

    /// Nanoseconds of [`Base::Real`] at a time since the machine was started.
    pub(super) fn at_up(up: u64) -> u64 {
        up.saturating_sub(UP * SECOND)
    }

    /// Sleeps until then.
    pub(super) fn sleep_until(&mut self, real: u64) {
        self.slept += real.saturating_sub(self.now(Base::Real));
    }

    /// Instructions until the next timer expires.
    pub(super) fn until_timer(&self) -> Option<u64> {
        let armed = self.timers.iter();
        let left = armed.filter_map(|t| Some(t.next?.saturating_sub(self.now(t.base))));
        left.min()
    }

    /// When the next timer expires that ends a sleep: one with a signal that `wakes`.
    pub(super) fn next_while_sleeping(&self, wakes: impl Fn(u8) -> bool) -> Option<u64> {
        let real = self.timers.iter().filter(|t| t.base == Base::Real);
        let real = real.filter(|t| t.signal != 0 && wakes(t.signal));
        real.filter_map(|t| t.next).min()
    }

    /// The timers that expired, armed anew if they repeat, and how often they did.
    pub(super) fn expired(&mut self) -> Vec<(Timer, u64)> {
        let nows = [self.now(Base::Real), self.now(Base::Processor)];
        let mut expired = Vec::new();
        for timer in &mut self.timers {
            let now = nows[usize::from(timer.base == Base::Processor)];
            let Some(next) = timer.next.filter(|&next| next <= now) else {
                continue;
            };
            let passed = (now - next).checked_div(timer.interval).unwrap_or(0) + 1;
            expired.push((timer.clone(), passed));
            timer.next = match timer.interval {
                0 => None,
                interval => Some(next.saturating_add(passed.saturating_mul(interval))),
            };
        }
        expired
    }
}

//! Virtual time: one nanosecond for each instruction, plus the time slept. Timers run on it.

use super::files::Time;

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// The start of a run, seconds since 1970: 2037-01-01 00:00:00 UTC. It is fixed so that the same
/// options give the same run, late enough that no file of the host is newer than the program's
/// clock, and a year before 32-bit seconds overflow.
const START: i64 = 2_114_380_800;
/// Uptime of the machine at the start, seconds.
const UP: u64 = 1000;

/// The time that a timer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    /// Real time, which passes while sleeping.
    Real,
    /// Processor time.
    Processor,
}

/// The owner of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// `setitimer` and `alarm`; `which`.
    Interval(u64),
    /// `timer_create`; the timer's number.
    Posix(u64),
    /// `timerfd_create`; the number of the object.
    Object(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Timer {
    /// The process that made it.
    pub(super) process: u32,
    pub(super) owner: Owner,
    pub(super) base: Base,
    /// The clock for which it was created.
    pub(super) clock: u64,
    /// Expiry, in its base; `None` if it is not armed.
    pub(super) next: Option<u64>,
    /// Interval between expiries; 0 for a single one.
    pub(super) interval: u64,
    /// The signal to send; 0 for none.
    pub(super) signal: u8,
    /// The thread that gets the signal; `None` for the process.
    pub(super) thread: Option<u32>,
    /// `sigev_value`.
    pub(super) value: u64,
    /// Expiries while its signal was pending.
    pub(super) overruns: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Instructions executed.
    executed: u64,
    /// Nanoseconds slept.
    slept: u64,
    pub(super) timers: Vec<Timer>,
}

impl Clock {
    /// Sets the number of executed instructions.
    pub(super) fn set(&mut self, executed: u64) {
        self.executed = executed;
    }

    /// The time in a base, nanoseconds.
    pub(super) fn now(&self, base: Base) -> u64 {
        match base {
            Base::Real => self.executed.saturating_add(self.slept),
            Base::Processor => self.executed,
        }
    }

    /// Uptime, nanoseconds.
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

    /// Converts a time of day to nanoseconds of [`Base::Real`].
    pub(super) fn at(seconds: i64, nanoseconds: u64) -> u64 {
        let seconds = u64::try_from(seconds.saturating_sub(START)).unwrap_or(0);
        seconds.saturating_mul(SECOND).saturating_add(nanoseconds)
    }

    /// Converts an uptime to nanoseconds of [`Base::Real`].
    pub(super) fn at_up(up: u64) -> u64 {
        up.saturating_sub(UP * SECOND)
    }

    /// Sleeps until `real`, in [`Base::Real`].
    pub(super) fn sleep_until(&mut self, real: u64) {
        self.slept += real.saturating_sub(self.now(Base::Real));
    }

    /// Instructions until the next timer expires.
    pub(super) fn until_timer(&self) -> Option<u64> {
        let armed = self.timers.iter();
        let left = armed.filter_map(|t| Some(t.next?.saturating_sub(self.now(t.base))));
        left.min()
    }

    /// Expiry of the next timer that ends a sleep: one with a signal that `wakes`.
    pub(super) fn next_while_sleeping(&self, wakes: impl Fn(u32, u8) -> bool) -> Option<u64> {
        let real = self.timers.iter().filter(|t| t.base == Base::Real);
        let is_object = |t: &Timer| matches!(t.owner, Owner::Object(_));
        let real = real.filter(|t| is_object(t) || t.signal != 0 && wakes(t.process, t.signal));
        real.filter_map(|t| t.next).min()
    }

    /// The expired timers and the number of expiries; periodic ones are armed again.
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

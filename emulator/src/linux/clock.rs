//! Virtual time: one nanosecond for each instruction, plus the time slept. Timers run on it.

use super::files::Time;
use super::task::Task;

/// Nanoseconds in a second.
pub(super) const SECOND: u64 = 1_000_000_000;
/// The default start of a run, seconds since 1970: 2037-01-01 00:00:00 UTC. It is fixed so that the same
/// options give the same run, late enough that no file of the host is newer than the program's
/// clock, and a year before 32-bit seconds overflow.
pub(super) const START: i64 = 2_114_380_800;
/// Uptime of the machine at the start, seconds.
pub(super) const UP: u64 = 1000;

/// The time that a timer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Base {
    /// Real time, which passes while sleeping.
    Real,
    /// Processor time of the timer's process.
    Process,
    /// Processor time of a thread of the timer's process.
    Thread(u32),
}

/// The owner of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// `setitimer` and `alarm`; `which`. Others are limits of processor time.
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

#[derive(Clone, Debug)]
pub(super) struct Clock {
    /// Instructions executed.
    executed: u64,
    /// Nanoseconds slept.
    slept: u64,
    pub(super) timers: Vec<Timer>,
    running: Task,
    /// Instructions executed before the running thread was switched to.
    since: u64,
    /// Processor time that its process and the thread itself had used then.
    before: [u64; 2],
    /// By how much the time of day was set forward, nanoseconds.
    pub(super) shift: i128,
}

impl Default for Clock {
    fn default() -> Self {
        Clock {
            executed: 0,
            slept: 0,
            timers: Vec::new(),
            running: Task::FIRST,
            since: 0,
            before: [0; 2],
            shift: 0,
        }
    }
}

impl Clock {
    /// A clock that shows this time at the start of a run, seconds since 1970.
    pub(super) fn starting(seconds: i64) -> Clock {
        Clock {
            shift: (i128::from(seconds) - i128::from(START)) * i128::from(SECOND),
            ..Clock::default()
        }
    }

    /// Sets the number of executed instructions.
    pub(super) fn set(&mut self, executed: u64) {
        self.executed = executed;
    }

    /// Real time, nanoseconds.
    pub(super) fn real(&self) -> u64 {
        self.executed.saturating_add(self.slept)
    }

    /// Processor time of the running thread since it was switched to, nanoseconds.
    pub(super) fn elapsed(&self) -> u64 {
        self.executed - self.since
    }

    /// Another thread runs from here on, which has used so much processor time, and its process.
    pub(super) fn switch(&mut self, running: Task, process: u64, thread: u64) {
        self.running = running;
        self.since = self.executed;
        self.before = [process, thread];
    }

    /// The time on a timer's clock; `None` while that stands still.
    fn now_of(&self, timer: &Timer) -> Option<u64> {
        let [process, thread] = self.before;
        let runs = timer.process == self.running.process;
        match timer.base {
            Base::Real => Some(self.real()),
            Base::Process => runs.then_some(process + self.elapsed()),
            Base::Thread(number) => {
                (runs && number == self.running.thread).then_some(thread + self.elapsed())
            }
        }
    }

    /// Nanoseconds during which nothing ran.
    pub(super) fn slept(&self) -> u64 {
        self.slept
    }

    /// Uptime, nanoseconds.
    pub(super) fn up(&self) -> u64 {
        (UP * SECOND).saturating_add(self.real())
    }

    /// The time of day.
    pub(super) fn time(&self) -> Time {
        let now = i128::from(self.real()) + self.shift;
        let second = i128::from(SECOND);
        Time {
            seconds: START.saturating_add(i64::try_from(now.div_euclid(second)).unwrap_or(0)),
            nanoseconds: u32::try_from(now.rem_euclid(second)).unwrap_or(0),
        }
    }

    /// Converts a time of day to nanoseconds of real time.
    pub(super) fn at(&self, seconds: i64, nanoseconds: u64) -> u64 {
        let since = i128::from(seconds) - i128::from(START);
        let since = since * i128::from(SECOND) + i128::from(nanoseconds) - self.shift;
        u64::try_from(since.max(0)).unwrap_or(u64::MAX)
    }

    /// Converts an uptime to nanoseconds of real time.
    pub(super) fn at_up(up: u64) -> u64 {
        up.saturating_sub(UP * SECOND)
    }

    /// Sleeps until `real`, in real time.
    pub(super) fn sleep_until(&mut self, real: u64) {
        self.slept += real.saturating_sub(self.real());
    }

    /// Instructions until the next timer expires.
    pub(super) fn until_timer(&self) -> Option<u64> {
        let armed = self.timers.iter();
        let left = armed.filter_map(|t| Some(t.next?.saturating_sub(self.now_of(t)?)));
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
        let nows = self.timers.iter().map(|timer| self.now_of(timer));
        let nows: Vec<u64> = nows.map(Option::unwrap_or_default).collect();
        let mut expired = Vec::new();
        for (timer, now) in self.timers.iter_mut().zip(nows) {
            let Some(next) = timer.next.filter(|&next| next <= now) else {
                continue;
            };
            let more = (now - next).checked_div(timer.interval).unwrap_or(0);
            expired.push((timer.clone(), more.saturating_add(1)));
            timer.next = match timer.interval {
                0 => None,
                // No clock gets beyond its last nanosecond.
                interval => (next + more * interval).checked_add(interval),
            };
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that may wait for a timer has waited when the clock stands at its last nanosecond: a
    /// program may sleep that long. A periodic timer has then expired for the last time.
    #[test]
    fn a_periodic_timer_ends_with_the_clock() {
        for (next, interval, times) in [
            (u64::MAX, 1, 1),
            (u64::MAX - 7, 7, 2),
            (5, u64::MAX, 1),
            (0, 1, u64::MAX),
        ] {
            let mut clock = Clock::default();
            clock.timers.push(Timer {
                process: 1,
                owner: Owner::Object(0),
                base: Base::Real,
                clock: 0,
                next: Some(next),
                interval,
                signal: 0,
                thread: None,
                value: 0,
                overruns: 0,
            });

            assert_eq!(clock.until_timer(), Some(next));

            // Sleeping moves the clock to its last nanosecond; no expiration may be computed past
            // that.
            clock.sleep_until(u64::MAX);

            // A clock that is set back must not make the timer wait again.
            clock.set(3);
            assert_eq!(clock.until_timer(), Some(0));

            let expired = clock.expired();
            let counts: Vec<u64> = expired.iter().map(|&(_, times)| times).collect();
            assert_eq!(counts, [times], "{next} {interval}");

            // Taken once, and not again.
            assert_eq!(clock.until_timer(), None, "{next} {interval}");
            assert_eq!(clock.expired().len(), 0);
        }
    }
}

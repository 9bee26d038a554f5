//! Time and timers, all virtual.

use crate::linux::Kernel;
use crate::linux::clock::{Base, Clock, Owner, SECOND, Timer};
use crate::linux::errno::{Answer, Errno};
use crate::linux::signals::{Info, SIGALRM, SIGNALS, SIGPROF, SIGVTALRM};
use crate::linux::threads::WaitCondition;
use crate::linux::usage::Usage;

/// Clock ticks per second, in the result of `times`.
const TICKS: u64 = 100;
const TIMER_ABSTIME: u64 = 1;

const CLOCK_REALTIME: u64 = 0;
const CLOCK_PROCESS_CPUTIME: i32 = 2;
const CLOCK_THREAD_CPUTIME: i32 = 3;
/// Number of clocks; negative ones belong to other processes.
const CLOCKS: u64 = 12;
/// The clocks of the time of day.
const TIME_OF_DAY: [u64; 4] = [CLOCK_REALTIME, 5, 8, 11];

impl Kernel {
    /// The time on a clock: seconds and nanoseconds.
    pub(super) fn clock(&self, clock: u64) -> Answer<(u64, u64)> {
        let split = |ns: u64| (ns / SECOND, ns % SECOND);
        if let Some((base, process)) = self.clock_of_processor(clock)? {
            return Ok(split(self.processor_time(base, process)));
        }
        match clock as u32 as u64 {
            clock if TIME_OF_DAY.contains(&clock) => {
                let time = self.clock.time();
                Ok((time.seconds.cast_unsigned(), time.nanoseconds.into()))
            }
            clock if clock < CLOCKS => Ok(split(self.clock.up())),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The base of a clock that counts processor time, and whose it is.
    fn clock_of_processor(&self, clock: u64) -> Answer<Option<(Base, u32)>> {
        let own = self.task();
        match clock as i32 {
            clock @ ..0 => self.processor_clock(clock).map(Some),
            CLOCK_PROCESS_CPUTIME => Ok(Some((Base::Process, own.process))),
            CLOCK_THREAD_CPUTIME => Ok(Some((Base::Thread(own.thread), own.process))),
            _ => Ok(None),
        }
    }

    pub(super) fn sys_clock_gettime(&mut self, clock: u64, to: u64) -> Answer {
        let (seconds, nanoseconds) = self.clock(clock)?;
        self.put_words(to, &[seconds, nanoseconds])?;
        Ok(0)
    }

    pub(super) fn sys_clock_getres(&mut self, clock: u64, to: u64) -> Answer {
        self.clock(clock)?;
        if to != 0 {
            self.put_words(to, &[0, 1])?;
        }
        Ok(0)
    }

    pub(super) fn sys_gettimeofday(&mut self, to: u64, zone: u64) -> Answer {
        let time = self.clock.time();
        if to != 0 {
            let microseconds = u64::from(time.nanoseconds / 1000);
            self.put_words(to, &[time.seconds.cast_unsigned(), microseconds])?;
        }
        if zone != 0 {
            self.put_u64(zone, 0)?;
        }
        Ok(0)
    }

    pub(super) fn sys_time(&mut self, to: u64) -> Answer {
        let seconds = self.clock.time().seconds.cast_unsigned();
        if to != 0 {
            self.put_u64(to, seconds)?;
        }
        Ok(seconds)
    }

    pub(super) fn sys_times(&mut self, to: u64) -> Answer {
        if to != 0 {
            let ticks = |usage: Usage| usage.time / (SECOND / TICKS);
            let own = ticks(self.usage(&self.process));
            let children = ticks(self.process.children);
            self.put_words(to, &[own, 0, children, 0])?;
        }
        Ok(self.clock.up() / (SECOND / TICKS))
    }

    /// Reads a `struct timespec` as nanoseconds.
    pub(super) fn duration_at(&self, at: u64) -> Answer<u64> {
        let (seconds, nanoseconds) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
        if seconds > i64::MAX as u64 || nanoseconds >= SECOND {
            return Err(Errno::EINVAL);
        }
        Ok(seconds.saturating_mul(SECOND).saturating_add(nanoseconds))
    }

    /// Reads a time on a clock, as nanoseconds of real time.
    pub(super) fn time_at(&self, clock: u64, at: u64) -> Answer<u64> {
        let time = self.duration_at(at)?;
        Ok(if TIME_OF_DAY.contains(&clock) {
            self.clock.at((time / SECOND) as i64, time % SECOND)
        } else {
            Clock::at_up(time)
        })
    }

    /// Sends the signals of expired timers.
    pub(in crate::linux) fn expire_timers(&mut self) {
        if self.clock.until_timer() != Some(0) {
            return;
        }
        // Others may wait for it.
        self.system.changes += 1;
        for (timer, times) in self.clock.expired() {
            match timer.owner {
                Owner::Object(id) => self.expire_object(id, times),
                _ if timer.signal == 0 => {}
                Owner::Interval(_) => {
                    let info = Info::from_kernel(timer.signal);
                    self.send_to(timer.process, None, info);
                }
                Owner::Posix(number) => self.expire_posix(&timer, number, times),
            }
        }
    }

    /// Sends the signal of an expired timer; if it is still pending, only counts (`si_overrun`).
    fn expire_posix(&mut self, timer: &Timer, number: u64, times: u64) {
        const OVERRUNS_MAX: u64 = i32::MAX as u64;
        let Some(signals) = self.signals_of(timer.process) else {
            return;
        };
        let pending = signals.pending_of_timer(number as u32);
        let before = if pending { timer.overruns + 1 } else { 0 };
        let overruns = before.saturating_add(times - 1).min(OVERRUNS_MAX);
        if pending {
            signals.set_overruns(number as u32, overruns as u32);
        }
        if let Some(timer) = self.timer_of(timer.process, timer.owner) {
            timer.overruns = overruns;
        }
        if !pending {
            let info = Info::from_timer(timer.signal, number as u32, overruns as u32, timer.value);
            self.send_to(timer.process, timer.thread, info);
        }
    }

    pub(super) fn sys_nanosleep(&mut self, clock: u64, flags: u64, at: u64, rest: u64) -> Answer {
        self.clock(clock)?;
        self.can_wait(clock)?;

        match self.clock_of_processor(clock)? {
            Some((Base::Thread(_), _)) => return Err(Errno::EOPNOTSUPP),
            Some((_, process)) => {
                self.duration_at(at)?;
                if process != self.process.number || !self.process.others.is_empty() {
                    let what = "sleeping until others have used processor time";
                    return self.not_modelled(what, Errno::EOPNOTSUPP);
                }
                // No processor time passes while it waits.
                return self.wait_for_signal(Errno::EINTR);
            }
            None => {}
        }

        let now = self.clock.real();
        let is_absolute = flags & TIMER_ABSTIME != 0;
        let until = if is_absolute {
            self.time_at(clock, at)?
        } else {
            let whole = now.saturating_add(self.duration_at(at)?);
            // A restarted sleep ends when it would have ended without the signal.
            self.process.thread.sleep_end.take().unwrap_or(whole)
        };

        if !self.wait_until(Some(until), WaitCondition::Change)? {
            return Ok(0);
        }
        if is_absolute {
            // An absolute end needs no memory: the same call can be made again.
            return Err(Errno::ERESTARTNOHAND);
        }

        let end = self.wait_end().unwrap_or(until);
        // For the case that a handler ends the sleep (nanosleep(2)).
        if rest != 0 {
            let left = end.saturating_sub(self.clock.real());
            self.put_words(rest, &[left / SECOND, left % SECOND])?;
        }

        self.process.thread.sleep_end = Some(end);
        Err(Errno::ERESTART_RESTARTBLOCK)
    }

    /// Checks that a sleep can use this clock. Some clocks can only be read, and a thread cannot
    /// wait for its own processor time.
    fn can_wait(&self, clock: u64) -> Answer<()> {
        const MONOTONIC_RAW: u32 = 4;
        const MONOTONIC_COARSE: u32 = 6;
        match clock as u32 {
            MONOTONIC_RAW..=MONOTONIC_COARSE => Err(Errno::EOPNOTSUPP),
            _ => Ok(()),
        }
    }

    pub(super) fn timer_of(&mut self, process: u32, owner: Owner) -> Option<&mut Timer> {
        let mut timers = self.clock.timers.iter_mut();
        timers.find(|t| t.process == process && t.owner == owner)
    }

    fn timer(&mut self, owner: Owner) -> Option<&mut Timer> {
        self.timer_of(self.process.number, owner)
    }

    /// The interval, and the time until the timer expires.
    fn timer_words(&mut self, owner: Owner) -> Option<[u64; 2]> {
        let timer = self.timer(owner)?.clone();
        let left = timer
            .next
            .map_or(0, |next| next.saturating_sub(self.now(timer.base)).max(1));
        Some([timer.interval, left])
    }

    pub(super) fn sys_getitimer(&mut self, which: u64, to: u64) -> Answer {
        if which > 2 {
            return Err(Errno::EINVAL);
        }
        let words = self.timer_words(Owner::Interval(which));
        let words = words.unwrap_or([0, 0]);
        let split = words.map(|ns| [ns / SECOND, ns % SECOND / 1000]);
        self.put_words(to, split.as_flattened())?;
        Ok(0)
    }

    fn set_interval(&mut self, which: u64, first: u64, interval: u64) {
        let owner = Owner::Interval(which);
        let process = self.process.number;
        let is_other = |t: &Timer| t.process != process || t.owner != owner;
        self.clock.timers.retain(is_other);

        // A first time of 0 disarms the timer (setitimer(2)).
        if first == 0 {
            return;
        }

        // ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF.
        let (base, signal) = match which {
            0 => (Base::Real, SIGALRM),
            1 => (Base::Process, SIGVTALRM),
            _ => (Base::Process, SIGPROF),
        };

        let next = Some(self.now(base).saturating_add(first));
        self.clock.timers.push(Timer {
            process: self.process.number,
            owner,
            base,
            clock: CLOCK_REALTIME,
            next,
            interval,
            signal,
            thread: None,
            value: 0,
            overruns: 0,
        });
    }

    pub(super) fn sys_setitimer(&mut self, which: u64, new: u64, old: u64) -> Answer {
        if which > 2 {
            return Err(Errno::EINVAL);
        }
        let mut times = [0; 2];
        if new != 0 {
            for (index, time) in times.iter_mut().enumerate() {
                let at = new.wrapping_add(16 * index as u64);
                let (seconds, rest) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
                if seconds > i64::MAX as u64 || rest >= 1_000_000 {
                    return Err(Errno::EINVAL);
                }
                *time = seconds.saturating_mul(SECOND).saturating_add(rest * 1000);
            }
        }
        if old != 0 {
            self.sys_getitimer(which, old)?;
        }
        let [interval, first] = times;
        self.set_interval(which, first, interval);
        Ok(0)
    }

    pub(super) fn sys_alarm(&mut self, seconds: u64) -> Answer {
        let old = self.timer_words(Owner::Interval(0));
        let left = old.map_or(0, |[_, left]| left.div_ceil(SECOND));
        self.set_interval(0, u64::from(seconds as u32) * SECOND, 0);
        Ok(left)
    }

    pub(super) fn sys_timer_create(&mut self, clock: u64, event: u64, to: u64) -> Answer {
        const BY_DESCRIPTOR: u64 = 3;
        // Clocks of devices (`CLOCKFD`) have no timers.
        if (clock as i32) < 0 && clock & 7 == BY_DESCRIPTOR {
            return Err(Errno::EOPNOTSUPP);
        }

        self.clock(clock)?;
        self.can_wait(clock)?;
        self.may_queue_signal()?;

        let process = self.process.number;
        let own = self.clock.timers.iter().filter(|t| t.process == process);
        let numbers = own.filter_map(|t| match t.owner {
            Owner::Posix(number) => Some(number + 1),
            Owner::Interval(_) | Owner::Object(_) => None,
        });
        let number = numbers.max().unwrap_or(0);

        // SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD_ID.
        let (signal, value, thread) = match event {
            // Without a `sigevent`: SIGALRM, with the timer's number (timer_create(2)).
            0 => (SIGALRM, number, None),
            at => match self.u32_at(at.wrapping_add(12))? {
                // SIGEV_NONE: the time left can be read, but nothing is sent.
                1 => (0, 0, None),
                // SIGEV_THREAD_ID is for threads of the same process.
                4 if !self.has_thread(self.u32_at(at.wrapping_add(16))?.into()) => {
                    return Err(Errno::EINVAL);
                }
                how @ (0 | 4) => {
                    let signal = u8::try_from(self.u32_at(at.wrapping_add(8))?);
                    let signal = signal.ok().filter(|s| (1..=SIGNALS).contains(s));
                    let signal = signal.ok_or(Errno::EINVAL)?;
                    let thread = match how {
                        4 => Some(self.u32_at(at.wrapping_add(16))?),
                        _ => None,
                    };
                    (signal, self.u64_at(at)?, thread)
                }
                _ => return Err(Errno::EINVAL),
            },
        };

        self.put_u32(to, number as u32)?;
        let base = match self.clock_of_processor(clock)? {
            Some((_, process)) if process != self.process.number => {
                let what = "timers on the processor time of another process";
                return self.not_modelled(what, Errno::EINVAL);
            }
            Some((base, _)) => base,
            None => Base::Real,
        };

        self.clock.timers.push(Timer {
            process: self.process.number,
            owner: Owner::Posix(number),
            base,
            clock,
            // It is disarmed until `timer_settime`.
            next: None,
            interval: 0,
            signal,
            thread,
            value,
            overruns: 0,
        });
        Ok(0)
    }

    pub(super) fn sys_timer_gettime(&mut self, number: u64, to: u64) -> Answer {
        let words = self
            .timer_words(Owner::Posix(number))
            .ok_or(Errno::EINVAL)?;
        let split = words.map(|ns| [ns / SECOND, ns % SECOND]);
        self.put_words(to, split.as_flattened())?;
        Ok(0)
    }

    pub(super) fn sys_timer_settime(
        &mut self,
        number: u64,
        flags: u64,
        new: u64,
        old: u64,
    ) -> Answer {
        let owner = Owner::Posix(number);
        // Unlike `setitimer`, it must be given a time (`timer_settime`).
        if new == 0 {
            return Err(Errno::EINVAL);
        }

        // Linux has copied the whole structure before it looks for the timer.
        self.bytes::<32>(new)?;
        let Timer { base, clock, .. } = *self.timer(owner).ok_or(Errno::EINVAL)?;
        // `struct itimerspec`: the interval comes first.
        let interval = self.duration_at(new)?;
        let first_at = new.wrapping_add(16);
        let first = self.duration_at(first_at)?;

        let next = match flags & TIMER_ABSTIME {
            _ if first == 0 => None,
            0 => Some(self.now(base).saturating_add(first)),
            _ if base != Base::Real => Some(first),
            _ => Some(self.time_at(clock, first_at)?),
        };

        if old != 0 {
            self.sys_timer_gettime(number, old)?;
        }

        if let Some(timer) = self.timer(owner) {
            (timer.next, timer.interval, timer.overruns) = (next, interval, 0);
        }
        Ok(0)
    }

    /// How often the timer expired before its last signal was taken, minus one.
    pub(super) fn sys_timer_getoverrun(&mut self, number: u64) -> Answer {
        let timer = self.timer(Owner::Posix(number)).ok_or(Errno::EINVAL)?;
        Ok(timer.overruns)
    }

    pub(super) fn sys_timer_delete(&mut self, number: u64) -> Answer {
        let owner = Owner::Posix(number);
        self.timer(owner).ok_or(Errno::EINVAL)?;
        let process = self.process.number;
        let is_other = |t: &Timer| t.process != process || t.owner != owner;
        self.clock.timers.retain(is_other);
        Ok(0)
    }
}

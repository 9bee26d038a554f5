//! Setting the time of day, which only user 0 may do.
//!
//! Source: Linux 6.12 `kernel/time/time.c`, `kernel/time/posix-timers.c`, `kernel/time/ntp.c`.

use crate::linux::Kernel;
use crate::linux::clock::{Clock, SECOND};
use crate::linux::errno::{Answer, Errno};

impl Kernel {
    /// `clock_settime`.
    pub(super) fn sys_clock_settime(&mut self, clock: u64, at: u64) -> Answer {
        self.clock(clock)?;
        let is_processor = (clock as i32) < 0;
        if !is_processor && clock as i32 != 0 {
            return Err(Errno::EINVAL);
        }
        let (seconds, rest) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
        if is_processor {
            Err(Errno::EPERM)
        } else {
            self.set_time(seconds.cast_signed(), rest)
        }
    }

    /// `settimeofday`. The time zone is not kept, as nothing shows it.
    pub(super) fn sys_settimeofday(&mut self, at: u64, zone: u64) -> Answer {
        if at != 0 {
            let (seconds, rest) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
            if rest > 1_000_000 {
                return Err(Errno::EINVAL);
            }
            if zone != 0 {
                self.u64_at(zone)?;
            }
            return self.set_time(seconds.cast_signed(), rest * 1000);
        }
        if zone != 0 {
            self.u64_at(zone)?;
        }
        if self.files.own.identity.is_capable() {
            Ok(0)
        } else {
            Err(Errno::EPERM)
        }
    }

    fn set_time(&mut self, seconds: i64, nanoseconds: u64) -> Answer {
        /// `TIME_SETTOD_SEC_MAX`: 30 years before the end of 64-bit nanoseconds.
        const SECONDS_MAX: i64 = i64::MAX / 1_000_000_000 - 30 * 365 * 24 * 3600;
        if !(0..SECONDS_MAX).contains(&seconds) || nanoseconds >= SECOND {
            return Err(Errno::EINVAL);
        }
        if !self.files.own.identity.is_capable() {
            return Err(Errno::EPERM);
        }
        if seconds < (self.clock.up() / SECOND).cast_signed() {
            return Err(Errno::EINVAL);
        }
        self.clock.set_time(seconds, nanoseconds);
        Ok(0)
    }

    /// `adjtimex`, and `clock_adjtime` of the time of day: a `struct timex`.
    pub(super) fn sys_adjtimex(&mut self, at: u64) -> Answer {
        /// `TIME_ERROR`: the clock is not synchronized.
        const ERROR: u64 = 5;
        /// `STA_UNSYNC`.
        const UNSYNC: u64 = 0x40;
        if self.bytes::<208>(at)?[..4] != [0; 4] {
            return if self.files.own.identity.is_capable() {
                self.not_modelled("adjtimex that adjusts the clock", Errno::EPERM)
            } else {
                Err(Errno::EPERM)
            };
        }
        let time = self.clock.time();
        let mut words = [0; 26];
        // maxerror, esterror; status; constant, precision, tolerance; time; tick.
        (words[3], words[4], words[5]) = (16_000_000, 16_000_000, UNSYNC);
        (words[6], words[7], words[8]) = (2, 1, 32_768_000);
        words[9] = time.seconds.cast_unsigned();
        words[10] = u64::from(time.nanoseconds / 1000);
        words[11] = 10_000;
        self.put_words(at, &words)?;
        Ok(ERROR)
    }
}

impl Clock {
    /// Sets the time of day, seconds since 1970 and nanoseconds.
    fn set_time(&mut self, seconds: i64, nanoseconds: u64) {
        let now = self.time();
        let by = i128::from(seconds - now.seconds) * i128::from(SECOND);
        self.shift += by + i128::from(nanoseconds) - i128::from(now.nanoseconds);
    }
}

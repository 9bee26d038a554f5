//! What only user 0 may do, and who has which capabilities.
//!
//! Source: Linux 6.12 `kernel/capability.c`, `security/commoncap.c`, `kernel/time/time.c`,
//! `kernel/time/posix-timers.c`, `kernel/time/ntp.c`.

use crate::linux::Kernel;
use crate::linux::clock::{Clock, SECOND};
use crate::linux::errno::{Answer, Errno};

/// The versions of `struct __user_cap_header_struct`, and the number of words of each set.
const VERSIONS: [(u32, u64); 3] = [(0x1998_0330, 1), (0x2007_1026, 2), (0x2008_0522, 2)];
/// All capabilities (`CAP_LAST_CAP` is 40).
pub(super) const CAPABILITIES: u64 = (1 << 41) - 1;

impl Kernel {
    /// The words of each set that a header asks for, and the process. `None` for a question that is
    /// answered by the version alone.
    fn capability_header(&mut self, header: u64, data: u64) -> Answer<Option<(u64, u32)>> {
        let version = self.u32_at(header)?;
        let words = VERSIONS.iter().find(|(known, _)| *known == version);
        let Some((_, words)) = words else {
            self.put_u32(header, VERSIONS[2].0)?;
            return if data == 0 {
                Ok(None)
            } else {
                Err(Errno::EINVAL)
            };
        };
        Ok(Some((*words, self.u32_at(header.wrapping_add(4))?)))
    }

    /// The effective and permitted capabilities of a process.
    fn capabilities(&self, process: u32) -> Answer<[u64; 2]> {
        let files = self.files.of_process(process).ok_or(Errno::ESRCH)?;
        let user = files.identity.user;
        let all = |has| if has { CAPABILITIES } else { 0 };
        let is_root = [user.real, user.effective, user.saved].contains(&0);
        Ok([all(user.effective == 0), all(is_root)])
    }

    pub(super) fn sys_capget(&mut self, header: u64, data: u64) -> Answer {
        let Some((words, number)) = self.capability_header(header, data)? else {
            return Ok(0);
        };
        if number.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        let process = match number {
            0 => self.process.number,
            number => self.process_of(number.into()).ok_or(Errno::ESRCH)?,
        };
        let [effective, permitted] = self.capabilities(process)?;
        if data == 0 {
            return Ok(0);
        }
        for word in 0..words {
            let at = data.wrapping_add(12 * word);
            let sets = [effective, permitted, 0].map(|set| (set >> (32 * word)) as u32);
            self.put(at, sets.map(u32::to_le_bytes).as_flattened())?;
        }
        Ok(0)
    }

    pub(super) fn sys_capset(&mut self, header: u64, data: u64) -> Answer {
        let Some((words, number)) = self.capability_header(header, data)? else {
            return Err(Errno::EINVAL);
        };
        let mut new = [0; 3];
        for word in 0..words {
            for (set, index) in new.iter_mut().zip(0..) {
                let at = data.wrapping_add(12 * word + 4 * index);
                *set |= u64::from(self.u32_at(at)?) << (32 * word);
            }
        }
        if number != 0 && number != self.process.thread.number {
            return Err(Errno::EPERM);
        }
        let [effective, permitted, inheritable] = new.map(|set| set & CAPABILITIES);
        let [old_effective, old_permitted] = self.capabilities(self.process.number)?;
        let takes_more = permitted & !old_permitted != 0 || effective & !permitted != 0;
        if takes_more || inheritable & !old_permitted != 0 {
            return Err(Errno::EPERM);
        }
        if [effective, permitted, inheritable] != [old_effective, old_permitted, 0] {
            return self.not_modelled("capabilities of single processes", Errno::EPERM);
        }
        Ok(0)
    }

    /// `clock_settime`.
    pub(super) fn sys_clock_settime(&mut self, clock: u64, at: u64) -> Answer {
        self.clock(clock)?;
        let is_processor = (clock as i32) < 0;
        if !is_processor && clock as i32 != 0 {
            return Err(Errno::EINVAL);
        }
        let (seconds, rest) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
        match is_processor {
            true => Err(Errno::EPERM),
            false => self.set_time(seconds.cast_signed(), rest),
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
        match self.files.own.identity.is_capable() {
            true => Ok(0),
            false => Err(Errno::EPERM),
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
            return match self.files.own.identity.is_capable() {
                true => self.not_modelled("adjtimex that adjusts the clock", Errno::EPERM),
                false => Err(Errno::EPERM),
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

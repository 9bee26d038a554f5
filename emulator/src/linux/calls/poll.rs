//! `poll`, `select` and related calls: what is ready at once, or nothing until a timer expires.

use crate::linux::Kernel;
use crate::linux::clock::SECOND;
use crate::linux::errno::{Answer, Errno};
use crate::linux::handle::ev;
use crate::linux::numbers as nr;
use crate::linux::threads::WaitCondition;

/// Nanoseconds in a microsecond.
const MICROSECOND: u64 = 1000;
/// Number of sets of `select`.
const SETS: usize = 3;
/// What each set of `select` asks for (`POLLIN_SET`, `POLLOUT_SET`, `POLLEX_SET`).
const SELECTED: [u32; SETS] = [
    ev::READABLE | ev::RDBAND | ev::HUP | ev::ERR,
    ev::WRITABLE | ev::WRBAND | ev::ERR,
    ev::PRI,
];

impl Kernel {
    pub(super) fn sys_poll(&mut self, number: u64, args: [u64; 6]) -> Answer {
        let [a, b, c, d, e, f] = args;
        let milliseconds = 1_000_000;

        let timeout = match number {
            nr::poll => match c as i32 {
                ..0 => None,
                time => Some(time as u64 * milliseconds),
            },
            nr::ppoll => self.interval_at(c, 1)?,
            nr::select => self.interval_at(e, MICROSECOND)?,
            _ => self.interval_at(e, 1)?,
        };

        let mask = match number {
            nr::ppoll => self.mask_at(d, e)?,
            // The sixth argument points to the address and the size of the mask (select(2)).
            nr::pselect6 if f != 0 => {
                let (at, size) = (self.u64_at(f)?, self.u64_at(f.wrapping_add(8))?);
                self.mask_at(at, size)?
            }
            _ => None,
        };

        let begin = self.wait_begun();
        // The mask changes once, not every time that the call is answered again.
        if let Some(mask) = mask.filter(|_| !self.has_waited()) {
            self.process.signals.suspend(mask);
        }

        let is_poll = matches!(number, nr::poll | nr::ppoll);
        let once = |process: &mut Kernel, last| {
            if is_poll {
                process.poll_once(a, b)
            } else {
                process.select_once(a, [b, c, d], last)
            }
        };

        let answer = match once(self, timeout == Some(0)) {
            Ok(0) if timeout != Some(0) => self.poll_later(timeout, once),
            answer => answer,
        };

        // The call is answered again, still with this mask.
        if answer == Err(Errno::WAITS) {
            return answer;
        }

        // After an interruption the handler's frame holds the old mask.
        if mask.is_some() && answer != Err(Errno::ERESTARTNOHAND) {
            self.process.signals.resume();
        }

        // All but `poll` store what is left of the time (`poll_select_finish`).
        if let Some(timeout) = timeout {
            let left = timeout.saturating_sub(self.clock.real() - begin);
            // Memory that cannot be written is left as it is.
            let _ = match number {
                nr::ppoll => self.put_words(c, &[left / SECOND, left % SECOND]),
                nr::select => self.put_words(e, &[left / SECOND, left % SECOND / MICROSECOND]),
                nr::pselect6 => self.put_words(e, &[left / SECOND, left % SECOND]),
                _ => Ok(()),
            };
        }
        answer
    }

    /// A signal mask of `size` bytes; `None` if there is none.
    pub(super) fn mask_at(&self, at: u64, size: u64) -> Answer<Option<u64>> {
        match (at, size) {
            (0, _) => Ok(None),
            (at, 8) => self.u64_at(at).map(Some),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Waits when nothing is ready.
    fn poll_later(
        &mut self,
        timeout: Option<u64>,
        once: impl Fn(&mut Kernel, bool) -> Answer,
    ) -> Answer {
        let until = timeout.map(|t| self.clock.real().saturating_add(t));
        if self.wait_until(until, WaitCondition::Change)? {
            Err(Errno::ERESTARTNOHAND)
        } else {
            once(self, true)
        }
    }

    /// A `struct timespec` or `timeval`, whose second word is in `unit` nanoseconds; `None` for a
    /// null pointer.
    pub(super) fn interval_at(&self, at: u64, unit: u64) -> Answer<Option<u64>> {
        if at == 0 {
            return Ok(None);
        }
        let (seconds, rest) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
        let parts = SECOND / unit;
        // There may be more microseconds than a second has.
        if seconds.max(rest) > i64::MAX as u64 || rest >= parts && unit == 1 {
            return Err(Errno::EINVAL);
        }
        let seconds = seconds.saturating_add(rest / parts);
        let rest = rest % parts * unit;
        Ok(Some(seconds.saturating_mul(SECOND).saturating_add(rest)))
    }

    fn poll_once(&mut self, at: u64, count: u64) -> Answer {
        let count = u64::from(count as u32);
        if count > self.descriptors_max() {
            return Err(Errno::EINVAL);
        }
        self.accessible(at, 8 * count)?;
        let mut found = 0;
        for index in 0..count {
            let at = at.wrapping_add(8 * index);
            let fd = self.u32_at(at)?;
            let [low, high] = self.bytes(at.wrapping_add(4))?;
            let wanted = u32::from(u16::from_le_bytes([low, high])) | ev::ERR | ev::HUP;
            let events = match self.files.own.table.get(fd.into()) {
                _ if fd.cast_signed() < 0 => 0,
                Ok(open) => self.ready(&open) & wanted,
                Err(_) => ev::NVAL,
            };
            self.put(at.wrapping_add(6), &(events as u16).to_le_bytes())?;
            found += u64::from(events != 0);
        }
        Ok(found)
    }

    /// Writes the result only if something is ready, or this is the `last` time.
    fn select_once(&mut self, count: u64, sets: [u64; SETS], last: bool) -> Answer {
        if (count as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        // Descriptors past the table are ignored.
        let count = (count as u32 as u64).min(self.files.own.table.room());
        let words = count.div_ceil(64) as usize;

        let mut results = [const { Vec::new() }; SETS];
        let mut found = 0;
        for (result, &set) in results.iter_mut().zip(&sets).filter(|(_, set)| **set != 0) {
            for word in 0..words as u64 {
                result.push(self.u64_at(set.wrapping_add(8 * word))?);
            }
        }

        for (index, result) in results.iter_mut().enumerate() {
            let asked = if sets[index] == 0 { 0 } else { count };
            for fd in 0..asked {
                let word: &mut u64 = &mut result[(fd / 64) as usize];
                let bit = 1 << (fd % 64);
                if *word & bit == 0 {
                    continue;
                }

                let ready = self.ready(&self.files.own.table.get_named(fd)?);
                match ready & (SELECTED[index] | ev::NVAL) {
                    0 => *word &= !bit,
                    _ => found += 1,
                }
            }

            // Bits past the last descriptor come back as 0.
            if let Some(last) = result.last_mut().filter(|_| !count.is_multiple_of(64)) {
                *last &= (1 << (count % 64)) - 1;
            }
        }

        // Otherwise the sets stay as they are: they are read again.
        if found > 0 || last {
            for (result, &set) in results.iter().zip(&sets).filter(|(_, set)| **set != 0) {
                self.put_words(set, result)?;
            }
        }
        Ok(found)
    }
}

//! `poll`, `select` and their kin: what is ready at once, or nothing until a timer expires.

use super::nr;
use crate::linux::Process;
use crate::linux::clock::{Base, SECOND};
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, PIPE_SIZE, Shared};

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;
const POLLERR: u16 = 8;
const POLLHUP: u16 = 0x10;
const POLLNVAL: u16 = 0x20;
/// `FD_SETSIZE`, and more than `select` can have.
const SELECT_MAX: u64 = 1024;

impl Process {
    fn ready(&self, open: &Shared) -> u16 {
        match &open.borrow().kind {
            Kind::PipeReader(end) => {
                let bytes = if end.bytes.borrow().is_empty() {
                    0
                } else {
                    POLLIN
                };
                bytes | if end.is_alone() { POLLHUP } else { 0 }
            }
            Kind::PipeWriter(end) => {
                let room = if end.bytes.borrow().len() < PIPE_SIZE {
                    POLLOUT
                } else {
                    0
                };
                room | if end.is_alone() { POLLERR } else { 0 }
            }
            Kind::Stdin => POLLIN,
            Kind::Stdout | Kind::Stderr => POLLOUT,
            Kind::Event(counter) => POLLOUT | if *counter > 0 { POLLIN } else { 0 },
            Kind::Path => POLLNVAL,
            _ => POLLIN | POLLOUT,
        }
    }

    pub(super) fn sys_poll(&mut self, number: u64, args: [u64; 6]) -> Answer {
        let [a, b, c, d, e, f] = args;
        let milliseconds = 1_000_000;
        let timeout = match number {
            nr::poll => match c as i32 {
                ..0 => None,
                time => Some(time as u64 * milliseconds),
            },
            nr::ppoll => self.interval_at(c, 1)?,
            nr::select => self.interval_at(e, 1000)?,
            _ => self.interval_at(e, 1)?,
        };
        let mask = match number {
            nr::ppoll if d != 0 => Some(self.u64_at(d)?),
            nr::pselect6 if f != 0 => match self.u64_at(f)? {
                0 => None,
                at => Some(self.u64_at(at)?),
            },
            _ => None,
        };
        if let Some(mask) = mask {
            self.signals.suspend(mask);
        }
        let is_poll = matches!(number, nr::poll | nr::ppoll);
        let once = |process: &mut Process, last| match is_poll {
            true => process.poll_once(a, b),
            false => process.select_once(a, [b, c, d], last),
        };
        let answer = match once(self, timeout == Some(0)) {
            Ok(0) if timeout != Some(0) => self.poll_later(timeout, once),
            answer => answer,
        };
        if mask.is_some() && answer != Err(Errno::ERESTARTNOHAND) {
            self.signals.resume();
        }
        answer
    }

    /// Nothing is ready, and nobody makes anything ready.
    fn poll_later(
        &mut self,
        timeout: Option<u64>,
        once: impl Fn(&mut Process, bool) -> Answer,
    ) -> Answer {
        let until = timeout.map(|t| self.clock.now(Base::Real).saturating_add(t));
        if self.sleep_until_signal(until) {
            return Err(Errno::ERESTARTNOHAND);
        }
        match until {
            None => Err(self.blocked("poll")),
            Some(_) => once(self, true),
        }
    }

    /// `struct timespec` or `timeval`, its second word in `unit` nanoseconds; `None` if there is
    /// none.
    fn interval_at(&self, at: u64, unit: u64) -> Answer<Option<u64>> {
        if at == 0 {
            return Ok(None);
        }
        let (seconds, rest) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
        if seconds > i64::MAX as u64 || rest >= SECOND / unit {
            return Err(Errno::EINVAL);
        }
        Ok(Some(
            seconds.saturating_mul(SECOND).saturating_add(rest * unit),
        ))
    }

    fn poll_once(&mut self, at: u64, count: u64) -> Answer {
        if count > self.descriptors_max() {
            return Err(Errno::EINVAL);
        }
        let mut found = 0;
        for index in 0..count {
            let at = at.wrapping_add(8 * index);
            let fd = self.u32_at(at)?;
            let [low, high] = self.bytes(at.wrapping_add(4))?;
            let wanted = u16::from_le_bytes([low, high]) | POLLERR | POLLHUP;
            let events = match self.files.table.get(fd.into()) {
                _ if fd.cast_signed() < 0 => 0,
                Ok(open) => self.ready(&open) & wanted,
                Err(_) => POLLNVAL,
            };
            self.put(at.wrapping_add(6), &events.to_le_bytes())?;
            found += u64::from(events != 0);
        }
        Ok(found)
    }

    /// Writes what is ready only if something is, or it is the `last` time.
    fn select_once(&mut self, count: u64, sets: [u64; 3], last: bool) -> Answer {
        let count = u64::from(count as u32);
        if count > SELECT_MAX {
            return Err(Errno::EINVAL);
        }
        let words = count.div_ceil(64);
        let mut results = [[0; (SELECT_MAX / 64) as usize]; 3];
        let mut found = 0;
        for (index, &set) in sets.iter().enumerate().filter(|(_, set)| **set != 0) {
            for fd in 0..count {
                let word = self.u64_at(set.wrapping_add(fd / 64 * 8))?;
                if word & 1 << (fd % 64) == 0 {
                    continue;
                }
                let ready = self.ready(&self.files.table.get(fd)?);
                let wanted = [POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, 0][index];
                if ready & wanted != 0 {
                    results[index][(fd / 64) as usize] |= 1 << (fd % 64);
                    found += 1;
                }
            }
        }
        if found > 0 || last {
            for (result, &set) in results.iter().zip(&sets).filter(|(_, set)| **set != 0) {
                self.put_words(set, &result[..words as usize])?;
            }
        }
        Ok(found)
    }
}

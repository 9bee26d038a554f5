//! `futex_waitv`: waits until one of several futexes is woken.
//!
//! Source: Linux 6.12 `kernel/futex/syscalls.c`, `waitwake.c` (`futex_wait_multiple`).

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::threads::WaitCondition;
use crate::linux::waiter::Waiter;

/// Maximum number of futexes (`FUTEX_WAITV_MAX`).
const COUNT_MAX: u32 = 128;
/// The flags of a futex: its size, which can only be 32 bits, and that only this process uses it.
const SIZE_MASK: u32 = 3;
const SIZE_32: u32 = 2;
const PRIVATE: u32 = 128;

/// A futex, and the value that it must have.
struct FutexWait {
    at: u64,
    value: u32,
    is_private: bool,
}

impl Kernel {
    /// Returns the place, in the list, of a futex that was woken: of several the last one.
    pub(super) fn sys_futex_waitv(&mut self, args: [u64; 6]) -> Answer {
        let [list, count, flags, timeout, clock, _] = args;
        let count = count as u32;
        if flags as u32 != 0 || count == 0 || count > COUNT_MAX || list == 0 {
            return Err(Errno::EINVAL);
        }
        // Linux reads its arguments only once.
        if self.has_waited() {
            return self.wait_for_futexes(&[], count, None);
        }

        let until = match timeout {
            0 => None,
            _ if clock as u32 > 1 => return Err(Errno::EINVAL),
            at => Some(self.time_at(u64::from(clock as u32), at)?),
        };

        let all: Vec<FutexWait> = (0..u64::from(count))
            .map(|index| self.wanted_futex(list.wrapping_add(24 * index)))
            .collect::<Answer<_>>()?;

        // Every address is checked before the first value is compared
        // (`futex_wait_multiple_setup`).
        for futex in &all {
            self.futex_key(futex.at, futex.is_private)?;
        }
        for futex in &all {
            if self.u32_at(futex.at)? != futex.value {
                return Err(Errno::EAGAIN);
            }
        }

        let all: Vec<u64> = all.iter().map(|futex| futex.at).collect();
        self.wait_for_futexes(&all, count, until)
    }

    /// Reads a `struct futex_waitv`: the value, the address, flags, and 0.
    fn wanted_futex(&self, at: u64) -> Answer<FutexWait> {
        let (value, address) = (self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?);
        let last = self.u64_at(at.wrapping_add(16))?;
        let (flags, rest) = (last as u32, last >> 32);
        let is_known = flags & !(SIZE_MASK | PRIVATE) == 0 && flags & SIZE_MASK == SIZE_32;
        if !is_known || rest != 0 || value > u64::from(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        Ok(FutexWait {
            at: address,
            value: value as u32,
            is_private: flags & PRIVATE != 0,
        })
    }

    /// Waits for the futexes at these addresses, which count only at first.
    fn wait_for_futexes(&mut self, all: &[u64], count: u32, until: Option<u64>) -> Answer {
        let (process, thread) = (self.process.number, self.process.thread.number);
        let wait = self.process.thread.wait.as_ref();
        if wait.is_some_and(|wait| wait.what == WaitCondition::Woken) {
            // Those that are no longer in the queue were woken.
            let own = self.system.futexes.iter();
            let own = own.filter(|waiter| waiter.is(process, thread));
            let asleep: Vec<u32> = own.map(|waiter| waiter.index).collect();
            self.forget_futexes(process, thread);
            // Of several the last one (`futex_unqueue_multiple`).
            let woken = (0..count).rev().find(|index| !asleep.contains(index));
            return Ok(woken.unwrap_or(0).into());
        }

        let is_first = wait.is_none();
        let ended = match self.wait_until(until, WaitCondition::Futex) {
            Ok(true) => Errno::ERESTARTSYS,
            Ok(false) => Errno::ETIMEDOUT,
            Err(waits) => {
                for (index, &at) in (0..).zip(all).filter(|_| is_first) {
                    let waiter = Waiter {
                        process,
                        place: self.futex_place(at),
                        bits: u32::MAX,
                        thread,
                        index,
                    };
                    self.system.futexes.push_back(waiter);
                }
                return Err(waits);
            }
        };

        // A later wake must not count a thread that has gone.
        self.forget_futexes(process, thread);
        Err(ended)
    }

    /// The thread no longer waits for any futex.
    pub(super) fn forget_futexes(&mut self, process: u32, thread: u32) {
        let all = &mut self.system.futexes;
        all.retain(|waiter| !waiter.is(process, thread));
    }
}

//! `futex` in a process with one thread: no other thread waits or wakes.
//!
//! Source: Linux 6.12 `kernel/futex/syscalls.c`, `waitwake.c`, `requeue.c`, and
//! `arch/x86/include/asm/futex.h`.

use crate::linux::Process;
use crate::linux::clock::Base;
use crate::linux::errno::{Answer, Errno};

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const TRYLOCK_PI: u32 = 8;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const WAIT_REQUEUE_PI: u32 = 11;
const LOCK_PI2: u32 = 13;
const PRIVATE: u32 = 128;
const REALTIME: u32 = 256;

impl Process {
    pub(super) fn sys_futex(&mut self, args: [u64; 6]) -> Answer {
        let [at, op, value, timeout, second, third] = args;
        let op = op as u32;
        let operation = op & !(PRIVATE | REALTIME);
        if op & REALTIME != 0 && !matches!(operation, WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2) {
            return Err(Errno::ENOSYS);
        }
        let is_private = op & PRIVATE != 0;
        match operation {
            WAIT => self.futex_wait(at, op, value, timeout),
            WAIT_BITSET if third as u32 == 0 => Err(Errno::EINVAL),
            WAIT_BITSET => self.futex_wait(at, op, value, timeout),
            WAKE_BITSET if third as u32 == 0 => Err(Errno::EINVAL),
            WAKE | WAKE_BITSET => self.futex_key(at, is_private).map(|()| 0),
            REQUEUE | CMP_REQUEUE => {
                if (value as i32) < 0 || (timeout as i32) < 0 {
                    return Err(Errno::EINVAL);
                }
                self.futex_key(at, is_private)?;
                self.futex_key(second, is_private)?;
                if operation == CMP_REQUEUE && self.u32_at(at)? != third as u32 {
                    return Err(Errno::EAGAIN);
                }
                Ok(0)
            }
            WAKE_OP => {
                self.futex_key(at, is_private)?;
                self.futex_key(second, is_private)?;
                self.futex_change(second, third as u32)
            }
            LOCK_PI..=TRYLOCK_PI | WAIT_REQUEUE_PI..=LOCK_PI2 => {
                self.not_modelled("futexes with priority inheritance", Errno::ENOSYS)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Checks that a futex can be at an address.
    fn futex_key(&self, at: u64, is_private: bool) -> Answer<()> {
        if !at.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        self.accessible(at, 4)?;
        // A shared futex is identified by the memory mapped there.
        if !is_private {
            self.u32_at(at)?;
        }
        Ok(())
    }

    fn futex_wait(&mut self, at: u64, op: u32, value: u64, timeout: u64) -> Answer {
        let until = match timeout {
            0 => None,
            at if op & !(PRIVATE | REALTIME) == WAIT => {
                let now = self.clock.now(Base::Real);
                Some(now.saturating_add(self.duration_at(at)?))
            }
            at => Some(self.time_at(u64::from(op & REALTIME == 0), at)?),
        };
        self.futex_key(at, op & PRIVATE != 0)?;
        if self.u32_at(at)? != value as u32 {
            return Err(Errno::EAGAIN);
        }
        if self.sleep_until_signal(until) {
            // A relative timeout would start again.
            return Err(match until {
                None => Errno::ERESTARTSYS,
                Some(_) => Errno::ERESTARTNOHAND,
            });
        }
        match until {
            Some(_) => Err(Errno::ETIMEDOUT),
            None => Err(self.blocked("futex")),
        }
    }

    /// `FUTEX_WAKE_OP`: changes a word as encoded; no thread waits.
    fn futex_change(&mut self, at: u64, encoded: u32) -> Answer {
        const ARGUMENT_SHIFTS: u32 = 1 << 31;
        /// Number of comparisons.
        const COMPARISONS: u32 = 6;
        let signed = |bits: u32| (bits << 20).cast_signed() >> 20;
        let mut argument = signed(encoded >> 12).cast_unsigned();
        if encoded & ARGUMENT_SHIFTS != 0 {
            argument = 1 << (argument & 31);
        }
        let old = self.u32_at(at)?;
        let new = match encoded >> 28 & 7 {
            0 => argument,
            1 => old.wrapping_add(argument),
            2 => old | argument,
            3 => old & !argument,
            4 => old ^ argument,
            _ => return Err(Errno::ENOSYS),
        };
        self.put_u32(at, new)?;
        match encoded >> 24 & 15 {
            0..COMPARISONS => Ok(0),
            _ => Err(Errno::ENOSYS),
        }
    }
}

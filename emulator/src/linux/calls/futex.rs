//! `futex`, and what it does when a thread ends.
//!
//! Source: Linux 6.12 `kernel/futex/syscalls.c`, `waitwake.c`, `requeue.c`, `pi.c`, `core.c`
//! (`exit_robust_list`), and `arch/x86/include/asm/futex.h`.

use crate::address_space::MemoryKey;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::threads::WaitCondition;
use crate::linux::waiter::Waiter;

const WAIT: u32 = 0;
const WAKE: u32 = 1;
const REQUEUE: u32 = 3;
const CMP_REQUEUE: u32 = 4;
const WAKE_OP: u32 = 5;
const LOCK_PI: u32 = 6;
const UNLOCK_PI: u32 = 7;
const TRYLOCK_PI: u32 = 8;
const WAIT_BITSET: u32 = 9;
const WAKE_BITSET: u32 = 10;
const WAIT_REQUEUE_PI: u32 = 11;
const CMP_REQUEUE_PI: u32 = 12;
const LOCK_PI2: u32 = 13;
const PRIVATE: u32 = 128;
const REALTIME: u32 = 256;

/// In the word of a futex with an owner: others wait; the owner ended; the owner's number.
const WAITERS: u32 = 0x8000_0000;
const OWNER_DIED: u32 = 0x4000_0000;
const OWNER: u32 = 0x3fff_ffff;
/// Maximum length of a list of robust futexes (`ROBUST_LIST_LIMIT`).
const ROBUST_MAX: usize = 2048;

impl Kernel {
    pub(super) fn sys_futex(&mut self, args: [u64; 6]) -> Answer {
        let [at, op, value, timeout, second, third] = args;

        let op = op as u32;
        let operation = op & !(PRIVATE | REALTIME);
        // Only these may choose the clock (`do_futex`).
        if op & REALTIME != 0 && !matches!(operation, WAIT_BITSET | WAIT_REQUEUE_PI | LOCK_PI2) {
            return Err(Errno::ENOSYS);
        }

        let is_private = op & PRIVATE != 0;
        let bits = match operation {
            WAIT_BITSET | WAKE_BITSET => third as u32,
            _ => u32::MAX,
        };

        // A waiter without bits could never be woken.
        if bits == 0 {
            return Err(Errno::EINVAL);
        }

        match operation {
            WAIT | WAIT_BITSET => self.futex_wait(at, op, value as u32, timeout, bits),
            WAKE | WAKE_BITSET => {
                // `futex_wake` counts after it has woken one, so a count of 0 wakes one, too.
                self.futex_key(at, is_private)?;
                Ok(self.futex_wake(at, (value as i32).max(1).cast_unsigned(), bits))
            }
            REQUEUE | CMP_REQUEUE => {
                if (value as i32) < 0 || (timeout as i32) < 0 {
                    return Err(Errno::EINVAL);
                }
                self.futex_key(at, is_private)?;
                self.futex_key(second, is_private)?;

                // The caller's view of the futex must still be true (futex(2)).
                if operation == CMP_REQUEUE && self.u32_at(at)? != third as u32 {
                    return Err(Errno::EAGAIN);
                }

                let woken = self.futex_wake(at, value as u32, u32::MAX);
                let moved = self.futex_requeue(at, second, timeout as u32);
                Ok(match operation {
                    CMP_REQUEUE => woken + moved,
                    _ => woken,
                })
            }
            // The second count comes in place of the time-out (futex(2)).
            WAKE_OP => {
                self.futex_key(at, is_private)?;
                self.futex_key(second, is_private)?;

                // The word changes first: its old value says whether the second futex is woken.
                let also = self.futex_change(second, third as u32)?;
                let woken = self.futex_wake(at, (value as i32).max(1).cast_unsigned(), u32::MAX);

                let count = (timeout as i32).max(1).cast_unsigned();
                let more = if also {
                    self.futex_wake(second, count, u32::MAX)
                } else {
                    0
                };
                Ok(woken + more)
            }
            LOCK_PI | LOCK_PI2 => self.futex_lock(at, op, timeout),
            TRYLOCK_PI => self.futex_try_lock(at, is_private),
            UNLOCK_PI => self.futex_unlock(at, is_private),
            WAIT_REQUEUE_PI | CMP_REQUEUE_PI => self.not_modelled(
                "requeueing futexes with priority inheritance",
                Errno::ENOSYS,
            ),
            _ => Err(Errno::ENOSYS),
        }
    }

    /// Checks that a futex can be at an address.
    pub(super) fn futex_key(&self, at: u64, is_private: bool) -> Answer<()> {
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

    /// What identifies the futex at an address.
    pub(super) fn futex_place(&self, at: u64) -> MemoryKey {
        let memory = &self.machine.core.memory;
        memory.place(at).unwrap_or(MemoryKey::Private {
            space: memory.id(),
            address: at,
        })
    }

    /// The end of a wait, in real time.
    fn futex_end(&self, op: u32, timeout: u64) -> Answer<Option<u64>> {
        Ok(match (timeout, op & !(PRIVATE | REALTIME)) {
            (0, _) => None,
            (at, WAIT) => {
                let now = self.clock.real();
                Some(now.saturating_add(self.duration_at(at)?))
            }
            // Its clock is always that of the time of day.
            (at, LOCK_PI) => Some(self.time_at(0, at)?),
            (at, _) => Some(self.time_at(u64::from(op & REALTIME == 0), at)?),
        })
    }

    fn futex_wait(&mut self, at: u64, op: u32, value: u32, timeout: u64, bits: u32) -> Answer {
        let until = self.futex_end(op, timeout)?;
        if !self.has_waited() {
            self.futex_key(at, op & PRIVATE != 0)?;
            if self.u32_at(at)? != value {
                return Err(Errno::EAGAIN);
            }
        }
        // A relative timeout would start again.
        let restart = match until {
            None => Errno::ERESTARTSYS,
            Some(_) => Errno::ERESTARTNOHAND,
        };
        self.futex_queue(at, bits, until, restart).map(|()| 0)
    }

    /// Waits until the futex is woken.
    fn futex_queue(
        &mut self,
        at: u64,
        bits: u32,
        until: Option<u64>,
        restart: Errno,
    ) -> Answer<()> {
        let thread = self.process.thread.number;
        let wait = self.process.thread.wait.as_ref();
        // The waker has taken it out of the queue.
        if wait.is_some_and(|wait| wait.what == WaitCondition::Woken) {
            return Ok(());
        }

        let is_first = wait.is_none();
        let ended = match self.wait_until(until, WaitCondition::Futex) {
            Ok(true) => restart,
            Ok(false) => Errno::ETIMEDOUT,
            Err(waits) => {
                // A call that is answered again is in the queue already.
                if is_first {
                    let waiter = Waiter {
                        process: self.process.number,
                        place: self.futex_place(at),
                        bits,
                        thread,
                        index: 0,
                    };
                    self.system.futexes.push_back(waiter);
                }
                return Err(waits);
            }
        };

        // A later wake must not count a thread that has gone.
        let process = self.process.number;
        self.forget_futexes(process, thread);
        Err(ended)
    }

    /// Wakes at most `count` threads, those that have waited longest.
    pub(in crate::linux) fn futex_wake(&mut self, at: u64, count: u32, bits: u32) -> u64 {
        let (mut woken, place) = (0, self.futex_place(at));
        while woken < u64::from(count) {
            let is_it = |waiter: &Waiter| waiter.place == place && waiter.bits & bits != 0;
            let Some(index) = self.system.futexes.iter().position(is_it) else {
                break;
            };
            let Some(waiter) = self.system.futexes.remove(index) else {
                break;
            };
            let thread = self.thread_mut(waiter.process, waiter.thread);
            if let Some(wait) = thread.and_then(|thread| thread.wait.as_mut()) {
                wait.what = WaitCondition::Woken;
                woken += 1;
            }
        }
        woken
    }

    /// Lets at most `count` waiting threads wait for another futex.
    fn futex_requeue(&mut self, from: u64, to: u64, count: u32) -> u64 {
        let (place, to) = (self.futex_place(from), self.futex_place(to));
        let is_it = |waiter: &&mut Waiter| waiter.place == place;
        let waiting = self.system.futexes.iter_mut().filter(is_it);
        let mut moved = 0;
        for waiter in waiting.take(count as usize) {
            waiter.place = to;
            moved += 1;
        }
        moved
    }

    /// `FUTEX_WAKE_OP`: changes a word as encoded; whether its old value compares as encoded.
    fn futex_change(&mut self, at: u64, encoded: u32) -> Answer<bool> {
        const ARGUMENT_SHIFTS: u32 = 1 << 31;

        // Both numbers are 12 bits with a sign (`futex_atomic_op_inuser`).
        let signed = |bits: u32| (bits << 20).cast_signed() >> 20;
        let mut argument = signed(encoded >> 12).cast_unsigned();
        let compared = signed(encoded);
        // The argument is the number of a bit then.
        if encoded & ARGUMENT_SHIFTS != 0 {
            argument = 1 << (argument & 31);
        }

        let old = self.u32_at(at)?;

        // The operations and comparisons of `FUTEX_OP` (futex(2)).
        let new = match encoded >> 28 & 7 {
            0 => argument,
            1 => old.wrapping_add(argument),
            2 => old | argument,
            3 => old & !argument,
            4 => old ^ argument,
            _ => return Err(Errno::ENOSYS),
        };
        self.put_u32(at, new)?;

        let old = old.cast_signed();
        Ok(match encoded >> 24 & 15 {
            0 => old == compared,
            1 => old != compared,
            2 => old < compared,
            3 => old <= compared,
            4 => old > compared,
            5 => old >= compared,
            _ => return Err(Errno::ENOSYS),
        })
    }

    /// Takes the futex at an address if no thread owns it; whether it was taken.
    fn futex_take(&mut self, at: u64) -> Answer<bool> {
        let word = self.u32_at(at)?;
        match word & OWNER {
            0 => {
                self.put_u32(at, word & WAITERS | self.process.thread.number)?;
                Ok(true)
            }
            owner if owner == self.process.thread.number => Err(Errno::EDEADLK),
            owner if !self.process.others.contains_key(&owner) => Err(Errno::ESRCH),
            _ => Ok(false),
        }
    }

    fn futex_lock(&mut self, at: u64, op: u32, timeout: u64) -> Answer {
        let until = self.futex_end(op, timeout)?;
        self.futex_key(at, op & PRIVATE != 0)?;
        if !self.has_waited() {
            if self.futex_take(at)? {
                return Ok(0);
            }
            let word = self.u32_at(at)?;
            self.put_u32(at, word | WAITERS)?;
        }
        // The thread that unlocks it makes this one the owner.
        self.futex_queue(at, u32::MAX, until, Errno::ERESTARTSYS)
            .map(|()| 0)
    }

    fn futex_try_lock(&mut self, at: u64, is_private: bool) -> Answer {
        self.futex_key(at, is_private)?;
        if self.futex_take(at)? {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    }

    fn futex_unlock(&mut self, at: u64, is_private: bool) -> Answer {
        self.futex_key(at, is_private)?;
        if self.u32_at(at)? & OWNER != self.process.thread.number {
            return Err(Errno::EPERM);
        }
        self.futex_hand_over(at, 0)
    }

    /// Gives a futex to the thread that has waited longest, or to none.
    fn futex_hand_over(&mut self, at: u64, flags: u32) -> Answer {
        let place = self.futex_place(at);
        let is_it = |waiter: &&Waiter| waiter.place == place;
        let mut waiting = self.system.futexes.iter().filter(is_it);
        let next = waiting.next().map_or(0, |waiter| waiter.thread);
        let rest = if waiting.next().is_some() { WAITERS } else { 0 };
        self.put_u32(at, next | rest | flags)?;
        self.futex_wake(at, 1, u32::MAX);
        Ok(0)
    }

    /// Releases what a thread that ends holds: robust futexes, and the word that its creator waits
    /// for.
    pub(in crate::linux) fn release_futexes(&mut self) {
        let head = std::mem::take(&mut self.process.thread.robust_list);
        if head != 0 {
            // Like Linux, it stops at memory that cannot be used.
            let _ = self.release_robust(head);
        }
        let at = std::mem::take(&mut self.process.thread.cleared_at_exit);
        if at != 0 && !self.process.others.is_empty() && self.put_u32(at, 0).is_ok() {
            self.futex_wake(at, 1, u32::MAX);
        }
    }

    /// Walks a `struct robust_list_head`: the first entry, the offset from an entry to its word,
    /// the entry that was being changed.
    fn release_robust(&mut self, head: u64) -> Answer<()> {
        let word = |process: &Kernel, index: u64| process.u64_at(head.wrapping_add(8 * index));
        let (mut entry, offset, pending) = (word(self, 0)?, word(self, 1)?, word(self, 2)?);
        for _ in 0..ROBUST_MAX {
            let at = entry & !1;
            if at == head {
                break;
            }
            let next = self.u64_at(at);
            if at != pending & !1 {
                self.release_one(at.wrapping_add(offset), entry & 1 != 0)?;
            }
            entry = next?;
        }
        if pending & !1 != 0 {
            self.release_one((pending & !1).wrapping_add(offset), pending & 1 != 0)?;
        }
        Ok(())
    }

    fn release_one(&mut self, at: u64, inherits: bool) -> Answer<()> {
        let word = self.u32_at(at)?;
        if word & OWNER != self.process.thread.number {
            return Ok(());
        }
        if inherits {
            self.futex_hand_over(at, OWNER_DIED)?;
            return Ok(());
        }
        self.put_u32(at, word & WAITERS | OWNER_DIED)?;
        if word & WAITERS != 0 {
            self.futex_wake(at, 1, u32::MAX);
        }
        Ok(())
    }
}

//! Restartable sequences: code that must run without another thread in between, and that a thread
//! begins again, at another place, if it did not.
//!
//! Source: Linux 6.12 `kernel/rseq.c`, `include/uapi/linux/rseq.h`.

use super::errno::{Answer, Errno};
use super::kernel::Kernel;
use super::outcome::SignalOrigin;
use super::signals::{Info, SIGSEGV};
use crate::address_space::TASK_SIZE;

/// Size and alignment of the first version of `struct rseq`, bytes.
const SIZE: u32 = 32;
/// `RSEQ_CPU_ID_UNINITIALIZED`.
const NO_PROCESSOR: u32 = u32::MAX;
/// Where a `struct rseq` names the sequence that the thread is in.
const SEQUENCE_AT: u64 = 8;

/// What a thread has registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RseqArea {
    /// The address and the size of its `struct rseq`.
    at: u64,
    size: u32,
    /// What stands before each place at which a sequence goes on.
    signature: u32,
}

impl RseqArea {
    /// The address, the size and the signature.
    pub(super) fn words(&self) -> [u64; 3] {
        [self.at, self.size.into(), self.signature.into()]
    }
}

impl Kernel {
    pub(super) fn sys_rseq(&mut self, at: u64, size: u64, flags: u64, signature: u64) -> Answer {
        const UNREGISTER: u32 = 1;
        let wanted = RseqArea {
            at,
            size: size as u32,
            signature: signature as u32,
        };

        // A thread can register one area.
        let known = self.process.thread.rseq;
        if flags as u32 == UNREGISTER {
            // Only what was registered can be unregistered (`kernel/rseq.c`).
            return match known {
                Some(known) if known.at != at || at == 0 => Err(Errno::EINVAL),
                Some(known) if known.size != wanted.size => Err(Errno::EINVAL),
                Some(known) if known.signature != wanted.signature => Err(Errno::EPERM),
                Some(_) => {
                    self.put_processor(at, NO_PROCESSOR)?;
                    self.process.thread.rseq = None;
                    Ok(0)
                }
                None => Err(Errno::EINVAL),
            };
        }

        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }

        match known {
            Some(known) if known.at != at || known.size != wanted.size => Err(Errno::EINVAL),
            Some(known) if known.signature != wanted.signature => Err(Errno::EPERM),
            Some(_) => Err(Errno::EBUSY),
            None if wanted.size < SIZE || !at.is_multiple_of(SIZE.into()) => Err(Errno::EINVAL),
            None => {
                self.accessible(at, wanted.size.into())?;
                self.process.thread.rseq = Some(wanted);
                // Linux does this when the thread goes on.
                if self.put_processor(at, 0).is_err() {
                    self.end_sequence();
                }
                Ok(0)
            }
        }
    }

    /// Stores the number of the processor; there is one, of one node.
    fn put_processor(&mut self, at: u64, number: u32) -> Answer<()> {
        // cpu_id_start, cpu_id; node_id, mm_cid.
        let start = if number == NO_PROCESSOR { 0 } else { number };
        self.put_u32(at, start)?;
        self.put_u32(at.wrapping_add(4), number)?;
        self.put_words(at.wrapping_add(20), &[0])
    }

    /// The running thread goes on after another one ran, or before a handler runs: if it is in a
    /// sequence, it leaves it.
    pub(super) fn leave_sequence(&mut self) {
        if let Some(registered) = self.process.thread.rseq
            && self.abort_sequence(registered).is_err()
        {
            self.end_sequence();
        }
    }

    fn abort_sequence(&mut self, registered: RseqArea) -> Answer<()> {
        // `rseq_cs`: the sequence that the thread may be in.
        let named = registered.at.wrapping_add(SEQUENCE_AT);
        let at = self.u64_at(named)?;
        if at == 0 {
            return Ok(());
        }

        if at >= TASK_SIZE {
            return Err(Errno::EINVAL);
        }

        // `struct rseq_cs`: version, flags, start_ip, post_commit_offset, abort_ip.
        let word = |index: u64| self.u64_at(at.wrapping_add(8 * index));
        let (version, start, length, abort) = (self.u32_at(at)?, word(1)?, word(2)?, word(3)?);

        let end = start.wrapping_add(length);
        let is_inside = abort.wrapping_sub(start) < length;
        let is_wrong = start >= TASK_SIZE || end >= TASK_SIZE || abort >= TASK_SIZE || end < start;
        if is_wrong || version > 0 || is_inside {
            return Err(Errno::EINVAL);
        }

        // A wrong signature would let others choose where the program goes on.
        let before = self.u32_at(abort.wrapping_sub(4))?;
        if before != registered.signature {
            return Err(Errno::EINVAL);
        }

        let rip = self.machine.core.state.rip;
        // It is cleared even outside of the sequence (`rseq_ip_fixup`).
        self.put_u64(named, 0)?;
        if rip.wrapping_sub(start) < length {
            self.machine.core.state.rip = abort;
        }
        Ok(())
    }

    /// A sequence that cannot be used ends the process.
    fn end_sequence(&mut self) {
        let info = Info::forced(SIGSEGV, SignalOrigin::Sent);
        self.process.signals.force(info);
    }
}

//! `ptrace`: the signals of a thread: the one that stopped it, pending ones, the mask.

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::signals::Info;
use crate::linux::task::Task;
use crate::linux::tracing::StopKind;

/// `sizeof(siginfo_t)`, bytes.
const SIGINFO: usize = 128;
/// `sizeof(sigset_t)` in the kernel, bytes.
const SIGSET: u64 = 8;

impl Kernel {
    pub(super) fn get_siginfo(&mut self, task: Task, to: u64) -> Answer {
        let stop = self.traced(task)?.stop.as_ref();
        let info = stop.and_then(|stop| stop.info.as_ref());
        let bytes = info.ok_or(Errno::EINVAL)?.bytes;
        self.put(to, &bytes)?;
        Ok(0)
    }

    pub(super) fn set_siginfo(&mut self, task: Task, from: u64) -> Answer {
        let bytes = self.bytes::<SIGINFO>(from)?;
        let stop = self.traced(task)?.stop.as_mut();
        let stop = stop.ok_or(Errno::ESRCH)?;
        let info = stop.info.as_mut().ok_or(Errno::EINVAL)?;
        info.bytes = bytes;
        // The number that the tracer gives when it continues the thread is compared with this one.
        if stop.kind == StopKind::Signal {
            info.signal = bytes[0];
        }
        Ok(0)
    }

    /// Pending signals, in the order in which they came: a `struct ptrace_peeksiginfo_args`.
    pub(super) fn peek_siginfo(&mut self, task: Task, args: u64, to: u64) -> Answer {
        /// `PTRACE_PEEKSIGINFO_SHARED`.
        const SHARED: u32 = 1;
        let words = self.bytes::<16>(args)?;
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| words[at + i]));
        // `off`, `flags` and `nr`.
        let offset = u64::from(word(0)) | u64::from(word(4)) << 32;
        let (flags, count) = (word(8), word(12).cast_signed());
        if flags & !SHARED != 0 || count < 0 {
            return Err(Errno::EINVAL);
        }

        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let take = |all: &mut dyn Iterator<Item = &Info>| -> Vec<[u8; SIGINFO]> {
            let some = all.skip(skip).take(count.unsigned_abs() as usize);
            some.map(|info| info.bytes).collect()
        };

        // Those of the process, or of the thread alone.
        let found = if flags & SHARED != 0 {
            let signals = self.signals_of(task.process).ok_or(Errno::ESRCH)?;
            take(&mut signals.shared())
        } else {
            let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
            take(&mut tracee.signals.pending())
        };

        // A bad address ends the list; what was stored before counts.
        for (index, bytes) in found.iter().enumerate() {
            let at = to.wrapping_add((index * SIGINFO) as u64);
            match self.put(at, bytes) {
                Err(error) if index == 0 => return Err(error),
                Err(_) => return Ok(index as u64),
                Ok(()) => {}
            }
        }
        Ok(found.len() as u64)
    }

    pub(super) fn get_sigmask(&mut self, task: Task, size: u64, to: u64) -> Answer {
        if size != SIGSET {
            return Err(Errno::EINVAL);
        }
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        let mask = tracee.signals.kept_mask();
        self.put_u64(to, mask)?;
        Ok(0)
    }

    pub(super) fn set_sigmask(&mut self, task: Task, size: u64, from: u64) -> Answer {
        if size != SIGSET {
            return Err(Errno::EINVAL);
        }
        let mask = self.u64_at(from)?;
        let tracee = self.tracee(task).ok_or(Errno::ESRCH)?;
        tracee.signals.set_mask(mask);
        Ok(0)
    }
}

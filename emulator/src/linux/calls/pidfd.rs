//! Descriptors of processes: `pidfd_open`, `pidfd_send_signal`, `pidfd_getfd`.
//!
//! Source: Linux 6.12 `kernel/pid.c`, `kernel/signal.c`, `kernel/fork.c` (`pidfd_prepare`).

use super::signal::{SI_USER, signal};
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, o};
use crate::linux::handle::ev;
use crate::linux::objects::Object;
use crate::linux::signals::Info;
use crate::linux::{INIT, Kernel};

impl Kernel {
    /// Whether a process has ended; `None` if there is none of this number, or not any more.
    pub(super) fn has_ended(&self, number: u32) -> Option<bool> {
        if number == INIT {
            return Some(false);
        }
        if self.system.ended.iter().any(|ended| ended.number == number) {
            return Some(true);
        }
        let mut all = self.all_processes();
        all.find(|process| process.number == number && !process.has_ended)
            .map(|_| false)
    }

    /// A process has ended: those who wait for its descriptors go on.
    pub(in crate::linux) fn wake_pidfds(&mut self, ended: u32) {
        let is_it =
            |object: &Object| matches!(object, Object::Process { number } if *number == ended);
        for id in self.objects.find(is_it) {
            self.objects.wake(id, ev::READABLE);
        }
    }

    pub(super) fn sys_pidfd_open(&mut self, number: u64, flags: u64) -> Answer {
        /// `PIDFD_THREAD`, since Linux 6.9.
        const THREAD: u32 = o::EXCL;
        let flags = flags as u32;
        if flags & !(o::NONBLOCK | THREAD) != 0 || number as i32 <= 0 {
            return Err(Errno::EINVAL);
        }
        if flags & THREAD != 0 {
            return self.not_modelled("descriptors of threads", Errno::EINVAL);
        }
        let number = number as u32;
        if self.has_ended(number).is_none() {
            return Err(if self.is_thread(number) {
                Errno::EINVAL
            } else {
                Errno::ESRCH
            });
        }
        self.add_pidfd(number, flags & o::NONBLOCK)
    }

    fn is_thread(&self, number: u32) -> bool {
        let mut all = self.all_processes();
        all.any(|process| process.others.contains_key(&number) || process.thread.number == number)
    }

    /// Opens a descriptor of a process; it is closed by `execve`.
    pub(super) fn add_pidfd(&mut self, number: u32, flags: u32) -> Answer {
        let flags = flags | o::RDWR;
        self.add_object(Object::Process { number }, flags, o::CLOEXEC.into())
    }

    /// The process of a descriptor, and whether the descriptor does not wait.
    pub(super) fn process_at(&self, fd: u64) -> Answer<(u32, bool)> {
        let open = self.files.own.table.get(fd)?;
        let open = open.borrow();
        let Kind::Object(handle) = &open.kind else {
            return Err(Errno::EBADF);
        };
        match self.objects.get(handle.id) {
            Some(Object::Process { number }) => Ok((*number, open.flags & o::NONBLOCK != 0)),
            _ => Err(Errno::EBADF),
        }
    }

    pub(super) fn sys_pidfd_send_signal(
        &mut self,
        fd: u64,
        number: u64,
        info: u64,
        flags: u64,
    ) -> Answer {
        /// `PIDFD_SIGNAL_THREAD` and the like, since Linux 6.9.
        const SCOPES: u32 = 7;
        match flags as u32 {
            0 => {}
            1 | 2 | 4 => {
                return self.not_modelled("pidfd_send_signal: scopes", Errno::EINVAL);
            }
            flags => {
                debug_assert!(flags & !SCOPES != 0 || flags.count_ones() > 1);
                return Err(Errno::EINVAL);
            }
        }

        let (target, _) = self.process_at(fd)?;
        let uid = self.files.own.identity.user.real;
        let own = self.process.number;

        let given = match info {
            0 => None,
            at => Some(self.bytes::<128>(at)?),
        };
        if let Some(bytes) = given {
            // `si_signo` is at 0, `si_code` at 8.
            let word = |at: usize| i32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));

            // The signal's number is given twice, and has to be the same.
            if word(0) != number as i32 {
                return Err(Errno::EINVAL);
            }
            // Codes of the kernel and of `tkill` cannot be forged (`kernel/signal.c`).
            if target != own && (word(8) >= 0 || word(8) == -6) {
                return Err(Errno::EPERM);
            }
        }

        let signal = signal(number)?;

        // A process that was waited for is gone.
        if self.has_ended(target).is_none() {
            return Err(Errno::ESRCH);
        }

        self.may_signal(target, signal)?;

        // Signal 0 only checks.
        if let Some(signal) = signal {
            let info = match given {
                Some(bytes) => Info::given(signal, bytes),
                None => Info::from_process(signal, SI_USER, own, uid),
            };
            self.send_to(target, None, info);
        }
        Ok(0)
    }

    /// Duplicates a descriptor of another process.
    pub(super) fn sys_pidfd_getfd(&mut self, fd: u64, other: u64, flags: u64) -> Answer {
        if flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let (target, _) = self.process_at(fd)?;
        if self.has_ended(target) != Some(false) {
            return Err(Errno::ESRCH);
        }
        let files = self.files.of_process(target).ok_or(Errno::EPERM)?;
        let open: Shared = files.table.get_named(other)?;
        self.add_open(open, o::CLOEXEC.into())
    }
}

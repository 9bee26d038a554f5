//! Keeps the machine's own limits, and those that a process sets itself (`setrlimit`). A program that
//! reaches one gets the error of Linux. Where the limit is the machine's, there is also a notice,
//! and a program that does not stop asking for more ends the run.
//!
//! Source: Linux 6.12 `kernel/fork.c` (`copy_process`), `mm/mmap.c` (`may_expand_vm`), `mm/util.c`
//! (`__vm_enough_memory`), `mm/filemap.c` (`generic_write_check_limits`), `fs/attr.c`
//! (`inode_newsize_ok`), `kernel/signal.c` (`sig_get_ucounts`), `mm/mlock.c`.

use super::errno::{Answer, Errno};
use super::files::{Kind, Shared};
use super::kernel::Kernel;
use super::limit::Limit;
use super::outcome::{Notice, Outcome};
use super::resources::{
    RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_MEMLOCK, RLIMIT_NPROC, RLIMIT_SIGPENDING,
    RLIMIT_STACK, unlimited,
};
use super::signals::{Info, SIGXFSZ};
use crate::address_space::{PAGE_SIZE, Permissions};
use crate::load::{MMAP_BASE, STACK_TOP};

/// How often a limit of the machine may refuse more tasks before the run ends. No program that
/// copes with the error asks so often, and one that does not would never end.
const REFUSALS_MAX: u32 = 1000;
/// What Linux maps of a stack at first, bytes.
const STACK_BEGUN: u64 = 132 << 10;

impl Kernel {
    fn soft(&self, resource: usize) -> u64 {
        self.process.resources[resource][0]
    }

    /// Fails at a limit of the machine.
    pub(super) fn refuse<T>(&mut self, limit: Limit, errno: Errno) -> Answer<T> {
        self.notice(Notice::Limit(limit));
        Err(errno)
    }

    /// Checks whether there may be another thread or process.
    ///
    /// # Errors
    /// `EAGAIN`. If that has been the answer too often, the run ends.
    pub(super) fn may_add_task(&mut self) -> Answer<()> {
        let threads = |process: &super::process::Process| {
            process.others.len() + usize::from(!process.thread.has_ended)
        };
        let all = self.all_processes().map(threads).sum::<usize>();
        let zombies = self.system.ended.len() + self.system.ended_threads.len();
        if all + zombies >= self.limits.tasks {
            self.system.refusals += 1;
            if self.system.refusals > REFUSALS_MAX {
                let rip = self.machine.core.state.rip;
                self.outcome = Some(Outcome::OutOfTasks { rip });
            }
            return self.refuse(Limit::Tasks, Errno::EAGAIN);
        }
        // All processes belong to one user, unless one that is privileged has changed that.
        let limit = self.soft(RLIMIT_NPROC);
        let identity = &self.files.own.identity;
        if (all + zombies) as u64 >= limit && !identity.is_capable() && identity.user.real != 0 {
            return Err(Errno::EAGAIN);
        }
        Ok(())
    }

    /// Checks whether there may be `more` pipe ends, sockets and the like.
    ///
    /// # Errors
    /// `ENFILE`, as at Linux' limit of open files of all processes.
    pub(super) fn may_add_objects(&mut self, more: usize) -> Answer<()> {
        if self.objects.count() + more > self.limits.objects {
            return self.refuse(Limit::Objects, Errno::ENFILE);
        }
        Ok(())
    }

    /// Checks whether there is memory for a text of the kernel that an open file keeps.
    ///
    /// # Errors
    /// `ENOMEM` at the machine's limit. Linux keeps no more than a page of such a text.
    pub(super) fn may_keep_text(&mut self, bytes: usize) -> Answer<()> {
        let pages = self.machine.core.memory.pages_in_use() as u64 * PAGE_SIZE;
        if pages.saturating_add(bytes as u64) > self.files.texts.left() && bytes > 0 {
            return self.refuse(Limit::Memory, Errno::ENOMEM);
        }
        Ok(())
    }

    /// Checks whether the process may map so many more bytes.
    ///
    /// # Errors
    /// `ENOMEM` beyond `RLIMIT_AS` or `RLIMIT_DATA`, or if they alone are more than the machine's
    /// memory (the heuristic of `vm.overcommit_memory` 0).
    pub(super) fn may_map(&self, bytes: u64, how: Permissions, counts: bool) -> Answer<()> {
        let is_data = how.allow(crate::address_space::Access::Write);
        if counts && is_data && bytes > super::MEMORY {
            return Err(Errno::ENOMEM);
        }

        let limits = [self.soft(RLIMIT_AS), self.soft(RLIMIT_DATA)];
        if limits == [unlimited(); 2] {
            return Ok(());
        }

        let stack = &self.process.layout.stack;
        let (mut all, mut data) = (STACK_BEGUN, 0);

        for (range, area) in self.machine.core.memory.areas() {
            // The stack counts with what it had at first, not with what it may become.
            if range.start >= stack.start && range.end <= stack.end {
                continue;
            }

            let size = range.end - range.start;
            all += size;

            // RLIMIT_DATA is for private memory that can be written (`is_data_mapping`).
            let is_private = !area.is_shared();
            if is_private
                && area
                    .permissions()
                    .allow(crate::address_space::Access::Write)
            {
                data += size;
            }
        }

        let is_too_much = all.saturating_add(bytes) > limits[0]
            || is_data && data.saturating_add(bytes) > limits[1];
        if is_too_much {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// The number of bytes, of `count`, that may be written to an open file at a position: those
    /// within `RLIMIT_FSIZE`.
    ///
    /// # Errors
    /// `EFBIG`, with `SIGXFSZ`, if there are none.
    pub(super) fn may_write(
        &mut self,
        open: &Shared,
        at: Option<u64>,
        count: usize,
    ) -> Answer<usize> {
        let limit = self.soft(RLIMIT_FSIZE);
        if limit == unlimited() || count == 0 {
            return Ok(count);
        }

        let at = {
            let open = open.borrow();

            // The limit is that of files, not of pipes or devices.
            if !matches!(open.kind, Kind::Host(_) | Kind::Memory(_)) {
                return Ok(count);
            }
            match at {
                // The end of the file, whatever the position.
                _ if open.flags & super::files::o::APPEND != 0 => open.size()?,
                Some(at) => at,
                None => open.position,
            }
        };

        match limit.checked_sub(at) {
            None | Some(0) => self.too_large(),
            Some(room) => Ok(count.min(usize::try_from(room).unwrap_or(usize::MAX))),
        }
    }

    /// Checks whether a file of a size may get another size.
    ///
    /// # Errors
    /// As for [`Kernel::may_write`].
    pub(super) fn may_resize(&mut self, old: u64, new: u64) -> Answer<()> {
        if new > old && new > self.soft(RLIMIT_FSIZE) {
            return self.too_large();
        }
        Ok(())
    }

    fn too_large<T>(&mut self) -> Answer<T> {
        self.process
            .signals
            .send_to_thread(Info::from_kernel(SIGXFSZ));
        Err(Errno::EFBIG)
    }

    /// Checks whether another signal may be queued, or a timer made that queues one.
    ///
    /// # Errors
    /// `EAGAIN` beyond `RLIMIT_SIGPENDING`, or at the machine's limit: a privileged process may raise
    /// its own.
    pub(super) fn may_queue_signal(&mut self) -> Answer<()> {
        let queued = |process: &super::process::Process| {
            let others = process.others.values();
            let others: usize = others.map(|other| other.signals.queued()).sum();
            others + process.signals.queued()
        };
        let queued: usize = self.all_processes().map(queued).sum();
        let timers = self.clock.timers.iter();
        let timers = timers.filter(|t| matches!(t.owner, super::clock::Owner::Posix(_)));
        let all = queued + timers.count();
        if all as u64 >= self.soft(RLIMIT_SIGPENDING) {
            return Err(Errno::EAGAIN);
        }
        if all >= self.limits.objects {
            return self.refuse(Limit::Objects, Errno::EAGAIN);
        }
        Ok(())
    }

    /// Checks whether so many more bytes may be locked, which no memory is yet.
    ///
    /// # Errors
    /// `EPERM` if none may, else `ENOMEM`.
    pub(super) fn may_lock(&self, bytes: u64) -> Answer<()> {
        let limit = self.soft(RLIMIT_MEMLOCK);
        if self.files.own.identity.is_capable() || bytes <= limit && limit > 0 {
            return Ok(());
        }
        Err(if limit == 0 {
            Errno::EPERM
        } else {
            Errno::ENOMEM
        })
    }

    /// The size that a stack may have now, bytes: `RLIMIT_STACK`, but not more than the room above
    /// other mappings.
    pub(super) fn stack_max(&self) -> u64 {
        /// The guard below a stack (`stack_guard_gap`).
        const GUARD: u64 = 1 << 20;
        let room = STACK_TOP - MMAP_BASE - GUARD;
        self.soft(RLIMIT_STACK).clamp(STACK_BEGUN, room) & !(PAGE_SIZE - 1)
    }
}

//! `kcmp`: whether two processes share something. `name_to_handle_at` and `open_by_handle_at`: no file
//! system of the machine has handles.
//!
//! Source: Linux 6.12 `kernel/kcmp.c`, `kernel/ptrace.c` (`__ptrace_may_access`), `fs/fhandle.c`.

use super::AT_FDCWD;
use super::at::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW};
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::Shared;
use crate::linux::task::Task;
use crate::linux::{INIT, Kernel};
use std::cmp::Ordering;
use std::rc::Rc;

impl Kernel {
    pub(super) fn sys_kcmp(&mut self, args: [u64; 6]) -> Answer {
        /// `KCMP_FILE`, `KCMP_IO`, `KCMP_EPOLL_TFD`.
        const FILE: u32 = 0;
        const IO: u32 = 5;
        const EPOLL_FILE: u32 = 7;
        let [first, second, what, one, other, _] = args;

        // Unlike elsewhere, 0 is not the caller.
        let both = [first, second].map(|number| match number as u32 {
            0 => Err(Errno::ESRCH),
            _ => self.task_of(number),
        });
        let [first, second] = [both[0]?, both[1]?];

        // Both must allow `PTRACE_MODE_READ_REALCREDS` (`kernel/kcmp.c`).
        self.may_inspect(first.process)?;
        self.may_inspect(second.process)?;

        let order = match what as u32 {
            FILE => {
                let one = self.open_file_of(first, one)?;
                let other = self.open_file_of(second, other)?;
                self.first_user(&one).cmp(&self.first_user(&other))
            }
            // KCMP_VM: a vfork's child has its parent's memory.
            1 => {
                let space = |task: Task| self.process(task.process).map(|process| process.space);
                space(first).cmp(&space(second))
            }
            // Threads share files, folders, and handlers of signals; processes never do.
            2..=4 => first.process.cmp(&second.process),
            IO | EPOLL_FILE => {
                return self
                    .not_modelled("kcmp: contexts of input and output, epoll", Errno::EINVAL);
            }
            // KCMP_SYSVSEM: those that undo nothing are equal.
            6 => {
                let undoes = |task: Task| {
                    // Threads share the list, which Linux makes for the first one.
                    let process = self.process(task.process);
                    let has_threads = process.is_some_and(|process| !process.others.is_empty());
                    let has_list = has_threads || self.system.ipc.undoes(task.process);
                    has_list.then_some(task.process)
                };
                undoes(first).cmp(&undoes(second))
            }
            _ => return Err(Errno::EINVAL),
        };

        // As `kcmp_ptr` counts: one bit for less, one for greater.
        Ok(match order {
            Ordering::Equal => 0,
            Ordering::Less => 1,
            Ordering::Greater => 2,
        })
    }

    /// Checks whether the running process may look into another one.
    pub(super) fn may_inspect(&self, process: u32) -> Answer<()> {
        let own = &self.files.own.identity;
        if process == INIT {
            return Err(Errno::EPERM);
        }
        if process == self.process.number || own.is_capable() {
            return Ok(());
        }
        let of = self.identity_of(process);
        let user = [of.user.real, of.user.effective, of.user.saved];
        let group = [of.group.real, of.group.effective, of.group.saved];
        if user == [own.user.real; 3] && group == [own.group.real; 3] {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    fn open_file_of(&self, task: Task, fd: u64) -> Answer<Shared> {
        let files = self.files.of_process(task.process).ok_or(Errno::EBADF)?;
        files.table.get_named(fd)
    }

    /// The first process, and its descriptor, that refers to an open file: an order that every run has.
    fn first_user(&self, open: &Shared) -> Option<(u32, u64)> {
        let all = self.files.others.values().chain([&self.files.own]);
        let users = all.flat_map(|files| {
            let its = files
                .table
                .open()
                .filter(|(_, other)| Rc::ptr_eq(open, other));
            its.map(|(fd, _)| (files.process, fd))
        });
        users.min()
    }

    pub(super) fn sys_name_to_handle(&mut self, args: [u64; 6]) -> Answer {
        /// `AT_HANDLE_FID`, and `AT_HANDLE_MNT_ID_UNIQUE`.
        const NEWER: u64 = 0x201;
        let [fd, path, _handle, _mount, flags, _] = args;
        let flags = u64::from(flags as u32);
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH | NEWER) != 0 {
            return Err(Errno::EINVAL);
        }
        let is_empty = self.path_at(path)?.is_empty();
        match is_empty && flags & AT_EMPTY_PATH != 0 {
            true if fd as u32 == AT_FDCWD as u32 => {}
            true => drop(self.files.own.table.get_named(fd)?),
            false => drop(self.find(fd, path, flags & AT_SYMLINK_FOLLOW != 0)?),
        }
        Err(Errno::EOPNOTSUPP)
    }

    pub(super) fn sys_open_by_handle(&mut self, fd: u64, handle: u64) -> Answer {
        /// `MAX_HANDLE_SZ`.
        const SIZE_MAX: u32 = 128;
        if fd as u32 != AT_FDCWD as u32 {
            self.files.own.table.get(fd)?;
        }
        if !self.files.own.identity.is_capable_with_files() {
            return Err(Errno::EPERM);
        }
        let size = self.bytes::<8>(handle)?;
        let size = u32::from_le_bytes(std::array::from_fn(|index| size[index]));
        if size == 0 || size > SIZE_MAX {
            return Err(Errno::EINVAL);
        }
        Err(Errno::ESTALE)
    }
}

//! The names of threads in `/proc/PID/comm` and `/proc/PID/task/TID/comm`, which `pthread_setname_np`
//! writes for another thread.
//!
//! Source: Linux 6.12 `fs/proc/base.c` (`comm_write`, `comm_show`).

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::{Kind, Shared, Text};
use crate::linux::task::Task;

/// Bytes of a name, without its NUL (`TASK_COMM_LEN`).
const NAME_MAX: usize = 15;

impl Kernel {
    /// Gives a thread of the running process another name; returns the number of bytes.
    ///
    /// # Errors
    /// `EINVAL` if it is of another process, also of one that has ended; `ESRCH` if there is none.
    pub(super) fn rename_thread(&mut self, task: Task, bytes: &[u8]) -> Answer<usize> {
        let own = self.process.number;
        if self.task_of(task.thread.into())?.process != own {
            return Err(Errno::EINVAL);
        }
        let name = &bytes[..bytes.len().min(NAME_MAX)];
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        if let Some(thread) = self.thread_mut(own, task.thread) {
            thread.name = name.to_vec();
        }
        Ok(bytes.len())
    }

    /// Whoever reads a name from its beginning reads the present one.
    pub(super) fn refresh_name(&self, open: &Shared) {
        let task = match open.borrow().kind {
            Kind::ThreadName(task, _) => task,
            _ => return,
        };
        let now = self.text(Text::Comm, task);
        let open = &mut *open.borrow_mut();
        if let Kind::ThreadName(_, text) = &mut open.kind
            && open.position == 0
        {
            *text = now;
        }
    }
}

//! Priorities of threads, processes, groups and users: `setpriority`, `ioprio_set`.
//!
//! Source: Linux 6.12 `kernel/sys.c`, `block/ioprio.c`.

use super::scheduling::allows_nice;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::numbers as nr;
use crate::linux::scheduling::{IDLE, Scheduling};
use crate::linux::task::Task;

/// The classes of `ioprio_set`: none, real-time, best effort, idle.
const CLASS_REAL_TIME: u32 = 1;
const CLASS_BEST_EFFORT: u32 = 2;
const CLASS_IDLE: u32 = 3;

impl Kernel {
    /// Answers the calls about priorities; `None` for any other call.
    pub(super) fn answer_about_priorities(
        &mut self,
        number: u64,
        args: [u64; 6],
    ) -> Option<Answer> {
        let [a, b, c, ..] = args;
        Some(match number {
            nr::getpriority => self.sys_getpriority(a, b),
            nr::setpriority => self.sys_setpriority(a, b, c),
            nr::ioprio_get => self.sys_ioprio_get(a, b),
            nr::ioprio_set => self.sys_ioprio_set(a, b, c),
            _ => return None,
        })
    }

    /// The threads that a thread's or process's number, that of a group, or a user stands for.
    fn whose(&self, which: u32, who: u32, user: u32) -> Answer<Vec<Task>> {
        match which {
            0 => Ok(self.task_of(who.into()).into_iter().collect()),
            1 => {
                let wanted = if who == 0 { self.process.group } else { who };
                Ok(self.tasks_where(|_, group, _| group == wanted))
            }
            2 => Ok(self.tasks_where(|_, _, identity| identity.user.real == user)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The user that 0 stands for is the caller's.
    fn prioritized(&self, which: u64, who: u64) -> Answer<Vec<Task>> {
        let user = match who as u32 {
            0 => self.files.own.identity.user.real,
            user => user,
        };
        self.whose(which as u32, who as u32, user)
    }

    /// The highest priority, as 20 less the nice value.
    fn sys_getpriority(&mut self, which: u64, who: u64) -> Answer {
        let tasks = self.prioritized(which, who)?;
        let all = tasks
            .into_iter()
            .map(|task| 20 - self.scheduling(task).nice);
        let highest = all.max().ok_or(Errno::ESRCH)?;
        Ok(i64::from(highest).cast_unsigned())
    }

    /// Sets what it may; the last refusal is the answer.
    fn sys_setpriority(&mut self, which: u64, who: u64, nice: u64) -> Answer {
        let nice = (nice as i32).clamp(-20, 19);
        let tasks = self.prioritized(which, who)?;
        let mut answer = Err(Errno::ESRCH);
        for task in tasks {
            match self.set_nice(task, nice) {
                Ok(()) if answer == Err(Errno::ESRCH) => answer = Ok(0),
                Ok(()) => {}
                Err(error) => answer = Err(error),
            }
        }
        answer
    }

    fn set_nice(&mut self, task: Task, nice: i32) -> Answer<()> {
        let owner = self.identity_of(task.process);
        let is_capable = self.is_capable_over(task.process);
        if !self.is_same_owner(&owner) && !is_capable {
            return Err(Errno::EPERM);
        }
        let is_nicer = nice < self.scheduling(task).nice;
        if is_nicer && !is_capable && !allows_nice(self.resources(task.process), nice) {
            return Err(Errno::EACCES);
        }
        self.is_safe_to_schedule(&owner)?;
        self.scheduling(task).nice = nice;
        Ok(())
    }

    /// The threads that `ioprio_get` is about, of which 0 is user 0.
    fn io_whose(&self, which: u64, who: u64) -> Answer<Vec<Task>> {
        match which as u32 {
            0 => Err(Errno::EINVAL),
            which => self.whose(which - 1, who as u32, who as u32),
        }
    }

    /// Of one thread, what was set; of several, what is effective for the first in line.
    fn sys_ioprio_get(&mut self, which: u64, who: u64) -> Answer {
        const THREAD: u32 = 1;
        let tasks = self.io_whose(which, who)?;
        let is_one = which as u32 == THREAD;
        let all = tasks.into_iter().map(|task| {
            let of = *self.scheduling(task);
            if is_one {
                of.io_priority
            } else {
                effective(&of)
            }
        });
        all.min().map(u64::from).ok_or(Errno::ESRCH)
    }

    fn sys_ioprio_set(&mut self, which: u64, who: u64, priority: u64) -> Answer {
        let priority = priority as u32;
        let is_capable = self.files.own.identity.is_capable();
        match priority >> 13 & 7 {
            0 if priority & 7 != 0 => return Err(Errno::EINVAL),
            CLASS_REAL_TIME if !is_capable => return Err(Errno::EPERM),
            0..=CLASS_IDLE => {}
            _ => return Err(Errno::EINVAL),
        }

        let tasks = self.io_whose(which, who)?;
        if tasks.is_empty() {
            return Err(Errno::ESRCH);
        }
        let own = self.files.own.identity.user;
        for task in tasks {
            let owner = self.identity_of(task.process).user.real;
            if ![own.effective, own.real].contains(&owner) && !self.is_capable_over(task.process) {
                return Err(Errno::EPERM);
            }
            self.scheduling(task).io_priority = priority & 0xffff;
        }
        Ok(0)
    }
}

/// The priority of a thread's input and output, which its scheduling gives if none was set.
fn effective(of: &Scheduling) -> u32 {
    if of.io_priority >> 13 != 0 {
        return of.io_priority;
    }
    let class = match of.policy {
        _ if of.is_real_time() => CLASS_REAL_TIME,
        IDLE => CLASS_IDLE,
        _ => CLASS_BEST_EFFORT,
    };
    let level = (of.nice + 20) / 5;
    class << 13 | level.cast_unsigned()
}

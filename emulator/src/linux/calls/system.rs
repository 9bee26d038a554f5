//! System information: names, memory, limits.

use super::text::{MEMORY, VERSION};
use crate::linux::Kernel;
use crate::linux::clock::SECOND;
use crate::linux::errno::{Answer, Errno};
use crate::linux::files::RELEASE;
use crate::linux::identity::Ids;
use crate::linux::resources::{
    DESCRIPTORS_MAX, RESOURCES, RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_STACK,
};
use crate::linux::usage::Usage;
use crate::load::STACK_TOP;
use crate::state::reg;

impl Kernel {
    pub(super) fn sys_prlimit(&mut self, pid: u64, which: u64, new: u64, old: u64) -> Answer {
        let wanted = match new {
            0 => None,
            at => Some([self.u64_at(at)?, self.u64_at(at.wrapping_add(8))?]),
        };
        let process = self.task_of(pid)?.process;
        self.may_limit(process)?;

        let which = Some(which as u32 as usize).filter(|&w| w < RESOURCES);
        let which = which.ok_or(Errno::EINVAL)?;
        let now = self.resources(process)[which];
        if let Some(wanted) = wanted {
            self.set_limit(process, which, wanted)?;
        }
        if old != 0 {
            self.put_words(old, &now)?;
        }
        Ok(0)
    }

    /// Checks whether the limits of a process may be read and changed: those of its own, of one that
    /// is the same user and group in every way, or with a capability (`check_prlimit_permission`).
    fn may_limit(&self, process: u32) -> Answer<()> {
        self.may_access(process)
    }

    /// Checks whether the memory of a process may be read: one's own, that of a process that is the
    /// same user and group in every way, or with a capability (`ptrace_may_access`).
    ///
    /// # Errors
    /// `EPERM`.
    pub(super) fn may_access(&self, process: u32) -> Answer<()> {
        let own = &self.files.own.identity;
        if process == self.process.number || self.is_capable_over(process) {
            return Ok(());
        }
        let of = self.identity_of(process);
        let is_same = |own: u32, of: &Ids| [of.real, of.effective, of.saved] == [own; 3];
        if is_same(own.user.real, &of.user) && is_same(own.group.real, &of.group) {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    fn set_limit(&mut self, process: u32, which: usize, [soft, hard]: [u64; 2]) -> Answer<()> {
        let now = self.resources(process)[which];
        if soft > hard {
            return Err(Errno::EINVAL);
        }
        let is_capable = self.files.own.identity.is_capable();
        if which == RLIMIT_NOFILE && hard > DESCRIPTORS_MAX || hard > now[1] && !is_capable {
            return Err(Errno::EPERM);
        }

        self.resources(process)[which] = [soft, hard];
        let is_own = process == self.process.number;
        match which {
            RLIMIT_CPU if self.process(process).is_some() => self.limit_time(process),
            RLIMIT_STACK if is_own => self.fit_stack(),
            RLIMIT_STACK => {
                if let Some(other) = self.process_mut(process) {
                    other.stack_to_fit = true;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Gives the stack of a program that runs the size that the limit allows. It shrinks only as far
    /// as the program has not used it.
    pub(in crate::linux) fn fit_stack(&mut self) {
        let stack = self.process.layout.stack.clone();
        let start = stack.end.saturating_sub(self.stack_max());
        if stack.end != STACK_TOP {
            return;
        }
        let sp = self.machine.core.state.gpr(reg::RSP);
        let fitted = if start > stack.start {
            let is_unused = stack.contains(&sp) && sp >= start;
            is_unused && self.unmap(stack.start..start).is_ok()
        } else {
            let more = start..stack.start;
            let area = self.machine.core.memory.area(stack.end - 1);
            let may = area.map(|(_, area)| area.permissions());
            let is_free = !more.is_empty() && self.is_free(&more);
            is_free && may.is_some_and(|may| self.map(&more, may, None).is_ok())
        };
        if fitted {
            self.process.layout.stack = start..stack.end;
        }
    }

    /// `getrlimit`: the address must be valid.
    pub(super) fn sys_getrlimit(&mut self, which: u64, to: u64) -> Answer {
        let now = self.process.resources.get(which as u32 as usize);
        let now = *now.ok_or(Errno::EINVAL)?;
        self.put_words(to, &now)?;
        Ok(0)
    }

    /// `setrlimit`: the address must be valid.
    pub(super) fn sys_setrlimit(&mut self, which: u64, from: u64) -> Answer {
        self.bytes::<16>(from)?;
        self.sys_prlimit(0, which, from, 0)
    }

    /// `struct new_utsname`.
    pub(super) fn sys_uname(&mut self, to: u64) -> Answer {
        let mut out = Vec::new();
        for text in ["Linux", "localhost", RELEASE, VERSION, "x86_64", "(none)"] {
            let end = out.len() + 65;
            out.extend_from_slice(text.as_bytes());
            out.resize(end, 0);
        }
        self.put(to, &out)?;
        Ok(0)
    }

    /// `struct sysinfo`.
    pub(super) fn sys_sysinfo(&mut self, to: u64) -> Answer {
        let mut words = [0; 14];
        words[0] = self.clock.up() / SECOND;
        words[4] = MEMORY;
        words[5] = MEMORY / 2;
        // procs; mem_unit.
        words[10] = 1;
        words[13] = 1;
        self.put_words(to, &words)?;
        Ok(0)
    }

    /// `struct rusage`.
    pub(super) fn sys_getrusage(&mut self, who: u64, to: u64) -> Answer {
        const SELF: i32 = 0;
        const CHILDREN: i32 = -1;
        const THREAD: i32 = 1;
        let own = self.usage(&self.process);
        let usage = match who as i32 {
            SELF => own,
            CHILDREN => self.process.children,
            THREAD => {
                let time = self.time_of_thread(self.process.thread.number);
                Usage {
                    time: time.unwrap_or(0),
                    ..own
                }
            }
            _ => return Err(Errno::EINVAL),
        };
        self.put_words(to, &usage.words())?;
        Ok(0)
    }
}

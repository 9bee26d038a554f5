//! Calls by which a process gets and sets its own properties.
//!
//! Source: Linux 6.12 `kernel/sys.c`, `arch/x86/kernel/process_64.c`, `drivers/char/random.c`.

use crate::address_space::TASK_SIZE;
use crate::linux::errno::{Answer, Errno};
use crate::linux::identity::KEEP;
use crate::linux::numbers as nr;
use crate::linux::process::Process;
use crate::linux::{INIT, Kernel};
use crate::state::reg;
use std::rc::Rc;

impl Kernel {
    /// Answers calls that need only a line or two; `None` for any other call.
    pub(super) fn answer_about_itself(&mut self, number: u64, args: [u64; 6]) -> Option<Answer> {
        let [a, b, c, d, ..] = args;
        let pid = u64::from(self.process.number);
        Some(match number {
            nr::getpid => Ok(pid),
            nr::gettid => Ok(self.process.thread.number.into()),
            nr::set_tid_address => {
                self.process.thread.cleared_at_exit = a;
                Ok(self.process.thread.number.into())
            }
            nr::getppid => Ok(self.process.parent.into()),
            nr::getpgrp => Ok(self.process.group.into()),
            nr::getpgid => self.group_and_session(a).map(|(group, _)| group.into()),
            nr::getsid => self.group_and_session(a).map(|(_, session)| session.into()),
            nr::setpgid => self.set_group(a, b),
            nr::setsid => self.set_session(),
            nr::umask => Ok(std::mem::replace(&mut self.files.own.umask, a as u32 & 0o777).into()),
            // `struct robust_list_head` has 24 bytes.
            nr::set_robust_list if b == 24 => {
                self.process.thread.robust_list = a;
                Ok(0)
            }
            nr::set_robust_list => Err(Errno::EINVAL),
            nr::get_robust_list => self.sys_get_robust_list(a, b, c),
            nr::rseq => self.sys_rseq(a, b, c, d),
            nr::membarrier => self.sys_membarrier(a, b, c),
            nr::pkey_alloc => self.sys_pkey_alloc(a, b),
            // No key was ever allocated.
            nr::pkey_free => Err(Errno::EINVAL),
            nr::pkey_mprotect => self.sys_pkey_mprotect(a, b, c, d),
            nr::arch_prctl => self.sys_arch_prctl(a, b),
            nr::prctl => self.sys_prctl(args),
            nr::personality => Ok(self.sys_personality(a as u32)),
            nr::getrandom => self.sys_getrandom(a, b, c),
            nr::getcpu => self.sys_getcpu(a, b),
            nr::capget => self.sys_capget(a, b),
            nr::capset => self.sys_capset(a, b),
            nr::uname => self.sys_uname(a),
            nr::sysinfo => self.sys_sysinfo(a),
            nr::getrusage => self.sys_getrusage(a, b),
            nr::getrlimit => self.sys_getrlimit(a, b),
            nr::setrlimit => self.sys_setrlimit(a, b),
            nr::prlimit64 => self.sys_prlimit(a, b, c, d),
            _ => {
                let answer = self.answer_about_scheduling(number, args);
                return answer.or_else(|| self.answer_about_users(number, args));
            }
        })
    }

    /// Answers the calls about users and groups.
    fn answer_about_users(&mut self, number: u64, args: [u64; 6]) -> Option<Answer> {
        let [a, b, c, ..] = args;

        let ids = [a, b, c].map(|id| id as u32);
        let capable = self.files.own.identity.is_capable();
        let identity = &mut self.files.own.identity;
        let old = identity.user;
        let (user, group) = (&mut identity.user, &mut identity.group);

        let answer = match number {
            nr::getuid => Ok(user.real.into()),
            nr::geteuid => Ok(user.effective.into()),
            nr::getgid => Ok(group.real.into()),
            nr::getegid => Ok(group.effective.into()),
            nr::setuid => user.set(ids[0], capable),
            nr::setgid => group.set(ids[0], capable),
            nr::setreuid => user.set_two(ids[0], ids[1], capable),
            nr::setregid => group.set_two(ids[0], ids[1], capable),
            nr::setresuid => user.set_three(ids, capable),
            nr::setresgid => group.set_three(ids, capable),
            nr::setfsuid => Ok(user.set_file(ids[0], capable).into()),
            nr::setfsgid => Ok(group.set_file(ids[0], capable).into()),
            nr::getresuid => {
                let ids = [user.real, user.effective, user.saved];
                self.put_ids(ids, [a, b, c])
            }
            nr::getresgid => {
                let ids = [group.real, group.effective, group.saved];
                self.put_ids(ids, [a, b, c])
            }
            nr::getgroups => self.sys_getgroups(a, b),
            nr::setgroups => self.sys_setgroups(a, b),
            _ => return None,
        };

        // Capabilities depend on the numbers of users, never on groups (`cap_task_fix_setuid`).
        let identity = &mut self.files.own.identity;
        match number {
            nr::setuid | nr::setreuid | nr::setresuid => identity.users_changed(old),
            nr::setfsuid => identity.file_user_changed(old.file),
            _ => {}
        }
        Some(answer)
    }

    fn put_ids(&mut self, ids: [u32; 3], to: [u64; 3]) -> Answer {
        for (id, at) in ids.into_iter().zip(to) {
            self.put_u32(at, id)?;
        }
        Ok(0)
    }

    fn sys_getgroups(&mut self, size: u64, to: u64) -> Answer {
        let groups = self.files.own.identity.groups.clone();
        let size = usize::try_from(size as i32).map_err(|_| Errno::EINVAL)?;
        if size != 0 {
            if size < groups.len() {
                return Err(Errno::EINVAL);
            }
            let bytes: Vec<u8> = groups.iter().flat_map(|g| g.to_le_bytes()).collect();
            self.put(to, &bytes)?;
        }
        Ok(groups.len() as u64)
    }

    fn sys_setgroups(&mut self, count: u64, from: u64) -> Answer {
        const GROUPS_MAX: u32 = 65536;
        if !self.files.own.identity.is_capable() {
            return Err(Errno::EPERM);
        }
        if count as u32 > GROUPS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut groups = Vec::new();
        for index in 0..u64::from(count as u32) {
            let group = self.u32_at(from.wrapping_add(4 * index))?;
            if group == KEEP {
                return Err(Errno::EINVAL);
            }
            groups.push(group);
        }
        groups.sort_unstable();
        self.files.own.identity.groups = Rc::from(groups);
        Ok(0)
    }

    fn sys_arch_prctl(&mut self, code: u64, address: u64) -> Answer {
        const SET_GS: u32 = 0x1001;
        const SET_FS: u32 = 0x1002;
        const GET_FS: u32 = 0x1003;
        const GET_GS: u32 = 0x1004;

        let code = code as u32;
        let register = match code {
            SET_FS | GET_FS => reg::FS,
            SET_GS | GET_GS => reg::GS,
            // ARCH_GET_CPUID and the following ones: ARCH_GET_XCOMP_SUPP, ARCH_MAP_VDSO_X32, ...
            0x1011..=0x6fff => {
                return self.not_modelled(
                    "arch_prctl other than the bases of fs and gs",
                    Errno::EINVAL,
                );
            }
            _ => return Err(Errno::EINVAL),
        };

        if matches!(code, GET_FS | GET_GS) {
            self.put_u64(address, self.machine.core.state.gpr(register))?;
        } else if address >= TASK_SIZE {
            return Err(Errno::EPERM);
        } else {
            self.machine.core.state.set_gpr(register, address);
        }
        Ok(0)
    }

    /// Returns the old value.
    fn sys_personality(&mut self, new: u32) -> u64 {
        const ASK: u32 = u32::MAX;
        /// `ADDR_NO_RANDOMIZE`: addresses are always the same. Others, such as `UNAME26`, would
        /// have an effect.
        const WITHOUT_EFFECT: u32 = 0x004_0000;
        let old = self.process.settings.personality;
        if new != ASK {
            if new & !WITHOUT_EFFECT != 0 {
                self.notice(crate::linux::Notice::Part("another personality"));
            }
            self.process.settings.personality = new;
        }
        old.into()
    }

    fn sys_getrandom(&mut self, to: u64, count: u64, flags: u64) -> Answer {
        /// Bytes generated at once.
        const CHUNK: u64 = 4096;
        const NONBLOCK: u32 = 1;
        const RANDOM: u32 = 2;
        const INSECURE: u32 = 4;

        let flags = flags as u32;
        let both = RANDOM | INSECURE;
        // `GRND_RANDOM` and `GRND_INSECURE` contradict each other.
        if flags & !(NONBLOCK | both) != 0 || flags & both == both {
            return Err(Errno::EINVAL);
        }

        // `MAX_RW_COUNT`: no call transfers more.
        let count = count.min(0x7fff_f000);
        self.accessible(to, count)?;

        let mut bytes = [0; CHUNK as usize];
        let mut done = 0;
        while done < count {
            let at = to.wrapping_add(done);
            let room = self.writable(at, (count - done).min(CHUNK) as usize);
            if room == 0 {
                break;
            }
            self.files.random.fill(&mut bytes[..room]);
            self.put(at, &bytes[..room])?;
            done += room as u64;
        }

        // What was stored before a bad address counts.
        match done {
            0 if count > 0 => Err(Errno::EFAULT),
            done => Ok(done),
        }
    }

    fn sys_getcpu(&mut self, cpu: u64, node: u64) -> Answer {
        for at in [cpu, node].into_iter().filter(|&at| at != 0) {
            self.put_u32(at, 0)?;
        }
        Ok(0)
    }

    fn sys_get_robust_list(&mut self, pid: u64, head: u64, size: u64) -> Answer {
        const SIZE: u64 = 24;
        let task = self.task_of(pid)?;
        self.may_access(task.process)?;
        // One that has ended has none.
        let list = self
            .thread_mut(task.process, task.thread)
            .map_or(0, |t| t.robust_list);
        self.put_u64(size, SIZE)?;
        self.put_u64(head, list)?;
        Ok(0)
    }
}

impl Kernel {
    /// The process of this number; 0 for the running one.
    fn named(&self, pid: u64) -> Answer<&Process> {
        let own = self.process.number;
        let number = match pid as u32 {
            0 => own,
            number => number,
        };
        let mut all = self.all_processes();
        all.find(|process| process.number == number)
            .ok_or(Errno::ESRCH)
    }

    /// The group and the session of a thread.
    fn group_and_session(&self, number: u64) -> Answer<(u32, u32)> {
        let task = self.task_of(number)?;
        if let Some(process) = self.process(task.process) {
            return Ok((process.group, process.session));
        }
        let mut ended = self.system.ended.iter();
        let ended = ended.find(|ended| ended.number == task.process);
        // `init` leads a session.
        Ok(ended.map_or((INIT, INIT), |ended| (ended.group, ended.session)))
    }

    /// `setpgid`, of itself or of a child that has not called `execve`.
    fn set_group(&mut self, pid: u64, group: u64) -> Answer {
        if (group as i32) < 0 {
            return Err(Errno::EINVAL);
        }

        let own = (self.process.number, self.process.session);
        let target = match self.named(pid) {
            Ok(target) => target,
            Err(_) if (pid as i32) < 0 => return Err(Errno::EINVAL),
            Err(error) => return Err(error),
        };

        let (number, session) = (target.number, target.session);
        let is_child = target.parent == own.0;
        if number != own.0 && !is_child {
            return Err(Errno::ESRCH);
        }

        // The session is asked first (`setpgid`, `kernel/sys.c`).
        if session != own.1 {
            return Err(Errno::EPERM);
        }
        // Its parent may move a child only before `execve` (`PF_FORKNOEXEC`).
        if number != own.0 && target.has_executed {
            return Err(Errno::EACCES);
        }

        // A session leader keeps its group.
        if session == number {
            return Err(Errno::EPERM);
        }

        // 0 is a group with the number of the process (setpgid(2)).
        let group = match group as u32 {
            0 => number,
            group => group,
        };

        // A process can join a group only within its session.
        let mut all = self.all_processes();
        if group != number && !all.any(|p| p.group == group && p.session == session) {
            return Err(Errno::EPERM);
        }
        drop(all);

        // The running process is not among the parked ones.
        match self.processes.get_mut(&number) {
            Some(other) => other.process.group = group,
            None => self.process.group = group,
        }
        Ok(0)
    }

    /// `setsid`.
    fn set_session(&mut self) -> Answer {
        let number = self.process.number;
        if self.all_processes().any(|process| process.group == number) {
            return Err(Errno::EPERM);
        }
        (self.process.session, self.process.group) = (number, number);
        self.process.terminal = None;
        Ok(number.into())
    }
}

//! What a process asks about itself, and what it may set of that.

use super::nr;
use crate::address_space::TASK_SIZE;
use crate::linux::errno::{Answer, Errno};
use crate::linux::{PARENT_PID, PID, Process};
use crate::state::reg;

impl Process {
    /// Calls that are answered in a line or two; `None` if it is none of them.
    pub(super) fn answer_about_itself(&mut self, number: u64, args: [u64; 6]) -> Option<Answer> {
        let [a, b, c, d, ..] = args;
        let identity = self.files.identity;
        let pid = u64::from(PID);
        Some(match number {
            nr::getpid | nr::gettid | nr::set_tid_address => Ok(pid),
            nr::getppid => Ok(PARENT_PID.into()),
            nr::getpgrp => Ok(pid),
            nr::getpgid | nr::getsid if a == 0 || a == pid => Ok(pid),
            nr::getpgid | nr::getsid => Err(Errno::ESRCH),
            nr::setpgid => Ok(0),
            nr::setsid => Err(Errno::EPERM),
            nr::getuid | nr::geteuid => Ok(identity.uid.into()),
            nr::getgid | nr::getegid => Ok(identity.gid.into()),
            nr::setuid | nr::setfsuid => self.only_to(identity.uid, &[a]),
            nr::setgid | nr::setfsgid => self.only_to(identity.gid, &[a]),
            nr::setreuid => self.only_to(identity.uid, &[a, b]),
            nr::setregid => self.only_to(identity.gid, &[a, b]),
            nr::setresuid => self.only_to(identity.uid, &[a, b, c]),
            nr::setresgid => self.only_to(identity.gid, &[a, b, c]),
            nr::getresuid => self.put_ids(identity.uid, [a, b, c]),
            nr::getresgid => self.put_ids(identity.gid, [a, b, c]),
            nr::getgroups => Ok(0),
            nr::setgroups => Err(Errno::EPERM),
            nr::umask => Ok(std::mem::replace(&mut self.files.umask, a as u32 & 0o777).into()),
            nr::set_robust_list | nr::sched_yield => Ok(0),
            // As a kernel that does not have it.
            nr::rseq => Err(Errno::ENOSYS),
            // MEMBARRIER_CMD_QUERY: none.
            nr::membarrier if a == 0 => Ok(0),
            nr::membarrier => Err(Errno::EINVAL),
            nr::arch_prctl => self.sys_arch_prctl(a, b),
            nr::prctl => self.sys_prctl(a, b),
            nr::personality => Ok(0),
            nr::getrandom => self.sys_getrandom(a, b),
            nr::getcpu => self.sys_getcpu(a, b),
            nr::sched_getaffinity => self.sys_getaffinity(b, c),
            nr::sched_setaffinity => Ok(0),
            nr::sched_getscheduler | nr::sched_get_priority_min => Ok(0),
            nr::sched_get_priority_max => Ok(0),
            nr::sched_getparam => self.put_u32(b, 0).map(|()| 0),
            nr::getpriority => Ok(20),
            nr::setpriority | nr::ioprio_set => Ok(0),
            nr::ioprio_get => Ok(0),
            nr::uname => self.sys_uname(a),
            nr::sysinfo => self.sys_sysinfo(a),
            nr::getrusage => self.sys_getrusage(a, b),
            nr::getrlimit => self.sys_prlimit(a, 0, b),
            nr::setrlimit => self.sys_prlimit(a, b, 0),
            nr::prlimit64 if a == 0 || a == pid => self.sys_prlimit(b, c, d),
            nr::prlimit64 => Err(Errno::ESRCH),
            _ => return None,
        })
    }

    /// Sets identities to what they are, or -1.
    fn only_to(&self, now: u32, wanted: &[u64]) -> Answer {
        let same = |&id: &u64| id as u32 == now || id as u32 == u32::MAX;
        match wanted.iter().all(same) {
            true => Ok(0),
            false => Err(Errno::EPERM),
        }
    }

    fn put_ids(&mut self, id: u32, to: [u64; 3]) -> Answer {
        for at in to {
            self.put_u32(at, id)?;
        }
        Ok(0)
    }

    fn sys_arch_prctl(&mut self, code: u64, address: u64) -> Answer {
        const SET_GS: u64 = 0x1001;
        const SET_FS: u64 = 0x1002;
        const GET_FS: u64 = 0x1003;
        const GET_GS: u64 = 0x1004;
        let register = match code {
            SET_FS | GET_FS => reg::FS,
            SET_GS | GET_GS => reg::GS,
            _ => return Err(Errno::EINVAL),
        };
        if matches!(code, GET_FS | GET_GS) {
            self.put_u64(address, self.machine.state.gpr(register))?;
        } else if address >= TASK_SIZE {
            return Err(Errno::EPERM);
        } else {
            self.machine.state.set_gpr(register, address);
        }
        Ok(0)
    }

    fn sys_prctl(&mut self, option: u64, arg: u64) -> Answer {
        match option {
            // PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_TIMERSLACK, PR_SET_NO_NEW_PRIVS.
            1 | 4 | 29 | 38 => Ok(0),
            // PR_GET_DUMPABLE.
            3 => Ok(1),
            // PR_SET_NAME, PR_GET_NAME.
            15 => {
                self.name = self.name_at(arg, 15)?;
                Ok(0)
            }
            16 => {
                let mut name = self.name.clone();
                name.resize(16, 0);
                self.put(arg, &name)?;
                Ok(0)
            }
            // PR_GET_TIMERSLACK, PR_GET_NO_NEW_PRIVS.
            30 => Ok(50_000),
            39 => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }

    fn sys_getrandom(&mut self, to: u64, count: u64) -> Answer {
        /// Bytes that are made at once.
        const CHUNK: u64 = 4096;
        let count = count.min(0x1ff_ffff);
        let mut bytes = [0; CHUNK as usize];
        for done in (0..count).step_by(CHUNK as usize) {
            let bytes = &mut bytes[..(count - done).min(CHUNK) as usize];
            self.files.random.fill(bytes);
            self.put(to.wrapping_add(done), bytes)?;
        }
        Ok(count)
    }

    fn sys_getcpu(&mut self, cpu: u64, node: u64) -> Answer {
        for at in [cpu, node].into_iter().filter(|&at| at != 0) {
            self.put_u32(at, 0)?;
        }
        Ok(0)
    }

    /// There is one processor.
    fn sys_getaffinity(&mut self, size: u64, to: u64) -> Answer {
        if size < 8 || !size.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        self.put_u64(to, 1)?;
        Ok(8)
    }
}

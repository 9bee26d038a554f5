//! Calls by which a process gets and sets its own properties.
//!
//! Source: Linux 6.12 `kernel/sys.c`, `kernel/sched/syscalls.c`, `block/ioprio.c`,
//! `arch/x86/kernel/process_64.c`, `drivers/char/random.c`.

use crate::address_space::TASK_SIZE;
use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::identity::KEEP;
use crate::linux::numbers as nr;
use crate::linux::process::Process;
use crate::linux::resources::RLIMIT_RTPRIO;
use crate::state::reg;
use std::rc::Rc;

/// Size of the processor set, bytes; there is one processor.
const PROCESSORS: u64 = 8;

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
            nr::getpgid => self.named(a).map(|process| process.group.into()),
            nr::getsid => self.named(a).map(|process| process.session.into()),
            nr::setpgid => self.set_group(a, b),
            nr::setsid => self.set_session(),
            nr::umask => Ok(std::mem::replace(&mut self.files.own.umask, a as u32 & 0o777).into()),
            nr::set_robust_list if b == 24 => {
                self.process.thread.robust_list = a;
                Ok(0)
            }
            nr::set_robust_list => Err(Errno::EINVAL),
            nr::sched_yield => {
                self.system.schedule.give_way();
                Ok(0)
            }
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
            nr::sched_getaffinity => self.sys_getaffinity(a, b, c),
            nr::sched_setaffinity => self.sys_setaffinity(a, b, c),
            nr::sched_getscheduler => self
                .scheduled(a)
                .map(|()| self.process.settings.policy.into()),
            nr::sched_setscheduler if (b as i32) < 0 => Err(Errno::EINVAL),
            nr::sched_setscheduler => self.set_scheduler(a, Some(b as u32), c),
            nr::sched_setparam => self.set_scheduler(a, None, b),
            nr::sched_rr_get_interval => self.sys_rr_interval(a, b),
            nr::sched_get_priority_min => priority_limit(a, 1),
            nr::sched_get_priority_max => priority_limit(a, 99),
            nr::sched_getparam if b == 0 => Err(Errno::EINVAL),
            nr::sched_getparam => self
                .scheduled(a)
                .and_then(|()| self.put_u32(b, self.process.settings.priority).map(|()| 0)),
            nr::getpriority => self
                .whose(a, b)
                .map(|()| (20 - self.process.settings.nice) as u64),
            nr::setpriority => self.sys_setpriority(a, b, c),
            nr::ioprio_get => self
                .io_whose(a, b)
                .map(|()| self.process.settings.io_priority.into()),
            nr::ioprio_set => self.sys_ioprio_set(a, b, c),
            nr::capget => self.sys_capget(a, b),
            nr::capset => self.sys_capset(a, b),
            nr::sched_setattr => self.sys_sched_setattr(a, b, c),
            nr::sched_getattr => self.sys_sched_getattr(a, b, c, d),
            nr::uname => self.sys_uname(a),
            nr::sysinfo => self.sys_sysinfo(a),
            nr::getrusage => self.sys_getrusage(a, b),
            nr::getrlimit => self.sys_getrlimit(a, b),
            nr::setrlimit => self.sys_setrlimit(a, b),
            nr::prlimit64 => self.is_itself(a).and_then(|()| self.sys_prlimit(b, c, d)),
            _ => return self.answer_about_users(number, args),
        })
    }

    /// Answers the calls about users and groups.
    fn answer_about_users(&mut self, number: u64, args: [u64; 6]) -> Option<Answer> {
        let [a, b, c, ..] = args;
        let ids = [a, b, c].map(|id| id as u32);
        let capable = self.files.own.identity.is_capable();
        let identity = &mut self.files.own.identity;
        let (user, group) = (&mut identity.user, &mut identity.group);
        Some(match number {
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
        })
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
        if flags & !(NONBLOCK | both) != 0 || flags & both == both {
            return Err(Errno::EINVAL);
        }
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

    fn sys_getaffinity(&mut self, pid: u64, size: u64, to: u64) -> Answer {
        let size = u64::from(size as u32);
        if size < PROCESSORS || !size.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        self.is_itself(pid)?;
        self.put_u64(to, 1)?;
        Ok(PROCESSORS)
    }

    fn sys_setaffinity(&mut self, pid: u64, size: u64, from: u64) -> Answer {
        let mut set = [0; PROCESSORS as usize];
        let size = u64::from(size as u32).min(PROCESSORS) as usize;
        self.get(from, &mut set[..size])?;
        self.is_itself(pid)?;
        match set[0] & 1 {
            0 => Err(Errno::EINVAL),
            _ => Ok(0),
        }
    }

    /// Policies and priorities change nothing here: threads take turns, as they also may on several
    /// processors.
    fn set_scheduler(&mut self, pid: u64, policy: Option<u32>, at: u64) -> Answer {
        /// `SCHED_RESET_ON_FORK`.
        const RESET: u32 = 0x4000_0000;
        if at == 0 || (pid as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let priority = self.u32_at(at)?;
        self.scheduled(pid)?;
        let policy = policy.map_or(self.process.settings.policy, |policy| policy & !RESET);
        match (policy, priority) {
            // SCHED_OTHER, SCHED_BATCH, SCHED_IDLE.
            (0 | 3 | 5, 0) => {}
            // SCHED_FIFO, SCHED_RR.
            (1 | 2, 1..=99) => self.may_be_real_time(policy, priority)?,
            _ => return Err(Errno::EINVAL),
        }
        (self.process.settings.policy, self.process.settings.priority) = (policy, priority);
        Ok(0)
    }

    /// Checks whether the process may have a real-time priority: with a limit, or one that it has.
    fn may_be_real_time(&self, policy: u32, priority: u32) -> Answer<()> {
        let settings = &self.process.settings;
        let limit = self.process.resources[RLIMIT_RTPRIO][0];
        let is_real_time = matches!(settings.policy, 1 | 2);
        let may = u64::from(priority) <= limit && (limit > 0 || policy == settings.policy);
        let keeps = is_real_time && priority <= settings.priority;
        match may || keeps || self.files.own.identity.is_capable() {
            true => Ok(()),
            false => Err(Errno::EPERM),
        }
    }

    /// `sched_setattr`: policy and priority in a `struct sched_attr`.
    fn sys_sched_setattr(&mut self, pid: u64, at: u64, flags: u64) -> Answer {
        const SIZE_MIN: u32 = 48;
        /// `SCHED_FLAG_RESET_ON_FORK`.
        const RESET: u64 = 1;
        const DEADLINE: u32 = 6;
        if at == 0 || (pid as i32) < 0 || flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }
        let size = self.u32_at(at)?;
        let size = if size == 0 { SIZE_MIN } else { size };
        if !(SIZE_MIN..=4096).contains(&size) {
            self.put_u32(at, 56)?;
            return Err(Errno::E2BIG);
        }
        let bytes = self.bytes::<48>(at)?;
        let half = |from: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let (policy, nice, priority) = (half(4), half(16).cast_signed(), half(20));
        let wanted = u64::from(half(8)) | u64::from(half(12)) << 32;
        if policy.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }
        self.scheduled(pid)?;
        if policy == DEADLINE || wanted & !RESET != 0 {
            return self.not_modelled("deadlines and clamps of scheduling", Errno::EPERM);
        }
        match (policy, priority) {
            (0 | 3 | 5, 0) => {
                let nice = nice.clamp(-20, 19);
                if nice < self.process.settings.nice && !self.files.own.identity.is_capable() {
                    return Err(Errno::EPERM);
                }
                self.process.settings.nice = nice;
            }
            (1 | 2, 1..=99) => self.may_be_real_time(policy, priority)?,
            _ => return Err(Errno::EINVAL),
        }
        (self.process.settings.policy, self.process.settings.priority) = (policy, priority);
        Ok(0)
    }

    fn sys_sched_getattr(&mut self, pid: u64, to: u64, size: u64, flags: u64) -> Answer {
        const SIZE: u32 = 56;
        /// The share of a thread, nanoseconds (`sysctl_sched_base_slice`).
        const SLICE: u32 = 750_000;
        let size = size as u32;
        let is_wrong = to == 0 || (pid as i32) < 0 || flags as u32 != 0;
        if is_wrong || !(48..=4096).contains(&size) {
            return Err(Errno::EINVAL);
        }
        self.scheduled(pid)?;
        let size = size.min(SIZE);
        let settings = &self.process.settings;
        let nice = match settings.policy {
            0 | 3 => settings.nice.cast_unsigned(),
            _ => 0,
        };
        let mut halves = [0; 14];
        halves[..6].copy_from_slice(&[size, settings.policy, 0, 0, nice, settings.priority]);
        if matches!(settings.policy, 0 | 3) {
            halves[6] = SLICE;
        }
        // sched_util_min and sched_util_max.
        halves[13] = 1024;
        let bytes = halves.map(u32::to_le_bytes);
        self.put(to, &bytes.as_flattened()[..size as usize])?;
        Ok(0)
    }

    /// The share of a thread in `SCHED_OTHER`, as a `struct timespec`.
    fn sys_rr_interval(&mut self, pid: u64, to: u64) -> Answer {
        const SHARE: u64 = 3_000_000;
        self.scheduled(pid)?;
        self.put_words(to, &[0, SHARE])?;
        Ok(0)
    }

    fn sys_get_robust_list(&mut self, pid: u64, head: u64, size: u64) -> Answer {
        const SIZE: u64 = 24;
        let number = match pid as u32 {
            0 => self.process.thread.number,
            number => number,
        };
        let process = self.process_of(number.into()).ok_or(Errno::ESRCH)?;
        let list = self
            .thread_mut(process, number)
            .map_or(0, |t| t.robust_list);
        self.put_u64(size, SIZE)?;
        self.put_u64(head, list)?;
        Ok(0)
    }

    fn sys_setpriority(&mut self, which: u64, who: u64, nice: u64) -> Answer {
        self.whose(which, who)?;
        let nice = (nice as i32).clamp(-20, 19);
        // RLIMIT_NICE is 0 for an unprivileged process.
        if nice < self.process.settings.nice && !self.files.own.identity.is_capable() {
            return Err(Errno::EACCES);
        }
        self.process.settings.nice = nice;
        Ok(0)
    }

    fn sys_ioprio_set(&mut self, which: u64, who: u64, priority: u64) -> Answer {
        let priority = priority as u32;
        match priority >> 13 {
            0 if priority & 7 != 0 => return Err(Errno::EINVAL),
            1 if !self.files.own.identity.is_capable() => return Err(Errno::EPERM),
            0..=3 => {}
            _ => return Err(Errno::EINVAL),
        }
        self.io_whose(which, who)?;
        self.process.settings.io_priority = priority;
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

    /// Checks that a number is that of the process or of one of its threads, or 0.
    fn is_itself(&self, pid: u64) -> Answer<()> {
        match pid as u32 {
            0 => Ok(()),
            _ if self.has_thread(pid) => Ok(()),
            _ => Err(Errno::ESRCH),
        }
    }

    /// Like `is_itself`, but a negative number is malformed.
    fn scheduled(&self, pid: u64) -> Answer<()> {
        match pid as i32 {
            ..0 => Err(Errno::EINVAL),
            _ => self.is_itself(pid),
        }
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
        if number != own.0 && target.has_executed {
            return Err(Errno::EACCES);
        }
        if session != own.1 || session == number {
            return Err(Errno::EPERM);
        }
        let group = match group as u32 {
            0 => number,
            group => group,
        };
        let mut all = self.all_processes();
        if group != number && !all.any(|p| p.group == group && p.session == session) {
            return Err(Errno::EPERM);
        }
        drop(all);
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

    /// Checks the target of `getpriority`: a process, its group, or its user. Each stands for this
    /// one process.
    fn whose(&self, which: u64, who: u64) -> Answer<()> {
        match which as i32 {
            0 => self.is_itself(who),
            1 if who as u32 == self.process.group => Ok(()),
            1 => self.is_itself(who),
            2 => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Checks the target of `ioprio_get`.
    fn io_whose(&self, which: u64, who: u64) -> Answer<()> {
        match which as i32 {
            1 | 2 => self.whose(which - 1, who),
            3 => Ok(()),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// `sched_get_priority_min` and `max`: `limit` for policies with priorities.
fn priority_limit(policy: u64, limit: u64) -> Answer {
    match policy as i32 {
        1 | 2 => Ok(limit),
        // SCHED_OTHER, BATCH, IDLE, DEADLINE, EXT.
        0 | 3 | 5..=7 => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

//! How threads are scheduled: `sched_setscheduler` and the like, of the running thread and of others.
//!
//! Source: Linux 6.12 `kernel/sched/syscalls.c`, `security/commoncap.c` (`cap_task_setscheduler`).

use crate::linux::Kernel;
use crate::linux::errno::{Answer, Errno};
use crate::linux::identity::Identity;
use crate::linux::numbers as nr;
use crate::linux::resources::{RLIMIT_NICE, RLIMIT_RTPRIO};
use crate::linux::scheduling::{BATCH, FIFO, IDLE, OTHER, ROUND_ROBIN, Scheduling};
use crate::linux::task::Task;

/// Size of the processor set, bytes; there is one processor.
const PROCESSORS: u64 = 8;
/// `SCHED_RESET_ON_FORK`, in a policy.
const RESET: u32 = 0x4000_0000;
/// The share of a thread, nanoseconds, as `sched_getattr` says it (`sysctl_sched_base_slice`).
const SLICE: u32 = 750_000;
/// Flags in a `struct sched_attr`.
const FLAG_RESET: u64 = 1;
const FLAG_KEEP_POLICY: u64 = 8;
const FLAG_KEEP_PARAMS: u64 = 0x10;
const FLAGS: u64 = 0x7f;

/// What a call wants.
struct SchedulingRequest {
    /// `None` keeps policy and `SCHED_RESET_ON_FORK`.
    policy: Option<u32>,
    priority: u32,
    nice: i32,
    resets_on_fork: bool,
    /// Nothing changes but `SCHED_RESET_ON_FORK`.
    keeps: bool,
}

/// Whether a process with this limit may have a nice value (`is_nice_reduction`).
pub(super) fn allows_nice(limits: &[[u64; 2]], nice: i32) -> bool {
    i64::from(20 - nice).cast_unsigned() <= limits[RLIMIT_NICE][0]
}

impl Kernel {
    /// Answers the calls about scheduling; `None` for any other call.
    pub(super) fn answer_about_scheduling(
        &mut self,
        number: u64,
        args: [u64; 6],
    ) -> Option<Answer> {
        let [a, b, c, d, ..] = args;
        Some(match number {
            nr::sched_yield => {
                self.system.schedule.give_way();
                Ok(0)
            }
            nr::sched_getaffinity => self.sys_getaffinity(a, b, c),
            nr::sched_setaffinity => self.sys_setaffinity(a, b, c),
            nr::sched_getscheduler => self.sys_getscheduler(a),
            // Refused at once: inside the kernel, a policy of -1 stands for `sched_setparam`.
            nr::sched_setscheduler if (b as i32) < 0 => Err(Errno::EINVAL),
            nr::sched_setscheduler => self.sys_setscheduler(a, Some(b as u32), c),
            nr::sched_setparam => self.sys_setscheduler(a, None, b),
            nr::sched_getparam => self.sys_getparam(a, b),
            nr::sched_rr_get_interval => self.sys_rr_interval(a, b),
            // Real-time priorities are 1 to 99, those of the other policies are all 0 (sched(7)).
            nr::sched_get_priority_min => priority_limit(a, 1),
            nr::sched_get_priority_max => priority_limit(a, 99),
            nr::sched_setattr => self.sys_sched_setattr(a, b, c),
            nr::sched_getattr => self.sys_sched_getattr(a, b, c, d),
            _ => return self.answer_about_priorities(number, args),
        })
    }

    /// The thread of a number that must not be negative.
    fn scheduled(&self, pid: u64) -> Answer<Task> {
        match pid as i32 {
            ..0 => Err(Errno::EINVAL),
            _ => self.task_of(pid),
        }
    }

    /// Whether the running process is the user of a process, or may change that of anybody.
    pub(super) fn is_same_owner(&self, of: &Identity) -> bool {
        let own = self.files.own.identity.user.effective;
        own == of.user.effective || own == of.user.real
    }

    /// Checks the policies that guard scheduling: a process with capabilities is only for those that
    /// have them, too (`cap_safe_nice`).
    pub(super) fn is_safe_to_schedule(&self, of: &Identity) -> Answer<()> {
        let own = &self.files.own.identity;
        if own.is_capable() || own.permits_all() || !of.permits_all() {
            Ok(())
        } else {
            Err(Errno::EPERM)
        }
    }

    fn sys_getaffinity(&mut self, pid: u64, size: u64, to: u64) -> Answer {
        let size = u64::from(size as u32);
        if size < PROCESSORS || !size.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        self.task_of(pid)?;
        self.put_u64(to, 1)?;
        Ok(PROCESSORS)
    }

    fn sys_setaffinity(&mut self, pid: u64, size: u64, from: u64) -> Answer {
        let mut set = [0; PROCESSORS as usize];
        let size = u64::from(size as u32).min(PROCESSORS) as usize;
        self.get(from, &mut set[..size])?;

        let task = self.task_of(pid)?;
        let owner = self.identity_of(task.process);
        if !self.is_same_owner(&owner) && !self.is_capable_over(task.process) {
            return Err(Errno::EPERM);
        }
        self.is_safe_to_schedule(&owner)?;
        match set[0] & 1 {
            0 => Err(Errno::EINVAL),
            _ => Ok(0),
        }
    }

    fn sys_getscheduler(&mut self, pid: u64) -> Answer {
        let task = self.scheduled(pid)?;
        let of = *self.scheduling(task);
        let reset = if of.resets_on_fork { RESET } else { 0 };
        Ok((of.policy | reset).into())
    }

    fn sys_getparam(&mut self, pid: u64, to: u64) -> Answer {
        if to == 0 {
            return Err(Errno::EINVAL);
        }
        let task = self.scheduled(pid)?;
        let priority = self.scheduling(task).priority;
        self.put_u32(to, priority)?;
        Ok(0)
    }

    /// `sched_setscheduler` and, without a policy, `sched_setparam`.
    fn sys_setscheduler(&mut self, pid: u64, policy: Option<u32>, at: u64) -> Answer {
        if at == 0 || (pid as i32) < 0 {
            return Err(Errno::EINVAL);
        }
        let priority = self.u32_at(at)?;
        let task = self.scheduled(pid)?;
        let wanted = SchedulingRequest {
            policy: policy.map(|policy| policy & !RESET),
            priority,
            nice: self.scheduling(task).nice,
            resets_on_fork: policy.is_some_and(|policy| policy & RESET != 0),
            keeps: false,
        };
        self.set_scheduling(task, &wanted)
    }

    /// `__sched_setscheduler`.
    fn set_scheduling(&mut self, task: Task, wanted: &SchedulingRequest) -> Answer {
        let old = *self.scheduling(task);
        let mut new = old;
        if let Some(policy) = wanted.policy {
            (new.policy, new.resets_on_fork) = (policy, wanted.resets_on_fork);
        }

        // Real-time policies need a priority, and all others must have 0 (sched(7)).
        match (new.policy, wanted.priority) {
            (OTHER | BATCH | IDLE, 0) | (FIFO | ROUND_ROBIN, 1..=99) => {}
            _ => return Err(Errno::EINVAL),
        }

        new.priority = wanted.priority;
        if matches!(new.policy, OTHER | BATCH) {
            new.nice = wanted.nice;
        }

        // `user_check_sched_setscheduler`, then `cap_safe_nice`.
        let owner = self.identity_of(task.process);
        if !self.may_schedule(task, &old, &new, &owner) && !self.is_capable_over(task.process) {
            return Err(Errno::EPERM);
        }
        self.is_safe_to_schedule(&owner)?;

        // With SCHED_FLAG_KEEP_PARAMS even the policy stays (`__sched_setscheduler`).
        *self.scheduling(task) = if wanted.keeps {
            Scheduling {
                resets_on_fork: new.resets_on_fork,
                ..old
            }
        } else {
            new
        };
        Ok(0)
    }

    /// Whether this needs no capability (`user_check_sched_setscheduler`).
    fn may_schedule(
        &mut self,
        task: Task,
        old: &Scheduling,
        new: &Scheduling,
        owner: &Identity,
    ) -> bool {
        let limits = *self.resources(task.process);
        let real_time = limits[RLIMIT_RTPRIO][0];
        let is_nicer = new.nice < old.nice && !allows_nice(&limits, new.nice);
        let is_new = new.policy != old.policy && real_time == 0;
        let is_higher = new.priority > old.priority && u64::from(new.priority) > real_time;

        let is_refused = match new.policy {
            OTHER | BATCH => is_nicer,
            FIFO | ROUND_ROBIN => is_new || is_higher,
            _ => false,
        };

        // To leave the lowest policy is like becoming nicer.
        let leaves_idle = old.policy == IDLE && new.policy != IDLE;
        let leaves_reset = old.resets_on_fork && !new.resets_on_fork;
        !is_refused
            && (!leaves_idle || allows_nice(&limits, old.nice))
            && !leaves_reset
            && self.is_same_owner(owner)
    }

    /// `sched_setattr`: policy and priority in a `struct sched_attr`.
    fn sys_sched_setattr(&mut self, pid: u64, at: u64, flags: u64) -> Answer {
        const SIZE_MIN: u32 = 48;
        const DEADLINE: u32 = 6;

        if at == 0 || (pid as i32) < 0 || flags as u32 != 0 {
            return Err(Errno::EINVAL);
        }

        // A size of 0 means the first version; with E2BIG the kernel stores the size it knows
        // (`sched_copy_attr`).
        let size = self.u32_at(at)?;
        let size = if size == 0 { SIZE_MIN } else { size };
        if !(SIZE_MIN..=4096).contains(&size) {
            self.put_u32(at, 56)?;
            return Err(Errno::E2BIG);
        }

        let bytes = self.bytes::<48>(at)?;
        // `struct sched_attr`: policy at 4, flags at 8, nice at 16, priority at 20.
        let half = |from: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[from + i]));
        let (policy, nice, priority) = (half(4), half(16).cast_signed(), half(20));
        let wanted = u64::from(half(8)) | u64::from(half(12)) << 32;
        if policy.cast_signed() < 0 {
            return Err(Errno::EINVAL);
        }

        let task = self.scheduled(pid)?;
        if wanted & !FLAGS != 0 {
            return Err(Errno::EINVAL);
        }

        let known = FLAG_RESET | FLAG_KEEP_POLICY | FLAG_KEEP_PARAMS;
        if policy == DEADLINE || wanted & !known != 0 {
            return self.not_modelled("deadlines and clamps of scheduling", Errno::EPERM);
        }

        let keeps = wanted & FLAG_KEEP_PARAMS != 0;
        let now = *self.scheduling(task);
        let wanted = SchedulingRequest {
            policy: (wanted & FLAG_KEEP_POLICY == 0).then_some(policy),
            priority: if keeps { now.priority } else { priority },
            nice: if keeps { now.nice } else { nice.clamp(-20, 19) },
            resets_on_fork: wanted & FLAG_RESET != 0,
            keeps,
        };

        self.set_scheduling(task, &wanted)
    }

    fn sys_sched_getattr(&mut self, pid: u64, to: u64, size: u64, flags: u64) -> Answer {
        const SIZE: u32 = 56;
        let size = size as u32;
        let is_wrong = to == 0 || (pid as i32) < 0 || flags as u32 != 0;
        if is_wrong || !(48..=4096).contains(&size) {
            return Err(Errno::EINVAL);
        }
        let task = self.scheduled(pid)?;
        let of = *self.scheduling(task);

        let size = size.min(SIZE);
        let mut halves = [0; 14];
        (halves[0], halves[1]) = (size, of.policy);
        halves[2] = u32::from(of.resets_on_fork);
        halves[5] = of.priority;
        if !of.is_real_time() {
            (halves[4], halves[6]) = (of.nice.cast_unsigned(), SLICE);
        }
        // sched_util_min and sched_util_max.
        halves[13] = 1024;
        let bytes = halves.map(u32::to_le_bytes);
        self.put(to, &bytes.as_flattened()[..size as usize])?;
        Ok(0)
    }

    /// The share of a thread, as a `struct timespec`.
    fn sys_rr_interval(&mut self, pid: u64, to: u64) -> Answer {
        let task = self.scheduled(pid)?;
        let share = match self.scheduling(task).policy {
            FIFO => 0,
            // `RR_TIMESLICE`.
            ROUND_ROBIN => 100_000_000,
            _ => 3_000_000,
        };
        self.put_words(to, &[0, share])?;
        Ok(0)
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

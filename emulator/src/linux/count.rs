//! Processor time that threads and processes have used: one nanosecond for each instruction.
//!
//! Source: Linux 6.12 `kernel/sys.c` (`getrusage`), `kernel/time/posix-cpu-timers.c`,
//! `kernel/exit.c` (`wait_task_zombie`).

use super::clock::{Base, Owner, SECOND, Timer};
use super::errno::{Answer, Errno};
use super::kernel::Kernel;
use super::process::Process;
use super::resources::RLIMIT_CPU;
use super::signals::{SIGKILL, SIGXCPU};
use super::usage::Usage;

/// The numbers of the timers for the soft and the hard limit of processor time.
const LIMITS: [u64; 2] = [3, 4];

impl Kernel {
    /// Adds what the running thread has used since it was switched to.
    pub(super) fn count_time(&mut self) {
        self.process.thread.time += self.clock.elapsed();
        self.begin_time();
    }

    /// Counts for the running thread from here on.
    pub(super) fn begin_time(&mut self) {
        let process = &self.process;
        let others = process.others.values().map(|other| other.thread.time);
        let all = process.thread.time + others.sum::<u64>() + process.ended_time;
        self.clock
            .switch(self.task(), all, self.process.thread.time);
    }

    /// What a process has used, without its children.
    pub(super) fn usage(&self, process: &Process) -> Usage {
        let runs = process.number == self.process.number;
        let elapsed = if runs { self.clock.elapsed() } else { 0 };
        let others = process.others.values().map(|other| other.thread.time);
        Usage {
            time: process.thread.time + others.sum::<u64>() + process.ended_time + elapsed,
            memory: self.machine.core.memory.resident_in(process.space) as u64 * 4,
        }
    }

    /// The processor time of a thread of the running process.
    pub(super) fn time_of_thread(&self, number: u32) -> Option<u64> {
        let thread = &self.process.thread;
        if thread.number == number {
            return Some(thread.time + self.clock.elapsed());
        }
        Some(self.process.others.get(&number)?.thread.time)
    }

    /// The time in a timer's base.
    pub(super) fn now(&self, base: Base) -> u64 {
        match base {
            Base::Real => self.clock.real(),
            Base::Process => self.usage(&self.process).time,
            Base::Thread(number) => self.time_of_thread(number).unwrap_or(0),
        }
    }

    /// The base of a negative clock: the processor time of a process or a thread, which is given
    /// with its process.
    pub(super) fn processor_clock(&self, clock: i32) -> Answer<(Base, u32)> {
        const BY_DESCRIPTOR: i32 = 3;
        const OF_THREAD: i32 = 4;
        // The bits for a clock of a device (`CLOCKFD`).
        if clock & BY_DESCRIPTOR == BY_DESCRIPTOR {
            return Err(Errno::EINVAL);
        }

        // `CPUCLOCK_PID`: the number is stored inverted, so that the clock is negative.
        let number = !(clock >> 3);
        let own = self.task();
        let Ok(number) = u32::try_from(number) else {
            return Err(Errno::EINVAL);
        };

        if clock & OF_THREAD != 0 {
            let number = if number == 0 { own.thread } else { number };
            let time = self.time_of_thread(number);
            return time
                .map(|_| (Base::Thread(number), own.process))
                .ok_or(Errno::EINVAL);
        }

        let number = match number {
            0 => own.process,
            number if number == own.thread => own.process,
            number => number,
        };

        let mut all = self.all_processes();
        let found = all.any(|process| process.number == number && !process.has_ended);
        found
            .then_some((Base::Process, number))
            .ok_or(Errno::EINVAL)
    }

    /// The time on such a clock.
    pub(super) fn processor_time(&self, base: Base, process: u32) -> u64 {
        let mut all = self.all_processes();
        match base {
            Base::Process => all
                .find(|other| other.number == process)
                .map_or(0, |process| self.usage(process).time),
            base => self.now(base),
        }
    }

    /// Follows the limit of processor time of the running process.
    pub(super) fn limit_time(&mut self, number: u32) {
        let resource = self.resources(number)[RLIMIT_CPU];
        let is_other =
            |t: &Timer| t.process != number || !LIMITS.map(Owner::Interval).contains(&t.owner);
        self.clock.timers.retain(is_other);
        self.add_time_limits(number, resource);
    }

    /// Adds the timers that follow limits of processor time, seconds, of a process.
    pub(super) fn add_time_limits(&mut self, process: u32, limits: [u64; 2]) {
        let kinds = [(SIGXCPU, SECOND), (SIGKILL, 0)];
        for ((limit, owner), (signal, interval)) in limits.into_iter().zip(LIMITS).zip(kinds) {
            if limit == u64::MAX {
                continue;
            }
            self.clock.timers.push(Timer {
                process,
                owner: Owner::Interval(owner),
                base: Base::Process,
                clock: 0,
                next: Some(limit.max(1).saturating_mul(SECOND)),
                interval,
                signal,
                thread: None,
                value: 0,
                overruns: 0,
            });
        }
    }

    /// Notes the thread that runs after `execve`, which has ended all others.
    pub(super) fn keep_time(&mut self, ended: u64) {
        self.process.ended_time += ended;
        self.begin_time();
    }
}

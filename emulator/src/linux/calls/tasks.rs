//! Threads and processes.
//!
//! Source: Linux 6.12 `kernel/fork.c`, `kernel/exit.c`.

use crate::address_space::TASK_SIZE;
use crate::linux::end::{WCONTINUED, WEXITED, WNOHANG, WUNTRACED, WaitTarget};
use crate::linux::errno::{Answer, Errno};
use crate::linux::observer::Event;
use crate::linux::outcome::Notice;
use crate::linux::process::ParkedProcess;
use crate::linux::resources::RLIMIT_CPU;
use crate::linux::signals::SIGCHLD;
use crate::linux::task::Task;
use crate::linux::threads::{Parked, Thread, WaitCondition};
use crate::linux::tracing::{TraceEvent, Traced};
use crate::linux::{Kernel, Outcome};
use crate::state::{State, reg};
use std::collections::BTreeSet;

const CLONE_VM: u64 = 0x100;
const CLONE_FS: u64 = 0x200;
const CLONE_FILES: u64 = 0x400;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_PIDFD: u64 = 0x1000;
const CLONE_THREAD: u64 = 0x1_0000;
/// The lowest byte of the flags of `clone`: the signal at the end.
const CSIGNAL: u64 = 0xff;
const CLONE_CLEAR_SIGHAND: u64 = 0x1_0000_0000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_SYSVSEM: u64 = 0x4_0000;
const CLONE_DETACHED: u64 = 0x40_0000;
const CLONE_NEWNS: u64 = 0x2_0000;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_PTRACE: u64 = 0x2000;
const CLONE_UNTRACED: u64 = 0x80_0000;
const CLONE_PARENT: u64 = 0x8000;
/// `CLONE_NEWNS` and the like.
const NAMESPACES: u64 = 0x7e02_0080;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// The flags of `vfork`.
pub(super) const VFORK: u64 = CLONE_VFORK | CLONE_VM;

/// What `clone` and `clone3` ask for.
struct CloneArgs {
    flags: u64,
    /// rsp of the new thread; 0 for that of its creator.
    stack: u64,
    /// Where its number is stored for the creator, and for itself.
    parent_number: u64,
    child_number: u64,
    /// Where a descriptor of the new process is stored for the creator.
    descriptor: u64,
    /// The base of fs.
    tls: u64,
    /// The signal that the parent gets when the process ends.
    exit_signal: u64,
}

impl CloneArgs {
    fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// The event that a tracer sees of it.
    fn event(&self) -> TraceEvent {
        match self.exit_signal {
            _ if self.has(CLONE_VFORK) => TraceEvent::Vfork,
            signal if signal == u64::from(SIGCHLD) => TraceEvent::Fork,
            _ => TraceEvent::Clone,
        }
    }

    /// Checks for flags that exclude each other (`copy_process`).
    fn check(&self) -> Answer<()> {
        let both = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND;
        let is_wrong = self.flags & both == both
            || self.has(CLONE_NEWNS) && self.has(CLONE_FS)
            || self.has(CLONE_THREAD) && !self.has(CLONE_SIGHAND)
            || self.has(CLONE_SIGHAND) && !self.has(CLONE_VM)
            || self.has(CLONE_PIDFD) && self.has(CLONE_DETACHED);
        if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
    }
}

impl Kernel {
    /// `fork` and `vfork`.
    pub(super) fn sys_fork(&mut self, flags: u64) -> Answer {
        self.sys_clone([flags | u64::from(SIGCHLD), 0, 0, 0, 0, 0])
    }

    pub(super) fn sys_clone(&mut self, args: [u64; 6]) -> Answer {
        let [flags, stack, parent_number, child_number, tls, _] = args;
        if flags & CLONE_PIDFD != 0 && flags & CLONE_PARENT_SETTID != 0 {
            return Err(Errno::EINVAL);
        }
        self.create(&CloneArgs {
            descriptor: parent_number,
            flags: flags & 0xffff_ff00,
            stack,
            parent_number,
            child_number,
            tls,
            exit_signal: flags & CSIGNAL,
        })
    }

    /// Reads a `struct clone_args`.
    pub(super) fn sys_clone3(&mut self, args: u64, size: u64) -> Answer {
        /// `CLONE_ARGS_SIZE_VER0`.
        const SIZE_MIN: u64 = 64;
        const SIZE_MAX: u64 = 4096;
        /// The lowest byte of the old flags is a signal here, and these are the old flags.
        const KNOWN: u64 = 0x3_ffff_ff00;

        match size {
            ..SIZE_MIN => return Err(Errno::EINVAL),
            SIZE_MIN..=SIZE_MAX => {}
            _ => return Err(Errno::E2BIG),
        }

        self.bytes::<{ SIZE_MIN as usize }>(args)?;
        // `struct clone_args`: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size,
        // tls.
        let word = |index: u64| self.u64_at(args.wrapping_add(8 * index));
        let (flags, bottom, length) = (word(0)?, word(5)?, word(6)?);
        let exit_signal = word(4)?;

        // They take the exit signal from elsewhere (`clone3_args_valid`).
        let is_of_thread = flags & (CLONE_THREAD | CLONE_PARENT) != 0;
        if exit_signal > 64 || is_of_thread && exit_signal != 0 {
            return Err(Errno::EINVAL);
        }

        // The numbers of the new process, and its control group.
        let numbers = if size >= 80 { word(9)? } else { 0 };
        if numbers != 0 || flags & CLONE_INTO_CGROUP != 0 {
            return self.not_modelled("clone3 with a given number or group", Errno::EPERM);
        }

        // A stack has an address and a size, or neither (`clone3_stack_valid`).
        if flags & !KNOWN != 0 || (bottom == 0) != (length == 0) {
            return Err(Errno::EINVAL);
        }

        let wanted = CloneArgs {
            flags,
            descriptor: word(1)?,
            // Unlike `clone`, it is given the lowest address of the stack.
            stack: bottom.wrapping_add(length),
            child_number: word(2)?,
            parent_number: word(3)?,
            tls: word(7)?,
            exit_signal,
        };
        self.create(&wanted)
    }

    /// `unshare`: a process with one thread shares nothing but namespaces.
    pub(super) fn sys_unshare(&mut self, flags: u64) -> Answer {
        const OWN: u64 = CLONE_FS | CLONE_FILES | CLONE_SYSVSEM;
        const WITH_THREADS: u64 = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
        if flags & !(NAMESPACES | OWN | WITH_THREADS) != 0 {
            return Err(Errno::EINVAL);
        }
        if flags & NAMESPACES != 0 {
            return self.not_modelled("processes with namespaces", Errno::EPERM);
        }
        match self.process.others.is_empty() || flags == 0 {
            true => Ok(0),
            false if flags & WITH_THREADS != 0 => Err(Errno::EINVAL),
            false => self.not_modelled("threads with files of their own", Errno::EINVAL),
        }
    }

    fn create(&mut self, wanted: &CloneArgs) -> Answer {
        wanted.check()?;
        if wanted.has(CLONE_SETTLS) && wanted.tls >= TASK_SIZE {
            return Err(Errno::EPERM);
        }
        if wanted.has(CLONE_THREAD) {
            self.create_thread(wanted)
        } else {
            self.create_process(wanted)
        }
    }

    /// The registers of a new thread.
    fn child_state(&self, wanted: &CloneArgs) -> State {
        let mut state = self.machine.core.state.clone();
        state.set_gpr(reg::RAX, 0);
        if wanted.stack != 0 {
            state.set_gpr(reg::RSP, wanted.stack);
        }
        if wanted.has(CLONE_SETTLS) {
            state.set_gpr(reg::FS, wanted.tls);
        }
        state
    }

    /// The next thread's or process's number, stored for the creator if it wants it.
    fn next_number(&mut self, wanted: &CloneArgs) -> Answer<u32> {
        let number = self.system.next_number;
        if wanted.has(CLONE_PARENT_SETTID) {
            self.put_u32(wanted.parent_number, number)?;
        }
        self.system.next_number += 1;
        if self.share() == u64::MAX {
            self.system.schedule.begin(self.executed());
        }
        Ok(number)
    }

    /// `fork`, `vfork`, and `clone` without `CLONE_THREAD`.
    fn create_process(&mut self, wanted: &CloneArgs) -> Answer {
        // A `vfork` that waits has made its child already.
        if let Some(wait) = &self.process.thread.wait {
            let child = wait.done;
            return self.wait_for_borrower(child, wanted.has(CLONE_VFORK));
        }

        if wanted.flags & NAMESPACES != 0 {
            return self.not_modelled("processes with namespaces", Errno::EINVAL);
        }

        let shares = wanted.has(CLONE_VM);
        if wanted.has(CLONE_FILES) || wanted.has(CLONE_FS) {
            return self.not_modelled("processes that share files", Errno::EINVAL);
        }

        self.may_add_task()?;
        // What can fail is tried before anything changes.
        if wanted.has(CLONE_PIDFD) {
            let limit = self.descriptors_max();
            self.files.own.table.needs_free(limit)?;
            self.u32_at(wanted.descriptor)?;
        }

        let number = self.next_number(wanted)?;
        let state = self.child_state(wanted);

        let memory = &mut self.machine.core.memory;
        let space = if shares { memory.id() } else { memory.fork() };

        if wanted.has(CLONE_CHILD_SETTID) {
            let bytes = number.to_le_bytes();
            // Linux ignores memory that cannot be written.
            let _ = memory.with_space(space, |memory| memory.write(wanted.child_number, &bytes));
        }

        let waits = wanted.has(CLONE_VFORK);
        let mut process = self.process.child(number, space, waits, self.clock.up());
        process.exit_signal = wanted.exit_signal as u8;

        // A sibling of the caller sends the same exit signal (`copy_process`).
        if wanted.has(CLONE_PARENT) {
            (process.parent, process.exit_signal) = (self.process.parent, self.process.exit_signal);
        }

        if wanted.has(CLONE_CLEAR_SIGHAND) {
            process.signals.clear_handlers();
        }
        process.observed = self.observed.after_fork(self.process.observed);
        // `rseq_fork`: with CLONE_VM the child has no area registered.
        if !shares {
            process.thread.rseq = self.process.thread.rseq;
        }

        // The kernel clears this word when the child ends (clone(2)).
        if wanted.has(CLONE_CHILD_CLEARTID) {
            process.thread.cleared_at_exit = wanted.child_number;
        }

        let mut files = self.files.own.clone();
        files.process = number;
        // A child inherits no record locks (fcntl(2)).
        files.table.has_locks = false;
        files.table.asks_queues = false;
        files.opening.clear();
        files.threads = BTreeSet::from([number]);

        if wanted.has(CLONE_PIDFD) {
            let fd = self.add_pidfd(number, 0)?;
            self.put_u32(wanted.descriptor, fd as u32)?;
        }

        let task = Task {
            process: number,
            thread: number,
        };
        self.system
            .events
            .push(Event::Forked(task, shares, Box::new(state.clone())));

        // The tracer of a thread may trace its children, too (ptrace(2), PTRACE_O_TRACEFORK).
        let traced = self.traced_new(wanted);
        Kernel::begin_traced(traced, &mut process.thread, &mut process.signals.own);

        let parked = ParkedProcess { process, state };
        self.files.others.insert(number, files);
        self.processes.insert(number, parked);
        self.add_time_limits(number, self.process.resources[RLIMIT_CPU]);
        self.fork_event(wanted, number)?;

        // The parent of a `vfork` waits for `execve` or the end of its child.
        if waits {
            self.note_transferred(number.into());
            self.wait_for_borrower(number.into(), true)
        } else {
            Ok(number.into())
        }
    }

    /// The state of tracing of a new thread or process, if it is traced from its start.
    fn traced_new(&mut self, wanted: &CloneArgs) -> Option<Traced> {
        if wanted.has(CLONE_UNTRACED) {
            return None;
        }
        let traced = self.traced_child(wanted.event());
        if traced.is_none() && wanted.has(CLONE_PTRACE) && self.process.thread.traced.is_some() {
            self.notice(Notice::Part("clone with CLONE_PTRACE"));
        }
        traced
    }

    /// Stops the running thread because it has created another one, if its tracer wants to see that.
    ///
    /// # Errors
    /// [`Errno::WAITS`] if it stops.
    fn fork_event(&mut self, wanted: &CloneArgs, number: u32) -> Answer<()> {
        if wanted.has(CLONE_UNTRACED) {
            Ok(())
        } else {
            self.event_in_call(wanted.event(), number.into(), number.into())
        }
    }

    /// `vfork`: waits until the child has its own memory or has ended. Signals do not end this.
    /// `waits` is false for a process that was created by another call, and is never waited for.
    fn wait_for_borrower(&mut self, child: u64, waits: bool) -> Answer {
        let other = self.processes.get(&(child as u32));
        if other.is_none_or(|other| !other.process.borrows) {
            if waits && self.reports_once(TraceEvent::VforkDone) {
                self.event_in_call(TraceEvent::VforkDone, child, child)?;
            }
            return Ok(child);
        }
        match self.wait_until(None, WaitCondition::Change) {
            Ok(_) => Err(Errno::WAITS),
            Err(error) => Err(error),
        }
    }

    fn create_thread(&mut self, wanted: &CloneArgs) -> Answer {
        if !wanted.has(CLONE_FS) || !wanted.has(CLONE_FILES) {
            return self.not_modelled("threads with files of their own", Errno::EAGAIN);
        }

        if wanted.has(CLONE_PIDFD) {
            return self.not_modelled("descriptors of threads", Errno::EINVAL);
        }

        // A call that is answered again has made its thread already.
        if let Some(wait) = &self.process.thread.wait {
            return Ok(wait.done);
        }

        self.may_add_task()?;
        let number = self.next_number(wanted)?;
        if wanted.has(CLONE_CHILD_SETTID) {
            // Linux ignores memory that cannot be written.
            let _ = self.put_u32(wanted.child_number, number);
        }

        // A thread inherits its creator's name, filters and scheduling, not its pending signals
        // (clone(2)).
        let state = self.child_state(wanted);
        let mut thread = Thread::new(number, self.process.thread.name.clone());
        thread.filters.clone_from(&self.process.thread.filters);
        thread.scheduling = self.process.thread.scheduling.child();
        if wanted.has(CLONE_CHILD_CLEARTID) {
            thread.cleared_at_exit = wanted.child_number;
        }

        let task = Task {
            thread: number,
            ..self.task()
        };
        self.system
            .events
            .push(Event::ThreadStarted(task, Box::new(state.clone())));

        let mut signals = self.process.signals.own.child();
        Kernel::begin_traced(self.traced_new(wanted), &mut thread, &mut signals);

        self.files.own.threads.insert(number);
        self.process.others.insert(
            number,
            Parked {
                state,
                signals,
                thread,
            },
        );

        // Last: it may stop the creator, and then the call is answered again.
        self.fork_event(wanted, number)?;
        Ok(number.into())
    }

    /// Ends the running thread; the process, if it is the last one.
    pub(super) fn sys_exit(&mut self, status: u64) -> Answer {
        let status = (status & 0xff) as i32;
        self.exit_event(status)?;
        if self.process.thread.number == self.process.number {
            self.process.first_ended = Some(status);
        }
        if self.process.others.is_empty() {
            // The status of the process is that of its first thread.
            let status = self.process.first_ended.unwrap_or(status);
            self.end_process(Outcome::Exited(status));
        } else {
            self.release_futexes();
            // The first thread stays until the process ends.
            if self.process.thread.number != self.process.number {
                self.files.own.threads.remove(&self.process.thread.number);
            }
            let thread = self.process.thread.clone();
            self.tell_end_of_thread(&thread, (status as u32) << 8);
            self.end_tracing(Some(thread.number));
            self.process.thread.has_ended = true;
        }
        Ok(0)
    }

    /// `exit_group`.
    pub(super) fn sys_exit_group(&mut self, status: u64) -> Answer {
        let status = (status & 0xff) as i32;
        self.exit_event(status)?;
        self.end_process(Outcome::Exited(status));
        Ok(0)
    }

    /// Stops the running thread because it is about to end, if its tracer wants to see that.
    ///
    /// # Errors
    /// [`Errno::WAITS`] if it stops.
    fn exit_event(&mut self, status: i32) -> Answer<()> {
        if self.reports_once(TraceEvent::Exit) {
            self.event_in_call(TraceEvent::Exit, u64::from(status as u32) << 8, 0)
        } else {
            Ok(())
        }
    }

    /// `wait4`.
    pub(super) fn sys_wait4(&mut self, pid: u64, to: u64, options: u64, usage: u64) -> Answer {
        const KNOWN: u32 = 0xe000_000b;
        let options = options as u32;
        if options & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        let which = match pid as i32 {
            i32::MIN => return Err(Errno::ESRCH),
            -1 => WaitTarget::Any,
            0 => WaitTarget::Group(self.process.group),
            group @ ..0 => WaitTarget::Group(group.unsigned_abs()),
            number => WaitTarget::Number(number.cast_unsigned()),
        };
        let Some(news) = self.wait_for_child(which, options | WEXITED)? else {
            return Ok(0);
        };
        if to != 0 {
            self.put_u32(to, news.status)?;
        }
        if usage != 0 {
            self.put_words(usage, &news.usage.words())?;
        }
        Ok(news.number.into())
    }

    /// The children that `waitid` names, and whether it may wait for them.
    pub(in crate::linux) fn waited_for(&self, which: u32, id: u64) -> Answer<(WaitTarget, bool)> {
        /// `P_PIDFD`.
        const BY_DESCRIPTOR: u32 = 3;
        Ok(match (which, id as i32) {
            (1, ..=0) | (2, ..0) | (BY_DESCRIPTOR, ..0) | (4.., _) => return Err(Errno::EINVAL),
            (BY_DESCRIPTOR, _) => {
                let (number, does_not_wait) = self.process_at(id)?;
                (WaitTarget::Number(number), !does_not_wait)
            }
            (1, number) => (WaitTarget::Number(number.cast_unsigned()), true),
            (2, 0) => (WaitTarget::Group(self.process.group), true),
            (2, group) => (WaitTarget::Group(group.cast_unsigned()), true),
            _ => (WaitTarget::Any, true),
        })
    }

    pub(super) fn sys_waitid(&mut self, args: [u64; 6]) -> Answer {
        const KNOWN: u32 = 0xe100_000f;
        let [which, id, info, options, usage, _] = args;
        let (which, options) = (which as u32, options as u32);

        // At least one kind of news must be asked for (waitid(2)).
        if options & !KNOWN != 0 || options & (WEXITED | WUNTRACED | WCONTINUED) == 0 {
            return Err(Errno::EINVAL);
        }

        // A descriptor of a process with O_NONBLOCK turns waiting into EAGAIN (pidfd_open(2)).
        let found = self.waited_for(which, id).and_then(|(which, waits)| {
            let asked = if waits { options } else { options | WNOHANG };
            match self.wait_for_child(which, asked) {
                Ok(None) if asked != options => Err(Errno::EAGAIN),
                found => found,
            }
        });

        let (news, error) = match found {
            Ok(news) => (news, Ok(0)),
            Err(error @ (Errno::WAITS | Errno::ERESTARTSYS)) => return Err(error),
            // The memory is written even then.
            Err(error) => (None, Err(error)),
        };

        let uid = self.files.own.identity.user.real;
        if info != 0 {
            // si_signo, si_errno, si_code; si_pid, si_uid, si_status.
            let words = news.map_or([0; 6], |news| {
                let (code, status) = news.code();
                [
                    SIGCHLD.into(),
                    0,
                    code.cast_unsigned(),
                    news.number,
                    uid,
                    status,
                ]
            });

            let bytes = words.map(u32::to_le_bytes);
            // `si_pid` is aligned to 8 bytes, so four are left out.
            let (first, second) = bytes.as_flattened().split_at(12);
            self.put(info, first)?;
            self.put(info.wrapping_add(16), second)?;
        }

        if usage != 0
            && let Some(news) = news
        {
            self.put_words(usage, &news.usage.words())?;
        }
        error
    }
}

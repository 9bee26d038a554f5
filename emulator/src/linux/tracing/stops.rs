//! Stops of traced threads, and how they go on.
//!
//! Source: Linux 6.12 `kernel/signal.c` (`ptrace_stop`, `ptrace_signal`, `do_jobctl_trap`), `kernel/ptrace.c`,
//! `include/linux/ptrace.h` (`ptrace_event`, `ptrace_init_task`), `arch/x86/kernel/step.c`.

use super::{EVENT_STOP, Phase, ResumeMode, Stop, StopKind, TraceEvent, Traced, option};
use crate::flags::TF;
use crate::linux::errno::Errno;
use crate::linux::kernel::Kernel;
use crate::linux::outcome::{Outcome, SignalOrigin};
use crate::linux::process::Process;
use crate::linux::signals::{Info, OwnSignals, SA_NOCLDSTOP, SIG_IGN, SIGCHLD, SIGSTOP, SIGTRAP};
use crate::linux::task::Task;
use crate::linux::threads::Thread;
use crate::state::{State, reg};
use crate::stop::Exception;

/// `si_code` of a stop that a tracer hears of, and of one that the group hears of.
const CLD_TRAPPED: i32 = 4;
const CLD_STOPPED: i32 = 5;
const SI_USER: i32 = 0;
const TRAP_BRKPT: i32 = 1;
const TRAP_TRACE: i32 = 2;
/// The mark of system calls with [`option::SYSGOOD`].
const GOOD: u32 = 0x80;
/// `PTRACE_EVENTMSG_SYSCALL_ENTRY` and `PTRACE_EVENTMSG_SYSCALL_EXIT`.
pub(in crate::linux) const CALL_ENTRY: u64 = 1;
pub(in crate::linux) const CALL_EXIT: u64 = 2;

/// A thread that does not run, with what a tracer may change.
pub(in crate::linux) struct Tracee<'a> {
    pub(in crate::linux) state: &'a mut State,
    pub(in crate::linux) signals: &'a mut OwnSignals,
    pub(in crate::linux) thread: &'a mut Thread,
}

fn tracee_in<'a>(
    process: &'a mut Process,
    state: &'a mut State,
    thread: u32,
) -> Option<Tracee<'a>> {
    if process.thread.number == thread {
        return Some(Tracee {
            state,
            signals: &mut process.signals.own,
            thread: &mut process.thread,
        });
    }
    let other = process.others.get_mut(&thread)?;
    Some(Tracee {
        state: &mut other.state,
        signals: &mut other.signals,
        thread: &mut other.thread,
    })
}

impl Kernel {
    /// A thread that has not ended.
    pub(in crate::linux) fn tracee(&mut self, task: Task) -> Option<Tracee<'_>> {
        let found = if task.process == self.process.number {
            tracee_in(&mut self.process, &mut self.machine.core.state, task.thread)
        } else {
            let parked = self.processes.get_mut(&task.process)?;
            tracee_in(&mut parked.process, &mut parked.state, task.thread)
        };
        found.filter(|tracee| !tracee.thread.has_ended)
    }

    /// Begins to trace a thread. If its group is stopped, it reports this first.
    pub(in crate::linux) fn attach(&mut self, task: Task, traced: Traced) {
        let is_stopped = self
            .process(task.process)
            .is_some_and(|process| process.stopped.is_some());
        if let Some(tracee) = self.tracee(task) {
            tracee.thread.traced = Some(Box::new(traced));
            tracee.signals.is_traced = true;
            tracee.signals.notified |= is_stopped;
        }
        self.system.changes += 1;
    }

    /// Ends the tracing of a thread, which goes on unless its group is stopped.
    pub(in crate::linux) fn detach(&mut self, task: Task) {
        if let Some(tracee) = self.tracee(task) {
            end_step(tracee.thread, tracee.state);
            // A signal that its tracer let through is still delivered.
            let traced = tracee.thread.traced.take();
            let injected = traced.and_then(|traced| traced.injected);
            tracee.signals.is_traced = false;
            tracee.signals.notified = false;
            if let Some(info) = injected {
                tracee.signals.put_back(info);
            }
        }
        self.system.changes += 1;
    }

    /// Lets a stopped thread go on, with a signal if the tracer gives one.
    pub(in crate::linux) fn resume_tracee(
        &mut self,
        task: Task,
        how: ResumeMode,
        signal: Option<u8>,
    ) {
        let (tracer, uid) = (self.process.number, self.files.own.identity.user.real);

        let Some(tracee) = self.tracee(task) else {
            return;
        };
        let Some(traced) = &mut tracee.thread.traced else {
            return;
        };

        let stop = traced.stop.take();
        traced.how = how;
        match stop.map(|stop| (stop.kind, stop.info)) {
            Some((StopKind::Signal, before)) => {
                // The same signal keeps its `siginfo`; another one comes from the tracer
                // (`ptrace_signal`).
                let same = before.filter(|info| Some(info.signal) == signal);
                let other = |signal| Info::from_process(signal, SI_USER, tracer, uid);
                traced.injected = same.or_else(|| signal.map(other));
            }
            Some((StopKind::Call, _)) => {
                if let Some(signal) = signal {
                    tracee.signals.put_back(Info::from_kernel(signal));
                }
            }
            _ => {}
        }

        if how == ResumeMode::Step {
            let byte = |at: u64| {
                let mut byte = [0];
                let space = self.process(task.process).map(|process| process.space)?;
                let memory = &self.machine.core.memory;
                memory.peek_in(space, at, &mut byte).ok().map(|()| byte[0])
            };

            let rip = self.thread_state(task).map_or(0, |state| state.rip);
            // No instruction is longer than 15 bytes.
            let sets = sets_trap_flag((0..15).map_while(|index| byte(rip.wrapping_add(index))));
            self.begin_step(task, sets);
        }

        self.system.changes += 1;
    }

    /// The registers of a thread.
    pub(in crate::linux) fn thread_state(&self, task: Task) -> Option<&State> {
        let (process, state) = if task.process == self.process.number {
            (&self.process, &self.machine.core.state)
        } else {
            let parked = self.processes.get(&task.process)?;
            (&parked.process, &parked.state)
        };
        if process.thread.number == task.thread {
            return Some(state);
        }
        Some(&process.others.get(&task.thread)?.state)
    }

    /// Sets the trap flag of a thread. If its next instruction sets the flag itself, what that sets is the
    /// program's own.
    fn begin_step(&mut self, task: Task, sets_it: bool) {
        let Some(tracee) = self.tracee(task) else {
            return;
        };
        let flags = tracee.state.rflags();
        if let Some(traced) = &mut tracee.thread.traced
            && flags & TF == 0
        {
            traced.forced_tf = !sets_it;
            tracee.state.set_rflags(flags | TF);
        }
    }

    /// Stops the running thread for its tracer.
    fn stop_for_tracer(&mut self, kind: StopKind, code: u32, info: Option<Info>) {
        let task = self.task();

        // The trap flag of a step must not be seen by the tracer.
        end_step(&mut self.process.thread, &mut self.machine.core.state);
        let uid = self.files.own.identity.user.real;
        let Some(traced) = &mut self.process.thread.traced else {
            return;
        };

        traced.stop = Some(Stop {
            kind,
            code,
            info,
            is_news: true,
            listens: false,
        });

        self.system.changes += 1;
        let tracer = traced.tracer.process;

        // What `si_code` says.
        let why = match kind {
            StopKind::Group => CLD_STOPPED,
            _ => CLD_TRAPPED,
        };

        if let Some(signals) = self.signals_of(tracer) {
            let action = *signals.action(SIGCHLD);
            // As `do_notify_parent_cldstop`.
            if action.handler != SIG_IGN && action.flags & SA_NOCLDSTOP == 0 {
                let status = code & 0x7f;
                signals.send(Info::of_child(SIGCHLD, why, task.thread, uid, status));
            }
        }
    }

    /// Stops the running thread with a code that its `si_code` repeats (`ptrace_do_notify`).
    fn notify_tracer(&mut self, kind: StopKind, signal: u8, code: u32) {
        let (thread, uid) = (
            self.process.thread.number,
            self.files.own.identity.user.real,
        );
        let info = Info::from_process(signal, code.cast_signed(), thread, uid);
        self.stop_for_tracer(kind, code, Some(info));
    }

    /// Whether the running thread's tracer wants to see an event.
    pub(in crate::linux) fn wants_event(&self, event: TraceEvent) -> bool {
        let traced = self.process.thread.traced.as_ref();
        traced.is_some_and(|traced| traced.wants(event))
    }

    /// Stops the running thread because of an event.
    pub(in crate::linux) fn stop_at_event(&mut self, event: TraceEvent, message: u64) {
        if let Some(traced) = &mut self.process.thread.traced {
            traced.message = message;
        }
        let code = u32::from(SIGTRAP) | (event as u32) << 8;
        self.notify_tracer(StopKind::Event, SIGTRAP, code);
    }

    /// Stops the running thread inside of a call because of an event, if its tracer wants to see it. The
    /// call is answered again when the thread goes on; `done` is what it finds then.
    ///
    /// # Errors
    /// [`Errno::WAITS`] if it stops.
    pub(in crate::linux) fn event_in_call(
        &mut self,
        event: TraceEvent,
        message: u64,
        done: u64,
    ) -> Result<(), Errno> {
        if !self.wants_event(event) {
            return Ok(());
        }
        self.wait_woken(done);
        self.machine
            .core
            .state
            .set_gpr(reg::RAX, Errno::ENOSYS.to_rax());
        self.stop_at_event(event, message);
        Err(Errno::WAITS)
    }

    /// Whether the running thread still has to report an event that a call reports only once; from here on it
    /// has reported it.
    pub(in crate::linux) fn reports_once(&mut self, event: TraceEvent) -> bool {
        let Some(traced) = self
            .process
            .thread
            .traced
            .as_mut()
            .filter(|traced| traced.wants(event))
        else {
            return false;
        };
        traced.reported = !traced.reported;
        traced.reported
    }

    /// What the running thread's tracer sees of `execve`: an event, or a signal. `before` is the thread's
    /// number before.
    pub(in crate::linux) fn trace_exec(&mut self, before: u32) {
        let (number, uid) = (self.process.number, self.files.own.identity.user.real);
        let seized = self
            .process
            .thread
            .traced
            .as_ref()
            .map(|traced| traced.seized);
        if self.wants_event(TraceEvent::Exec) {
            // The call's result comes after the stop.
            let not_yet = Errno::ENOSYS.to_rax();
            self.machine.core.state.set_gpr(reg::RAX, not_yet);
            self.stop_at_event(TraceEvent::Exec, before.into());
        } else if seized == Some(false) {
            let info = Info::from_process(SIGTRAP, SI_USER, number, uid);
            self.process.signals.send_to_thread(info);
        }
    }

    /// The state of tracing for a thread that the running one creates, if its tracer wants to see `event`.
    pub(in crate::linux) fn traced_child(&self, event: TraceEvent) -> Option<Traced> {
        let traced = self.process.thread.traced.as_ref()?;
        traced.wants(event).then(|| traced.child())
    }

    /// Marks a new thread that is traced from its start: it stops before its first instruction.
    pub(in crate::linux) fn begin_traced(
        traced: Option<Traced>,
        thread: &mut Thread,
        signals: &mut OwnSignals,
    ) {
        let Some(traced) = traced else {
            return;
        };
        signals.is_traced = true;
        if traced.seized {
            signals.notified = true
        } else {
            signals.put_back(Info::from_process(SIGSTOP, SI_USER, 0, 0))
        }
        thread.traced = Some(Box::new(traced));
    }

    /// Stops the running thread at the start of a call, if its tracer wants that. The call is made when the
    /// thread goes on.
    pub(in crate::linux) fn stops_at_entry(&mut self) -> bool {
        let traced = self.process.thread.traced.as_ref();
        if traced.is_none_or(|traced| traced.how != ResumeMode::Syscall) {
            return false;
        }
        self.process.thread.phase = Phase::Entering;
        self.machine
            .core
            .state
            .set_gpr(reg::RAX, Errno::ENOSYS.to_rax());
        self.stop_at_call(CALL_ENTRY);
        true
    }

    /// A filter of system calls asks the running thread's tracer: the call is made when the thread goes on,
    /// without asking again.
    pub(in crate::linux) fn stop_at_filter(&mut self, message: u32) {
        self.process.thread.phase = Phase::Filtered;
        if let Some(traced) = &mut self.process.thread.traced {
            traced.passes = true;
        }
        self.machine
            .core
            .state
            .set_gpr(reg::RAX, Errno::ENOSYS.to_rax());
        self.stop_at_event(TraceEvent::Seccomp, message.into());
    }

    /// Whether the running thread's tracer has seen the call that is made.
    pub(in crate::linux) fn passes_filter(&mut self) -> bool {
        let traced = self.process.thread.traced.as_mut();
        traced.is_some_and(|traced| std::mem::take(&mut traced.passes))
    }

    fn stop_at_call(&mut self, message: u64) {
        let Some(traced) = &mut self.process.thread.traced else {
            return;
        };
        traced.message = message;
        let good = if traced.options & option::SYSGOOD != 0 {
            GOOD
        } else {
            0
        };
        self.notify_tracer(StopKind::Call, SIGTRAP, u32::from(SIGTRAP) | good);
    }

    /// The running thread's call has its answer: stops it if its tracer wants that.
    pub(in crate::linux) fn leave_call(&mut self) {
        let thread = &mut self.process.thread;
        let Some(traced) = &thread.traced else {
            return;
        };
        if thread.has_ended {
            return;
        }
        if traced.stop.is_some() {
            thread.phase = Phase::Leaving;
            return;
        }
        match traced.how {
            ResumeMode::Continue => {}
            ResumeMode::Syscall => self.stop_at_call(CALL_EXIT),
            ResumeMode::Step => self.debug_trap(TRAP_BRKPT),
        }
    }

    /// The signal of a single step.
    pub(in crate::linux) fn stepped(&mut self) {
        self.debug_trap(TRAP_TRACE);
    }

    fn debug_trap(&mut self, code: i32) {
        let rip = self.machine.core.state.rip;
        let why = SignalOrigin::Exception(Exception::Debug);
        (
            self.process.signals.own.trap[0],
            self.process.signals.own.trap[1],
        ) = (1, 0);
        self.process
            .signals
            .force(Info::fault(SIGTRAP, code, rip, why));
    }

    /// Ends a single step before a handler is entered; whether it was one.
    pub(in crate::linux) fn ends_step(&mut self) -> bool {
        let traced = self.process.thread.traced.as_ref();
        let steps = traced.is_some_and(|traced| traced.how == ResumeMode::Step);
        end_step(&mut self.process.thread, &mut self.machine.core.state);
        steps
    }

    /// A single step has entered a handler.
    pub(in crate::linux) fn stop_in_handler(&mut self) {
        self.notify_tracer(StopKind::Event, SIGTRAP, SIGTRAP.into());
    }

    /// The signal to deliver next to the running thread; the tracer of a thread decides first.
    pub(in crate::linux) fn next_signal(&mut self) -> Option<Info> {
        let signals = &mut self.process.signals;
        let Some(traced) = &mut self.process.thread.traced else {
            return signals.take_deliverable();
        };
        if let Some(info) = signals.take_kill() {
            return Some(info);
        }
        if let Some(info) = traced.injected.take() {
            if signals.own.blocks(info.signal) {
                signals.own.put_back(info)
            } else {
                return Some(info);
            }
        }
        if std::mem::take(&mut signals.own.notified) {
            self.stop_with_group();
            return None;
        }
        let info = signals.take_deliverable()?;
        let code = info.signal.into();
        self.stop_for_tracer(StopKind::Signal, code, Some(info));
        None
    }

    /// Stops the running thread because its group is stopped, or because its tracer wants it to stop.
    fn stop_with_group(&mut self) {
        let seized = self
            .process
            .thread
            .traced
            .as_ref()
            .is_some_and(|traced| traced.seized);
        match (self.process.stopped, seized) {
            (signal, true) => {
                let signal = signal.unwrap_or(SIGTRAP);
                let code = u32::from(signal) | EVENT_STOP << 8;
                self.notify_tracer(StopKind::Group, signal, code);
            }
            (Some(signal), false) => {
                self.stop_for_tracer(StopKind::Group, signal.into(), None);
            }
            (None, false) => {}
        }
    }

    /// Stops the running thread before the process ends, if its tracer wants to see that; then it ends
    /// when the thread goes on.
    pub(in crate::linux) fn stops_before_end(&mut self, status: u32, outcome: &Outcome) -> bool {
        if !self.wants_event(TraceEvent::Exit) {
            return false;
        }
        self.process.thread.dying = Some(outcome.clone());
        self.stop_at_event(TraceEvent::Exit, status.into());
        true
    }

    /// Another signal than `SIGCONT` has continued a process, or `SIGCONT` has: those of its threads that
    /// are seized report it, and `SIGKILL` ends all stops.
    pub(in crate::linux) fn notify_traced(&mut self, process: u32, kills: bool) {
        let Some(process) = self.process_mut(process) else {
            return;
        };
        let own = (&mut process.signals.own, &mut process.thread);
        let others = process.others.values_mut();
        let others = others.map(|other| (&mut other.signals, &mut other.thread));
        for (signals, thread) in others.chain([own]) {
            let Some(traced) = &mut thread.traced else {
                continue;
            };
            if kills {
                traced.stop = None;
                traced.injected = None;
            } else if traced.seized {
                signals.notified = true;
                traced.stop.take_if(|stop| stop.listens);
            }
        }
    }

    /// The group of the running thread is stopped: its traced threads stop, too.
    pub(in crate::linux) fn stop_traced(&mut self) {
        let process = &mut self.process;
        process.signals.own.notified |= process.thread.traced.is_some();
        for other in process.others.values_mut() {
            other.signals.notified |= other.thread.traced.is_some();
        }
    }
}

/// Clears the trap flag if a single step has set it.
fn end_step(thread: &mut Thread, state: &mut State) {
    if let Some(traced) = &mut thread.traced
        && std::mem::take(&mut traced.forced_tf)
    {
        state.set_rflags(state.rflags() & !TF);
    }
}

/// Whether an instruction sets the trap flag: `popf` and `iret`, after prefixes.
fn sets_trap_flag(mut bytes: impl Iterator<Item = u8>) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let opcode = bytes.find(|byte| !is_prefix(byte));
    matches!(opcode, Some(0x9d | 0xcf))
}

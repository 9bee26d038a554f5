//! Runs processes: executes the machine, and handles what needs the kernel.

use super::errno::Errno;
use super::kernel::Kernel;
use super::limit::Limit;
use super::numbers;
use super::observer::{Event, ProcessObserver, SystemCall};
use super::outcome::{Notice, Outcome};
use super::threads::SystemCallEntry;
use super::tracing::Phase;
use crate::flags::TF;
use crate::machine::Exit;
use crate::state::reg;
use crate::stop::{Call, Exception};
use std::time::Instant;

/// The number of instructions after which the clock is read, where there is a deadline; it is also read after
/// each system call.
const CLOCK_EVERY: u64 = 1 << 14;
/// Length of the longest instruction, bytes.
const INSN_MAX: usize = 15;

impl Kernel {
    /// Executes at most this number of instructions, or less if the deadline of the options has come.
    pub fn run<O: ProcessObserver>(&mut self, instructions_max: u64, observer: &mut O) -> Outcome {
        self.tell(observer);
        let end = self.executed().saturating_add(instructions_max);
        while self.outcome.is_none() {
            let left = end.saturating_sub(self.executed());
            if left == 0 {
                return Outcome::Limit;
            }
            match self.deadline {
                None => self.advance(left, observer),
                Some(deadline) => {
                    self.advance(left.min(CLOCK_EVERY), observer);
                    if self.outcome.is_none() && Instant::now() >= deadline {
                        return Outcome::Limit;
                    }
                }
            }
        }
        self.outcome.clone().unwrap_or(Outcome::Limit)
    }

    /// Executes one instruction, with the kernel's response. If it raises an exception, nothing
    /// else is executed, and the next instruction is the first one of the signal's handler.
    pub fn step<O: ProcessObserver>(&mut self, observer: &mut O) -> Outcome {
        self.tell(observer);
        if self.outcome.is_none() {
            self.advance(1, observer);
        }
        self.outcome.clone().unwrap_or(Outcome::Limit)
    }

    /// Lets another thread run if it is its turn, before an instruction is executed.
    pub fn take_turns<O: ProcessObserver>(&mut self, observer: &mut O) {
        self.tell(observer);
        self.choose(observer);
        if self.outcome.is_none() {
            self.tell_task(observer);
        }
    }

    /// Executes at most this number of instructions, but stops when the kernel is needed.
    fn advance<O: ProcessObserver>(&mut self, instructions_max: u64, observer: &mut O) {
        self.choose(observer);

        if let Some(outcome) = &self.outcome {
            return observer.ended(outcome);
        }

        self.tell_task(observer);
        let timer = self.clock.until_timer().unwrap_or(u64::MAX);
        let most = timer.min(instructions_max).min(self.share());

        // With TF each instruction ends with a #DB (Intel SDM volume 3, single-step exception).
        let steps = self.machine.core.state.other_flags & TF != 0;
        let exit = if steps {
            self.single_step(most.min(1), observer)
        } else {
            self.execute(most, observer)
        };

        self.clock.set(self.executed());
        if exit != Exit::Limit || self.clock.until_timer() == Some(0) {
            // The kernel's state changes from here on.
            self.saved = None;
        }

        // Outside of a call its number is -1 for tracers (`orig_rax`).
        if exit != Exit::Kernel(Call::Syscall) && self.process.thread.last_call != u64::MAX {
            self.process.thread.last_call = u64::MAX;
            self.saved = None;
        }

        match exit {
            Exit::Limit => {}
            Exit::Kernel(Call::Syscall) => self.system_call(observer),
            // 32-bit calls of a 64-bit program.
            Exit::Kernel(Call::Int80) => self.unsupported(2),
            // The signal has been sent.
            Exit::Exception(Exception::Debug) if steps => {}
            Exit::Exception(exception) => {
                if self.process.observed {
                    observer.exception(exception, &self.machine.core);
                }
                self.exception(exception);
            }
            Exit::Halt => {
                // HLT is privileged: a #GP, which is a fault, so rip is that of the instruction.
                self.machine.core.state.rip = self.machine.core.state.rip.wrapping_sub(1);
                let exception = Exception::GeneralProtection;
                if self.process.observed {
                    observer.exception(exception, &self.machine.core);
                }
                self.exception(exception);
            }
            Exit::Unsupported | Exit::System => self.unsupported(0),
        }

        // Signals of timers that have expired are delivered with the others.
        self.expire_timers();
        self.settle_objects();
        if self.is_stuck() {
            self.choose(observer)
        } else {
            self.deliver_signals(observer)
        }

        if self.outcome.is_some() {
            self.store_files();
        }
        if let Some(outcome) = &self.outcome {
            observer.ended(outcome);
        }
    }

    fn execute<O: ProcessObserver>(&mut self, most: u64, observer: &mut O) -> Exit {
        if self.process.observed {
            self.machine.run(most, observer)
        } else {
            self.machine.run(most, &mut ())
        }
    }

    /// Executes an instruction with the trap flag set, or none if `most` is 0.
    #[cold]
    fn single_step<O: ProcessObserver>(&mut self, most: u64, observer: &mut O) -> Exit {
        let before = self.executed();
        self.machine.core.state.single_iteration = true;
        let exit = self.execute(most, observer);
        self.machine.core.state.single_iteration = false;
        match exit {
            Exit::Limit if self.executed() > before => {
                if self.process.observed {
                    observer.exception(Exception::Debug, &self.machine.core);
                }
                self.stepped();
                Exit::Exception(Exception::Debug)
            }
            exit => exit,
        }
    }

    fn tell<O: ProcessObserver>(&mut self, observer: &mut O) {
        if !self.system.events.is_empty() {
            self.saved = None;
        }
        for event in self.system.events.drain(..) {
            if let Event::Observed(observed) = event {
                self.system.told_observed = observed;
            }
            event.tell(&self.machine.core, observer);
        }
    }

    /// Says which thread runs, if it is another one than before.
    pub(super) fn tell_task<O: ProcessObserver>(&mut self, observer: &mut O) {
        self.tell(observer);
        let task = self.task();
        if task != self.system.told {
            self.system.told = task;
            observer.switched(task, &self.machine.core);
            if self.process.observed != self.system.told_observed {
                self.system.told_observed = self.process.observed;
                observer.observes(self.process.observed);
            }
        }
    }

    /// Ends the run at the instruction `back` bytes before the next one.
    fn unsupported(&mut self, back: u64) {
        let core = &self.machine.core;
        let rip = core.state.rip.wrapping_sub(back);
        let byte = |at: u64| {
            let mut byte = [0];
            let fetched = core.memory.fetch(rip.wrapping_add(at), &mut byte);
            fetched.ok().map(|()| byte[0])
        };
        let bytes = (0..INSN_MAX as u64).map_while(byte).collect();
        self.outcome = Some(Outcome::Unsupported { rip, bytes });
    }

    fn system_call<O: ProcessObserver>(&mut self, observer: &mut O) {
        let number = self.machine.core.state.gpr(reg::RAX);
        self.process.thread.last_call = number;
        if !self.stops_at_entry() {
            self.make_call(number, observer);
        }
    }

    /// Makes the call of this number, with the arguments in registers.
    fn make_call<O: ProcessObserver>(&mut self, number: u64, observer: &mut O) {
        let core = &self.machine.core;
        let arg = |register| core.state.gpr(register);
        let args = [reg::RDI, reg::RSI, reg::RDX, 10, 8, 9].map(arg);
        let before = core.state.preserved_at(core.state.rip);
        let made = SystemCallEntry {
            number,
            args,
            before,
        };
        self.answer_call(made, observer);
    }

    /// Continues a thread where it waits, or has stopped for its tracer.
    pub(super) fn go_on<O: ProcessObserver>(&mut self, observer: &mut O) {
        if let Some(outcome) = self.process.thread.dying.take() {
            return self.end_process(outcome);
        }

        let number = self.process.thread.last_call;
        match std::mem::take(&mut self.process.thread.phase) {
            // Only `execve` stops after it has its answer.
            Phase::Leaving => {
                self.machine.core.state.set_gpr(reg::RAX, 0);
                self.leave_call();
            }
            // The tracer has taken the call back, or a signal ends the process.
            Phase::Entering | Phase::Filtered
                if number as i32 == -1 || self.process.signals.has_kill() =>
            {
                self.skip_call(number, observer);
            }
            Phase::Entering | Phase::Filtered => self.make_call(number, observer),
            Phase::Outside => {
                if let Some(wait) = &self.process.thread.wait {
                    let made = wait.made;
                    self.answer_call(made, observer);
                }
            }
        }
    }

    /// Leaves a call that is not made, with what the tracer has put into rax.
    fn skip_call<O: ProcessObserver>(&mut self, number: u64, observer: &mut O) {
        let core = &self.machine.core;
        let call = SystemCall {
            number,
            name: "",
            args: [0; 6],
            result: core.state.gpr(reg::RAX),
            returns: !self.process.signals.kill_next(),
            before: core.state.preserved_at(core.state.rip),
        };
        self.tell_task(observer);
        if self.process.observed {
            observer.system_call(&call, &self.machine.core);
        }
        self.leave_call();
    }

    /// Answers a call of the running thread. If it must wait, it is answered again later.
    pub(super) fn answer_call<O: ProcessObserver>(
        &mut self,
        made: SystemCallEntry,
        observer: &mut O,
    ) {
        let SystemCallEntry {
            number,
            args,
            before,
        } = made;

        self.process.thread.made = Some(made);
        self.files.now = self.clock.time();
        self.files.thread = self.process.thread.number;
        self.process.signals.own.restart = None;
        let was_observed = self.process.observed;

        // A call that waits has passed them.
        let filtered = if self.has_waited() {
            None
        } else {
            self.filtered(number, args)
        };

        // The tracer decides about the call first (SECCOMP_RET_TRACE).
        if self.process.thread.phase == Phase::Filtered {
            return;
        }

        let result = match filtered.unwrap_or_else(|| self.answer(number, args)) {
            Ok(value) => value,
            Err(Errno::WAITS) => return,
            Err(
                errno @ (Errno::ERESTARTSYS | Errno::ERESTARTNOHAND | Errno::ERESTART_RESTARTBLOCK),
            ) => {
                self.process.signals.own.restart = Some((number, errno));
                Errno::EINTR.to_rax()
            }
            Err(errno) => errno.to_rax(),
        };

        if self.files.budget.take_full() {
            self.notice(Notice::Limit(Limit::Files));
        }

        // What other threads wait for may have happened now.
        self.process.thread.wait = None;
        self.system.changes += 1;
        self.follow_copies();
        self.release_closed_locks();
        self.forget_closed_queues();
        self.settle_objects();

        // The host's stream was not ready in time.
        if self.files.streams.take_late() {
            self.outcome = Some(Outcome::StreamTimeout {
                rip: self.machine.core.state.rip,
                call: numbers::name(number).unwrap_or(""),
            });
        }

        // `execve` has set all registers for the new program.
        let replaced = matches!(number, numbers::execve | numbers::execveat) && result == 0;
        if !replaced {
            self.machine.core.state.set_gpr(reg::RAX, result);
        }
        self.tell_task(observer);

        let call = SystemCall {
            number,
            name: numbers::name(number).unwrap_or(""),
            args,
            result,
            returns: self.outcome.is_none()
                && !self.process.thread.has_ended
                && !self.is_stopped()
                && !self.process.signals.kill_next(),
            before,
        };

        // Of an `execve` that begins or ends the observation, one half is missing.
        if was_observed && self.process.observed {
            observer.system_call(&call, &self.machine.core);
        }

        self.leave_call();
        if self.process.thread.has_ended && !self.process.has_ended {
            observer.thread_ended(self.task());
        }
    }
}

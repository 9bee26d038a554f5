//! The steps of a CPU, and its way into the kernel and out of it: interrupts, the exit loop, the
//! task work that unwinds the user stack, the end of a task (`kernel/entry/common.c`,
//! `kernel/unwind/deferred.c`, Linux 7.2).
//!
//! The task work is preemptible frame by frame. Not here: samples (`sample`).

use super::deferred::Reset;
use super::{ExecutionState, Frame, Loop, Slot, TICK_NS, TaskWork, World};
use crate::log::{Context, Fact};
use crate::mutant::Mutant;
use crate::record::Body;
use crate::sampling::TimerRegs;
use crate::setup::{Form, Kind, ON_STACK_ENTRIES, RfcBuffer, UNWIND_MAX_ENTRIES};
use crate::stack::{Leaf, user_frame};

/// Duration of a step in the kernel, nanoseconds.
const STEP_NS: u64 = 50;
/// Duration of a step of user code or of the idle task, nanoseconds.
const USER_STEP_NS: u64 = 100;
/// Frames that are unwound one per step.
const SINGLE_FRAMES: usize = 8;
/// Frames per step after those.
const FRAMES_PER_STEP: usize = 64;

/// A task work that runs (`process_unwind_deferred`, or `perf_pending_task_unwind` of 2023).
pub(super) struct Unwinding {
    work: TaskWork,
    stage: UnwindStage,
    /// The mask of requests.
    asked: u64,
    /// The buffer: its own, or (a mutant) the one of the CPU on which it began.
    shared: Option<usize>,
    entries: Vec<u64>,
    next: usize,
}

#[derive(Clone, Copy)]
enum UnwindStage {
    Begin,
    Allocate,
    Frames,
    Store,
    /// The record is to be written for the events from this one on.
    Output(u16),
}

impl World {
    /// If the CPU's task has exited and no other one was chosen, the idle task runs.
    pub(super) fn idle_if_left(&mut self, cpu: usize) {
        let on = &mut self.machine.cpus[cpu];
        if on.is_left && on.switching.is_none() {
            on.is_left = false;
            self.lbr.idle(cpu);
            self.say_branches(cpu);
        }
    }

    /// Lets `ns` pass on the CPU; hardware counters overflow exactly when they do.
    pub(super) fn pass(&mut self, cpu: usize, mut ns: u64) {
        self.idle_if_left(cpu);
        let user = self.machine.in_user(cpu);
        while ns > 0 {
            let counted_by = self.machine.counted_by(cpu);
            let (counting, until) = self.events.running(cpu, counted_by, user);
            let part = ns.min(until);
            self.out.pass(part);
            ns -= part;
            self.say(cpu, Fact::Ran { user, ns: part });
            for event in self.events.numbers().filter(|e| counting >> e & 1 != 0) {
                if self.events.count(event, cpu, part) {
                    self.nmi(cpu, event);
                }
            }
            if user && self.machine.cpus[cpu].irq_work {
                // The interrupt that the NMI sent comes before the next instruction.
                return;
            }
        }
    }

    /// One atomic step of what runs on the CPU; a pending interrupt comes first.
    pub(super) fn step(&mut self, cpu: usize) {
        self.tick(cpu);
        if self.interrupt_waits(cpu) {
            self.interrupt(cpu, 0);
            self.pass(cpu, STEP_NS);
            return;
        }
        let user = self.machine.in_user(cpu);
        let on = &self.machine.cpus[cpu];
        let idle = on.frames.is_empty() && on.current.is_none();
        self.pass(cpu, if user || idle { USER_STEP_NS } else { STEP_NS });
        let on = &self.machine.cpus[cpu];
        if on.switching.is_some() {
            self.switch_end(cpu);
        } else if !on.frames.is_empty() {
            self.step_frame(cpu);
        } else if let Some(task) = on.current
            && !user
        {
            self.step_task(cpu, task);
        }
    }

    /// A new tick: events that were throttled go on.
    fn tick(&mut self, cpu: usize) {
        let tick = self.out.now() / TICK_NS;
        if std::mem::replace(&mut self.machine.cpus[cpu].tick, tick) == tick {
            return;
        }
        for event in self.events.numbers() {
            let (was_stopped, adjusted) = self.events.tick(event, cpu, self.out.now());
            if was_stopped {
                self.say(cpu, Fact::Unthrottled { event });
                self.write_side(cpu, event, Body::Unthrottle);
            }
            if let Some(fact) = adjusted {
                self.say(cpu, fact);
            }
        }
    }

    /// A hardirq: the irq work and the timers that are due, then `left` steps of its own.
    pub(super) fn interrupt(&mut self, cpu: usize, left: u8) {
        let from_user = self.enter(cpu);
        let queue = self.events.fire(cpu, self.out.now());
        let irq_work = std::mem::take(&mut self.machine.cpus[cpu].irq_work);
        self.say(cpu, Fact::Interrupt(Context::Hardirq));
        self.machine.cpus[cpu].frames.push(Frame {
            context: Context::Hardirq,
            from_user,
            job: None,
            queue,
            irq_work,
            left,
        });
    }

    /// A softirq, on top of a task in the kernel, with a timer to run if one is given.
    pub(super) fn softirq(&mut self, cpu: usize, timer: Option<u16>, left: u8) {
        let from_user = self.enter(cpu);
        self.say(cpu, Fact::Interrupt(Context::Softirq));
        self.machine.cpus[cpu].frames.push(Frame {
            context: Context::Softirq,
            from_user,
            job: None,
            queue: timer.into_iter().collect(),
            irq_work: false,
            left,
        });
    }

    /// Enters the kernel, if user code runs. Returns whether it did.
    pub(super) fn enter(&mut self, cpu: usize) -> bool {
        let user = self.machine.in_user(cpu);
        if let Some(task) = self.machine.cpus[cpu].current.filter(|_| user) {
            self.say(cpu, Fact::Enter);
            self.machine.tasks[task].place = ExecutionState::Loop(Loop::Check);
        }
        user
    }

    fn step_frame(&mut self, cpu: usize) {
        let Some(mut frame) = self.machine.cpus[cpu].frames.pop() else {
            return;
        };

        if let Some(mut job) = frame.job.take() {
            // The frame stays on the stack while its job runs, as the job must not see the task
            // below.
            let context = frame.context;
            self.machine.cpus[cpu].frames.push(frame);
            if !self.overflow_step(cpu, &mut job)
                && let Some(frame) = self.machine.cpus[cpu].frames.last_mut()
            {
                debug_assert_eq!(frame.context, context);
                frame.job = Some(job);
            }
            return;
        }

        if std::mem::take(&mut frame.irq_work) {
            self.machine.cpus[cpu].frames.push(frame);
            // In the other forms nothing is left to do: the interrupt's way out looks for task
            // works.
            if self.setup.form == Form::Rfc2023 {
                self.pending_irq(cpu);
            }
            return;
        }

        if let Some(event) = frame.queue.pop() {
            // `perf_swevent_hrtimer` takes the registers of the hardirq, and a softirq has none.
            let regs = match (frame.context, frame.from_user) {
                (Context::Softirq, _) => TimerRegs::None,
                (_, true) => TimerRegs::User,
                (_, false) => TimerRegs::Kernel,
            };
            self.machine.cpus[cpu].frames.push(frame);

            let job = self.timer(cpu, event, regs);
            if let Some(frame) = self.machine.cpus[cpu].frames.last_mut() {
                frame.job = job;
            }
            return;
        }

        if frame.left > 0 {
            frame.left -= 1;
            self.machine.cpus[cpu].frames.push(frame);
            return;
        }

        self.say(cpu, Fact::InterruptEnd(frame.context));
    }
    /// The next step of a task in the kernel.
    fn step_task(&mut self, cpu: usize, task: usize) {
        // What was begun goes on before the task itself does.
        if let Some(mut job) = self.machine.tasks[task].job.take() {
            if !self.overflow_step(cpu, &mut job) {
                self.machine.tasks[task].job = Some(job);
            }
            return;
        }

        if let Some(mut unwinding) = self.machine.tasks[task].unwind.take() {
            if !self.unwind_step(cpu, task, &mut unwinding) {
                self.machine.tasks[task].unwind = Some(unwinding);
            }
            return;
        }

        if let Some((event, handler)) = self.machine.tasks[task].installing.take() {
            // The second half of what `Mutant::HalfReplacedHandler` does in two steps.
            if let Some(slot) = self.handlers.slot(event) {
                let context = handler;
                self.handlers.set(event, Slot { context, ..slot });
            }
            self.say(cpu, Fact::Installed { event, handler });
            return;
        }

        // Memory of closed events is given back in a step of its own.
        if !self.machine.tasks[task].closing.is_empty() {
            let dying = std::mem::take(&mut self.machine.tasks[task].closing);
            self.lbr.give_back(dying);
            return self.say_branches(cpu);
        }

        // Only now does the task itself go on.
        match self.machine.tasks[task].place {
            ExecutionState::User | ExecutionState::Body => {}
            ExecutionState::Loop(at) => self.exit_loop(cpu, task, at),
            ExecutionState::Reset(at) => self.reset(cpu, task, at),
            ExecutionState::Exiting => self.end(cpu, task),
        }
    }

    /// Starts the last queued work. Returns whether there was one.
    fn run_work(&mut self, task: usize) -> bool {
        let Some(work) = self.machine.tasks[task].works.pop() else {
            return false;
        };
        self.machine.tasks[task].unwind = Some(Unwinding {
            work,
            stage: UnwindStage::Begin,
            asked: 0,
            shared: None,
            entries: Vec::new(),
            next: 0,
        });
        true
    }

    fn exit_loop(&mut self, cpu: usize, task: usize, at: Loop) {
        let has_work = !self.machine.tasks[task].works.is_empty();

        // The order is that of `exit_to_user_mode_loop` (`kernel/entry/common.c`).
        let next = match at {
            Loop::Check => {
                let t = &self.machine.tasks[task];
                if has_work || t.signal.is_some() || t.uprobe.is_some() {
                    ExecutionState::Loop(Loop::Schedule)
                } else {
                    ExecutionState::Reset(Reset::Mask)
                }
            }
            Loop::Schedule => ExecutionState::Loop(Loop::Uprobe),
            // The place stays while there are events at the probe: each takes steps of its own.
            Loop::Uprobe => {
                if self.uprobe(cpu, task) {
                    return;
                } else {
                    ExecutionState::Loop(Loop::Signal)
                }
            }
            Loop::Signal => {
                // get_signal() runs task works before it looks for a signal.
                if self.machine.tasks[task].signal.is_some() && self.run_work(task) {
                    return;
                }
                if let Some(stack) = self.machine.tasks[task].signal.take() {
                    self.machine.tasks[task].stack = stack;
                    self.machine.tasks[task].leaf = Leaf::Body;
                    self.say(cpu, Fact::Signal { stack });
                }
                ExecutionState::Loop(Loop::Resume)
            }
            Loop::Resume => {
                if self.run_work(task) {
                    return;
                }
                ExecutionState::Loop(Loop::Check)
            }
        };

        self.machine.tasks[task].place = next;
    }

    /// `uprobe_notify_resume`: the events at the probe, then its instruction. Returns whether there
    /// is more to do.
    fn uprobe(&mut self, cpu: usize, task: usize) -> bool {
        let Some(from) = self.machine.tasks[task].uprobe else {
            return false;
        };
        for event in from..self.events.numbers().end {
            let is_probe = self.events.setup(event).kind == Kind::Uprobe;
            if is_probe && self.counts(event, cpu) {
                self.machine.tasks[task].uprobe = Some(event + 1);
                let job = self.overflow(cpu, event, Context::Task, true);
                self.machine.tasks[task].job = Some(job);
                return true;
            }
        }
        self.machine.tasks[task].uprobe = None;
        self.machine.tasks[task].leaf = Leaf::AfterPush;
        self.say(cpu, Fact::UprobeStep);
        true
    }

    fn reset(&mut self, cpu: usize, task: usize, at: Reset) {
        let keep_cookie = self.mutant(Mutant::CookieReused);
        let keep_cache = self.mutant(Mutant::StaleCache);
        let next = at.step(&mut self.machine.tasks[task].info, keep_cookie, keep_cache);
        if (at, next) == (Reset::Mask, Reset::Cookie) {
            self.say(cpu, Fact::Reset);
        }
        self.machine.tasks[task].place = ExecutionState::Reset(next);
        if next == Reset::Done {
            self.machine.tasks[task].place = ExecutionState::User;
            self.say(cpu, Fact::Return);
        }
    }

    /// `do_exit` after PF_EXITING is set: pending unwinds run while there is an mm.
    fn end(&mut self, cpu: usize, task: usize) {
        let works = std::mem::take(&mut self.machine.tasks[task].works);
        for work in works {
            if let TaskWork::Event(event) = work {
                self.events.release(event, task);
            } else {
                self.machine.tasks[task].works = vec![work];
                self.run_work(task);
                return;
            }
        }
        self.write_side(cpu, 0, Body::Exit);
        self.say(cpu, Fact::Exit);
        self.machine.tasks[task].dead = true;
        self.machine.tasks[task].on = None;
        self.machine.cpus[cpu].current = None;
        if self.lbr.exit(self.machine.tasks[task].tid) {
            // Its last act is to choose who runs next.
            self.machine.cpus[cpu].is_left = true;
        }
        self.say_branches(cpu);
    }

    /// The most frames that the unwind may store.
    fn unwind_max(&self, work: TaskWork) -> usize {
        match (work, self.setup.rfc_buffer) {
            (TaskWork::Deferred, _) => UNWIND_MAX_ENTRIES,
            (TaskWork::Event(_), RfcBuffer::OnStack) => ON_STACK_ENTRIES,
            (TaskWork::Event(event), RfcBuffer::Allocated) => {
                usize::from(self.events.setup(event).max_stack)
            }
        }
    }

    /// The next step of a task work. Returns whether it was the last.
    fn unwind_step(&mut self, cpu: usize, task: usize, at: &mut Unwinding) -> bool {
        at.stage = match at.stage {
            UnwindStage::Begin => {
                self.say(cpu, Fact::Unwind);
                // PENDING is cleared and perf's bit is not: a later request in this stay queues
                // nothing.
                at.asked = self.machine.tasks[task].info.take_pending();
                UnwindStage::Allocate
            }
            UnwindStage::Allocate => match self.allocate(cpu, task, at) {
                Some(stage) => stage,
                None => return true,
            },
            UnwindStage::Frames => {
                self.frames(task, at);
                return false;
            }
            UnwindStage::Store => {
                // After a preemption, the CPU's buffer may have the frames of another task: the
                // defect.
                if let Some(cpu) = at.shared {
                    at.entries
                        .clone_from(&self.machine.cpus[cpu].buffers[Context::Task as usize]);
                }
                if at.work == TaskWork::Deferred {
                    self.machine.tasks[task].info.store(&at.entries);
                }
                UnwindStage::Output(0)
            }
            UnwindStage::Output(event) => match self.output_frames(cpu, task, at, event) {
                Some(next) => UnwindStage::Output(next),
                None => return true,
            },
        };
        false
    }

    /// Allocates the buffer at the first use, or reuses the frames found before in this stay.
    /// `None` ends the task work.
    fn allocate(&mut self, cpu: usize, task: usize, at: &mut Unwinding) -> Option<UnwindStage> {
        // Frames that are kept need no new memory, so nothing can fail.
        let has_memory = self.machine.tasks[task].info.has_cache() && at.work == TaskWork::Deferred;
        if !has_memory && std::mem::take(&mut self.machine.tasks[task].no_memory) {
            self.say(cpu, Fact::NoMemory);
            return match at.work {
                // "From here on out, the callback must always be called."
                TaskWork::Deferred => Some(UnwindStage::Output(0)),
                TaskWork::Event(event) => {
                    self.events.release(event, task);
                    None
                }
            };
        }

        if at.work == TaskWork::Deferred {
            // The kernel takes the user stack for unchanged within a stay.
            let cached = self.machine.tasks[task].info.cached();
            if !cached.is_empty() {
                at.entries = cached.to_vec();
                return Some(UnwindStage::Output(0));
            }
        }

        if self.mutant(Mutant::SharedBuffer) {
            self.machine.cpus[cpu].buffers[Context::Task as usize].clear();
            at.shared = Some(cpu);
        }

        Some(UnwindStage::Frames)
    }

    fn frames(&mut self, task: usize, at: &mut Unwinding) {
        // The first frames take a step each, so that interrupts may come between them.
        let max = self.unwind_max(at.work);
        let steps = if at.next < SINGLE_FRAMES {
            1
        } else {
            FRAMES_PER_STEP
        };

        for _ in 0..steps {
            let t = &self.machine.tasks[task];
            let frame = if at.next < max {
                user_frame(&*self.stacks, t.stack, t.leaf, false, at.next)
            } else {
                None
            };
            let Some(frame) = frame else {
                at.stage = UnwindStage::Store;
                return;
            };
            // The shared buffer is that of the CPU on which the unwind began.
            match at.shared {
                Some(cpu) => self.machine.cpus[cpu].buffers[Context::Task as usize].push(frame),
                None => at.entries.push(frame),
            }
            at.next += 1;
        }
    }

    /// Writes the record for the first event from `event` on that wants one. Returns the event to
    /// continue with; `None` at the end.
    fn output_frames(
        &mut self,
        cpu: usize,
        task: usize,
        at: &Unwinding,
        event: u16,
    ) -> Option<u16> {
        let info = &self.machine.tasks[task].info;
        let cookie = info.cookie();

        let wants = match at.work {
            TaskWork::Event(own) => {
                self.events.release(own, task);
                Some(own)
            }
            TaskWork::Deferred => {
                let is_asked = info.is_asked(at.asked, event == 0);
                let mut all = event..self.events.numbers().end;
                all.find(|&e| is_asked && self.events.setup(e).defer_output && self.counts(e, cpu))
            }
        };

        // Perf's function has been called for all of them.
        let Some(event) = wants else {
            self.machine.tasks[task].info.complete();
            return None;
        };

        // Its samples have the periods already: with one here, the events would be counted twice.
        let period = if self.mutant(Mutant::PeriodTwice) {
            self.events.setup(event).period
        } else {
            0
        };

        let upstream = self.setup.form == Form::Upstream;
        let body = Body::Deferred {
            cookie: upstream.then_some(cookie),
            period,
            frames: at.entries.clone(),
        };

        let frames = at.entries.len() as u16;
        let cookie = if upstream { cookie } else { 0 };
        let fact = if self.write(cpu, event, body) {
            Fact::Deferred {
                event,
                cookie,
                frames,
            }
        } else {
            Fact::DeferredLost { event, cookie }
        };

        self.say(cpu, fact);
        // One record a step, because an NMI may come between two.
        (at.work == TaskWork::Deferred).then_some(event + 1)
    }
}

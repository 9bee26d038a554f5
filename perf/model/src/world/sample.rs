//! A sample from its overflow to its record, in steps: account, handler, request, callchain,
//! output (`__perf_event_overflow`, `perf_callchain`, `get_perf_callchain`,
//! `kernel/events/core.c` and `callchain.c`, Linux 7.2).
//!
//! In an NMI all steps run at once; elsewhere an NMI may come between any two. The deferred part is
//! in `kernel`.

use super::deferred::Request;
use super::{Overflow, Slot, Stage, TaskWork, UserPart, World, site};
use crate::log::{Context, Fact, Handling};
use crate::mutant::Mutant;
use crate::record::Body;
use crate::registers::{FakeRegs, Registers, of_kernel, of_user};
use crate::sampling::{Overflown, TimerRegs, timer_flow};
use crate::setup::{Form, Kind};
use crate::stack::{kernel_frames, user_frame};
use unwind_sim_perf_data::callchain::{
    PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER, PERF_CONTEXT_USER_DEFERRED,
};

impl World {
    /// A hardware counter overflowed. All steps of the sample run at once.
    pub(super) fn nmi(&mut self, cpu: usize, event: u16) {
        let user_mode = self.machine.in_user(cpu);
        self.say(cpu, Fact::Interrupt(Context::Nmi));
        let mut job = self.overflow(cpu, event, Context::Nmi, user_mode);
        while !self.overflow_step(cpu, &mut job) {}
        self.say(cpu, Fact::InterruptEnd(Context::Nmi));
    }

    /// A timer fired, in a hardirq or, without registers, elsewhere.
    pub(super) fn timer(&mut self, cpu: usize, event: u16, regs: TimerRegs) -> Option<Overflow> {
        if !self.counts(event, cpu) {
            return None;
        }
        if self.setup.timer_tracepoint {
            self.say(cpu, Fact::Traced { event, regs });
        }
        let idle = self.machine.cpus[cpu].current.is_none();
        let setup = self.events.setup(event);
        let period = setup.period;
        if timer_flow(regs, idle, setup).overflows {
            let user = regs == TimerRegs::User;
            return Some(self.overflow(cpu, event, Context::Hardirq, user));
        }
        self.say(cpu, Fact::Filtered { event, period });
        None
    }

    /// A sample begins.
    pub(super) fn overflow(
        &mut self,
        cpu: usize,
        event: u16,
        context: Context,
        user_mode: bool,
    ) -> Overflow {
        let setup = self.events.setup(event);
        let (kind, has_branches) = (setup.kind, setup.branch_stack);

        // Only a counter's period can change from sample to sample.
        let (period, loaded) = match kind {
            Kind::Pmu => self.events.reload(event, cpu),
            Kind::Timer => (setup.period, None),
            Kind::Tracepoint | Kind::Software | Kind::Uprobe | Kind::BpfOutput => (1, None),
        };

        // The tracepoint comes first: it sees every overflow, even those that are dropped later.
        let number = self.out.next_sample();
        if kind == Kind::Pmu && self.setup.overflow_tracepoint {
            let regs = if user_mode {
                TimerRegs::User
            } else {
                TimerRegs::Kernel
            };
            self.say(cpu, Fact::Traced { event, regs });
        }

        self.say(
            cpu,
            Fact::Overflow {
                event,
                number,
                period,
                context,
                user_mode,
            },
        );

        if let Some(fact) = loaded {
            self.say(cpu, fact);
        }

        Overflow {
            event,
            number,
            period,
            context,
            user_mode,
            at_uprobe: kind == Kind::Uprobe,
            from_mark: matches!(kind, Kind::Tracepoint | Kind::Software),
            stage: Stage::Account,
            user: UserPart::None,
            slot: Slot::default(),
            // Read at the overflow, before anything else runs (`intel_pmu_lbr_read` in the NMI
            // handler).
            branches: has_branches.then(|| self.lbr.sample(cpu)),
            is_chain_ready: false,
        }
    }

    /// The next step of a sample. Returns whether it was the last.
    pub(super) fn overflow_step(&mut self, cpu: usize, job: &mut Overflow) -> bool {
        // One stage a step, because an NMI may come between any two.
        job.stage = match job.stage {
            Stage::Account => {
                self.account(cpu, job.event);
                Stage::Handler
            }
            Stage::Handler => match self.handle(cpu, job) {
                Some(stage) => stage,
                None => return true,
            },
            // A step of its own, so that an NMI may come before it.
            Stage::Program => {
                let how = site::run_program(self, cpu, job, self.registers(cpu, job));
                self.handled(cpu, job, how);
                match how {
                    // The chain that the program saw is also that of the record.
                    Handling::Kept if job.is_chain_ready => Stage::Output,
                    Handling::Kept => Stage::Begin,
                    _ => return true,
                }
            }
            Stage::Begin => self.begin(cpu, job),
            Stage::Request(at) => self.request(cpu, job, at),
            Stage::Kernel => {
                self.kernel_part(cpu, job);
                Stage::User
            }
            Stage::User => {
                self.user_part(cpu, job);
                if job.is_chain_ready {
                    Stage::Program
                } else {
                    Stage::Output
                }
            }
            Stage::Output => {
                self.output(cpu, job);
                return true;
            }
        };
        false
    }

    /// `__perf_event_account_interrupt`: too many in a tick stop the event until the next one.
    fn account(&mut self, cpu: usize, event: u16) {
        let (now, max) = (self.out.now(), self.setup.samples_per_tick);
        let (stops, adjusted) = self.events.account((event, cpu), now, max);
        if stops {
            self.say(cpu, Fact::Throttled { event });
            self.write_side(cpu, event, Body::Throttle);
        }
        if let Some(fact) = adjusted {
            self.say(cpu, fact);
        }
    }

    /// Calls the handler, which decides before all side effects. Returns the next stage, unless the
    /// sample is dropped. A program runs in a separate step, so that an NMI may come before it.
    fn handle(&mut self, cpu: usize, job: &mut Overflow) -> Option<Stage> {
        // Read once: the handler may be replaced while the program waits for its step.
        job.slot = self.handlers.slot_of(job.event, self.tid(cpu));

        // Handler and context were stored together; a defect stores them apart.
        let (number, Slot { handler, context }) = (job.number, job.slot);
        if let Some(program) = self.handlers.program(handler) {
            let needs_chain = program.needs_chain(self.events.setup(job.event));
            // A program never interrupts another one on its CPU. The kernel counts up before it
            // looks, so it also counts down (`bpf_overflow_handler`).
            if !self.machine.cpus[cpu].guard.enter() {
                self.machine.cpus[cpu].guard.leave();
                if let Some(mut program) = self.handlers.take(handler) {
                    program.count(Handling::Recursion, [0; 2]);
                    self.handlers.put(handler, program);
                }
                self.handled(cpu, job, Handling::Recursion);
                return None;
            }

            let fact = Fact::Taken {
                number,
                handler,
                context,
            };
            self.say(cpu, fact);

            // A program that reads the stack gets the chain before it runs (`perf_prepare_sample`).
            job.is_chain_ready = needs_chain;
            return Some(if needs_chain {
                Stage::Begin
            } else {
                Stage::Program
            });
        }

        // A built-in handler is told of the sample and decides at once.
        let told = Overflown {
            event: job.event,
            number,
            tid: self.tid(cpu),
            period: job.period,
            user_mode: job.user_mode,
            context: job.context,
        };

        let how = match self.handlers.call(handler, &told) {
            None => return Some(Stage::Begin),
            Some(true) => Handling::Kept,
            Some(false) => Handling::Dropped,
        };

        self.handled(cpu, job, how);
        (how == Handling::Kept).then_some(Stage::Begin)
    }

    fn handled(&mut self, cpu: usize, job: &Overflow, how: Handling) {
        let fact = Fact::Handled {
            number: job.number,
            handler: job.slot.handler,
            context: job.slot.context,
            how,
        };
        self.say(cpu, fact);
    }

    /// `perf_callchain`: whether there is a user part, and whether to defer it.
    fn begin(&mut self, cpu: usize, job: &mut Overflow) -> Stage {
        // Without a chain the buffer must not keep the last sample's words.
        if !self.events.setup(job.event).has_callchain {
            self.machine.cpus[cpu].buffers[job.context as usize].clear();
            return Stage::Output;
        }

        // Kernel threads and the idle task have no user stack.
        let Some(task) = self.machine.cpus[cpu]
            .current
            .filter(|&t| !self.machine.tasks[t].kthread)
        else {
            return Stage::Kernel;
        };

        // What cannot be deferred is unwound at once.
        job.user = UserPart::Inline;
        if !self.events.setup(job.event).defer_callchain {
            return Stage::Kernel;
        }

        if self.setup.form == Form::Rfc2023 {
            job.user = UserPart::Deferred(None);
            self.request_rfc(cpu, task, job);
            return Stage::Kernel;
        }

        // `unwind_deferred_request` refuses such tasks (`kernel/unwind/deferred.c`).
        if self.machine.tasks[task].exiting {
            let number = job.number;
            self.say(
                cpu,
                Fact::Request {
                    number,
                    cookie: None,
                },
            );
            return Stage::Kernel;
        }

        Stage::Request(Request::Start)
    }

    /// The form of 2023: an NMI cannot add a task work, so it asks an irq work to.
    fn request_rfc(&mut self, cpu: usize, task: usize, job: &Overflow) {
        self.say(
            cpu,
            Fact::Request {
                number: job.number,
                cookie: Some(0),
            },
        );
        match self.events.setup(job.event).kind {
            Kind::Pmu => {
                self.events.ask(job.event, cpu);
                self.machine.cpus[cpu].irq_work = true;
            }
            _ => self.add_event_work(cpu, task, job.event),
        }
    }

    /// `perf_pending_irq`.
    pub(super) fn pending_irq(&mut self, cpu: usize) {
        for event in self.events.numbers() {
            if self.events.take_asked(event, cpu)
                && let Some(task) = self.machine.cpus[cpu].current
            {
                self.add_event_work(cpu, task, event);
            }
        }
    }

    /// `task_work_add(current, &event->pending_task, TWA_RESUME)`, unless it is queued already:
    /// an event has one.
    fn add_event_work(&mut self, cpu: usize, task: usize, event: u16) {
        let is_doomed = self.machine.tasks[task].exiting || self.machine.tasks[task].kthread;
        if is_doomed || !self.events.claim(event, cpu, task) {
            return;
        }
        self.machine.tasks[task].works.push(TaskWork::Event(event));
        self.say(cpu, Fact::Queued);
    }

    fn request(&mut self, cpu: usize, job: &mut Overflow, at: Request) -> Stage {
        let Some(task) = self.machine.cpus[cpu].current else {
            return Stage::Kernel;
        };

        let count = &mut self.machine.cpus[cpu].count;
        let next = at.step(&mut self.machine.tasks[task].info, cpu, count);

        if at == Request::Start || matches!(at, Request::Cpu) {
            // `get_cookie` is done: this is the cookie of the sample.
            job.user = UserPart::Deferred(Some(self.machine.tasks[task].info.cookie()));
        }

        // Once for all samples of the stay: the first request queues it.
        if at == Request::Queue {
            self.machine.tasks[task].works.push(TaskWork::Deferred);
            // TWA_NMI_CURRENT: an interrupt is sent to this CPU itself.
            self.machine.cpus[cpu].irq_work |= job.context == Context::Nmi;
            self.say(cpu, Fact::Queued);
        }

        if next != Request::Done {
            return Stage::Request(next);
        }

        let cookie = match job.user {
            UserPart::Deferred(cookie) => cookie,
            UserPart::None | UserPart::Inline => None,
        };

        let number = job.number;
        self.say(cpu, Fact::Request { number, cookie });
        Stage::Kernel
    }

    /// The kernel frames, into this context's buffer.
    fn kernel_part(&mut self, cpu: usize, job: &Overflow) {
        let mut chain = std::mem::take(&mut self.machine.cpus[cpu].buffers[job.context as usize]);
        chain.clear();
        if !job.user_mode {
            chain.push(PERF_CONTEXT_KERNEL);
            let skip_less = self.mutant(Mutant::SkipLess);
            let ip = self.machine.kernel_at(cpu, job.context);
            kernel_frames(ip, job.from_mark, skip_less, &mut chain);
            let most = usize::from(self.events.setup(job.event).max_stack);
            // From these made-up registers the walk finds one frame.
            let is_lost = job.from_mark && self.setup.fake_regs == FakeRegs::V5_1;
            chain.truncate(1 + if is_lost { most.min(1) } else { most });
        }
        self.machine.cpus[cpu].buffers[job.context as usize] = chain;
    }

    /// The user frames, or the marker and the cookie.
    fn user_part(&mut self, cpu: usize, job: &Overflow) {
        let mut chain = std::mem::take(&mut self.machine.cpus[cpu].buffers[job.context as usize]);
        let frames = chain.len().saturating_sub(usize::from(!job.user_mode));
        let room = usize::from(self.events.setup(job.event).max_stack) - frames;
        match (job.user, self.machine.current(cpu)) {
            (UserPart::None, _) | (_, None) => {}
            (UserPart::Deferred(cookie), _) => {
                chain.push(PERF_CONTEXT_USER_DEFERRED);
                chain.extend(cookie);
            }
            (UserPart::Inline, Some(task)) => {
                chain.push(PERF_CONTEXT_USER);
                let frame =
                    |index| user_frame(&*self.stacks, task.stack, task.leaf, job.at_uprobe, index);
                chain.extend((0..room).map_while(frame));
            }
        }
        self.machine.cpus[cpu].buffers[job.context as usize] = chain;
    }

    /// The instruction pointer of the sample's registers.
    fn ip(&self, cpu: usize, job: &Overflow) -> u64 {
        let user = self.machine.current(cpu).filter(|_| job.user_mode);
        match user {
            Some(task) => {
                let frame = user_frame(&*self.stacks, task.stack, task.leaf, job.at_uprobe, 0);
                frame.unwrap_or(0)
            }
            None => self.machine.kernel_at(cpu, job.context),
        }
    }

    /// The registers of a sample.
    fn registers(&self, cpu: usize, job: &Overflow) -> Registers {
        let ip = self.ip(cpu, job);
        match self.machine.current(cpu) {
            Some(task) if job.user_mode => of_user(ip, self.stacks.pointers(task.stack, task.leaf)),
            _ if job.from_mark => self.setup.fake_regs.registers(ip),
            _ => of_kernel(ip),
        }
    }

    fn output(&mut self, cpu: usize, job: &mut Overflow) {
        let setup = self.events.setup(job.event);

        let body = Body::Sample {
            number: job.number,
            period: job.period,
            user_mode: job.user_mode,
            ip: self.ip(cpu, job),
            chain: self.machine.cpus[cpu].buffers[job.context as usize].clone(),
            user_bytes: setup.stack_user,
            // The fields behind the common ones: the CPU, or the address of the probe.
            payload: match setup.kind {
                Kind::Tracepoint => (cpu as u32).to_le_bytes().to_vec(),
                Kind::Uprobe => self.ip(cpu, job).to_le_bytes().to_vec(),
                Kind::Pmu | Kind::Timer | Kind::Software | Kind::BpfOutput => Vec::new(),
            },
            registers: setup.regs_intr.then(|| self.registers(cpu, job)),
            branches: job.branches.take(),
        };

        // A sample that found no room is counted as lost, by its own event.
        // Written to the event's own ring.
        let (number, event) = (job.number, job.event);
        let fact = if self.write(cpu, event, body) {
            Fact::Sample { number }
        } else {
            Fact::SampleLost { number, event }
        };

        self.say(cpu, fact);
    }
}

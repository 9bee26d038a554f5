//! Applies the actions of a script or a random schedule.
//!
//! A refused action leaves the world unchanged, so that actions can be removed from a schedule.

use super::{ExecutionState, Loop, Machine, Slot, Task, TaskBranches, World};
use crate::action::Action;
use crate::log::{Context, Fact};
use crate::mutant::Mutant;
use crate::record::Body;
use crate::refused::Refused;
use crate::setup::{Kind, TASKS_MAX, TIMER_FLOOR_NS};
use crate::stack::Leaf;
use unwind_sim_perf_lbr::Dying;

/// Steps after which [`Action::Finish`] gives up.
const FINISH_STEPS_MAX: u32 = 10_000;
/// The longest [`Action::Run`], nanoseconds.
pub const RUN_NS_MAX: u64 = 10_000_000;
/// Steps of an interrupt in addition to its cause.
const INTERRUPT_STEPS: u8 = 2;

impl Machine {
    /// The CPU and its task, if that is a user task in a system call with no interrupt on top.
    fn body(&self, cpu: u16) -> Result<(usize, usize), Refused> {
        let (cpu, task) = self.kernel_body(cpu)?;
        if self.tasks[task].kthread {
            return Err(Refused::KernelThread);
        }
        Ok((cpu, task))
    }

    /// Like `body`, but the task may be a kernel thread.
    fn kernel_body(&self, cpu: u16) -> Result<(usize, usize), Refused> {
        let cpu = self.cpu(cpu)?;
        let task = self.cpus[cpu].current.ok_or(Refused::Idle)?;
        let t = &self.tasks[task];
        let on = &self.cpus[cpu];
        let busy = !on.frames.is_empty() || on.switching.is_some();
        let busy = busy || t.job.is_some() || t.installing.is_some() || !t.closing.is_empty();
        if t.place != ExecutionState::Body || busy {
            return Err(Refused::NotInSystemCall);
        }
        Ok((cpu, task))
    }

    fn user_task(&self, tid: i32) -> Result<usize, Refused> {
        let task = self.find(tid)?;
        if self.tasks[task].kthread {
            Err(Refused::KernelThread)
        } else {
            Ok(task)
        }
    }
}

impl World {
    /// Applies an action.
    ///
    /// # Errors
    /// Why it cannot happen now. Nothing has changed.
    pub fn apply(&mut self, action: Action) -> Result<(), Refused> {
        // A run is bounded by its log, not by the number of its actions.
        self.has_room()?;

        match action {
            Action::Step { cpu } => {
                let cpu = self.machine.cpu(cpu)?;
                self.step(cpu);
            }
            Action::Run { cpu, ns } => self.run(cpu, ns)?,
            Action::Stack { cpu, stack, leaf } => {
                let (cpu, task) = self.user(cpu)?;
                let from = std::mem::replace(&mut self.machine.tasks[task].stack, stack);
                self.machine.tasks[task].leaf = leaf;
                self.say(cpu, Fact::Stack { stack, leaf });
                // The branches of user code are those from the old stack to the new one.
                let (at, stacks) = (self.machine.at(cpu), &*self.stacks);
                if let Some(fact) = self.lbr.run(at, stacks, (from, stack)) {
                    self.say(cpu, fact);
                }
            }
            Action::Syscall { cpu } => {
                let (cpu, task) = self.user(cpu)?;
                self.enter(cpu);
                self.machine.tasks[task].place = ExecutionState::Body;
                self.machine.tasks[task].kernel_at = None;
            }
            // The address is only what a sample shows; nothing runs there.
            Action::Kernel { cpu, address } => {
                let (_, task) = self.machine.kernel_body(cpu)?;
                if !(crate::KERNEL_TEXT..crate::MACHINERY_TEXT).contains(&address) {
                    return Err(Refused::NotKernelText);
                }
                self.machine.tasks[task].kernel_at = Some(address);
            }
            Action::Leave { cpu } => {
                let (_, task) = self.machine.body(cpu)?;
                self.machine.tasks[task].place = ExecutionState::Loop(Loop::Check);
            }
            Action::Finish { cpu } => self.finish_cpu(cpu)?,
            Action::Sample { cpu, event } => self.sample(cpu, event)?,
            Action::Irq { cpu } => {
                let cpu = self.machine.cpu(cpu)?;
                if !self.machine.interrupts_on(cpu) {
                    return Err(Refused::InterruptsOff);
                }
                self.interrupt(cpu, INTERRUPT_STEPS);
            }
            Action::Softirq { cpu } => {
                let cpu = self.softirq_can_come(cpu)?;
                self.softirq(cpu, None, INTERRUPT_STEPS);
            }
            Action::Expire { cpu, event } => {
                let cpu = self.softirq_can_come(cpu)?;
                let setup = self.events.get(event).ok_or(Refused::NoEvent)?;
                let is_throttled = self.events.is_throttled(event, cpu);
                if setup.kind != Kind::Timer || is_throttled || !self.counts(event, cpu) {
                    return Err(Refused::WrongContext);
                }
                self.softirq(cpu, Some(event), INTERRUPT_STEPS);
            }
            // Both halves at once, so that nothing comes between them.
            Action::Switch { cpu, tid } => {
                self.switch(cpu, tid)?;
                self.switch_end(usize::from(cpu));
            }
            Action::SwitchBegin { cpu, tid } => self.switch(cpu, tid)?,
            Action::Open { cpu, event } => {
                let (cpu, _) = self.machine.kernel_body(cpu)?;
                self.open(cpu, event)?;
            }
            Action::Close { cpu, event } => {
                let (cpu, task) = self.machine.kernel_body(cpu)?;
                self.close(cpu, task, event)?;
            }
            Action::Fork { cpu, child } => self.fork(cpu, child)?,
            // The task stays in the kernel: its new stack runs only after the return to user space.
            Action::Exec { cpu, stack } => {
                let (cpu, task) = self.machine.body(cpu)?;
                self.machine.tasks[task].stack = stack;
                self.machine.tasks[task].leaf = Leaf::Body;
                self.say(cpu, Fact::Exec { stack });
                // The new name comes first (`begin_new_exec`), the vDSO is mapped later
                // (`load_elf_binary`).
                self.write_side(cpu, 0, Body::Exec);
                self.write_side(cpu, 0, Body::Vdso);
            }
            Action::Exit { cpu } => {
                let (cpu, task) = self.machine.body(cpu)?;
                // PF_EXITING: requests are refused from here on.
                self.machine.tasks[task].exiting = true;
                self.machine.tasks[task].place = ExecutionState::Exiting;
                self.say(cpu, Fact::Exiting);
            }
            Action::Oops { cpu } => {
                let (cpu, task) = self.machine.body(cpu)?;
                self.oops(cpu);
                self.machine.tasks[task].exiting = true;
                self.machine.tasks[task].place = ExecutionState::Exiting;
                self.say(cpu, Fact::Exiting);
            }
            Action::Signal { tid, stack } => {
                let task = self.machine.user_task(tid)?;
                // Delivered on the task's way out of the kernel (`exit_loop`).
                self.machine.tasks[task].signal = Some(stack);
            }
            Action::Uprobe { cpu } => {
                let (cpu, task) = self.user(cpu)?;
                // The model's uprobes are at a function's first instruction, a push.
                if self.machine.tasks[task].leaf != Leaf::Entry {
                    return Err(Refused::NotAtEntry);
                }
                self.enter(cpu);
                self.machine.tasks[task].uprobe = Some(0);
            }
            Action::Read { cpu } => {
                let cpu = self.machine.cpu(cpu)?;
                self.read(cpu);
            }
            Action::NoMemory { tid } => {
                let task = self.machine.user_task(tid)?;
                // Fails the next allocation of this task.
                self.machine.tasks[task].no_memory = true;
            }
            Action::Install {
                cpu,
                event,
                handler,
            } => self.install(cpu, event, handler)?,
        }
        Ok(())
    }

    /// The CPU and its task, if user code runs there and no interrupt is pending.
    fn user(&self, cpu: u16) -> Result<(usize, usize), Refused> {
        let cpu = self.machine.cpu(cpu)?;
        let task = self.machine.cpus[cpu].current.ok_or(Refused::Idle)?;
        if !self.machine.in_user(cpu) {
            return Err(Refused::NotUser);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }
        Ok((cpu, task))
    }

    fn softirq_can_come(&self, cpu: u16) -> Result<usize, Refused> {
        let cpu = self.machine.cpu(cpu)?;
        if !self.machine.cpus[cpu].frames.is_empty() || !self.machine.interrupts_on(cpu) {
            return Err(Refused::InterruptsOff);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }
        Ok(cpu)
    }

    fn run(&mut self, cpu: u16, ns: u64) -> Result<(), Refused> {
        // Bounded, because the time is passed in small parts.
        let cpu = self.machine.cpu(cpu)?;
        if ns > RUN_NS_MAX {
            return Err(Refused::TooLong);
        }

        // The idle task may run for a time, too; in the kernel, time passes by steps.
        let on = &self.machine.cpus[cpu];
        let idle = on.current.is_none() && on.frames.is_empty() && on.switching.is_none();
        if !idle && !self.machine.in_user(cpu) {
            return Err(Refused::NotUser);
        }

        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }

        let end = self.out.now() + ns;
        while self.out.now() < end {
            // Not past an interrupt: a timer, or the irq work of an NMI.
            let now = self.out.now();
            let until = self.events.next_due(cpu).saturating_sub(now).max(1);
            let part = (end - now).min(until);
            self.pass(cpu, part.min(TIMER_FLOOR_NS));
            if self.interrupt_waits(cpu) || self.has_room().is_err() {
                break;
            }
        }

        Ok(())
    }

    fn finish_cpu(&mut self, cpu: u16) -> Result<(), Refused> {
        let cpu = self.machine.cpu(cpu)?;
        let task = self.machine.cpus[cpu].current.ok_or(Refused::Idle)?;

        // A system call goes on until `leave`, so it would take all steps.
        let body = self.machine.tasks[task].place == ExecutionState::Body
            && self.machine.cpus[cpu].switching.is_none();
        if body
            && self.machine.cpus[cpu].frames.is_empty()
            && self.machine.tasks[task].job.is_none()
        {
            return Err(Refused::NeverReturns);
        }

        // Bounded, since interrupts may come again and again.
        for _ in 0..FINISH_STEPS_MAX {
            let over = match self.machine.cpus[cpu].current {
                _ if self.machine.cpus[cpu].switching.is_some() => false,
                None => self.machine.cpus[cpu].frames.is_empty(),
                Some(task) => {
                    let t = &self.machine.tasks[task];
                    let rests = t.place == ExecutionState::User
                        || t.place == ExecutionState::Body
                            && t.job.is_none()
                            && t.installing.is_none();
                    self.machine.cpus[cpu].frames.is_empty() && rests && !self.interrupt_waits(cpu)
                }
            };

            // A full log ends the run, too.
            if over || self.has_room().is_err() {
                return Ok(());
            }
            self.step(cpu);
        }
        Ok(())
    }

    fn sample(&mut self, cpu: u16, event: u16) -> Result<(), Refused> {
        let at = self.machine.cpu(cpu)?;
        let setup = self.events.get(event).ok_or(Refused::NoEvent)?;

        // An event that does not count here cannot overflow here.
        if !self.counts(event, at) || self.events.is_throttled(event, at) {
            return Err(Refused::WrongContext);
        }

        match setup.kind {
            Kind::Pmu => {
                let is_excluded = if self.machine.in_user(at) {
                    setup.exclude_user
                } else {
                    setup.exclude_kernel
                };
                if is_excluded {
                    return Err(Refused::WrongContext);
                }

                self.idle_if_left(at);
                // The counter is advanced to its overflow, and the log says so: the oracle compares
                // the events counted with the periods.
                let by = self.events.count_rest(event, at);
                self.say(at, Fact::Counted { event, by });
                self.nmi(at, event);
            }
            Kind::Timer => {
                if !self.machine.interrupts_on(at) {
                    return Err(Refused::InterruptsOff);
                }
                // The interrupt fires every timer that is due.
                self.events.set_due(event, at, self.out.now());
                self.interrupt(at, 0);
            }
            Kind::Tracepoint | Kind::Software => {
                let (at, task) = self.machine.kernel_body(cpu)?;
                let job = self.overflow(at, event, Context::Task, false);
                self.machine.tasks[task].job = Some(job);
            }
            Kind::Uprobe | Kind::BpfOutput => return Err(Refused::WrongContext),
        }

        Ok(())
    }

    fn switch(&mut self, cpu: u16, tid: i32) -> Result<(), Refused> {
        let cpu = self.machine.cpu(cpu)?;
        let next = match tid {
            0 => None,
            tid => Some(self.machine.find(tid)?),
        };

        let running = next.is_some_and(|next| self.machine.tasks[next].on.is_some());
        if running || next == self.machine.cpus[cpu].current {
            return Err(Refused::Running);
        }

        if !self.machine.cpus[cpu].frames.is_empty() || self.machine.cpus[cpu].switching.is_some() {
            return Err(Refused::NotPreemptible);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }

        // Not inside a sample, which disables preemption, nor behind the exit loop, where
        // interrupts are off.
        if let Some(task) = self.machine.cpus[cpu].current {
            let t = &self.machine.tasks[task];
            if t.job.is_some()
                || matches!(t.place, ExecutionState::Reset(_))
                || t.place == ExecutionState::Exiting
            {
                return Err(Refused::NotPreemptible);
            }
            // From user space a tick comes first; the task is switched out in the exit loop.
            self.enter(cpu);
        }

        self.switch_begin(cpu, next);
        Ok(())
    }

    fn fork(&mut self, cpu: u16, child: i32) -> Result<(), Refused> {
        let (cpu, task) = self.machine.body(cpu)?;
        let taken = self.machine.tasks.iter().any(|task| task.tid == child);
        if taken || child <= 0 || self.machine.tasks.len() >= TASKS_MAX {
            return Err(Refused::NoNewTask);
        }

        let parent = &self.machine.tasks[task];
        let counted_by = self.events.inherited(parent.counted_by);
        // Only contexts with the same events change hands at a switch.
        let is_clone = parent.counted_by == counted_by;
        let maker = parent.tid;

        // A new task starts on its way to user space (`ret_from_fork`).
        self.machine.tasks.push(Task {
            tid: child,
            place: ExecutionState::Loop(Loop::Check),
            stack: parent.stack,
            leaf: parent.leaf,
            cgroup: parent.cgroup,
            counted_by,
            ..Task::default()
        });

        // The child's copies of the events keep the handlers of this moment (`perf_event_alloc`).
        for event in self.events.of_task(counted_by) {
            self.handlers.inherit(event, maker, child);
        }

        self.say(cpu, Fact::Fork { child });
        let own = (!is_clone).then(|| self.events.with_branches(counted_by));
        self.lbr.fork(maker, child, own);
        self.say_branches(cpu);

        self.write_side(cpu, 0, Body::Fork { child });
        Ok(())
    }

    fn install(&mut self, cpu: u16, event: u16, handler: u16) -> Result<(), Refused> {
        let (cpu, task) = self.machine.kernel_body(cpu)?;
        let slot = self.handlers.slot(event).ok_or(Refused::NoEvent)?;

        let setup = self.events.setup(event);
        let fits = match handler {
            0 => true,
            _ => (self.handlers.fits(handler, setup)).ok_or(Refused::NoHandler)?,
        };

        // One handler at a time; removing one is always possible.
        if slot.handler != 0 && handler != 0 {
            return Err(Refused::HandlerExists);
        }
        if setup.program.is_some() {
            return Err(Refused::AttachedAtOpen);
        }
        if !fits {
            return Err(Refused::NotForPrograms);
        }

        // The defect: handler and context are stored in two steps, and an NMI may come between.
        if self.mutant(Mutant::HalfReplacedHandler) {
            self.handlers.set(event, Slot { handler, ..slot });
            self.machine.tasks[task].installing = Some((event, handler));
        } else {
            let context = handler;
            self.handlers.set(event, Slot { handler, context });
            self.say(cpu, Fact::Installed { event, handler });
        }
        Ok(())
    }

    /// The kernel oopses: keeps the branch records of all tasks.
    fn oops(&mut self, cpu: usize) {
        let has_user_code = |task: &&Task| !task.kthread && !task.dead;
        let kept = |task: &Task| TaskBranches {
            tid: task.tid,
            cpu: task.on,
            entries: self.lbr.crash(task.tid),
        };
        let tasks = self.machine.tasks.iter().filter(has_user_code);
        let tasks = tasks.map(kept).collect();
        self.out.oops(self.machine.at(cpu), tasks);
    }

    /// A switch begins: the kernel finds the memory of the task that stops.
    fn switch_begin(&mut self, cpu: usize, next: Option<usize>) {
        if let Some(next) = next {
            self.machine.tasks[next].on = Some(cpu);
        }
        match self.lbr.begin_switch(cpu) {
            Some(saving) => {
                self.machine.cpus[cpu].switching = Some((saving, next));
                self.say_branches(cpu);
                if self.machine.cpus[cpu].is_left {
                    // Nothing is saved for a task that has exited, and in between the CPU would
                    // have no task.
                    self.switch_end(cpu);
                }
            }
            None => self.switch_to(cpu, next),
        }
    }

    /// The rest of a switch that has begun.
    pub(super) fn switch_end(&mut self, cpu: usize) {
        let Some((saving, next)) = self.machine.cpus[cpu].switching.take() else {
            return;
        };
        let tid = next.map_or(0, |next| self.machine.tasks[next].tid);
        self.lbr.finish_switch(saving, tid);
        self.say_branches(cpu);
        self.switch_to(cpu, next);
    }

    fn switch_to(&mut self, cpu: usize, next: Option<usize>) {
        let to = next.map_or(0, |next| self.machine.tasks[next].tid);
        if let Some(task) = self.machine.cpus[cpu].current {
            self.machine.tasks[task].on = None;
        }
        self.say(cpu, Fact::Switch { to });
        self.machine.cpus[cpu].current = next;
        self.machine.cpus[cpu].is_left = false;
    }

    /// A task in a system call opens an event.
    fn open(&mut self, cpu: usize, event: u16) -> Result<(), Refused> {
        let setup = self.events.get(event).ok_or(Refused::NoEvent)?;
        if self.events.is_open(event) {
            return Err(Refused::IsOpen);
        }
        let mut found = false;
        for task in &mut self.machine.tasks {
            let is_in = setup.cgroup.is_none() || task.cgroup == setup.cgroup;
            let is_it = |only| only == task.tid && !task.exiting;
            if !task.dead && is_in && setup.tid.is_none_or(is_it) {
                task.counted_by |= 1 << event;
                found = true;
            }
        }
        if setup.tid.is_some() && !found {
            return Err(Refused::NoTask);
        }
        self.events.open(event, self.out.now());
        self.say(cpu, Fact::Opened { event });
        self.attach(cpu, event);
        self.lbr.attach(self.events.setup(event));
        self.say_branches(cpu);
        Ok(())
    }

    /// A task in a system call closes an event. Memory for which its tasks have no other use is
    /// given back with the task's next step.
    fn close(&mut self, cpu: usize, task: usize, event: u16) -> Result<(), Refused> {
        let setup = self.events.get(event).ok_or(Refused::NoEvent)?;
        if !self.events.is_open(event) {
            return Err(Refused::IsClosed);
        }
        if event == 0 || setup.defer_output {
            return Err(Refused::TakesOthersRecords);
        }
        let dying = self.detach(cpu, event);
        self.machine.tasks[task].closing = dying;
        Ok(())
    }

    /// The first half of closing an event.
    fn detach(&mut self, cpu: usize, event: u16) -> Vec<Dying> {
        self.events.close(event);
        self.say(cpu, Fact::Closed { event });
        if self.handlers.close(event) {
            self.say(cpu, Fact::Installed { event, handler: 0 });
        }
        let tids = self.machine.tasks.iter_mut().filter_map(|task| {
            let was_counted = task.counted_by >> event & 1 != 0;
            task.counted_by &= !(1 << event);
            (was_counted && !task.dead).then_some(task.tid)
        });
        let tids: Vec<i32> = tids.collect();
        let dying = self.lbr.detach(self.events.setup(event), tids);
        self.say_branches(cpu);
        dying
    }

    /// The end of recording: switches end, and events with branch records are closed.
    pub(super) fn close_all(&mut self) {
        for cpu in 0..self.machine.cpus.len() {
            self.switch_end(cpu);
        }
        for task in 0..self.machine.tasks.len() {
            let dying = std::mem::take(&mut self.machine.tasks[task].closing);
            self.lbr.give_back(dying);
            self.say_branches(0);
        }
        for event in self.events.numbers() {
            if self.events.setup(event).branch_stack && self.events.is_open(event) {
                let dying = self.detach(0, event);
                self.lbr.give_back(dying);
                self.say_branches(0);
            }
        }
    }
}

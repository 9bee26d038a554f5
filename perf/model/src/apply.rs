//! Doing what a script or a random schedule asks of the world.
//!
//! A refused action leaves the world as it was, so that a schedule stays one when actions are
//! taken out of it.

use super::action::Action;
use super::deferred::PENDING;
use super::log::{Context, Fact};
use super::mutant::Mutant;
use super::programs::Attached;
use super::record::Body;
use super::refused::Refused;
use super::setup::{Kind, TIMER_FLOOR_NS};
use super::stack::Leaf;
use super::world::{Loop, Place, TASKS_MAX, Task, World};

/// Steps after which [`Action::Finish`] gives up.
const FINISH_STEPS_MAX: u32 = 10_000;
/// The longest [`Action::Run`], nanoseconds.
pub const RUN_NS_MAX: u64 = 10_000_000;
/// Entries of the log after which nothing more happens. What happens at once may go over it, by
/// what it comes to.
pub const LOG_MAX: usize = 1 << 18;
/// Bytes of records, as their rings count them, after which nothing more happens.
pub const RECORD_BYTES_MAX: u64 = 1 << 26;
/// Steps an interrupt takes besides what it was raised for.
const INTERRUPT_STEPS: u8 = 2;

impl World {
    /// Does it.
    ///
    /// # Errors
    /// Why it cannot happen now; nothing has changed.
    pub fn apply(&mut self, action: Action) -> Result<(), Refused> {
        self.has_room()?;
        match action {
            Action::Step { cpu } => {
                let cpu = self.cpu(cpu)?;
                self.step(cpu);
            }
            Action::Run { cpu, ns } => self.run(cpu, ns)?,
            Action::Stack { cpu, stack, leaf } => {
                let (cpu, task) = self.user(cpu)?;
                let from = std::mem::replace(&mut self.tasks[task].stack, stack);
                self.tasks[task].leaf = leaf;
                self.say(cpu, Fact::Stack { stack, leaf });
                self.branches_run(cpu, from, stack);
            }
            Action::Syscall { cpu } => {
                let (cpu, task) = self.user(cpu)?;
                self.enter(cpu);
                self.tasks[task].place = Place::Body;
                self.tasks[task].kernel_at = None;
            }
            Action::Kernel { cpu, address } => {
                let (_, task) = self.kernel_body(cpu)?;
                if !(super::KERNEL_TEXT..super::MACHINERY_TEXT).contains(&address) {
                    return Err(Refused::NotKernelText);
                }
                self.tasks[task].kernel_at = Some(address);
            }
            Action::Leave { cpu } => {
                let (_, task) = self.body(cpu)?;
                self.tasks[task].place = Place::Loop(Loop::Check);
            }
            Action::Finish { cpu } => self.finish_cpu(cpu)?,
            Action::Sample { cpu, event } => self.sample(cpu, event)?,
            Action::Irq { cpu } => {
                let cpu = self.cpu(cpu)?;
                if !self.interrupts_on(cpu) {
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
                let setup = self.events.get(usize::from(event));
                let setup = setup.ok_or(Refused::NoEvent)?;
                let index = self.index(event, cpu);
                let is_timer = setup.kind == Kind::Timer && !self.counters[index].throttled;
                if !is_timer || !self.counts(event, cpu) {
                    return Err(Refused::WrongContext);
                }
                self.softirq(cpu, Some(event), INTERRUPT_STEPS);
            }
            Action::Switch { cpu, tid } => {
                self.switch(cpu, tid)?;
                self.switch_end(usize::from(cpu));
            }
            Action::SwitchBegin { cpu, tid } => self.switch(cpu, tid)?,
            Action::Open { cpu, event } => {
                let (cpu, _) = self.kernel_body(cpu)?;
                self.open(cpu, event)?;
            }
            Action::Close { cpu, event } => {
                let (cpu, task) = self.kernel_body(cpu)?;
                self.close(cpu, task, event)?;
            }
            Action::Fork { cpu, child } => self.fork(cpu, child)?,
            Action::Exec { cpu, stack } => {
                let (cpu, task) = self.body(cpu)?;
                self.tasks[task].stack = stack;
                self.tasks[task].leaf = Leaf::Body;
                self.say(cpu, Fact::Exec { stack });
                self.write_side(cpu, 0, Body::Exec);
                self.write_side(cpu, 0, Body::Vdso);
            }
            Action::Exit { cpu } => {
                let (cpu, task) = self.body(cpu)?;
                self.tasks[task].exiting = true;
                self.tasks[task].place = Place::Exiting;
                self.say(cpu, Fact::Exiting);
            }
            Action::Oops { cpu } => {
                let (cpu, task) = self.body(cpu)?;
                self.crash(cpu);
                self.tasks[task].exiting = true;
                self.tasks[task].place = Place::Exiting;
                self.say(cpu, Fact::Exiting);
            }
            Action::Signal { tid, stack } => {
                let task = self.user_task(tid)?;
                self.tasks[task].signal = Some(stack);
            }
            Action::Uprobe { cpu } => {
                let (cpu, task) = self.user(cpu)?;
                if self.tasks[task].leaf != Leaf::Entry {
                    return Err(Refused::NotAtEntry);
                }
                self.enter(cpu);
                self.tasks[task].uprobe = Some(0);
            }
            Action::Read { cpu } => {
                let cpu = self.cpu(cpu)?;
                self.read(cpu);
            }
            Action::NoMemory { tid } => {
                let task = self.user_task(tid)?;
                self.tasks[task].no_memory = true;
            }
            Action::Install {
                cpu,
                event,
                handler,
            } => self.install(cpu, event, handler)?,
        }
        Ok(())
    }

    /// Whether more may happen: the bound of a run's memory.
    pub(super) fn has_room(&self) -> Result<(), Refused> {
        if self.log().len() >= LOG_MAX {
            Err(Refused::TooMuch)
        } else if self.kept_bytes() > RECORD_BYTES_MAX {
            Err(Refused::TooManyRecords)
        } else {
            Ok(())
        }
    }

    fn cpu(&self, cpu: u16) -> Result<usize, Refused> {
        let cpu = usize::from(cpu);
        if cpu < self.cpus.len() {
            Ok(cpu)
        } else {
            Err(Refused::NoCpu)
        }
    }

    /// The CPU and its task, if user code runs there and nothing comes first.
    fn user(&self, cpu: u16) -> Result<(usize, usize), Refused> {
        let cpu = self.cpu(cpu)?;
        let task = self.cpus[cpu].current.ok_or(Refused::Idle)?;
        if !self.in_user(cpu) {
            return Err(Refused::NotUser);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }
        Ok((cpu, task))
    }

    /// The CPU and its task, if that is a user's task in a system call with nothing on top.
    fn body(&self, cpu: u16) -> Result<(usize, usize), Refused> {
        let (cpu, task) = self.kernel_body(cpu)?;
        if self.tasks[task].kthread {
            return Err(Refused::KernelThread);
        }
        Ok((cpu, task))
    }

    /// As `body`, or a kernel thread.
    fn kernel_body(&self, cpu: u16) -> Result<(usize, usize), Refused> {
        let cpu = self.cpu(cpu)?;
        let task = self.cpus[cpu].current.ok_or(Refused::Idle)?;
        let t = &self.tasks[task];
        let on = &self.cpus[cpu];
        let busy = !on.frames.is_empty() || on.switching.is_some();
        let busy = busy || t.job.is_some() || t.installing.is_some() || !t.closing.is_empty();
        if t.place != Place::Body || busy {
            return Err(Refused::NotInSystemCall);
        }
        Ok((cpu, task))
    }

    fn softirq_can_come(&self, cpu: u16) -> Result<usize, Refused> {
        let cpu = self.cpu(cpu)?;
        if !self.cpus[cpu].frames.is_empty() || !self.interrupts_on(cpu) {
            return Err(Refused::InterruptsOff);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }
        Ok(cpu)
    }

    fn find(&self, tid: i32) -> Result<usize, Refused> {
        let at = self
            .tasks
            .iter()
            .position(|task| task.tid == tid && !task.dead);
        at.ok_or(Refused::NoTask)
    }

    fn user_task(&self, tid: i32) -> Result<usize, Refused> {
        let task = self.find(tid)?;
        if self.tasks[task].kthread {
            Err(Refused::KernelThread)
        } else {
            Ok(task)
        }
    }

    fn run(&mut self, cpu: u16, ns: u64) -> Result<(), Refused> {
        let cpu = self.cpu(cpu)?;
        if ns > RUN_NS_MAX {
            return Err(Refused::TooLong);
        }
        let on = &self.cpus[cpu];
        let idle = on.current.is_none() && on.frames.is_empty() && on.switching.is_none();
        if !idle && !self.in_user(cpu) {
            return Err(Refused::NotUser);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }
        let end = self.now + ns;
        while self.now < end {
            // Not past what interrupts: a timer, or the irq work of an NMI.
            let counters = self.counters.iter().skip(cpu).step_by(self.cpus.len());
            let due = self.events.iter().zip(counters);
            let due = due.filter(|(event, c)| event.kind == Kind::Timer && !c.throttled);
            let next = due.map(|(_, c)| c.due).min().unwrap_or(u64::MAX);
            let part = (end - self.now).min(next.saturating_sub(self.now).max(1));
            self.pass(cpu, part.min(TIMER_FLOOR_NS));
            if self.interrupt_waits(cpu) || self.has_room().is_err() {
                break;
            }
        }
        Ok(())
    }

    fn finish_cpu(&mut self, cpu: u16) -> Result<(), Refused> {
        let cpu = self.cpu(cpu)?;
        let task = self.cpus[cpu].current.ok_or(Refused::Idle)?;
        let body = self.tasks[task].place == Place::Body && self.cpus[cpu].switching.is_none();
        if body && self.cpus[cpu].frames.is_empty() && self.tasks[task].job.is_none() {
            return Err(Refused::NeverReturns);
        }
        for _ in 0..FINISH_STEPS_MAX {
            let over = match self.cpus[cpu].current {
                _ if self.cpus[cpu].switching.is_some() => false,
                None => self.cpus[cpu].frames.is_empty(),
                Some(task) => {
                    let t = &self.tasks[task];
                    let rests = t.place == Place::User
                        || t.place == Place::Body && t.job.is_none() && t.installing.is_none();
                    self.cpus[cpu].frames.is_empty() && rests && !self.interrupt_waits(cpu)
                }
            };
            if over || self.has_room().is_err() {
                return Ok(());
            }
            self.step(cpu);
        }
        Ok(())
    }

    fn sample(&mut self, cpu: u16, event: u16) -> Result<(), Refused> {
        let at = self.cpu(cpu)?;
        let kind = self
            .events
            .get(usize::from(event))
            .ok_or(Refused::NoEvent)?
            .kind;
        let index = self.index(event, at);
        if !self.counts(event, at) || self.counters[index].throttled {
            return Err(Refused::WrongContext);
        }
        match kind {
            Kind::Pmu => {
                let setup = &self.events[usize::from(event)];
                let user = self.in_user(at);
                if if user {
                    setup.exclude_user
                } else {
                    setup.exclude_kernel
                } {
                    return Err(Refused::WrongContext);
                }
                self.branches_idle(at);
                let by = self.counters[index].left;
                self.counters[index].rate.counted(by);
                self.say(at, Fact::Counted { event, by });
                self.nmi(at, event);
            }
            Kind::Timer => {
                if !self.interrupts_on(at) {
                    return Err(Refused::InterruptsOff);
                }
                self.counters[index].due = self.now;
                self.interrupt(at, 0);
            }
            Kind::Tracepoint | Kind::Software => {
                let (at, task) = self.kernel_body(cpu)?;
                let job = self.overflow(at, event, Context::Task, false);
                self.tasks[task].job = Some(job);
            }
            Kind::Uprobe | Kind::BpfOutput => return Err(Refused::WrongContext),
        }
        Ok(())
    }

    fn switch(&mut self, cpu: u16, tid: i32) -> Result<(), Refused> {
        let cpu = self.cpu(cpu)?;
        let next = match tid {
            0 => None,
            tid => Some(self.find(tid)?),
        };
        let running = next.is_some_and(|next| self.tasks[next].on.is_some());
        if running || next == self.cpus[cpu].current {
            return Err(Refused::Running);
        }
        if !self.cpus[cpu].frames.is_empty() || self.cpus[cpu].switching.is_some() {
            return Err(Refused::NotPreemptible);
        }
        if self.interrupt_waits(cpu) {
            return Err(Refused::InterruptWaits);
        }
        if let Some(task) = self.cpus[cpu].current {
            let t = &self.tasks[task];
            if t.job.is_some() || matches!(t.place, Place::Reset(_)) || t.place == Place::Exiting {
                return Err(Refused::NotPreemptible);
            }
            // From user space a tick comes first; the task is switched out in the exit loop.
            self.enter(cpu);
        }
        self.switch_begin(cpu, next);
        Ok(())
    }

    fn fork(&mut self, cpu: u16, child: i32) -> Result<(), Refused> {
        let (cpu, task) = self.body(cpu)?;
        let taken = self.tasks.iter().any(|task| task.tid == child);
        if taken || child <= 0 || self.tasks.len() >= TASKS_MAX {
            return Err(Refused::NoNewTask);
        }
        let parent = &self.tasks[task];
        let inherits = |e: &usize| self.events[*e].tid.is_none() || self.events[*e].inherit;
        let all = (0..self.events.len()).filter(inherits);
        let mask = all.fold(0, |mask, e| mask | 1 << e);
        self.tasks.push(Task {
            tid: child,
            place: Place::Loop(Loop::Check),
            stack: parent.stack,
            leaf: parent.leaf,
            cgroup: parent.cgroup,
            counted_by: parent.counted_by & mask,
            ..Task::default()
        });
        let maker = self.tasks[task].tid;
        for event in 0..self.events.len() as u16 {
            let is_own = self.events[usize::from(event)].tid.is_some();
            if is_own
                && self
                    .tasks
                    .last()
                    .is_some_and(|t| t.counted_by >> event & 1 != 0)
            {
                self.slots.inherit(event, maker, child);
            }
        }
        self.say(cpu, Fact::Fork { child });
        self.branches_fork(cpu, task, self.tasks.len() - 1);
        self.write_side(cpu, 0, Body::Fork { child });
        Ok(())
    }

    fn install(&mut self, cpu: u16, event: u16, handler: u16) -> Result<(), Refused> {
        let (cpu, task) = self.kernel_body(cpu)?;
        let slot = self.slots.get(event).ok_or(Refused::NoEvent)?;
        if usize::from(handler) > self.handlers.len() {
            return Err(Refused::NoHandler);
        }
        if slot.handler != 0 && handler != 0 {
            return Err(Refused::HandlerExists);
        }
        if self.events[usize::from(event)].program.is_some() {
            return Err(Refused::AttachedAtOpen);
        }
        if let Some(Attached::Program(program)) = self.attached(handler)
            && !program.fits(&self.events[usize::from(event)])
        {
            return Err(Refused::NotForPrograms);
        }
        self.slots.set_handler(event, handler);
        if self.mutant(Mutant::HalfReplacedHandler) {
            self.tasks[task].installing = Some((event, handler));
        } else {
            self.slots.set_context(event, handler);
            self.say(cpu, Fact::Installed { event, handler });
        }
        Ok(())
    }

    /// Whether an unwind of the task is pending; for tests.
    pub fn is_pending(&self, tid: i32) -> bool {
        let task = self.tasks.iter().find(|task| task.tid == tid);
        task.is_some_and(|task| task.info.mask & PENDING != 0)
    }
}

//! Branch records in the world: the calls and returns of user code on the way from one stack to
//! the next, and what the kernel does with each CPU's ring when tasks and events come and go.
//!
//! The ring and the kernel's part are in `lbr`; here is when each is asked, and the log of it.

use super::frequency::Rate;
use super::log::Fact;
use super::record::Branches;
use super::refused::Refused;
use super::setup::{EventSetup, Kind, Setup, TIMER_FLOOR_NS};
use super::stack::{StackId, StackSource};
use super::world::World;
use crate::lbr::{self, Branch, Kernel, Mutation, Step};
use unwind_sim_perf_data::BranchEntry;

/// Bytes of a call instruction: a frame's address is a return address, the call lies before it.
pub(super) const CALL_BYTES: u64 = 5;
/// Calls of a stack that are looked at, the innermost ones; what lies above is taken to be left
/// and made again with them.
pub(super) const CALLS_MAX: usize = 1024;

/// The branch records that a crash finds. Those of running tasks are in the ring of their CPU,
/// those of the others in the memory that `task_struct` points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// When, nanoseconds.
    pub time: u64,
    /// The task that crashed.
    pub tid: i32,
    /// What is kept of each task that has user code, in the order in which tasks were made.
    pub tasks: Vec<Kept>,
}

/// The branch records of a task at a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The task.
    pub tid: i32,
    /// The CPU that ran it; `None` if it waited.
    pub cpu: Option<usize>,
    /// The records, newest first.
    pub entries: Vec<BranchEntry>,
}

impl Crash {
    /// Size in memory, bytes.
    pub(super) fn bytes(&self) -> u64 {
        let of = |kept: &Kept| size_of::<Kept>() + size_of_val(kept.entries.as_slice());
        self.tasks.iter().map(of).sum::<usize>() as u64
    }
}

/// A branch as samples have it.
fn entry(branch: Branch) -> BranchEntry {
    BranchEntry {
        from: branch.from,
        to: branch.to,
        flags: 0,
    }
}

/// The events that are there from the start, one bit each.
pub(super) fn opened_at_start(events: &[EventSetup]) -> u64 {
    let open = events.iter().enumerate();
    open.fold(0, |mask, (at, event)| {
        mask | u64::from(!event.is_opened_later) << at
    })
}

/// The kernel's part, if an event asks for branch records.
pub(super) fn branches(setup: &Setup, events: &[EventSetup]) -> Option<Kernel> {
    events.iter().find(|event| event.branch_stack)?;
    let mutation = setup.mutant.and_then(super::Mutant::of_branches);
    let mut kernel = Kernel::new(
        usize::from(setup.cpus.clamp(1, super::CPUS_MAX)),
        setup.lbr_depth,
        setup.lbr_storage,
        setup.lbr_layout,
        mutation.unwrap_or(Mutation::RestoreForgets),
    );
    kernel.keep_steps();
    for event in events {
        if event.branch_stack && event.tid.is_none() && !event.is_opened_later {
            kernel.attach_system(event.cgroup);
        }
    }
    Some(kernel)
}

/// The call that made frame `index` of a stack, the innermost being 0: where it was and where it
/// went.
fn call(source: &dyn StackSource, stack: StackId, index: usize) -> (u64, u64) {
    let from = source.frame(stack, index + 1);
    // Functions are taken to begin at multiples of 16.
    let to = source.frame(stack, index) & !0xf;
    // And not right behind their call: call-stack mode takes no notice of such a one.
    let to = if to == from {
        to.wrapping_sub(0x10)
    } else {
        to
    };
    (from.wrapping_sub(CALL_BYTES), to)
}

/// The calls of a stack that count, innermost first.
fn calls(source: &dyn StackSource, stack: StackId) -> usize {
    source.depth(stack).saturating_sub(1).min(CALLS_MAX)
}

impl World {
    /// Logs what the kernel's part did, on the CPU that did it.
    fn branches_log(&mut self, cpu: usize) {
        let steps = self.branches.as_mut().map(Kernel::steps);
        for step in steps.into_iter().flatten() {
            let cpu = match step {
                Step::Wiped { cpu } => cpu,
                _ => cpu,
            };
            self.say(cpu, Fact::Branches(step));
        }
    }

    /// A task is there from the start.
    pub(super) fn branches_start(&mut self, tid: i32, counted: u64) {
        let (own, cgroup) = (self.branches_own(counted), self.setup.cgroup_of(tid));
        let Some(kernel) = &mut self.branches else {
            return;
        };
        kernel.start(tid, cgroup);
        for _ in 0..own {
            kernel.attach(tid);
        }
        self.branches_log(0);
    }

    /// How many of the events have branch records and are not of the whole system.
    fn branches_own(&self, counted: u64) -> u32 {
        let own = |(at, event): (usize, &EventSetup)| {
            u32::from(counted >> at & 1 != 0 && event.branch_stack && event.tid.is_some())
        };
        self.events.iter().enumerate().map(own).sum()
    }

    /// User code goes from one stack to another: it returns to the innermost call that both have,
    /// and calls from there.
    pub(super) fn branches_run(&mut self, cpu: usize, from: StackId, to: StackId) {
        let Some(kernel) = &mut self.branches else {
            return;
        };
        let source = &*self.stacks;
        let (old, new) = (calls(source, from), calls(source, to));
        let common = (0..old.min(new)).take_while(|at| {
            call(source, from, old - 1 - at).0 == call(source, to, new - 1 - at).0
        });
        let common = common.count();
        let (returns, made) = (old - common, new - common);
        let task = self.cpus[cpu]
            .current
            .map_or(0, |task| self.tasks[task].tid);
        for index in 0..returns {
            let (from, to) = call(source, from, index);
            kernel.branch(
                cpu,
                Branch {
                    from: to,
                    to: from.wrapping_add(CALL_BYTES),
                    kind: lbr::Kind::Return,
                    task,
                },
            );
        }
        for index in (0..made).rev() {
            let (from, to) = call(source, to, index);
            kernel.branch(
                cpu,
                Branch {
                    from,
                    to,
                    kind: lbr::Kind::Call,
                    task,
                },
            );
        }
        let (returns, calls) = (returns as u16, made as u16);
        self.say(cpu, Fact::Moved { returns, calls });
    }

    /// The branch stack of a sample taken now.
    pub(super) fn branches_sample(&self, cpu: usize, event: u16) -> Option<Branches> {
        let has_branches = self.events[usize::from(event)].branch_stack;
        has_branches.then(|| self.branches_now(cpu))
    }

    /// What the ring of the CPU holds.
    pub(super) fn branches_now(&self, cpu: usize) -> Branches {
        let Some(kernel) = &self.branches else {
            return Branches::default();
        };
        Branches {
            hw_index: kernel.ring(cpu).map_or(0, |ring| ring.tos() as u64),
            entries: kernel.sample(cpu).into_iter().map(entry).collect(),
        }
    }

    /// The kernel oopses: keeps the branch records of all tasks.
    pub(super) fn crash(&mut self, cpu: usize) {
        let has_user_code = |task: &&super::world::Task| !task.kthread && !task.dead;
        let kept = |task: &super::world::Task| {
            let found = self.branches.as_ref().map(|kernel| kernel.crash(task.tid));
            let (_, records) = found.unwrap_or_default();
            Kept {
                tid: task.tid,
                cpu: task.on,
                entries: records.into_iter().map(entry).collect(),
            }
        };
        let tasks = self.tasks.iter().filter(has_user_code).map(kept).collect();
        let (time, tid) = (self.now, self.tid(cpu));
        self.keep(Crash { time, tid, tasks });
        self.say(cpu, Fact::Oops);
    }

    /// A switch begins: the kernel finds the memory of the task that stops.
    pub(super) fn switch_begin(&mut self, cpu: usize, next: Option<usize>) {
        if let Some(next) = next {
            self.tasks[next].on = Some(cpu);
        }
        match self.branches.as_mut().and_then(|k| k.begin_switch(cpu)) {
            Some(saving) => {
                self.cpus[cpu].switching = Some((saving, next));
                self.branches_log(cpu);
                if self.cpus[cpu].is_left {
                    // Nothing is saved for a task that is gone, and in between the CPU would be
                    // nobody's.
                    self.switch_end(cpu);
                }
            }
            None => self.switch_to(cpu, next),
        }
    }

    /// The rest of it.
    pub(super) fn switch_end(&mut self, cpu: usize) {
        let Some((saving, next)) = self.cpus[cpu].switching.take() else {
            return;
        };
        let tid = next.map_or(0, |next| self.tasks[next].tid);
        if let Some(kernel) = &mut self.branches {
            kernel.finish_switch(saving, tid);
        }
        self.branches_log(cpu);
        self.switch_to(cpu, next);
    }

    fn switch_to(&mut self, cpu: usize, next: Option<usize>) {
        let to = next.map_or(0, |next| self.tasks[next].tid);
        if let Some(task) = self.cpus[cpu].current {
            self.tasks[task].on = None;
        }
        self.say(cpu, Fact::Switch { to });
        self.cpus[cpu].current = next;
        self.cpus[cpu].is_left = false;
    }

    /// A task was made by the current one.
    pub(super) fn branches_fork(&mut self, cpu: usize, parent: usize, child: usize) {
        let (parent, child) = (&self.tasks[parent], &self.tasks[child]);
        let own = self.branches_own(child.counted_by);
        // Only contexts with the same events change hands at a switch.
        let is_clone = parent.counted_by == child.counted_by;
        let (parent, child) = (parent.tid, child.tid);
        if let Some(kernel) = &mut self.branches {
            kernel.fork(parent, child, is_clone);
            for _ in 0..if is_clone { 0 } else { own } {
                kernel.attach(child);
            }
        }
        self.branches_log(cpu);
    }

    /// The current task is gone. Its last act is to choose who runs next.
    pub(super) fn branches_exit(&mut self, cpu: usize, task: usize) {
        if let Some(kernel) = &mut self.branches {
            kernel.exit(self.tasks[task].tid);
            self.cpus[cpu].is_left = true;
        }
        self.branches_log(cpu);
    }

    /// Something happens on a CPU: if its task is gone and it chose nobody, that is the idle task.
    pub(super) fn branches_idle(&mut self, cpu: usize) {
        let on = &mut self.cpus[cpu];
        if on.is_left && on.switching.is_none() {
            on.is_left = false;
            if let Some(kernel) = &mut self.branches {
                kernel.sched_task(cpu, 0);
            }
            self.branches_log(cpu);
        }
    }

    /// An event is opened, by a task in a system call.
    pub(super) fn open(&mut self, cpu: usize, event: u16) -> Result<(), Refused> {
        let setup = self.events.get(usize::from(event));
        let setup = setup.ok_or(Refused::NoEvent)?;
        if self.open >> event & 1 != 0 {
            return Err(Refused::IsOpen);
        }
        let (only, cgroup) = (setup.tid, setup.cgroup);
        let has_branches = setup.branch_stack;
        let is_counted = |task: &&mut super::world::Task| {
            let is_of = cgroup.is_none() || task.cgroup == cgroup;
            !task.dead && is_of && only.is_none_or(|only| only == task.tid && !task.exiting)
        };
        let (kind, period) = (setup.kind, setup.period);
        let mut found = false;
        for task in self.tasks.iter_mut().filter(is_counted) {
            task.counted_by |= 1 << event;
            found = true;
        }
        if only.is_some() && !found {
            return Err(Refused::NoTask);
        }
        self.open |= 1 << event;
        for on in 0..self.cpus.len() {
            let (index, now) = (self.index(event, on), self.now);
            let counter = &mut self.counters[index];
            (counter.left, counter.throttled, counter.in_tick) = (period, false, 0);
            counter.rate = Rate::new(period);
            if kind == Kind::Timer {
                counter.left = period.max(TIMER_FLOOR_NS);
                counter.due = now + counter.left;
            }
        }
        self.say(cpu, Fact::Opened { event });
        self.attach(cpu, event);
        if let Some(kernel) = self.branches.as_mut().filter(|_| has_branches) {
            match only {
                Some(tid) => kernel.attach(tid),
                None => kernel.attach_system(cgroup),
            }
        }
        self.branches_log(cpu);
        Ok(())
    }

    /// An event is closed, by a task in a system call. What memory its tasks had no other use for
    /// is given back with the task's next step.
    pub(super) fn close(&mut self, cpu: usize, task: usize, event: u16) -> Result<(), Refused> {
        let setup = self.events.get(usize::from(event));
        let setup = setup.ok_or(Refused::NoEvent)?;
        if self.open >> event & 1 == 0 {
            return Err(Refused::IsClosed);
        }
        if event == 0 || setup.defer_output {
            return Err(Refused::TakesOthersRecords);
        }
        let dying = self.detach(cpu, event);
        self.tasks[task].closing = dying;
        Ok(())
    }

    /// The first half of closing an event.
    fn detach(&mut self, cpu: usize, event: u16) -> Vec<lbr::Dying> {
        self.open &= !(1 << event);
        for on in 0..self.cpus.len() {
            let index = self.index(event, on);
            self.counters[index].throttled = false;
            self.counters[index].due = u64::MAX;
        }
        self.say(cpu, Fact::Closed { event });
        if self.slots.close(event) {
            self.say(cpu, Fact::Installed { event, handler: 0 });
        }
        let setup = &self.events[usize::from(event)];
        let (has_branches, is_system) = (setup.branch_stack, setup.tid.is_none());
        let cgroup = setup.cgroup;
        let mut dying = Vec::new();
        for at in 0..self.tasks.len() {
            let task = &mut self.tasks[at];
            let was_counted = task.counted_by >> event & 1 != 0;
            task.counted_by &= !(1 << event);
            let (tid, dead) = (task.tid, task.dead);
            if let Some(kernel) = &mut self.branches
                && was_counted
                && !dead
                && has_branches
                && !is_system
            {
                dying.extend(kernel.begin_detach(tid));
            }
        }
        if let Some(kernel) = self.branches.as_mut().filter(|_| has_branches && is_system) {
            kernel.detach_system(cgroup);
        }
        self.branches_log(cpu);
        dying
    }

    /// The second half.
    pub(super) fn close_end(&mut self, cpu: usize, dying: Vec<lbr::Dying>) {
        for dying in dying {
            if let Some(kernel) = &mut self.branches {
                kernel.finish_detach(dying);
            }
        }
        self.branches_log(cpu);
    }

    /// The end of recording: switches end, and what wants branch records is closed.
    pub(super) fn close_all(&mut self) {
        if self.branches.is_none() {
            return;
        }
        for cpu in 0..self.cpus.len() {
            self.switch_end(cpu);
        }
        for task in 0..self.tasks.len() {
            let dying = std::mem::take(&mut self.tasks[task].closing);
            self.close_end(0, dying);
        }
        for event in 0..self.events.len() as u16 {
            let setup = &self.events[usize::from(event)];
            if setup.branch_stack && self.open >> event & 1 != 0 {
                let dying = self.detach(0, event);
                self.close_end(0, dying);
            }
        }
    }

    /// Memory for branch records, if there are any.
    pub fn branch_memory(&self) -> Option<lbr::Ledger> {
        self.branches.as_ref().map(Kernel::ledger)
    }
}

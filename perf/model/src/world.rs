//! The world: CPUs, tasks, events and rings, and one atomic step of a CPU.
//!
//! Time is virtual: it moves only when a CPU runs. Between any two steps the script, or a random
//! schedule, may put an NMI, an interrupt or a switch. Here: the state and who runs next on a
//! CPU. What a step does is in `overflow` (a sample), `exit` (the way out of the kernel, the task
//! work) and `action` (what a script may ask for).

use super::branches::{Crash, branches, opened_at_start};
use super::deferred::{Info, Request, Reset};
use super::frequency::Rate;
use super::log::{Context, Entry, Fact, Names, text};
use super::mutant::Mutant;
use super::overflow::{Overflow, Stage};
use super::programs::Attached;
use super::reader::{Delivered, Rings};
use super::record::{Body, Record};
use super::sampling::Handler;
use super::setup::{EventSetup, Kind, Refusal, Setup, TIMER_FLOOR_NS, validate};
use super::slots::Slots;
use super::stack::{Leaf, StackId, StackSource};
use crate::bpf::Guard;
use crate::lbr::{Dying, Kernel, Saving};

/// How long a step in the kernel takes, nanoseconds.
const STEP_NS: u64 = 50;
/// How long a step of user code or of the idle task takes, nanoseconds.
const USER_STEP_NS: u64 = 100;
/// A tick, after which throttled events go on, nanoseconds.
pub(super) const TICK_NS: u64 = 1_000_000;
/// Most events a run may have: a task's set of them is a word.
pub const EVENTS_MAX: usize = 64;
/// Most CPUs.
pub const CPUS_MAX: u16 = 256;
/// Most tasks, those that are gone included.
pub const TASKS_MAX: usize = 4096;

/// Everything.
pub struct World {
    pub(super) setup: Setup,
    pub(super) events: Vec<EventSetup>,
    pub(super) stacks: Box<dyn StackSource>,
    pub(super) cpus: Vec<Cpu>,
    pub(super) tasks: Vec<Task>,
    rings: Rings,
    pub(super) counters: Vec<Counter>,
    pub(super) slots: Slots,
    /// None while a program runs.
    pub(super) handlers: Vec<Option<Attached>>,
    /// Branch records; none if no event has them.
    pub(super) branches: Option<Kernel>,
    crashes: Vec<Crash>,
    crash_bytes: u64,
    /// The events that are open, one bit each.
    pub(super) open: u64,
    pub(super) now: u64,
    /// Samples so far.
    pub(super) samples: u64,
    log: Vec<Entry>,
}

/// A CPU.
#[derive(Default)]
pub(super) struct Cpu {
    /// Index of the current task; none is the idle task.
    pub(super) current: Option<usize>,
    /// Interrupts on top of it.
    pub(super) frames: Vec<Frame>,
    /// An irq work waits for interrupts to be on.
    pub(super) irq_work: bool,
    /// `unwind_ctx_ctr`.
    pub(super) count: u32,
    /// The callchain buffers, one per context.
    pub(super) buffers: [Vec<u64>; 4],
    /// Counts programs that run.
    pub(super) guard: Guard,
    pub(super) tick: u64,
    /// Its task is gone, and no other one was chosen yet; only told with branch records.
    pub(super) is_left: bool,
    /// A switch that began, and to whom.
    pub(super) switching: Option<(Saving, Option<usize>)>,
}

/// An interrupt that runs.
pub(super) struct Frame {
    pub(super) context: Context,
    pub(super) from_user: bool,
    pub(super) job: Option<Overflow>,
    /// Timers that fired.
    pub(super) queue: Vec<u16>,
    pub(super) irq_work: bool,
    /// Steps until it ends.
    pub(super) left: u8,
}

/// A task.
#[derive(Default)]
pub(super) struct Task {
    pub(super) tid: i32,
    pub(super) kthread: bool,
    pub(super) exiting: bool,
    pub(super) dead: bool,
    /// On which CPU it is the current one.
    pub(super) on: Option<usize>,
    pub(super) place: Place,
    pub(super) stack: StackId,
    pub(super) leaf: Leaf,
    pub(super) cgroup: Option<u16>,
    /// Where it is in its system call, if a script says so.
    pub(super) kernel_at: Option<u64>,
    /// The events that count it, one bit each.
    pub(super) counted_by: u64,
    pub(super) info: Info,
    pub(super) works: Vec<Work>,
    pub(super) signal: Option<StackId>,
    /// It stands at a uprobe; the events from this index on have not been told yet.
    pub(super) uprobe: Option<u16>,
    pub(super) no_memory: bool,
    pub(super) job: Option<Overflow>,
    pub(super) unwind: Option<super::exit::Unwinding>,
    /// A handler half put in place (event, handler).
    pub(super) installing: Option<(u16, u16)>,
    /// Memory for branch records of an event that it is closing.
    pub(super) closing: Vec<Dying>,
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Place {
    /// In user space.
    #[default]
    User,
    /// In a system call, or in a kernel thread.
    Body,
    /// In `exit_to_user_mode_loop`.
    Loop(Loop),
    /// Behind it, interrupts off.
    Reset(Reset),
    /// In `do_exit`.
    Exiting,
}

/// Stations of `exit_to_user_mode_loop` (`kernel/entry/common.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loop {
    Check,
    Schedule,
    Uprobe,
    Signal,
    Resume,
}

/// A task work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The one of `struct unwind_task_info`.
    Deferred,
    /// The form of 2023: the event's own.
    Event(u16),
}

/// An event on a CPU.
#[derive(Clone, Default)]
pub(super) struct Counter {
    /// Until the overflow.
    pub(super) left: u64,
    pub(super) rate: Rate,
    /// When the timer fires.
    pub(super) due: u64,
    pub(super) in_tick: u32,
    pub(super) throttled: bool,
    /// The form of 2023: an NMI asked for an unwind (`pending_unwind`).
    pub(super) pending: bool,
    /// The form of 2023: whose task work the event's is (`pending_task`).
    pub(super) owner: Option<usize>,
}

impl World {
    /// A world in which nothing runs yet: every CPU is idle.
    ///
    /// # Errors
    /// The index of an event that the kernel refuses, and why.
    pub fn new(
        setup: Setup,
        events: Vec<EventSetup>,
        stacks: Box<dyn StackSource>,
    ) -> Result<Self, (usize, Refusal)> {
        for (index, event) in events.iter().enumerate() {
            validate(&setup, event).map_err(|refusal| (index, refusal))?;
        }
        if events.first().is_some_and(|event| event.is_opened_later) {
            return Err((0, Refusal::FirstIsLate));
        }
        let cpus = usize::from(setup.cpus.clamp(1, CPUS_MAX));
        let each = |event: &EventSetup| {
            let period = match event.kind {
                Kind::Timer => event.period.max(TIMER_FLOOR_NS),
                _ => event.period,
            };
            Counter {
                left: period,
                rate: Rate::new(period),
                due: if event.is_opened_later {
                    u64::MAX
                } else {
                    period
                },
                ..Counter::default()
            }
        };
        let counters = events.iter().flat_map(|e| vec![each(e); cpus]).collect();
        Ok(Self {
            rings: Rings::new(&events, cpus),
            counters,
            slots: Slots::new(events.len()),
            handlers: Vec::new(),
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            tasks: Vec::new(),
            branches: branches(&setup, &events),
            crashes: Vec::new(),
            crash_bytes: 0,
            open: opened_at_start(&events),
            now: 0,
            samples: 0,
            log: Vec::new(),
            setup,
            events,
            stacks,
        })
    }

    /// Adds a task that waits for a CPU: in user space with `stack`, or a kernel thread.
    pub fn add_task(&mut self, tid: i32, stack: Option<StackId>) {
        let cgroup = self.setup.cgroup_of(tid);
        let counted = (0..self.events.len())
            .filter(|&e| self.events[e].tid.is_none_or(|only| only == tid))
            .filter(|&e| self.events[e].cgroup.is_none() || self.events[e].cgroup == cgroup)
            .fold(0, |mask, e| {
                mask | u64::from(!self.events[e].is_opened_later) << e
            });
        if let Some(stack) = stack {
            self.log.push(Entry {
                time: self.now,
                cpu: 0,
                tid,
                fact: Fact::Stack {
                    stack,
                    leaf: Leaf::Body,
                },
            });
        }
        self.tasks.push(Task {
            tid,
            kthread: stack.is_none(),
            place: if stack.is_none() {
                Place::Body
            } else {
                Place::User
            },
            stack: stack.unwrap_or_default(),
            cgroup,
            counted_by: counted,
            ..Task::default()
        });
        self.branches_start(tid, counted);
    }

    /// Adds a handler; its number, from 1.
    pub fn add_handler(&mut self, handler: Box<dyn Handler>) -> u16 {
        self.handlers.push(Some(Attached::Plain(handler)));
        self.attach_at_open(self.handlers.len() as u16)
    }

    /// What happened so far.
    pub fn log(&self) -> &[Entry] {
        &self.log
    }

    /// What was kept of branch records where the kernel oopsed.
    pub fn crashes(&self) -> &[Crash] {
        &self.crashes
    }

    pub(super) fn keep(&mut self, crash: Crash) {
        self.crash_bytes += crash.bytes();
        self.crashes.push(crash);
    }

    /// The stacks.
    pub fn stacks(&self) -> &dyn StackSource {
        &*self.stacks
    }

    /// The events.
    pub fn events(&self) -> &[EventSetup] {
        &self.events
    }

    /// The setup.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The log as text.
    pub fn log_text(&self) -> String {
        let events: Vec<String> = self.events.iter().map(|e| e.name.clone()).collect();
        let names = Names {
            events: &events,
            stacks: self.stacks(),
        };
        text(&self.log, &names)
    }

    pub(super) fn mutant(&self, mutant: Mutant) -> bool {
        self.setup.mutant == Some(mutant)
    }

    pub(super) fn index(&self, event: u16, cpu: usize) -> usize {
        usize::from(event) * self.cpus.len() + cpu
    }

    pub(super) fn current(&self, cpu: usize) -> Option<&Task> {
        Some(&self.tasks[self.cpus[cpu].current?])
    }

    pub(super) fn tid(&self, cpu: usize) -> i32 {
        self.current(cpu).map_or(0, |task| task.tid)
    }

    pub(super) fn say(&mut self, cpu: usize, fact: Fact) {
        let entry = Entry {
            time: self.now,
            cpu: cpu as u16,
            tid: self.tid(cpu),
            fact,
        };
        self.log.push(entry);
    }

    /// Writes to the event's ring on this CPU; false if there was no room.
    pub(super) fn write(&mut self, cpu: usize, event: u16, body: Body) -> bool {
        let record = Record {
            time: self.now,
            sequence: 0,
            cpu: cpu as u16,
            event,
            tid: self.tid(cpu),
            body,
        };
        let untold = self.mutant(Mutant::LostUntold);
        self.rings.write(record, untold)
    }

    /// Bytes of what is kept besides the log.
    pub(super) const fn kept_bytes(&self) -> u64 {
        self.rings.bytes() + self.crash_bytes
    }

    /// What the reader has: after [`World::finish`] by time, before in the order it took it.
    pub fn records(&self) -> &[Record] {
        self.rings.records()
    }

    /// The records with the reader's rounds, in the order in which it took them.
    pub(super) fn delivered(&self) -> &[Delivered] {
        self.rings.delivered()
    }

    /// The reader takes all records of the CPU's rings.
    pub(super) fn read(&mut self, cpu: usize) {
        self.rings.read(cpu);
        self.say(cpu, Fact::Read);
    }

    /// The end of recording: the reader takes everything.
    pub fn finish(&mut self) {
        self.close_all();
        for cpu in 0..self.cpus.len() {
            self.read(cpu);
        }
        self.rings.end(self.now);
    }

    /// As `write`, for records that only say what a task did; they go to the first event.
    pub(super) fn write_side(&mut self, cpu: usize, event: u16, body: Body) {
        if !self.events.is_empty() && !self.write(cpu, event, body) {
            self.say(cpu, Fact::OtherLost { event });
        }
    }

    /// Whether the event counts what runs on the CPU now.
    pub(super) fn counts(&self, event: u16, cpu: usize) -> bool {
        if self.open >> event & 1 == 0 {
            return false;
        }
        match self.current(cpu) {
            None => {
                let setup = &self.events[usize::from(event)];
                setup.tid.is_none() && setup.cgroup.is_none()
            }
            Some(task) => task.counted_by >> event & 1 != 0,
        }
    }

    /// Whether user code runs on the CPU now.
    pub(super) fn in_user(&self, cpu: usize) -> bool {
        self.cpus[cpu].frames.is_empty()
            && self
                .current(cpu)
                .is_some_and(|task| task.place == Place::User)
    }

    /// Whether an interrupt can come on the CPU now.
    pub(super) fn interrupts_on(&self, cpu: usize) -> bool {
        if self.cpus[cpu].switching.is_some() {
            return false;
        }
        let requesting = |job: &Option<Overflow>| {
            let stage = job.as_ref().map(|job| job.stage);
            matches!(stage, Some(Stage::Request(at)) if at != Request::Start)
        };
        match (self.cpus[cpu].frames.last(), self.current(cpu)) {
            (Some(frame), _) => frame.context == Context::Softirq && !requesting(&frame.job),
            (None, Some(task)) => !matches!(task.place, Place::Reset(_)) && !requesting(&task.job),
            (None, None) => true,
        }
    }

    /// Whether an interrupt waits and can come.
    pub(super) fn interrupt_waits(&self, cpu: usize) -> bool {
        let due = |event: usize| {
            self.events[event].kind == Kind::Timer && {
                let counter = &self.counters[self.index(event as u16, cpu)];
                !counter.throttled && counter.due <= self.now
            }
        };
        (self.cpus[cpu].irq_work || (0..self.events.len()).any(due)) && self.interrupts_on(cpu)
    }

    /// Lets `ns` pass on the CPU; hardware counters overflow exactly when they do.
    pub(super) fn pass(&mut self, cpu: usize, mut ns: u64) {
        self.branches_idle(cpu);
        let user = self.in_user(cpu);
        while ns > 0 {
            let mut counting = 0u64;
            let mut part = ns;
            for event in 0..self.events.len() as u16 {
                let setup = &self.events[usize::from(event)];
                let index = usize::from(event) * self.cpus.len() + cpu;
                let excluded = if user {
                    setup.exclude_user
                } else {
                    setup.exclude_kernel
                };
                let stopped = excluded || self.counters[index].throttled;
                if setup.kind == Kind::Pmu && !stopped && self.counts(event, cpu) {
                    part = part.min(self.counters[index].left);
                    counting |= 1 << event;
                }
            }
            self.now += part;
            ns -= part;
            self.say(cpu, Fact::Ran { user, ns: part });
            for event in (0..self.events.len() as u16).filter(|event| counting >> event & 1 != 0) {
                let index = self.index(event, cpu);
                self.counters[index].left -= part;
                self.counters[index].rate.counted(part);
                if self.counters[index].left == 0 {
                    self.nmi(cpu, event);
                }
            }
            if user && self.cpus[cpu].irq_work {
                // The interrupt that the NMI sent comes before the next instruction.
                return;
            }
        }
    }

    /// One atomic step of what runs on the CPU; an interrupt that waits comes first.
    pub(super) fn step(&mut self, cpu: usize) {
        self.tick(cpu);
        if self.interrupt_waits(cpu) {
            self.interrupt(cpu, 0);
            self.pass(cpu, STEP_NS);
            return;
        }
        let user = self.in_user(cpu);
        let idle = self.cpus[cpu].frames.is_empty() && self.cpus[cpu].current.is_none();
        self.pass(cpu, if user || idle { USER_STEP_NS } else { STEP_NS });
        if self.cpus[cpu].switching.is_some() {
            self.switch_end(cpu);
        } else if !self.cpus[cpu].frames.is_empty() {
            self.step_frame(cpu);
        } else if let Some(task) = self.cpus[cpu].current
            && !user
        {
            self.step_task(cpu, task);
        }
    }
}

//! The world: CPUs, tasks, events and rings, and one atomic step of a CPU.
//!
//! Time is virtual: it moves only when a CPU runs. Between any two steps the script, or a random
//! schedule, may put an NMI, an interrupt or a switch.
//!
//! The state is in parts that know nothing of each other: who runs where ([`Machine`]), the events
//! and their counters ([`Events`]), their handlers ([`Handlers`]), branch records ([`Lbr`]), and
//! what comes out ([`Output`]). What needs several of them is in `kernel` (the steps of a CPU, the
//! way into the kernel and out of it, the task work), in `sample` (a sample) or in `apply` (what a
//! script may ask for).

mod apply;
mod deferred;
mod events;
mod handlers;
mod kernel;
mod lbr;
mod output;
mod sample;
mod site;

pub use apply::RUN_NS_MAX;
pub use output::{Crash, LOG_MAX, RECORD_BYTES_MAX, TaskBranches};

use crate::KERNEL_TEXT;
use crate::bpf::Guard;
use crate::log::{Context, Entry, Fact, text};
use crate::mutant::Mutant;
use crate::programs::Program;
use crate::record::{Body, Branches, Delivered, Record};
use crate::refused::Refused;
use crate::sampling::Handler;
use crate::setup::{CPUS_MAX, EventSetup, Refusal, Setup, validate};
use crate::stack::{Leaf, StackId, StackSource};
use deferred::{Info, Request, Reset};
use events::Events;
use handlers::Handlers;
use kernel::Unwinding;
use lbr::Lbr;
use output::Output;
use unwind_sim_perf_lbr::{Dying, Ledger, Saving};

/// Time between two ticks, after which throttled events go on, nanoseconds.
const TICK_NS: u64 = 1_000_000;

/// A kernel that samples, in virtual time.
pub struct World {
    setup: Setup,
    stacks: Box<dyn StackSource>,
    machine: Machine,
    events: Events,
    handlers: Handlers,
    lbr: Lbr,
    out: Output,
}

/// The CPUs and the tasks: who runs where.
struct Machine {
    cpus: Vec<Cpu>,
    /// All tasks ever made, including those that have exited.
    tasks: Vec<Task>,
}

/// Where something happens: a CPU, and the thread that runs there.
#[derive(Clone, Copy)]
struct CpuTask {
    cpu: usize,
    /// 0 for the idle task.
    tid: i32,
}

/// What is called at an overflow of an event: a handler and its context; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slot {
    handler: u16,
    context: u16,
}

#[derive(Default)]
struct Cpu {
    /// Index of the current task; `None` for the idle task.
    current: Option<usize>,
    /// The interrupts on top of it.
    frames: Vec<Frame>,
    /// An irq work waits for interrupts to be enabled.
    irq_work: bool,
    /// `unwind_ctx_ctr`.
    count: u32,
    /// The callchain buffers, one per context.
    buffers: [Vec<u64>; 4],
    /// Counts the programs that run.
    guard: Guard,
    /// The last tick that this CPU has seen.
    tick: u64,
    /// The task has exited and no other one was chosen yet. Only used with branch records.
    is_left: bool,
    /// A switch that has begun, and the task it goes to.
    switching: Option<(Saving, Option<usize>)>,
}

/// An interrupt that runs.
struct Frame {
    context: Context,
    from_user: bool,
    job: Option<Overflow>,
    /// Timers that fired.
    queue: Vec<u16>,
    irq_work: bool,
    /// Steps until it ends.
    left: u8,
}

#[derive(Default)]
struct Task {
    tid: i32,
    kthread: bool,
    exiting: bool,
    dead: bool,
    /// The CPU on which it is the current task.
    on: Option<usize>,
    place: ExecutionState,
    stack: StackId,
    leaf: Leaf,
    cgroup: Option<u16>,
    /// Its address in the kernel during a system call, if a script gives one.
    kernel_at: Option<u64>,
    /// The events that count it, one bit each.
    counted_by: u64,
    info: Info,
    works: Vec<TaskWork>,
    signal: Option<StackId>,
    /// It stands at a uprobe; events from this index on have not sampled it yet.
    uprobe: Option<u16>,
    /// The next allocation for an unwind fails.
    no_memory: bool,
    job: Option<Overflow>,
    unwind: Option<Unwinding>,
    /// A handler without its context yet (event, handler).
    installing: Option<(u16, u16)>,
    /// Memory for branch records of an event that it is closing.
    closing: Vec<Dying>,
}

/// A sample being made.
struct Overflow {
    event: u16,
    number: u64,
    period: u64,
    context: Context,
    user_mode: bool,
    /// The task stands at a uprobe at a function's entry.
    at_uprobe: bool,
    /// The registers are made up at a tracepoint: the kernel walk begins at a mark.
    from_mark: bool,
    stage: Stage,
    user: UserPart,
    /// The handler, once it was read.
    slot: Slot,
    /// The branch records, read when the sample begins: what runs afterwards changes the ring.
    branches: Option<Branches>,
    /// The chain was made before the handler's program runs, which uses it.
    is_chain_ready: bool,
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Account,
    Handler,
    /// The program of the handler; the CPU is marked as running one.
    Program,
    Begin,
    Request(Request),
    Kernel,
    User,
    Output,
}

/// The chain's user part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UserPart {
    /// There is none: a kernel thread, the idle task.
    None,
    /// Unwound at once.
    Inline,
    /// Comes later, with this cookie, or without one in the form of 2023.
    Deferred(Option<u64>),
}

impl Overflow {
    /// Whether it is in `unwind_deferred_request`, where interrupts are disabled.
    fn is_requesting(&self) -> bool {
        matches!(self.stage, Stage::Request(at) if at != Request::Start)
    }
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum ExecutionState {
    #[default]
    User,
    /// In a system call, or in a kernel thread.
    Body,
    /// In `exit_to_user_mode_loop`.
    Loop(Loop),
    /// After that loop, with interrupts disabled.
    Reset(Reset),
    /// In `do_exit`.
    Exiting,
}

/// Stations of `exit_to_user_mode_loop` (`kernel/entry/common.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    Check,
    Schedule,
    Uprobe,
    Signal,
    Resume,
}

/// A task work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskWork {
    /// The one of `struct unwind_task_info`.
    Deferred,
    /// The event's own, in the form of 2023.
    Event(u16),
}

/// An address of the kernel's text for each place where the kernel may be.
const fn kernel_ip(place: u64) -> u64 {
    KERNEL_TEXT + 0x1000 * place
}

impl Machine {
    /// CPUs that are idle, and no tasks.
    fn new(cpus: usize) -> Self {
        Self {
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            tasks: Vec::new(),
        }
    }

    /// The CPU of that number.
    fn cpu(&self, cpu: u16) -> Result<usize, Refused> {
        let cpu = usize::from(cpu);
        if cpu < self.cpus.len() {
            Ok(cpu)
        } else {
            Err(Refused::NoCpu)
        }
    }

    /// The living task of that thread number.
    fn find(&self, tid: i32) -> Result<usize, Refused> {
        let is_it = |task: &Task| task.tid == tid && !task.dead;
        self.tasks.iter().position(is_it).ok_or(Refused::NoTask)
    }

    fn current(&self, cpu: usize) -> Option<&Task> {
        Some(&self.tasks[self.cpus[cpu].current?])
    }

    /// The thread that runs on the CPU; 0 for the idle task.
    fn tid(&self, cpu: usize) -> i32 {
        self.current(cpu).map_or(0, |task| task.tid)
    }

    fn at(&self, cpu: usize) -> CpuTask {
        let tid = self.tid(cpu);
        CpuTask { cpu, tid }
    }

    /// The events that count the current task, one bit each; `None` for the idle task.
    fn counted_by(&self, cpu: usize) -> Option<u64> {
        self.current(cpu).map(|task| task.counted_by)
    }

    /// Whether user code runs on the CPU now.
    fn in_user(&self, cpu: usize) -> bool {
        let is_user = |task: &Task| task.place == ExecutionState::User;
        self.cpus[cpu].frames.is_empty() && self.current(cpu).is_some_and(is_user)
    }

    /// Whether an interrupt can come on the CPU now.
    fn interrupts_on(&self, cpu: usize) -> bool {
        if self.cpus[cpu].switching.is_some() {
            return false;
        }
        let requesting = |job: &Option<Overflow>| job.as_ref().is_some_and(Overflow::is_requesting);
        match (self.cpus[cpu].frames.last(), self.current(cpu)) {
            (Some(frame), _) => frame.context == Context::Softirq && !requesting(&frame.job),
            (None, Some(task)) => {
                !matches!(task.place, ExecutionState::Reset(_)) && !requesting(&task.job)
            }
            (None, None) => true,
        }
    }

    /// Where the kernel is on this CPU, for a sample taken in `context`: a hardirq has the
    /// registers of what it interrupted. An NMI has no entry in `frames`.
    fn kernel_at(&self, cpu: usize, context: Context) -> u64 {
        let frames = &self.cpus[cpu].frames;
        let below = frames
            .len()
            .saturating_sub(usize::from(context == Context::Hardirq));
        kernel_ip(match (frames[..below].last(), self.current(cpu)) {
            (Some(frame), _) => 16 + frame.context as u64,
            (None, None) => 1,
            (None, Some(task)) => match task.place {
                _ if task.unwind.is_some() => 4,
                ExecutionState::User => 0,
                ExecutionState::Body => match task.kernel_at {
                    Some(address) => return address,
                    None => 2,
                },
                ExecutionState::Loop(_) => 3,
                ExecutionState::Reset(_) => 5,
                ExecutionState::Exiting => 6,
            },
        })
    }
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
        Ok(Self {
            machine: Machine::new(cpus),
            handlers: Handlers::new(events.len()),
            lbr: Lbr::new(&setup, &events),
            out: Output::new(&events, cpus, setup.mutant == Some(Mutant::LostUntold)),
            events: Events::new(events, cpus),
            setup,
            stacks,
        })
    }

    /// Adds a task that waits for a CPU: in user space with `stack`, or a kernel thread.
    pub fn add_task(&mut self, tid: i32, stack: Option<StackId>) {
        let cgroup = self.setup.cgroup_of(tid);
        let counted_by = self.events.at_start(tid, cgroup);

        if let Some(stack) = stack {
            let leaf = Leaf::Body;
            self.out
                .say(CpuTask { cpu: 0, tid }, Fact::Stack { stack, leaf });
        }

        // Kernel threads never leave the kernel.
        let place = match stack {
            None => ExecutionState::Body,
            Some(_) => ExecutionState::User,
        };

        self.machine.tasks.push(Task {
            tid,
            kthread: stack.is_none(),
            place,
            stack: stack.unwrap_or_default(),
            cgroup,
            counted_by,
            ..Task::default()
        });

        // The memory for branch records is there before the task runs first.
        let own = self.events.with_branches(counted_by);
        self.lbr.start(tid, cgroup, own);
        self.say_branches(0);
    }

    /// Adds a handler. Returns its number, from 1.
    pub fn add_handler(&mut self, handler: Box<dyn Handler>) -> u16 {
        let number = self.handlers.add(handler);
        self.attach_at_open(number)
    }

    /// Adds a program as a handler. Returns its number, from 1. Its output goes to the first event
    /// of kind `bpf-output`; without such an event its map of outputs is empty.
    pub fn add_program(&mut self, mut program: Program) -> u16 {
        if self.events.outputs().is_some() {
            program.open_outputs(self.machine.cpus.len() as u32);
        }
        let number = self.handlers.add_program(program);
        self.attach_at_open(number)
    }

    /// Attaches a new handler to the open events whose attribute names it. Returns its number.
    fn attach_at_open(&mut self, handler: u16) -> u16 {
        for event in self.events.numbers() {
            if self.events.is_open(event) && self.events.setup(event).program == Some(handler) {
                self.attach(0, event);
            }
        }
        handler
    }

    /// Attaches the handler that the event's attribute names.
    fn attach(&mut self, cpu: usize, event: u16) {
        if let Some(handler) = self.events.setup(event).program {
            let context = handler;
            self.handlers.set(event, Slot { handler, context });
            self.say(cpu, Fact::Installed { event, handler });
        }
    }

    /// Checks that all handlers named by attributes exist and fit.
    ///
    /// # Errors
    /// The index of an event whose handler does not exist or does not fit.
    pub(super) fn check_programs(&self) -> Result<(), (usize, Refusal)> {
        let fits = |event: &EventSetup| {
            let handler = event.program?;
            Some(self.handlers.fits(handler, event).unwrap_or(false))
        };
        match self.events().iter().position(|e| fits(e) == Some(false)) {
            Some(index) => Err((index, Refusal::NotForPrograms)),
            None => Ok(()),
        }
    }

    /// What happened so far.
    pub fn log(&self) -> &[Entry] {
        self.out.log()
    }

    /// The branch records that were kept at each oops of the kernel.
    pub fn crashes(&self) -> &[Crash] {
        self.out.crashes()
    }

    /// The user stacks.
    pub fn stacks(&self) -> &dyn StackSource {
        &*self.stacks
    }

    /// The events.
    pub fn events(&self) -> &[EventSetup] {
        self.events.setups()
    }

    /// The setup.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The log as text.
    pub fn log_text(&self) -> String {
        let events: Vec<String> = self.events().iter().map(|e| e.name.clone()).collect();
        text(self.log(), &events, self.stacks())
    }

    /// What the reader has: by time after [`World::finish`], before that in the order of reading.
    pub fn records(&self) -> &[Record] {
        self.out.records()
    }

    /// The records with the reader's rounds, in the order in which it took them.
    pub(super) fn delivered(&self) -> &[Delivered] {
        self.out.delivered()
    }

    /// All threads ever made, and whether each is a kernel thread.
    pub(super) fn threads(&self) -> impl Iterator<Item = (i32, bool)> {
        let tasks = self.machine.tasks.iter();
        tasks.map(|task| (task.tid, task.kthread))
    }

    /// The programs among the handlers.
    pub(super) fn programs(&self) -> impl Iterator<Item = &Program> {
        self.handlers.programs()
    }

    /// Whether a handler is a program that walks user stacks.
    pub(super) fn walks(&self, handler: u16) -> bool {
        self.handlers.program(handler).is_some_and(Program::walks)
    }

    /// The memory for branch records, if there are any.
    pub fn branch_memory(&self) -> Option<Ledger> {
        self.lbr.memory()
    }

    /// Whether an unwind of the task is pending; for tests.
    pub fn is_pending(&self, tid: i32) -> bool {
        let task = self.machine.tasks.iter().find(|task| task.tid == tid);
        task.is_some_and(|task| task.info.is_pending())
    }

    /// Whether more may happen: the bound of a run's memory.
    pub(super) fn has_room(&self) -> Result<(), Refused> {
        self.out.has_room()
    }

    /// The thread that runs on the CPU; 0 for the idle task.
    pub(super) fn tid(&self, cpu: usize) -> i32 {
        self.machine.tid(cpu)
    }

    /// The end of recording: the reader takes everything.
    pub fn finish(&mut self) {
        self.close_all();
        for cpu in 0..self.machine.cpus.len() {
            self.read(cpu);
        }
        self.out.end();
    }

    /// The reader takes all records of the CPU's rings.
    fn read(&mut self, cpu: usize) {
        self.out.read(self.machine.at(cpu));
    }

    fn mutant(&self, mutant: Mutant) -> bool {
        self.setup.mutant == Some(mutant)
    }

    fn say(&mut self, cpu: usize, fact: Fact) {
        self.out.say(self.machine.at(cpu), fact);
    }

    /// Writes to the event's ring on this CPU. Returns whether there was room.
    fn write(&mut self, cpu: usize, event: u16, body: Body) -> bool {
        self.out.write(self.machine.at(cpu), event, body)
    }

    /// Writes a record that only says what a task did; such records go to the first event.
    fn write_side(&mut self, cpu: usize, event: u16, body: Body) {
        if !self.events().is_empty() && !self.write(cpu, event, body) {
            self.say(cpu, Fact::OtherLost { event });
        }
    }

    /// Logs what the kernel did with branch records, on the CPU that did it.
    fn say_branches(&mut self, cpu: usize) {
        for (cpu, step) in self.lbr.steps(cpu) {
            self.say(cpu, Fact::Branches(step));
        }
    }

    /// Whether the event counts what runs on the CPU now.
    fn counts(&self, event: u16, cpu: usize) -> bool {
        self.events.counts(event, self.machine.counted_by(cpu))
    }

    /// Whether an interrupt waits and can come.
    fn interrupt_waits(&self, cpu: usize) -> bool {
        let waits = self.machine.cpus[cpu].irq_work || self.events.next_due(cpu) <= self.out.now();
        waits && self.machine.interrupts_on(cpu)
    }
}

//! The shadow stack of a program in the emulated machine: passes every instruction to the tracker,
//! and caches the classes of instructions by block.

use crate::machine::{KernelCode, MachineWorld, cpu, cpu_at};
use std::collections::HashMap;
use unwind_sim_emulator::linux::{SystemCall, Task};
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::{AddressSpace, Core, State};
use unwind_sim_unwind::insn::{BYTES_BEFORE, INSN_BYTES_MAX, Insn, classify, classify_at};
use unwind_sim_unwind::truth::{Cpu, Stats, Suspended, Tracker, Truth};

/// The shadow stacks of a process.
#[derive(Clone)]
struct Stacks {
    /// The running thread, and its shadow stack.
    task: Task,
    tracker: Tracker,
    others: HashMap<Task, Tracker>,
    suspended: Suspended,
    classes: Classes,
}

impl Stacks {
    fn new(task: Task, tracker: Tracker) -> Stacks {
        Stacks {
            task,
            tracker,
            others: HashMap::new(),
            suspended: Suspended::new(),
            classes: Classes::default(),
        }
    }

    fn stats(&self) -> Stats {
        let others = self.others.values().map(Tracker::stats);
        others.fold(*self.tracker.stats(), |sum, stats| sum.plus(stats))
    }
}

/// The shadow stacks of all threads.
#[derive(Clone)]
pub struct Shadow {
    /// Those of the running process.
    own: Stacks,
    processes: HashMap<u32, Stacks>,
    /// Statistics of programs before the last `execve`, and of what has ended.
    earlier: Stats,
    /// Class of the current instruction, and the state before it.
    class: Insn,
    before: Cpu,
    /// Of a kernel, what is known of its code; of processes nothing.
    code: KernelCode,
}

/// A shadow stack before any program is started.
impl Default for Shadow {
    fn default() -> Shadow {
        Shadow {
            own: Stacks::new(Task::FIRST, Tracker::root(&Cpu::default(), 0)),
            processes: HashMap::new(),
            earlier: Stats::default(),
            class: Insn::Other,
            before: Cpu::default(),
            code: KernelCode::default(),
        }
    }
}

impl Shadow {
    /// That of a kernel, before it has started, with this code.
    pub fn kernel(code: KernelCode) -> Shadow {
        Shadow {
            code,
            ..Shadow::default()
        }
    }

    /// Starts in the middle of a thread: callers of the running function are unknown.
    pub fn middle(core: &Core) -> Shadow {
        let rsp = core.state.gpr(4);
        let high = core.memory.area(rsp).map_or(rsp, |(range, _)| range.end);
        Shadow {
            own: Stacks::new(
                Task::FIRST,
                Tracker::middle(&cpu_at(&core.state, core.state.rip), high),
            ),
            ..Shadow::default()
        }
    }

    /// The shadow stack of the running thread.
    pub fn tracker(&self) -> &Tracker {
        &self.own.tracker
    }

    /// Is the running function one whose call was not seen?
    pub fn is_outside(&self) -> bool {
        self.own.tracker.frames().is_empty()
    }

    /// The class of the current instruction.
    pub fn class(&self) -> Insn {
        self.class
    }

    /// The state before the current instruction.
    pub fn state_before(&self) -> &Cpu {
        &self.before
    }

    /// Address of the current instruction.
    pub fn rip_before(&self) -> u64 {
        self.before.rip
    }

    /// rsp before the current instruction.
    pub fn rsp_before(&self) -> u64 {
        self.before.rsp
    }

    /// A program starts and replaces the previous one.
    pub fn started(&mut self, core: &Core, stack_end: u64) {
        self.earlier = self.earlier.plus(&self.own.stats());
        let process = self.own.task.process;
        let task = Task {
            process,
            thread: process,
        };
        let cpu = cpu_at(&core.state, core.state.rip);
        self.own = Stacks::new(task, Tracker::root(&cpu, stack_end));
    }

    /// A thread was created. The function in which it begins has no caller.
    pub fn thread_started(&mut self, task: Task, state: &State) {
        self.thread_starts(task, thread_tracker(state));
    }

    /// A thread was created, with this shadow stack.
    pub fn thread_starts(&mut self, task: Task, tracker: Tracker) {
        self.own.others.insert(task, tracker);
    }

    /// A process was created, whose only thread has the registers `state`.
    pub fn forked(&mut self, child: Task, state: &State) {
        let tracker = process_tracker(&self.own.tracker, self.before.rsp, state);
        let mut stacks = Stacks::new(child, tracker);
        stacks.suspended = self.own.suspended.clone();
        self.processes.insert(child.process, stacks);
    }

    /// Another thread runs from here on.
    pub fn switched(&mut self, task: Task, core: &Core) {
        self.own.tracker.rest(&mut self.own.suspended);
        self.switch(task, core);
        self.own.tracker.wake(&mut self.own.suspended);
    }

    /// [`Shadow::switched`] where threads leave no stacks to each other.
    pub(crate) fn switch(&mut self, task: Task, core: &Core) {
        if task.process != self.own.task.process
            && let Some(next) = self.processes.remove(&task.process)
        {
            let last = std::mem::replace(&mut self.own, next);
            self.processes.insert(last.task.process, last);
        }
        if task == self.own.task {
            return;
        }
        let next = self.own.others.remove(&task);
        let next = next.unwrap_or_else(|| Shadow::middle(core).own.tracker);
        let last = std::mem::replace(&mut self.own.tracker, next);
        self.own.others.insert(self.own.task, last);
        self.own.task = task;
    }

    /// A thread has ended.
    pub fn thread_ended(&mut self, task: Task) {
        if let Some(ended) = self.own.others.remove(&task) {
            self.earlier = self.earlier.plus(ended.stats());
        }
    }

    /// A process has ended.
    pub fn process_ended(&mut self, process: u32) {
        if let Some(ended) = self.processes.remove(&process) {
            self.earlier = self.earlier.plus(&ended.stats());
        }
    }

    /// A tracer has changed registers or the stack of a thread: its callers are unknown from here
    /// on.
    pub fn disturbed(&mut self, task: Task, state: &State) {
        let stacks = if task.process == self.own.task.process {
            Some(&mut self.own)
        } else {
            self.processes.get_mut(&task.process)
        };
        let Some(stacks) = stacks else {
            return;
        };
        let tracker = if task == stacks.task {
            Some(&mut stacks.tracker)
        } else {
            stacks.others.get_mut(&task)
        };
        if let Some(tracker) = tracker {
            let before = std::mem::replace(tracker, unknown_tracker(state));
            self.earlier = self.earlier.plus(before.stats());
        }
    }

    /// The thread that runs.
    pub fn task(&self) -> Task {
        self.own.task
    }

    /// A block of `operations` operations starts.
    #[inline]
    pub fn enter(&mut self, block: Option<BlockId>, operations: usize) {
        self.own.classes.enter(block, operations);
    }

    /// The instruction `insn` is about to be executed.
    #[inline]
    pub fn before(&mut self, core: &Core, insn: &Executed) {
        self.class = self.own.classes.of(core, insn);
        self.before = cpu_at(&core.state, insn.rip);
    }

    /// The current instruction was executed. The result of a system call is not known yet: see
    /// [`Shadow::system_call`].
    #[inline]
    pub fn after(&mut self, core: &Core, next: u64) -> Insn {
        if self.class != Insn::Syscall
            && !self.own.tracker.step_quick(self.class, core.state.gpr(4))
        {
            self.step(core, next, 0);
        }
        self.class
    }

    /// A system call has returned.
    pub fn system_call(&mut self, call: &SystemCall, core: &Core) {
        self.class = Insn::Syscall;
        // Other threads may have run since.
        self.before = at_call(call);
        self.step(core, core.state.rip, call.number);
    }

    /// A signal handler is about to run.
    pub fn signal(&mut self, interrupted: &Preserved, handler: &Preserved, restorer: u64) {
        let (interrupted, handler) = (cpu(interrupted), cpu(handler));
        self.own.tracker.signal(&interrupted, &handler, restorer);
    }

    #[inline(never)]
    fn step(&mut self, core: &Core, next: u64, rax: u64) {
        self.own.tracker.step(
            self.class,
            &self.before,
            rax,
            &cpu_at(&core.state, next),
            &mut self.own.suspended,
            &mut MachineWorld::kernel(core, &self.code),
        );
    }

    /// `iret`, at which the state was `before`, has returned to the same ring.
    pub fn iret(&mut self, before: &Cpu, core: &Core) {
        self.own.tracker.iret(
            before,
            &cpu_at(&core.state, core.state.rip),
            &mut self.own.suspended,
            &mut MachineWorld::kernel(core, &self.code),
        );
    }

    /// Changes the shadow stack of the running thread by `change`, which returns the statistics of what has
    /// ended.
    pub fn replace(&mut self, change: impl FnOnce(&mut Tracker) -> Option<Stats>) {
        if let Some(ended) = change(&mut self.own.tracker) {
            self.earlier = self.earlier.plus(&ended);
        }
    }

    /// The true chain. The next instruction is at `rip`.
    pub fn truth(&self, core: &Core, rip: u64) -> Truth {
        self.own.tracker.truth(&cpu_at(&core.state, rip))
    }

    /// The true chain of a thread that does not run, whose registers are `cpu`. `None` if there is
    /// no such thread.
    pub fn truth_of(&self, task: Task, cpu: &Cpu) -> Option<Truth> {
        let stacks = if task.process == self.own.task.process {
            &self.own
        } else {
            self.processes.get(&task.process)?
        };
        let tracker = if task == stacks.task {
            &stacks.tracker
        } else {
            stacks.others.get(&task)?
        };
        Some(tracker.truth(cpu))
    }

    /// The values of rsp at which the chain continues on another stack, innermost first.
    pub fn other_stacks(&self) -> impl Iterator<Item = u64> + '_ {
        self.own.tracker.other_stacks()
    }

    /// Statistics so far.
    pub fn stats(&self) -> Stats {
        let processes = self.processes.values().map(Stacks::stats);
        let earlier = processes.fold(self.earlier, |sum, stats| sum.plus(&stats));
        earlier.plus(&self.own.stats())
    }
}

/// The state at the `syscall` instruction of a call.
pub fn at_call(call: &SystemCall) -> Cpu {
    /// Length of `syscall`, bytes.
    const SYSCALL: u64 = 2;
    let mut at = cpu(&call.before);
    at.rip = at.rip.wrapping_sub(SYSCALL);
    at
}

/// The shadow stack of a new process whose thread has the registers `state`: that of its parent,
/// unless `clone` gave it another stack than the parent's at `rsp`.
pub fn process_tracker(parent: &Tracker, rsp: u64, state: &State) -> Tracker {
    if state.gpr(4) == rsp {
        parent.fork()
    } else {
        Tracker::root(&cpu_at(state, state.rip), state.gpr(4))
    }
}

/// The shadow stack of a new thread, whose first function has no caller. Its stack ends where rsp
/// is: the memory above it may be that of other stacks.
pub fn thread_tracker(state: &State) -> Tracker {
    Tracker::root(&cpu_at(state, state.rip), state.gpr(4))
}

/// The shadow stack of a thread whose registers or stack a tracer has changed.
pub fn unknown_tracker(state: &State) -> Tracker {
    Tracker::middle(&cpu_at(state, state.rip), state.gpr(4))
}

/// The classes of instructions, by block.
#[derive(Default)]
struct Classes {
    blocks: Vec<Box<[Option<Insn>]>>,
    /// The current block; out of range for a single instruction outside a block.
    number: usize,
    generation: u64,
}

/// A cache: the copy starts empty.
impl Clone for Classes {
    fn clone(&self) -> Classes {
        Classes::default()
    }
}

impl Classes {
    #[inline]
    fn enter(&mut self, block: Option<BlockId>, operations: usize) {
        let Some(id) = block else {
            self.number = usize::MAX;
            return;
        };
        if id.generation != self.generation {
            self.blocks.clear();
            self.generation = id.generation;
        }
        self.number = id.number as usize;
        if self.blocks.len() <= self.number {
            self.blocks.resize_with(self.number + 1, Box::default);
        }
        let known = &mut self.blocks[self.number];
        if known.len() != operations {
            *known = vec![None; operations].into_boxed_slice();
        }
    }

    #[inline]
    fn of(&mut self, core: &Core, insn: &Executed) -> Insn {
        let block = self.blocks.get_mut(self.number);
        let known = block.and_then(|b| b.get_mut(insn.index as usize));
        match known {
            Some(Some(class)) => *class,
            Some(place) => *place.insert(class_of(&core.memory, insn)),
            None => class_of(&core.memory, insn),
        }
    }
}

#[cold]
fn class_of(memory: &AddressSpace, insn: &Executed) -> Insn {
    let mut bytes = [0; INSN_BYTES_MAX];
    let bytes = &mut bytes[..usize::from(insn.len).clamp(1, INSN_BYTES_MAX)];
    match memory.fetch(insn.rip, bytes) {
        Ok(()) => classify_in(memory, insn.rip, bytes),
        Err(_) => Insn::Other,
    }
}

/// The class of the instruction `bytes` at `rip`. Only that of a jump depends on the code before
/// it.
pub fn classify_in(memory: &AddressSpace, rip: u64, bytes: &[u8]) -> Insn {
    match classify(bytes) {
        Insn::Jump => {
            let mut before = [0; BYTES_BEFORE];
            classify_at(rip, code_before(memory, rip, &mut before), bytes)
        }
        class => class,
    }
}

/// The code before the instruction at `rip`; only that on its page, if what is before it cannot be
/// executed.
fn code_before<'a>(
    memory: &AddressSpace,
    rip: u64,
    before: &'a mut [u8; BYTES_BEFORE],
) -> &'a [u8] {
    /// Size of a page in bytes.
    const PAGE: u64 = 4096;
    for count in [BYTES_BEFORE, (rip % PAGE) as usize] {
        if count <= BYTES_BEFORE
            && memory.fetch(rip.wrapping_sub(count as u64), &mut before[..count]) == Ok(())
        {
            return &before[..count];
        }
    }
    &[]
}

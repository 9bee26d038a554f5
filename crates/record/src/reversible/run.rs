//! What can be asked of a run that goes to any of its states.

use super::super::registers::live_registers;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_recordings::model;
use unwind_sim_recordings::world::World;
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::truth::Truth;

/// What is looked for in a run.
pub trait Look {
    /// Is it at the state in which thread `task` executes the instruction at `rip` next?
    fn is_there(&mut self, core: &Core, rip: u64, task: Task, world: &World) -> bool;

    /// The addresses of instructions, if it is there at each of these, and nowhere else.
    fn addresses(&mut self, world: &World) -> Option<Vec<u64>> {
        let _ = world;
        None
    }
}

impl<F: FnMut(&Core, u64, Task, &World) -> bool> Look for F {
    fn is_there(&mut self, core: &Core, rip: u64, task: Task, world: &World) -> bool {
        self(core, rip, task, world)
    }
}

/// How a run ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEnd {
    /// What happened.
    pub text: String,
    /// The number of its states.
    pub states: u64,
    /// Whether it did not end at something that is not modelled.
    pub is_modelled: bool,
}

/// A thread or task of a run.
#[derive(Clone, Debug)]
pub struct RunThread {
    /// Which.
    pub task: Task,
    /// Its name (`comm`).
    pub name: String,
    /// What it does.
    pub doing: String,
    /// Its true chain, as far as it is known.
    pub truth: Truth,
    /// Its instruction pointer, stack pointer and callee-saved registers.
    pub at: Preserved,
}

/// A place where a kernel is entered or interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The number of the state before the handler's first instruction.
    pub number: u64,
    /// The vector of the exception or interrupt; `None` for a system call.
    pub vector: Option<u8>,
    /// Whether it comes from user mode.
    pub from_user: bool,
}

/// A run that can go to any of its states, forwards and backwards. A state is the one before an
/// instruction.
pub trait ReversibleRun {
    /// Ends the run after this number of states.
    fn set_limit(&mut self, states_max: u64);

    /// The number of states after which the run ends.
    fn limit(&self) -> u64;

    /// The number of the state that was gone to last: that of the instructions executed, by all threads,
    /// and for a kernel that of the exceptions and interrupts delivered, too.
    fn executed(&self) -> u64;

    /// How the run ended, as soon as that is known.
    fn end(&self) -> Option<RunEnd>;

    /// Whether the run has ended here, so that there is no next instruction.
    fn has_exited(&self) -> bool;

    /// The number of the state up to which every place is near.
    fn explored(&self) -> u64;

    /// What was asked for that is not modelled, as far as it was explored.
    fn notices(&self) -> Vec<String>;

    /// The processes and their mappings.
    fn world(&self) -> &World;

    /// The processor, with the thread that executes the next instruction.
    fn core(&self) -> &Core;

    /// The thread that executes the next instruction.
    fn task(&self) -> Task;

    /// Its registers.
    fn registers(&self) -> Regs {
        let state = &self.core().state;
        live_registers(state, state.rip)
    }

    /// The auxiliary vector that the running process's program got.
    fn auxv(&self) -> &[u8];

    /// All threads.
    fn threads(&self) -> Vec<RunThread>;

    /// Lets the run be explored by at most this many states more. Returns whether there is more.
    fn explore(&mut self, states: u64) -> bool;

    /// Goes to a state, or to the end of the run if that comes first. Returns the number of the state
    /// there.
    fn go_to(&mut self, number: u64) -> u64;

    /// The first place after `from` at which `look` finds what it looks for.
    fn first(&mut self, look: Box<dyn Look>, from: u64) -> Option<u64>;

    /// The last place before `end` at which `look` finds what it looks for.
    fn last(&mut self, look: Box<dyn Look>, end: u64) -> Option<u64>;

    /// The first place after `from` at which a kernel is entered, or the last one before it.
    fn entry(&mut self, from: u64, is_forward: bool) -> Option<Entry> {
        let _ = (from, is_forward);
        None
    }

    /// Whether it is the run of a kernel.
    fn is_kernel(&self) -> bool {
        false
    }

    /// Lets an NMI come at a state of a kernel, and at none behind it any longer. The run is another one
    /// from there on.
    fn send_nmi(&mut self, number: u64) {
        let _ = number;
    }

    /// The address of the first program's `main`, if it starts as C programs do: the code at its entry
    /// point passes it to the first function that it calls. For programs without symbols.
    fn main(&mut self) -> Option<u64> {
        None
    }

    /// The sample before the next instruction. Its time is the number of the state.
    fn sample(&self) -> model::Sample<'static>;
}

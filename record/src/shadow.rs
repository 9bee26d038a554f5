//! The shadow stack of a program in the emulated machine: passes every instruction to the tracker,
//! and caches the classes of instructions by block.

use unwind_sim_emulator::linux::SystemCall;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{AddressSpace, State};
use unwind_sim_unwind::insn::{INSN_BYTES_MAX, Insn, classify};
use unwind_sim_unwind::truth::{Cpu, Stats, Suspended, Tracker, Truth};

/// The shadow stack of a thread.
pub struct Shadow {
    tracker: Tracker,
    /// Statistics of programs before the last `execve`.
    earlier: Stats,
    suspended: Suspended,
    classes: Classes,
    /// Class of the current instruction, and the state before it.
    class: Insn,
    before: Cpu,
}

/// A shadow stack before any program is started.
impl Default for Shadow {
    fn default() -> Shadow {
        Shadow {
            tracker: Tracker::root(&Cpu::default(), 0),
            earlier: Stats::default(),
            suspended: Suspended::new(),
            classes: Classes::default(),
            class: Insn::Other,
            before: Cpu::default(),
        }
    }
}

impl Shadow {
    /// Starts in the middle of a thread: callers of the running function are unknown.
    pub fn middle(state: &State) -> Shadow {
        let rsp = state.gpr(4);
        let high = state.memory.area(rsp).map_or(rsp, |(range, _)| range.end);
        Shadow {
            tracker: Tracker::middle(&state.cpu_at(state.rip), high),
            ..Shadow::default()
        }
    }

    /// Is the running function one whose call was not seen?
    pub fn is_outside(&self) -> bool {
        self.tracker.frames().is_empty()
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
    pub fn started(&mut self, state: &State, stack_end: u64) {
        self.earlier = self.earlier.plus(self.tracker.stats());
        self.tracker = Tracker::root(&state.cpu_at(state.rip), stack_end);
        self.suspended = Suspended::new();
        self.classes = Classes::default();
    }

    /// A block of `operations` operations starts.
    #[inline]
    pub fn enter(&mut self, block: Option<BlockId>, operations: usize) {
        self.classes.enter(block, operations);
    }

    /// The instruction `insn` is about to be executed.
    #[inline]
    pub fn before(&mut self, state: &State, insn: &Executed) {
        self.class = self.classes.of(state, insn);
        self.before = state.cpu_at(insn.rip);
    }

    /// The current instruction was executed. The result of a system call is not known yet: see
    /// [`Shadow::system_call`].
    #[inline]
    pub fn after(&mut self, state: &State, next: u64) -> Insn {
        if self.class != Insn::Syscall && !self.tracker.step_quick(self.class, state.gpr(4)) {
            self.step(state, next, 0);
        }
        self.class
    }

    /// A system call has returned.
    pub fn system_call(&mut self, call: &SystemCall, state: &State) {
        self.class = Insn::Syscall;
        self.step(state, state.rip, call.number);
    }

    /// A signal handler is about to run.
    pub fn signal(&mut self, interrupted: &Cpu, handler: &Cpu, restorer: u64) {
        self.tracker.signal(interrupted, handler, restorer);
    }

    #[inline(never)]
    fn step(&mut self, state: &State, next: u64, rax: u64) {
        self.tracker.step(
            self.class,
            &self.before,
            rax,
            &state.cpu_at(next),
            &mut self.suspended,
            &mut &state.memory,
        );
    }

    /// The true chain. The next instruction is at `rip`.
    pub fn truth(&self, state: &State, rip: u64) -> Truth {
        self.tracker.truth(&state.cpu_at(rip))
    }

    /// The values of rsp at which the chain continues on another stack, innermost first.
    pub fn other_stacks(&self) -> impl Iterator<Item = u64> + '_ {
        self.tracker.other_stacks()
    }

    /// Statistics so far.
    pub fn stats(&self) -> Stats {
        self.earlier.plus(self.tracker.stats())
    }
}

/// The classes of instructions, by block.
#[derive(Default)]
struct Classes {
    blocks: Vec<Box<[Option<Insn>]>>,
    /// The current block; out of range for a single instruction outside a block.
    number: usize,
    generation: u64,
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
    fn of(&mut self, state: &State, insn: &Executed) -> Insn {
        let block = self.blocks.get_mut(self.number);
        let known = block.and_then(|b| b.get_mut(insn.index as usize));
        match known {
            Some(Some(class)) => *class,
            Some(place) => *place.insert(class_of(&state.memory, insn)),
            None => class_of(&state.memory, insn),
        }
    }
}

#[cold]
fn class_of(memory: &AddressSpace, insn: &Executed) -> Insn {
    let mut bytes = [0; INSN_BYTES_MAX];
    let bytes = &mut bytes[..usize::from(insn.len).clamp(1, INSN_BYTES_MAX)];
    match memory.fetch(insn.rip, bytes) {
        Ok(()) => classify(bytes),
        Err(_) => Insn::Other,
    }
}

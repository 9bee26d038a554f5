//! The machine: finds blocks and runs them. Not here: the kernel's response to calls and
//! exceptions.

mod observer;

pub use observer::{BlockId, Executed, Observer};

use crate::address_space::{self, AddressSpace, Guard, RestoreError};
use crate::code::{self, Block, Code, Kind, Library, NONE};
use crate::core::Core;
use crate::op::{Flow, Op};
use crate::processor::Gates;
use crate::state::State;
use crate::stop::{Call, Exception, Stop};
use hashbrown::{HashMap, HashSet};
use std::ops::Range;

/// Why [`Machine::run`] returned. rip is the next instruction; after a fault, it is the faulting
/// instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The requested number of instructions was executed, or fewer because the last one has set the
    /// trap flag. The machine does not trap; whoever runs it executes one instruction then.
    Limit,
    /// The processor raised an exception.
    Exception(Exception),
    /// The program called the kernel.
    Kernel(Call),
    /// `hlt`; rip is after it.
    Halt,
    /// The instruction at rip is not modelled.
    Unsupported,
    /// The instruction at rip, which was not executed, is one of the system: only in system mode, where
    /// [`crate::system::System`] executes it.
    System,
}

/// The state of a thread and the decoded code in its memory, which it keeps for each space.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Registers and memory.
    pub core: Core,
    /// The decoded code of the space that ran last.
    code: Code,
    /// The stamp of that space.
    stamp: u64,
    /// The decoded code of other spaces, by stamp.
    resting: HashMap<u64, Code>,
    /// What of it spaces share.
    library: Library,
    executed: u64,
    /// The time in which nothing was executed, in instructions.
    idle: u64,
    /// The instruction of the system at which the machine stopped last.
    stopped_at: Executed,
}

/// The earlier state of a machine. While it is held, memory that changes is saved.
#[derive(Debug)]
pub struct Snapshot {
    state: State,
    memory: address_space::Snapshot,
    executed: u64,
    idle: u64,
}

impl Snapshot {
    /// The number of instructions executed before the snapshot.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// What of the memory of `machine` has changed since this snapshot, the newest one.
    pub(crate) fn difference(
        &self,
        machine: &mut Machine,
    ) -> Result<address_space::Difference, RestoreError> {
        machine.core.memory.difference(&self.memory)
    }
}

/// How a block was left.
enum BlockExit {
    /// At its end (0), or by a jump (1).
    By(usize),
    /// By an operation that stopped.
    Stopped { op: usize },
}

impl Machine {
    /// A machine with these registers and this memory.
    pub fn new(core: Core) -> Machine {
        Machine {
            stamp: core.memory.code_stamp(),
            core,
            code: Code::new(Kind::Joined),
            resting: HashMap::new(),
            library: Library::new(),
            executed: 0,
            idle: 0,
            stopped_at: Executed::default(),
        }
    }

    /// A machine with empty memory and all registers zero.
    pub fn empty() -> Machine {
        Machine::new(Core::new(AddressSpace::default()))
    }

    /// Instructions executed so far. A repeated string instruction counts once; if
    /// [`State::single_iteration`] is set, each iteration counts.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Heap bytes of decoded code.
    pub fn code_bytes(&self) -> usize {
        let resting = self.resting.values().map(Code::bytes);
        self.code.bytes() + resting.sum::<usize>() + self.library.bytes()
    }

    /// Takes a snapshot: copies registers now, and pages when they are written.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            state: self.core.state.clone(),
            memory: self.core.memory.snapshot(),
            executed: self.executed,
            idle: self.idle,
        }
    }

    /// Restores the machine to a snapshot. This snapshot and older ones stay valid; newer ones can
    /// no longer be restored.
    ///
    /// # Errors
    /// If the snapshot cannot be restored; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.core.memory.restore(&snapshot.memory)?;
        self.set_state(&snapshot.state, snapshot.executed);
        self.idle = snapshot.idle;
        Ok(())
    }

    /// How long the processor waited.
    pub(crate) fn idle(&self) -> u64 {
        self.idle
    }

    /// Sets how long the processor waited.
    pub(crate) fn set_idle(&mut self, idle: u64) {
        self.idle = idle;
    }

    /// Sets the registers and the number of executed instructions.
    pub(crate) fn set_state(&mut self, state: &State, executed: u64) {
        self.core.state = state.clone();
        self.core.stop = Stop::None;
        self.executed = executed;
    }

    /// The time: the number of executed instructions, and how long the processor waited.
    pub(crate) fn now(&self) -> u64 {
        self.executed + self.idle
    }

    /// Lets time go by.
    pub(crate) fn wait(&mut self, time: u64) {
        self.idle += time;
    }

    /// Sets what control registers forbid. Code that was decoded under others is forgotten.
    pub(crate) fn set_gates(&mut self, gates: Gates) {
        if self.core.processor.gates() != gates {
            self.core.processor.set_gates(gates);
            self.code.forget_all(&mut self.core.memory);
        }
    }

    /// Counts an instruction that was executed elsewhere.
    pub(crate) fn count(&mut self) {
        self.executed += 1;
    }

    /// Executes at most `limit` instructions.
    pub fn run<O: Observer>(&mut self, limit: u64, observer: &mut O) -> Exit {
        // An observer can see every instruction.
        let kind = if O::WANTED { Kind::Both } else { Kind::Joined };
        self.run_in::<O, false>(limit, kind, observer)
    }

    /// Executes at most `limit` instructions in system mode: code is where the page tables say.
    /// `is_observed`: some of the code is, if not with this observer.
    pub(crate) fn run_system<O: Observer>(
        &mut self,
        limit: u64,
        is_observed: bool,
        observer: &mut O,
    ) -> Exit {
        let kind = if is_observed {
            Kind::Both
        } else {
            Kind::Joined
        };
        self.run_in::<O, true>(limit, kind, observer)
    }

    /// The instruction of the system at which the machine stopped last. An observer that was told that
    /// it starts has to be told when it was executed.
    pub(crate) fn stopped_at(&self) -> Executed {
        self.stopped_at
    }

    #[inline(always)]
    fn run_in<O: Observer, const SYSTEM: bool>(
        &mut self,
        limit: u64,
        kind: Kind,
        observer: &mut O,
    ) -> Exit {
        let mut left = limit;
        self.follow_space();
        self.forget_changes();

        self.code.set_kind(kind, &mut self.core.memory);

        // The block to run, and the block and exit that led here, to be linked to it.
        let mut id = NONE;
        let mut from = (NONE, 0);
        loop {
            if left == 0 {
                return Exit::Limit;
            }

            if id == NONE {
                let generation = self.code.generation;
                let rip = self.core.state.rip;
                let (memory, processor) = (&mut self.core.memory, &self.core.processor);
                let library = &mut self.library;
                id = if SYSTEM {
                    match self.code.find_paged(memory, rip, processor, library) {
                        Ok(id) => id,
                        Err(fault) => return Exit::Exception(Exception::Memory(fault)),
                    }
                } else {
                    self.code.find(memory, rip, processor, library)
                };
                // The block that led here may have been thrown away with all others.
                if from.0 != NONE && generation == self.code.generation {
                    self.code.blocks[from.0 as usize].next[from.1] = id;
                }
            }

            let block = &self.code.blocks[id as usize];

            // A block runs as a whole, so the limit can only fall between blocks.
            if u64::from(block.count) > left {
                return self.step_to(left, observer);
            }

            if O::STOPS && observer.stops(block.start..block.end) {
                self.core.state.rip = block.start;
                return Exit::Limit;
            }

            // Only a system waits.
            self.core.time = self.executed + if SYSTEM { self.idle } else { 0 };
            let mut wanted = 0;
            if O::WANTED {
                let generation = self.code.generation;
                let id = BlockId {
                    number: id,
                    generation,
                };
                self.core.state.rip = block.start;
                wanted = observer.enter(&self.core, Some(id), block.ops.len(), block.end);
            }

            match run_block(&mut self.core, block, wanted, observer) {
                BlockExit::By(way) => {
                    left -= u64::from(block.count);
                    self.executed += u64::from(block.count);
                    from = (id, way);
                    id = block.next[way];
                    // Another block, or none, may be there by now.
                    if let Some(next) = self.code.blocks.get(id as usize)
                        && next.start == self.core.state.rip
                        && (!SYSTEM || self.code.is_current(id, &self.core.memory))
                    {
                        continue;
                    }
                    id = NONE;
                }
                BlockExit::Stopped { op } => {
                    let done = block.ops[..op].iter().map(Op::instructions).sum::<u64>();
                    left -= done;
                    self.executed += done;

                    let insn = executed(block, op);
                    (id, from) = (NONE, (NONE, 0));
                    match self.stopped(&insn, observer) {
                        Ok(executed) => left -= executed,
                        Err((executed, exit)) => {
                            self.executed += executed;
                            return exit;
                        }
                    }
                }
            }
        }
    }

    /// Executes the last few instructions one at a time.
    #[cold]
    fn step_to<O: Observer>(&mut self, limit: u64, observer: &mut O) -> Exit {
        for _ in 0..limit {
            let rip = self.core.state.rip;
            if O::STOPS && observer.stops(rip..rip.saturating_add(1)) {
                return Exit::Limit;
            }
            if let Some(exit) = self.step(observer) {
                return exit;
            }
        }
        Exit::Limit
    }

    /// Executes one instruction.
    fn step<O: Observer>(&mut self, observer: &mut O) -> Option<Exit> {
        // A block of one instruction, which is not kept.
        let block = code::decode(
            &self.core.memory,
            self.core.state.rip,
            1,
            &self.core.processor,
            Kind::Single,
        );

        self.core.time = self.executed + self.idle;
        let mut wanted = 0;
        if O::WANTED {
            wanted = observer.enter(&self.core, None, block.ops.len(), block.end);
        }

        match run_block(&mut self.core, &block, wanted, observer) {
            BlockExit::By(_) => {
                self.executed += 1;

                // Blocks of code that it stored to must not run again.
                self.forget_changes();
                None
            }
            BlockExit::Stopped { op } => match self.stopped(&executed(&block, op), observer) {
                Ok(_) => None,
                Err((executed, exit)) => {
                    self.executed += executed;
                    Some(exit)
                }
            },
        }
    }

    /// Handles an operation that stopped. Returns the number of instructions executed, already
    /// counted, if the machine can go on. Otherwise returns the reason, and 1 if the instruction
    /// was executed.
    #[cold]
    fn stopped<O: Observer>(
        &mut self,
        insn: &Executed,
        observer: &mut O,
    ) -> Result<u64, (u64, Exit)> {
        let rip = insn.rip;
        self.core.state.rip = rip;

        // A store into decoded code: the instruction runs alone, decoded again, with the page
        // writable.
        let mut why = self.core.take_stop();
        if let Stop::Code(range) = why {
            self.code.forget(&range);
            self.core.memory.set_code_writable(true);
            // Not kept, because its page is being written.
            let processor = self.core.processor;
            let block = code::decode(&self.core.memory, rip, 1, &processor, Kind::Single);
            let left = run_block(
                &mut self.core,
                &block,
                0,
                &mut StartReported(observer, *insn),
            );
            self.core.memory.set_code_writable(false);
            self.forget_changes();

            if let BlockExit::By(_) = left {
                self.executed += 1;
                return Ok(1);
            }

            self.core.state.rip = rip;
            why = self.core.take_stop();
        }

        match why {
            Stop::None | Stop::Unsupported | Stop::Code(_) => Err((0, Exit::Unsupported)),
            Stop::System => {
                self.stopped_at = *insn;
                Err((0, Exit::System))
            }
            Stop::Device => self.access_device(insn, observer),
            Stop::Exception(exception) if exception.is_trap() => {
                Err(self.behind(insn, observer, Exit::Exception(exception)))
            }
            Stop::Exception(exception) => Err((0, Exit::Exception(exception))),
            Stop::Kernel(call) => Err(self.behind(insn, observer, Exit::Kernel(call))),
            Stop::Halt => Err(self.behind(insn, observer, Exit::Halt)),
            // Whoever runs the machine has to step from here on.
            Stop::Trap => Err(self.behind(insn, observer, Exit::Limit)),
            // The first of its instructions. The others are a block by themselves.
            Stop::Apart => match self.step(observer) {
                None => Ok(1),
                Some(exit) => Err((0, exit)),
            },
            Stop::Again => {
                self.executed += 1;
                if O::WANTED {
                    observer.after(&self.core, insn, rip);
                }
                Ok(1)
            }
        }
    }

    /// Executes an instruction that accesses a device. What the device does next may be something else
    /// than before, so the run ends.
    #[cold]
    fn access_device<O: Observer>(
        &mut self,
        insn: &Executed,
        observer: &mut O,
    ) -> Result<u64, (u64, Exit)> {
        let now = self.now();
        let processor = self.core.processor;
        let block = code::decode(&self.core.memory, insn.rip, 1, &processor, Kind::Single);
        self.core.memory.set_devices_open(Some(now));
        let mut observer = StartReported(observer, *insn);
        let left = run_block(&mut self.core, &block, 0, &mut observer);
        self.core.memory.set_devices_open(None);
        if let BlockExit::By(_) = left {
            return Err((1, Exit::Limit));
        }
        self.core.state.rip = insn.rip;
        match self.core.take_stop() {
            Stop::Exception(exception) => Err((0, Exit::Exception(exception))),
            // Each iteration of a repeated instruction is an access of its own.
            Stop::Again => Err((1, Exit::Limit)),
            _ => Err((0, Exit::Unsupported)),
        }
    }

    /// Leaves after an instruction that was executed.
    fn behind<O: Observer>(
        &mut self,
        insn: &Executed,
        observer: &mut O,
        exit: Exit,
    ) -> (u64, Exit) {
        let next = insn.rip.wrapping_add(insn.len.into());
        self.core.state.rip = next;
        if O::WANTED {
            observer.after(&self.core, insn, next);
        }
        (1, exit)
    }

    /// Uses the decoded code of the space that runs now.
    fn follow_space(&mut self) {
        let stamp = self.core.memory.code_stamp();
        if stamp != self.stamp {
            // The empty space in which a program starts is none that another one could have code from.
            if !self.code.is_empty() {
                self.library.begin();
            }
            let code = self
                .resting
                .remove(&stamp)
                .unwrap_or_else(|| Code::new(Kind::Joined));
            let before = std::mem::replace(&mut self.code, code);
            self.resting.insert(self.stamp, before);
            self.stamp = stamp;
            let stamps: HashSet<u64> = self.core.memory.code_stamps().collect();
            self.resting.retain(|stamp, _| stamps.contains(stamp));
        }
    }

    /// Forgets decoded code that has changed.
    fn forget_changes(&mut self) {
        if self.core.memory.has_code_changes() {
            for range in self.core.memory.take_code_changes() {
                self.code.forget(&range);
            }
        }
    }
}

/// An observer that has already seen the instruction start.
struct StartReported<'a, O>(&'a mut O, Executed);

impl<O: Observer> Observer for StartReported<'_, O> {
    const WANTED: bool = O::WANTED;

    fn before(&mut self, _: &Core, _: &Executed) {}

    fn after(&mut self, core: &Core, _: &Executed, next: u64) {
        self.0.after(core, &self.1, next);
    }
}

/// Executes a block. The observer is called first before the operation with index `wanted`.
#[inline(always)]
fn run_block<O: Observer>(
    core: &mut Core,
    block: &Block,
    wanted: usize,
    observer: &mut O,
) -> BlockExit {
    core.state.rip = block.start;

    let mut index = 0;
    let mut wanted = wanted.min(block.ops.len());
    // As long as the observer wants to see something.
    while O::WANTED && index < block.ops.len() {
        // What it does not want to see runs without calls. A store to what it guards is seen all the
        // same.
        let mut is_guarded = false;
        if index < wanted {
            let (op, flow) = run_quietly(core, block, index..wanted, observer);
            match flow {
                Flow::Next => index = op,
                Flow::Jump => return BlockExit::By(1),
                Flow::Stop if core.memory.take_guarded() => (index, is_guarded) = (op, true),
                Flow::Stop => return BlockExit::Stopped { op },
            }
            if index == block.ops.len() {
                break;
            }
        }

        let insn = executed(block, index);
        let end = insn.index as usize + 1;
        if is_guarded {
            observer.guarded(core, &insn);
        } else {
            observer.before(core, &insn);
        }

        wanted = observer.next_wanted(&insn).min(block.ops.len());

        // It was seen, so it may store anywhere.
        let (done, flow) = run_ops(core, &block.ops[index..end]);
        let op = index + done;
        let is_counted = wanted >= end;
        match flow {
            Flow::Stop if is_counted => tell_stopped(block, op..wanted, observer),
            Flow::Stop => {}
            _ if is_counted => {}
            // It wants to see that it was executed.
            Flow::Jump => observer.after(core, &insn, core.state.rip),
            Flow::Next => observer.after(core, &insn, insn.rip.wrapping_add(insn.len.into())),
        }

        match flow {
            Flow::Next => index = op,
            Flow::Jump => return BlockExit::By(1),
            Flow::Stop => return BlockExit::Stopped { op },
        }
    }

    // Nobody watches, or all has been executed.
    match run_ops(core, &block.ops[index..]) {
        (_, Flow::Next) => {
            core.state.rip = block.end;
            BlockExit::By(0)
        }
        (_, Flow::Jump) => BlockExit::By(1),
        (op, Flow::Stop) => BlockExit::Stopped { op: index + op },
    }
}

/// Executes operations of a block that the observer has already counted, up to one that does not go on
/// to the next one. Returns its index, or the end.
#[inline(always)]
fn run_quietly<O: Observer>(
    core: &mut Core,
    block: &Block,
    range: Range<usize>,
    observer: &mut O,
) -> (usize, Flow) {
    core.memory.set_guard(observer.guard());
    let mut start = range.start;
    let mut done = None;
    if let Some(joined) = block.joined(&range) {
        let (count, flow) = run_ops(core, joined);
        if flow == Flow::Stop {
            // It has done nothing that executing it again changes. Which of its instructions stops
            // is found by executing them one by one.
            core.take_stop();
            start = block.single(&range, count);
        } else {
            done = Some((range.end, flow));
        }
    }
    let (op, flow) = done.unwrap_or_else(|| {
        let (count, flow) = run_ops(core, &block.ops[start..range.end]);
        (start + count, flow)
    });
    core.memory.set_guard(Guard::NONE);

    if flow == Flow::Stop {
        tell_stopped(block, op..range.end, observer);
    }
    (op, flow)
}

/// The observer has counted these operations, but the first of them stopped.
#[cold]
fn tell_stopped<O: Observer>(block: &Block, left: Range<usize>, observer: &mut O) {
    let op = left.start;
    let count = block.ops[left].iter().map(Op::instructions).sum();
    observer.stopped(&executed(block, op), count);
}

/// Executes operations up to one that does not go on to the next one. Returns its index, or their
/// number.
#[inline(always)]
fn run_ops(core: &mut Core, ops: &[Op]) -> (usize, Flow) {
    for (done, op) in ops.iter().enumerate() {
        match (op.run)(core, op) {
            Flow::Next => {}
            flow => return (done, flow),
        }
    }
    (ops.len(), Flow::Next)
}

/// The instruction that contains operation `index`.
#[inline(always)]
fn executed(block: &Block, index: usize) -> Executed {
    let op = &block.ops[index];
    let (index, len) = match (op.len, block.ops.get(index + 1)) {
        (0, Some(last)) => (index + 1, last.len),
        (len, _) => (index, len),
    };
    Executed {
        rip: block.start.wrapping_add(op.offset.into()),
        len,
        index: index as u32,
    }
}

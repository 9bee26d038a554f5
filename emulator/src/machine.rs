//! The machine: finds blocks and runs them. Not here: what the kernel does when it is asked.

use crate::address_space::{self, AddressSpace, RestoreError};
use crate::code::{self, Block, Code, NONE};
use crate::op::Flow;
use crate::state::{Registers, State};
use crate::stop::{Call, Exception, Stop};

/// A block of decoded instructions. The same number means the same instructions at the same
/// addresses for as long as the generation is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockId {
    /// Counted from 0 within a generation.
    pub number: u32,
    /// Counts up when all blocks are forgotten.
    pub generation: u64,
}

/// An instruction that is executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Executed {
    /// Its address.
    pub rip: u64,
    /// Bytes.
    pub len: u8,
    /// Which operation of its block it ends with: grows from instruction to instruction, not
    /// always by one.
    pub index: u32,
}

/// Is told of every instruction. One that is not wanted costs nothing.
pub trait Observer {
    /// Is it wanted at all?
    const WANTED: bool = true;

    /// A block of these operations begins; `None` if it is one instruction by itself.
    #[inline(always)]
    fn enter(&mut self, state: &State, block: Option<BlockId>, operations: usize) {
        let _ = (state, block, operations);
    }

    /// The instruction is next.
    fn before(&mut self, state: &State, insn: &Executed);

    /// It is done, and the next one is at `next`.
    fn after(&mut self, state: &State, insn: &Executed, next: u64);
}

/// Wants to know nothing.
impl Observer for () {
    const WANTED: bool = false;

    #[inline(always)]
    fn before(&mut self, _: &State, _: &Executed) {}

    #[inline(always)]
    fn after(&mut self, _: &State, _: &Executed, _: u64) {}
}

/// Why [`Machine::run`] came back. `rip` is the next instruction; for what the processor raised
/// as a fault, the one that did it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// As many instructions as asked for were executed.
    Limit,
    /// The processor raised something.
    Exception(Exception),
    /// The program asked the kernel.
    Kernel(Call),
    /// `hlt`; rip is behind it.
    Halt,
    /// The instruction at rip is not modelled.
    Unsupported,
}

/// A thread's state and the code that was decoded of its memory.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Registers and memory.
    pub state: State,
    code: Code,
    executed: u64,
}

/// A machine as it was. While it is held, memory that changes is kept as it was then.
#[derive(Debug)]
pub struct Snapshot {
    registers: Registers,
    memory: address_space::Snapshot,
    executed: u64,
}

impl Snapshot {
    /// Instructions that were executed by then.
    pub fn executed(&self) -> u64 {
        self.executed
    }
}

/// How a block was left.
enum Left {
    /// Behind its last instruction, or by a jump.
    By(usize),
    /// By this operation.
    Stopped { op: usize },
}

impl Machine {
    /// A machine that starts with this state.
    pub fn new(state: State) -> Machine {
        Machine {
            state,
            code: Code::new(),
            executed: 0,
        }
    }

    /// Over an empty memory, all registers zero.
    pub fn empty() -> Machine {
        Machine::new(State::new(AddressSpace::default()))
    }

    /// Instructions executed so far. A repeated string instruction is one, unless
    /// [`State::single_iteration`] is set: then each iteration is.
    pub fn executed(&self) -> u64 {
        self.executed
    }

    /// Heap bytes that decoded code takes.
    pub fn code_bytes(&self) -> usize {
        self.code.bytes()
    }

    /// Remembers the state: its registers are copied, its pages when they are written.
    pub fn snapshot(&mut self) -> Snapshot {
        Snapshot {
            registers: self.state.registers(),
            memory: self.state.memory.snapshot(),
            executed: self.executed,
        }
    }

    /// Makes the machine what it was. The snapshot stays, and so do older ones; there is no way
    /// to newer ones any more.
    ///
    /// # Errors
    /// If there is no way back; nothing has changed then.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), RestoreError> {
        self.state.memory.restore(&snapshot.memory)?;
        self.state.set_registers(&snapshot.registers);
        self.executed = snapshot.executed;
        Ok(())
    }

    /// Executes at most `limit` instructions.
    pub fn run<O: Observer>(&mut self, limit: u64, observer: &mut O) -> Exit {
        let mut left = limit;
        self.forget_changes();
        let mut id = NONE;
        let mut from = (NONE, 0);
        loop {
            if left == 0 {
                return Exit::Limit;
            }
            if id == NONE {
                let generation = self.code.generation;
                let processor = self.state.processor;
                id = self
                    .code
                    .find(&mut self.state.memory, self.state.rip, &processor);
                if from.0 != NONE && generation == self.code.generation {
                    self.code.blocks[from.0 as usize].next[from.1] = id;
                }
            }
            let block = &self.code.blocks[id as usize];
            if u64::from(block.count) > left {
                return self.step_to(left, observer);
            }
            self.state.time = self.executed;
            if O::WANTED {
                let generation = self.code.generation;
                let id = BlockId {
                    number: id,
                    generation,
                };
                self.state.rip = block.start;
                observer.enter(&self.state, Some(id), block.ops.len());
            }
            match run_block(&mut self.state, block, observer) {
                Left::By(way) => {
                    left -= u64::from(block.count);
                    self.executed += u64::from(block.count);
                    from = (id, way);
                    id = block.next[way];
                    // What lies there now may be another block, or none.
                    if let Some(next) = self.code.blocks.get(id as usize)
                        && next.start == self.state.rip
                    {
                        continue;
                    }
                    id = NONE;
                }
                Left::Stopped { op } => {
                    let done = block.ops[..op].iter().filter(|op| op.len != 0).count() as u64;
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

    /// Executes the last few instructions one by one.
    #[cold]
    fn step_to<O: Observer>(&mut self, limit: u64, observer: &mut O) -> Exit {
        for _ in 0..limit {
            if let Some(exit) = self.step(observer) {
                return exit;
            }
        }
        Exit::Limit
    }

    /// Executes one instruction.
    fn step<O: Observer>(&mut self, observer: &mut O) -> Option<Exit> {
        let block = code::decode(&self.state.memory, self.state.rip, 1, &self.state.processor);
        self.state.time = self.executed;
        if O::WANTED {
            observer.enter(&self.state, None, block.ops.len());
        }
        match run_block(&mut self.state, &block, observer) {
            Left::By(_) => {
                self.executed += 1;
                self.forget_changes();
                None
            }
            Left::Stopped { op } => match self.stopped(&executed(&block, op), observer) {
                Ok(_) => None,
                Err((executed, exit)) => {
                    self.executed += executed;
                    Some(exit)
                }
            },
        }
    }

    /// After an operation of a block stopped. Gives how many instructions were executed by that,
    /// counted already, if it can go on; else why not, and whether the instruction is done.
    #[cold]
    fn stopped<O: Observer>(
        &mut self,
        insn: &Executed,
        observer: &mut O,
    ) -> Result<u64, (u64, Exit)> {
        let rip = insn.rip;
        self.state.rip = rip;
        let mut why = self.state.take_stop();
        if let Stop::Code(range) = why {
            self.code.forget(&range);
            self.state.memory.set_code_writable(true);
            let block = code::decode(&self.state.memory, rip, 1, &self.state.processor);
            let left = run_block(&mut self.state, &block, &mut Repeated(observer, *insn));
            self.state.memory.set_code_writable(false);
            self.forget_changes();
            if let Left::By(_) = left {
                self.executed += 1;
                return Ok(1);
            }
            self.state.rip = rip;
            why = self.state.take_stop();
        }
        match why {
            Stop::None | Stop::Unsupported | Stop::Code(_) => Err((0, Exit::Unsupported)),
            Stop::Exception(exception) if exception.is_trap() => {
                Err(self.behind(insn, observer, Exit::Exception(exception)))
            }
            Stop::Exception(exception) => Err((0, Exit::Exception(exception))),
            Stop::Kernel(call) => Err(self.behind(insn, observer, Exit::Kernel(call))),
            Stop::Halt => Err(self.behind(insn, observer, Exit::Halt)),
            Stop::Again => {
                self.executed += 1;
                if O::WANTED {
                    observer.after(&self.state, insn, rip);
                }
                Ok(1)
            }
        }
    }

    /// Leaves with an instruction that is done.
    fn behind<O: Observer>(
        &mut self,
        insn: &Executed,
        observer: &mut O,
        exit: Exit,
    ) -> (u64, Exit) {
        let next = insn.rip.wrapping_add(insn.len.into());
        self.state.rip = next;
        if O::WANTED {
            observer.after(&self.state, insn, next);
        }
        (1, exit)
    }

    /// Forgets decoded code that was changed.
    fn forget_changes(&mut self) {
        if self.state.memory.has_code_changes() {
            for range in self.state.memory.take_code_changes() {
                self.code.forget(&range);
            }
        }
    }
}

/// An observer that was already told that the instruction is next.
struct Repeated<'a, O>(&'a mut O, Executed);

impl<O: Observer> Observer for Repeated<'_, O> {
    const WANTED: bool = O::WANTED;

    fn before(&mut self, _: &State, _: &Executed) {}

    fn after(&mut self, state: &State, _: &Executed, next: u64) {
        self.0.after(state, &self.1, next);
    }
}

#[inline(always)]
fn run_block<O: Observer>(state: &mut State, block: &Block, observer: &mut O) -> Left {
    state.rip = block.start;
    let mut begun = false;
    for (index, op) in block.ops.iter().enumerate() {
        if O::WANTED && !begun {
            observer.before(state, &executed(block, index));
            begun = op.len == 0;
        }
        match (op.run)(state, op) {
            Flow::Next => {
                if O::WANTED && op.len != 0 {
                    begun = false;
                    let insn = executed(block, index);
                    observer.after(state, &insn, insn.rip.wrapping_add(op.len.into()));
                }
            }
            Flow::Jump => {
                if O::WANTED {
                    observer.after(state, &executed(block, index), state.rip);
                }
                return Left::By(1);
            }
            Flow::Stop => return Left::Stopped { op: index },
        }
    }
    state.rip = block.end;
    Left::By(0)
}

/// The instruction that operation `index` belongs to.
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

//! What an observer of the machine is told, and what it can ask for.

use crate::address_space::Guard;
use crate::core::Core;
use std::ops::Range;

/// A block of decoded instructions. Within a generation, a number always stands for the same
/// instructions at the same addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockId {
    /// The number, counted from 0 in each generation.
    pub number: u32,
    /// Increased when all blocks are forgotten.
    pub generation: u64,
}

/// An executed instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Executed {
    /// The address.
    pub rip: u64,
    /// The length, bytes.
    pub len: u8,
    /// The index of its last operation in the block: increases from instruction to instruction, not
    /// always by one.
    pub index: u32,
}

/// Observes every instruction. An observer that is not wanted costs nothing.
pub trait Observer {
    /// Whether the observer is called at all.
    const WANTED: bool = true;
    /// Whether [`Observer::stops`] is asked.
    const STOPS: bool = false;

    /// Asked before code of this range is executed: whether the machine returns instead, as if it had
    /// reached its limit.
    #[inline(always)]
    fn stops(&mut self, code: Range<u64>) -> bool {
        let _ = code;
        false
    }

    /// Whether the last answer of [`Observer::stops`] was that it does. A system also asks after it has told
    /// a [`SystemObserver`](crate::system::SystemObserver) something.
    #[inline(always)]
    fn has_stopped(&self) -> bool {
        false
    }

    /// A block with this number of operations, from rip to `end`, starts; `None` for a single
    /// instruction. Returns the index of the operation before which the observer wants to be called
    /// first, like [`Observer::next_wanted`].
    #[inline(always)]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        let _ = (core, block, operations, end);
        0
    }

    /// The instruction is about to be executed.
    fn before(&mut self, core: &Core, insn: &Executed);

    /// The instruction was executed; the next one is at `next`.
    fn after(&mut self, core: &Core, insn: &Executed, next: u64);

    /// Asked after [`Observer::before`]: the index of the operation before which the observer wants
    /// to be called again, or the number of operations in the block. What is before it is executed
    /// at the speed of no observer. An index that is not behind `insn` asks for all calls.
    #[inline(always)]
    fn next_wanted(&mut self, insn: &Executed) -> usize {
        let _ = insn;
        0
    }

    /// Asked before instructions are executed without calls: where none of them may store.
    #[inline(always)]
    fn guard(&self) -> Guard {
        Guard::NONE
    }

    /// An instruction that would be executed without calls is about to store to what is
    /// [guarded](Observer::guard). It was [counted](Observer::stopped) as not executed; it will be now,
    /// and the observer is asked what it wants to see as after [`Observer::before`].
    fn guarded(&mut self, core: &Core, insn: &Executed) {
        self.before(core, insn);
    }

    /// Of the instructions that were executed without calls, the last `left` were not executed:
    /// `insn`, which stopped, and those after it.
    fn stopped(&mut self, insn: &Executed, left: u64) {
        let _ = (insn, left);
    }
}

/// Observes nothing.
impl Observer for () {
    const WANTED: bool = false;

    #[inline(always)]
    fn before(&mut self, _: &Core, _: &Executed) {}

    #[inline(always)]
    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

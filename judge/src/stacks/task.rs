//! Who a stack belongs to, and the stack as a profile takes it.

use std::sync::Arc;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::reason::Code;

/// A thread at one moment.
#[derive(Clone, Debug)]
pub struct Task {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The thread's name; `:TID` where it is not known.
    pub name: Arc<str>,
    /// What the process has mapped.
    pub space: Arc<AddressSpace>,
}

/// An unwound stack.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// Whose.
    pub task: &'a Task,
    /// Nanoseconds of the recording's clock.
    pub time: u64,
    /// The pcs, innermost first.
    pub pcs: &'a [u64],
    /// Indexes of those that are the address of an instruction, ascending; all others are return
    /// addresses.
    pub exact: &'a [u32],
    /// Why the walk ended.
    pub end: Code,
}

impl Taken<'_> {
    /// The address to name the function of frame `at` by: inside the call for a return address.
    #[inline]
    pub fn lookup(&self, at: usize) -> u64 {
        let exact = match self.exact {
            [] => false,
            [0] => at == 0,
            several => several.contains(&(at as u32)),
        };
        let pc = self.pcs[at];
        if exact { pc } else { pc.wrapping_sub(1) }
    }
}

/// Takes stacks; one for each thread.
pub trait Consumer {
    /// What follows, up to the next call, belongs to the part of this number of the recording.
    /// Parts are numbered in the order of time; one consumer gets them in ascending order.
    fn part(&mut self, number: u64) {
        let _ = number;
    }

    /// A stack; within a part in the order of time.
    fn stack(&mut self, taken: &Taken<'_>);
}

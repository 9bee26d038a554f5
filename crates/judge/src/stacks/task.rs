//! The thread that a stack belongs to, and the stack as passed to a consumer.

use std::sync::Arc;
use unwind_sim_perf_data::KernelCode;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::reason::Code;

/// A thread at one point in time.
#[derive(Clone, Debug)]
pub struct Task {
    /// The process id.
    pub pid: u32,
    /// The thread id.
    pub tid: u32,
    /// The thread's name; `:TID` if not known.
    pub name: Arc<str>,
    /// The process's address space.
    pub space: Arc<AddressSpace>,
    /// The kernel's code.
    pub kernel: Arc<KernelCode>,
}

/// What a sample of a perf.data counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// The index of its event among the file's attributes.
    pub event: u32,
    /// What the event counted since its last sample; of a clock, nanoseconds. 0 if not known.
    pub period: u64,
}

/// An unwound stack.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// The thread.
    pub task: &'a Task,
    /// The time in nanoseconds of the recording's clock.
    pub time: u64,
    /// What the sample counts; `None` if the recording does not say.
    pub counted: Option<Counted>,
    /// The kernel's part of the chain that perf recorded, innermost first. No unwinder here walks
    /// it. The first is an address of an instruction, the others are return addresses.
    pub kernel: &'a [u64],
    /// The pcs, innermost first.
    pub pcs: &'a [u64],
    /// The indices of the pcs that are addresses of instructions, ascending. All others are return
    /// addresses.
    pub exact: &'a [u32],
    /// Why the walk ended.
    pub end: Code,
}

impl Taken<'_> {
    /// The address to look up the function of frame `at` by: for a return address, one inside the
    /// call.
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

    /// The same for frame `at` of the kernel's part.
    #[inline]
    pub fn kernel_lookup(&self, at: usize) -> u64 {
        self.kernel[at].wrapping_sub(u64::from(at != 0))
    }
}

/// Receives stacks. Each thread has one.
pub trait Consumer {
    /// Starts a part of the recording: the stacks up to the next call belong to it. Parts are
    /// numbered in the order of time, and a consumer gets them in ascending order.
    fn part(&mut self, number: u64) {
        let _ = number;
    }

    /// Receives a stack. Within a part, stacks come in the order of time.
    fn stack(&mut self, taken: &Taken<'_>);
}

//! What a recording holds: events and samples, in the order of time, whatever file they are in.

use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_unwind::kernel::{StackType, State, Task, UserBoundary, UserSpace, is_user_cs};
use unwind_sim_unwind::lbr::BranchStack;
use unwind_sim_unwind::memory::{Memory as _, MemoryCopy, Regions};
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, offset_of};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// The number of an image in its recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageIndex(pub u32);

/// What a piece of memory is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RegionRole {
    /// The stack that rsp points into.
    Stack = 0,
    /// Another stack that the chain continues on.
    OtherStack = 1,
    /// Data that a rule loads from.
    Data = 2,
    /// Memory of user space, below a kernel's stack.
    User = 3,
}

/// A piece of recorded memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region<'a> {
    /// What it is.
    pub role: RegionRole,
    /// Bounds of the stack that it is a part of; empty if unknown.
    pub bounds: Range<u64>,
    /// Where the chain continues when this stack ends (kernel stacks); 0 if nowhere.
    pub next_sp: u64,
    /// Address of the first byte; may lie below rsp.
    pub address: u64,
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// A chain that somebody else found: perf, gdb. A recording, not an unwinder: it is shown beside
/// them, and never judged as ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedChain {
    /// Who found it: `perf`.
    pub source: String,
    /// As recorded, innermost first, context markers included.
    pub ips: Vec<u64>,
}

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample<'a> {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Nanoseconds since an origin of the recording's own; for single-stepped programs, the
    /// number of instructions executed.
    pub time: u64,
    /// Register sets by role.
    pub regs: SampleRegs,
    /// Memory, the sampled stack first.
    pub regions: Vec<Region<'a>>,
    /// The true chain, as far as it is known.
    pub truth: Truth,
    /// Chains of others.
    pub recorded: Vec<RecordedChain>,
    /// What the processor's ring of branch records held, in call-stack mode; for rings of several
    /// depths, if they were modelled.
    pub branches: Vec<BranchStack>,
    /// Of a kernel's stack: what its unwinders ask besides.
    pub kernel: Option<Box<KernelSample>>,
}

/// What a kernel's unwinders ask besides registers and memory, and what they said.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSample {
    /// The kernel's release, such as `6.1.0-50-cloud-amd64`; empty if it is not known.
    pub release: String,
    /// The task, with its stacks.
    pub task: Task,
    /// The states of the kernel's own unwinder, if somebody recorded them: `struct unwind_state`
    /// after each step.
    pub states: Vec<State>,
    /// The registers with which user space was left, if somebody saw that: the truth at the user
    /// boundary.
    pub boundary: Option<UserBoundary>,
    /// The task's user space; `None` if the recording does not say ([`Sample::user_space`] then
    /// looks on the stack).
    pub user: Option<UserSpace>,
}

impl Region<'_> {
    /// The same with bytes of its own.
    pub fn into_owned(self) -> Region<'static> {
        Region {
            role: self.role,
            bounds: self.bounds,
            next_sp: self.next_sp,
            address: self.address,
            bytes: Cow::Owned(self.bytes.into_owned()),
        }
    }
}

impl Sample<'_> {
    /// The same with memory of its own.
    pub fn into_owned(self) -> Sample<'static> {
        Sample {
            pid: self.pid,
            tid: self.tid,
            time: self.time,
            regs: self.regs,
            regions: self.regions.into_iter().map(Region::into_owned).collect(),
            truth: self.truth,
            recorded: self.recorded,
            branches: self.branches,
            kernel: self.kernel,
        }
    }

    /// The user space behind the sample: what the recording says of it, else what the registers at
    /// the top of the task's stack say (`task_pt_regs`). Of a sample in user mode it is its own.
    pub fn user_space(&self) -> Option<UserSpace> {
        let of_user = |regs: &&Regs| regs.get(Reg::Cs).is_some_and(is_user_cs);
        let live = self.regs.live();
        let own = UserSpace {
            regs: live.copied(),
            pid: self.pid,
            uprobe: None,
        };
        let Some(kernel) = &self.kernel else {
            return Some(own);
        };
        if live.as_ref().is_some_and(of_user) {
            let known = kernel.user.unwrap_or(own);
            return Some(UserSpace {
                regs: own.regs,
                ..known
            });
        }
        kernel.user.or_else(|| {
            let own = kernel.task.stacks.iter();
            let own = own.into_iter().find(|s| s.kind == StackType::Task)?;
            let top = own.end.checked_sub(kernel.task.top_padding)?;
            let at = top.checked_sub(PT_REGS_LEN)?;
            let memory = self.memory();
            let mut regs = Regs::UNKNOWN;
            for reg in Reg::ALL {
                regs.set(reg, memory.read_u64(at + offset_of(reg)).ok()?);
            }
            // Those of a kernel thread are zero: it has none.
            Some(UserSpace {
                regs: Some(regs).filter(|regs| of_user(&regs)),
                pid: self.tid,
                uprobe: None,
            })
        })
    }

    /// The memory, for a walk.
    pub fn memory(&self) -> Regions<'_> {
        Regions::new(
            self.regions
                .iter()
                .map(|r| MemoryCopy::new(r.address, &r.bytes))
                .collect(),
        )
    }
}

/// A change of the world between samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Executable memory appeared.
    Map {
        /// In this process.
        pid: u32,
        /// Addresses (avma).
        range: Range<u64>,
        /// avma - svma, modulo 2^64.
        bias: u64,
        /// The image, if the recording has it.
        image: Option<ImageIndex>,
        /// The path, or the kernel's name for the mapping.
        name: String,
    },
    /// Memory went away.
    Unmap {
        /// In this process.
        pid: u32,
        /// Addresses (avma).
        range: Range<u64>,
    },
    /// The process runs another program: everything was unmapped.
    Exec {
        /// The process.
        pid: u32,
    },
    /// A process or thread began.
    Fork {
        /// The new process; equal to the parent's for a thread.
        pid: u32,
        /// The new thread.
        tid: u32,
        /// The parent process, whose mappings a new process inherits.
        parent_pid: u32,
    },
    /// A process or thread ended.
    Exit {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
    },
    /// A thread got a name.
    Comm {
        /// The process.
        pid: u32,
        /// The thread.
        tid: u32,
        /// The name.
        name: String,
    },
}

/// What a recording consists of.
// Items are made and looked at one by one: a box for each sample would only cost time.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A change of the world.
    Event(Event),
    /// A sample.
    Sample(Sample<'a>),
}

impl Item<'_> {
    /// The same with memory of its own.
    pub fn into_owned(self) -> Item<'static> {
        match self {
            Item::Event(event) => Item::Event(event),
            Item::Sample(sample) => Item::Sample(sample.into_owned()),
        }
    }
}

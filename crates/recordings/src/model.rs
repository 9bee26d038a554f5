//! The contents of a recording of any format: events and samples, in time order.

use crate::crash::Crash;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_unwind::kernel::{
    CallchainOptions, StackType, State, Task, UnwinderKind, UserBoundary, UserSpace, UserWalk,
    is_user_cs,
};
use unwind_sim_unwind::lbr::BranchStack;
use unwind_sim_unwind::memory::{MappedMemory, Memory as _, MemoryCopy, Regions};
use unwind_sim_unwind::pt_regs::{PT_REGS_LEN, offset_of};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::Truth;

/// Index of an image in its recording.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ImageIndex(pub u32);

/// The role of a memory region.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum RegionRole {
    /// The stack that rsp points into.
    Stack = 0,
    /// Another stack that the chain continues on.
    OtherStack = 1,
    /// Data that an unwind rule loads.
    Data = 2,
    /// User-space memory of a task whose kernel stack was recorded.
    User = 3,
}

/// A region of recorded memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region<'a> {
    /// The region's role.
    pub role: RegionRole,
    /// Bounds of the whole stack that the region is part of; empty if unknown.
    pub bounds: Range<u64>,
    /// Stack pointer at which the chain continues when this stack ends (kernel stacks); 0 if none.
    pub next_sp: u64,
    /// Address of the first byte; may be below rsp.
    pub address: u64,
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
}

/// A chain that another tool found, such as perf or gdb. It belongs to the recording: it is shown
/// next to the unwinders' chains and never judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedChain {
    /// The tool, such as `perf`.
    pub source: String,
    /// The addresses as recorded, innermost first, with context markers.
    pub ips: Vec<u64>,
    /// What the kernel was asked for, if its `get_perf_callchain` made the chain and that is known.
    pub request: Option<CallchainRequest>,
}

/// The arguments with which the kernel's `get_perf_callchain` made a chain: those of an event
/// (`sample_max_stack`, `exclude_callchain_kernel`, `exclude_callchain_user`), or of a BPF helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallchainRequest {
    /// Whether there may be a kernel part.
    pub kernel: bool,
    /// Whether there may be a user part.
    pub user: bool,
    /// Whether markers are stored before the parts.
    pub add_mark: bool,
    /// Whether the event belongs to a task other than the running one.
    pub crosstask: bool,
    /// The maximum number of addresses; 0 for the kernel's limit (`kernel.perf_event_max_stack`).
    pub max_stack: u32,
    /// The cookie stored in place of a user part that is walked later (since 6.19).
    pub cookie: Option<u64>,
}

impl CallchainRequest {
    /// `options` with these arguments in place of its own.
    #[must_use]
    pub const fn apply(&self, options: CallchainOptions) -> CallchainOptions {
        CallchainOptions {
            max_stack: match self.max_stack {
                0 => options.max_stack,
                max => max,
            },
            kernel: self.kernel,
            user: match (self.user, self.cookie) {
                (false, _) => UserWalk::None,
                (true, None) => UserWalk::FramePointer,
                (true, Some(_)) => UserWalk::UnwindUser,
            },
            crosstask: self.crosstask,
            add_mark: self.add_mark,
            ..options
        }
    }
}

/// One sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample<'a> {
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Nanoseconds since an arbitrary origin; for single-stepped programs, the number of
    /// instructions executed.
    pub time: u64,
    /// Register sets by role.
    pub regs: SampleRegs,
    /// Memory regions, the sampled stack first.
    pub regions: Vec<Region<'a>>,
    /// The true chain, as far as known.
    pub truth: Truth,
    /// Chains found by other tools.
    pub recorded: Vec<RecordedChain>,
    /// Branch records of the processor's ring in call-stack mode; one entry for each modelled
    /// depth.
    pub branches: Vec<BranchStack>,
    /// Kernel state beyond registers and memory, for kernel stacks.
    pub kernel: Option<Box<KernelSample>>,
    /// The memory of the whole process, if the recording has it: a core. Reads fall back to it
    /// where no region has the bytes. A trace does not store it.
    pub process_memory: Option<ProcessMemory>,
}

/// What a core has of its process, shared by its samples. The memory is read in place.
#[derive(Clone, Debug)]
pub struct ProcessMemory {
    /// The memory.
    pub memory: Arc<MappedMemory>,
    /// The address ranges that were mapped, also those of which the core has nothing; sorted, without
    /// overlaps.
    pub mapped: Arc<[Range<u64>]>,
    /// Whether each part ends where its mapping does: the file was not cut.
    pub is_whole: bool,
    /// The thread that crashed, unless a tool wrote the core of a running program.
    pub crash: Option<Crash>,
}

impl ProcessMemory {
    /// Whether the core lists a mapping at `address`.
    pub fn is_mapped(&self, address: u64) -> bool {
        let at = self.mapped.partition_point(|range| range.end <= address);
        self.mapped
            .get(at)
            .is_some_and(|range| range.contains(&address))
    }
}

impl PartialEq for ProcessMemory {
    /// The same memory, not equal bytes.
    fn eq(&self, other: &ProcessMemory) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory)
    }
}

impl Eq for ProcessMemory {}

/// What kernel unwinders read besides registers and memory, and what they reported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelSample {
    /// The kernel's release, such as `6.1.0-50-cloud-amd64`; empty if unknown.
    pub release: String,
    /// The unwinder that the kernel was built with, if it is known otherwise than by its states.
    pub unwinder: Option<UnwinderKind>,
    /// The task, with its stacks.
    pub task: Task,
    /// States of the kernel's own unwinder, if recorded: `struct unwind_state` after each step.
    pub states: Vec<State>,
    /// The registers at the exit from user space, if observed: the truth at the user boundary.
    pub boundary: Option<UserBoundary>,
    /// The task's user space; `None` if not recorded ([`Sample::user_space`] then looks on the
    /// stack).
    pub user: Option<UserSpace>,
}

impl KernelSample {
    /// The unwinder that the kernel was built with, if it is known.
    pub fn kind(&self) -> Option<UnwinderKind> {
        self.unwinder
            .or_else(|| self.states.first().map(State::kind))
    }
}

impl Region<'_> {
    /// Converts borrowed bytes to owned ones.
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

impl Sample<'static> {
    /// A sample of process 1 with registers alone.
    pub fn of_regs(regs: SampleRegs) -> Sample<'static> {
        Sample {
            pid: 1,
            tid: 1,
            time: 0,
            regs,
            regions: Vec::new(),
            truth: Truth::Unknown,
            recorded: Vec::new(),
            branches: Vec::new(),
            kernel: None,
            process_memory: None,
        }
    }
}

impl Sample<'_> {
    /// Converts borrowed memory to owned memory.
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
            process_memory: self.process_memory,
        }
    }

    /// The user space behind the sample: as recorded, or else from the registers at the top of the
    /// task's stack (`task_pt_regs`). A sample in user mode has its own registers.
    pub fn user_space(&self) -> Option<UserSpace> {
        let of_user = |regs: &&Regs| regs.get(Reg::Cs).is_some_and(is_user_cs);
        let live = self.regs.live();
        let own = UserSpace {
            regs: live.copied(),
            pid: self.pid,
            ..UserSpace::default()
        };

        let Some(kernel) = &self.kernel else {
            return Some(own);
        };

        // Registers of a sample in user space are newer than those saved on the stack.
        if live.as_ref().is_some_and(of_user) {
            let regs = own.regs;
            let known = kernel.user.clone().unwrap_or(own);
            return Some(UserSpace { regs, ..known });
        }

        kernel.user.clone().or_else(|| {
            let own = kernel.task.stacks.iter();
            let own = own.into_iter().find(|s| s.kind == StackType::Task)?;
            // Some kernels leave room above the first registers.
            let top = own.end.checked_sub(kernel.task.top_padding)?;
            let at = top.checked_sub(PT_REGS_LEN)?;
            let memory = self.memory();
            let mut regs = Regs::UNKNOWN;
            for reg in Reg::ALL {
                regs.set(reg, memory.read_u64(at + offset_of(reg)).ok()?);
            }
            // A kernel thread has no user space: its registers are zero there.
            Some(UserSpace {
                regs: Some(regs).filter(|regs| of_user(&regs)),
                pid: self.tid,
                ..UserSpace::default()
            })
        })
    }

    /// How the thread crashed, if a core says that it is the one.
    pub fn crash(&self) -> Option<Crash> {
        let crash = self.process_memory.as_ref()?.crash;
        crash.filter(|crash| crash.tid == self.tid)
    }

    /// The recorded memory.
    pub fn memory(&self) -> Regions<'_> {
        let copies = self.regions.iter();
        let copies = copies.map(|r| MemoryCopy::new(r.address, &r.bytes));
        let process = self.process_memory.as_ref();
        Regions::new(copies.collect()).with_rest(process.map(|memory| &*memory.memory))
    }
}

/// A change of processes or mappings between samples.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Executable memory was mapped.
    Map {
        /// Process ID.
        pid: u32,
        /// Addresses (AVMA).
        range: Range<u64>,
        /// AVMA - SVMA, modulo 2^64.
        bias: u64,
        /// The image, if recorded.
        image: Option<ImageIndex>,
        /// The path, or the kernel's name for the mapping.
        name: String,
    },
    /// Memory was unmapped.
    Unmap {
        /// Process ID.
        pid: u32,
        /// Addresses (AVMA).
        range: Range<u64>,
    },
    /// The process executed another program: everything was unmapped.
    Exec {
        /// Process ID.
        pid: u32,
    },
    /// A process or thread started.
    Fork {
        /// The new process; for a thread, equal to the parent.
        pid: u32,
        /// The new thread.
        tid: u32,
        /// The parent process, whose mappings a new process inherits.
        parent_pid: u32,
    },
    /// A process or thread ended.
    Exit {
        /// Process ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
    },
    /// A thread was named.
    Comm {
        /// Process ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
        /// The name.
        name: String,
    },
}

/// An element of a recording.
// Items are created and consumed one by one: boxing each sample would only cost time.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A change of processes or mappings.
    Event(Event),
    /// A sample.
    Sample(Sample<'a>),
}

impl Item<'_> {
    /// Converts borrowed memory to owned memory.
    pub fn into_owned(self) -> Item<'static> {
        match self {
            Item::Event(event) => Item::Event(event),
            Item::Sample(sample) => Item::Sample(sample.into_owned()),
        }
    }
}

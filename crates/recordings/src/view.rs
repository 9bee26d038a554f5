//! A sample with its process's mappings, the memory visible to a walk, and the sample filter.

use crate::model::Sample;
use crate::world::World;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::lbr::Branches;
use unwind_sim_unwind::memory::Regions;
use unwind_sim_unwind::regs::Regs;

/// How much of the recorded memory a walk can read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MemoryView {
    /// All recorded memory.
    #[default]
    Cpu,
    /// What a profiler would have copied: this many bytes from rsp upwards.
    Copy(u64),
}

impl MemoryView {
    /// Parses `cpu` or `copy:BYTES`.
    pub fn from_name(name: &str) -> Option<MemoryView> {
        match name.split_once(':') {
            None if name == "cpu" => Some(MemoryView::Cpu),
            Some(("copy", bytes)) => bytes.parse().ok().map(MemoryView::Copy),
            _ => None,
        }
    }
}

impl std::fmt::Display for MemoryView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemoryView::Cpu => f.write_str("cpu"),
            MemoryView::Copy(bytes) => write!(f, "copy:{bytes}"),
        }
    }
}

/// A sample with the mappings of its process.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The sample's number in the recording, from 0.
    pub number: u64,
    /// The sample.
    pub sample: &'a Sample<'a>,
    /// The mappings of its process at the time of the sample.
    pub space: &'a AddressSpace,
    /// The sample before it was deliberately corrupted, if it was: causes are assigned by what the
    /// rules would have done there.
    pub pristine: Option<&'a Sample<'a>>,
    /// For each ring, the calls that the thread's earlier samples held in their branch records and
    /// this one has lost; empty without stitching.
    pub stitched: &'a [Vec<u64>],
    /// All processes at the time of the sample, if recorded.
    pub world: Option<&'a World>,
}

impl<'a> View<'a> {
    /// The name of the sample's thread.
    pub fn task_name(&self) -> Option<&'a str> {
        self.world?.name(self.sample.pid, self.sample.tid)
    }

    /// The memory that a walk can read.
    pub fn memory(&self, view: MemoryView) -> Regions<'a> {
        let memory = self.sample.memory();
        match view {
            MemoryView::Cpu => memory,
            MemoryView::Copy(bytes) => memory.profiler_copy(self.live().rsp(), bytes),
        }
    }

    /// The mappings of the user space behind the sample.
    pub fn user_mappings(&self) -> Option<&'a AddressSpace> {
        if self.sample.kernel.is_none() {
            return Some(self.space);
        }
        let pid = self.sample.user_space()?.pid;
        Some(self.world?.space(pid))
    }
}

impl View<'_> {
    /// The live registers, as far as recorded.
    pub fn live(&self) -> Regs {
        self.sample.regs.live().copied().unwrap_or_default()
    }

    /// The branch records, with the stitched calls.
    pub fn branches(&self) -> Branches<'_> {
        Branches {
            stacks: &self.sample.branches,
            stitched: self.stitched,
        }
    }
}

/// Selects samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only the sample with this number.
    pub sample: Option<u64>,
    /// Only samples of this thread.
    pub tid: Option<u32>,
    /// Only samples with a time in this range, end excluded.
    pub time: Option<(u64, u64)>,
    /// At most this many samples.
    pub limit: Option<u64>,
    /// Stitch branch records with those of earlier samples
    /// ([`Stitching`](crate::branches::Stitching)). Every sample is then read, including unselected
    /// ones.
    pub stitch: bool,
}

impl Filter {
    /// Is this sample selected? Ignores `limit`.
    pub fn lets_through(&self, view: &View<'_>) -> bool {
        let sample = view.sample;
        self.sample.is_none_or(|number| number == view.number)
            && self.tid.is_none_or(|tid| tid == sample.tid)
            && self.time.is_none_or(|(a, b)| (a..b).contains(&sample.time))
    }
}

//! The processor's ring of branch records.
//!
//! Intel SDM volume 3B, "Last Branch Record (LBR) Stack" and "LBR Call-Stack". The kernel reads it
//! in `intel_pmu_lbr_read_64()` and `intel_pmu_lbr_filter()` of `arch/x86/events/intel/lbr.c`
//! (Linux 7.2).

use super::select::Select;
use unwind_sim_perf_data::lbr_stitch::Entry;

/// The kind of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Near relative call.
    Call,
    /// Near indirect call.
    IndirectCall,
    /// Near return.
    Return,
    /// Near relative jump.
    Jump,
    /// Near indirect jump.
    IndirectJump,
    /// Conditional jump.
    Conditional,
    /// System call, interrupt, and the return from them.
    Far,
}

/// A branch taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Branch {
    /// Source address; never 0, which means no record.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// The kind. The hardware does not store it; the kernel decodes the instruction again.
    pub kind: Kind,
    /// The task that took it. The hardware does not know it; for checks.
    pub task: i32,
}

impl Entry for Branch {
    fn from(&self) -> u64 {
        self.from
    }
}

/// The number of entries of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Eight (Atom, Silvermont, Knights Landing).
    Eight,
    /// Sixteen (Nehalem to Broadwell).
    Sixteen,
    /// Thirty-two (from Skylake on).
    ThirtyTwo,
}

impl Depth {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Eight, Self::Sixteen, Self::ThirtyTwo];

    /// The number of entries.
    pub const fn entries(self) -> usize {
        match self {
            Self::Eight => 8,
            Self::Sixteen => 16,
            Self::ThirtyTwo => 32,
        }
    }
}

/// The ring of one CPU.
#[derive(Clone, Debug)]
pub struct Ring {
    entries: Vec<Option<Branch>>,
    /// The newest entry.
    tos: usize,
    select: Select,
    frozen: bool,
}

impl Ring {
    /// An empty ring.
    pub fn new(depth: Depth, select: Select) -> Self {
        Self {
            entries: vec![None; depth.entries()],
            tos: 0,
            select,
            frozen: false,
        }
    }

    /// Number of entries.
    pub fn depth(&self) -> usize {
        self.entries.len()
    }

    /// Index of the newest entry (`MSR_LASTBRANCH_TOS`).
    pub fn tos(&self) -> usize {
        self.tos
    }

    /// The filter.
    pub fn select(&self) -> Select {
        self.select
    }

    /// Stops recording, as at an interrupt of the PMU, or resumes it.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
    }

    /// A branch is taken. In call-stack mode a call overwrites the oldest entry, and a return
    /// invalidates the newest and moves the top down, also on an empty ring.
    pub fn branch(&mut self, branch: Branch) {
        if self.frozen || branch.from == 0 || !self.select.records(&branch) {
            return;
        }
        if !self.select.is_call_stack() || branch.kind != Kind::Return {
            // A call to the next instruction only reads the pc; call-stack mode ignores it.
            let is_get_pc = branch.kind == Kind::Call && branch.to == branch.from.wrapping_add(5);
            if self.select.is_call_stack() && is_get_pc {
                return;
            }
            self.tos = (self.tos + 1) % self.depth();
            self.entries[self.tos] = Some(branch);
        } else {
            self.entries[self.tos] = None;
            self.tos = self.before(1);
        }
    }

    /// The index `back` entries before the newest.
    fn before(&self, back: usize) -> usize {
        (self.tos + self.depth() - back % self.depth()) % self.depth()
    }

    /// The entries from the newest on, up to the first that is invalid.
    pub(super) fn valid(&self) -> Vec<Branch> {
        let places = (0..self.depth()).map(|back| self.before(back));
        places.map_while(|place| self.entries[place]).collect()
    }

    /// The entries of a sample, newest first. In call-stack mode they end at the first invalid
    /// entry. Only the requested branch types are kept.
    pub fn read(&self) -> Vec<Branch> {
        let places = (0..self.depth()).map(|back| self.before(back));
        let entries = places.map(|place| self.entries[place]);
        let mut out: Vec<Branch> = if self.select.is_call_stack() {
            entries.map_while(|entry| entry).collect()
        } else {
            entries.flatten().collect()
        };
        out.retain(|branch| self.select.keeps(branch));
        out
    }

    /// Invalidates all entries. The top stays, as it cannot be written.
    pub fn reset(&mut self) {
        self.entries.fill(None);
    }

    /// Restores the saved entries, newest first, and the top.
    pub(super) fn write(&mut self, entries: &[Branch], tos: usize) {
        self.entries.fill(None);
        self.tos = tos % self.depth();
        for (back, branch) in entries.iter().enumerate().take(self.depth()) {
            let place = self.before(back);
            self.entries[place] = Some(*branch);
        }
    }
}

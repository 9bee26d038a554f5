//! Samples as differences to the sample before of the same thread.
//!
//! A samples block is self-contained: at its beginning nothing is known of any thread. What is
//! remembered between samples, [`State`], is shared by the twins [`encode`] and [`decode`]. Not
//! here: blocks, and where the literal bytes lie.

mod branches;
pub(crate) mod decode;
pub(crate) mod encode;
mod kernel;

use super::layout::FRAME_BYTES;
use super::window::Window;
use crate::model::{RegionRole, Sample};
use std::ops::Range;
use unwind_sim_unwind::lbr::Branch;
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind};

/// Bits of a sample's presence byte.
mod presence {
    pub(super) const FETCH: u8 = 1;
    pub(super) const OWN: u8 = 2;
    pub(super) const RECORDED: u8 = 4;
    /// Where the truth's two bits are: 0 unknown, 1 known, 2 complete.
    pub(super) const TRUTH_SHIFT: u8 = 3;
    pub(super) const KERNEL: u8 = 0x20;
    pub(super) const BRANCHES: u8 = 0x40;
    pub(super) const ALL: u8 = 0x7f;
}

/// Bits of a region's head byte; the two lowest are its role.
mod region {
    pub(super) const ROLE: u8 = 3;
    /// Bounds and `next_sp` follow; else they are those that the slot had.
    pub(super) const BOUNDS: u8 = 4;
    /// The slot's window is forgotten first.
    pub(super) const FRESH: u8 = 8;
    pub(super) const ALL: u8 = 0xf;
}

/// Bits of a true frame's head byte; the two lowest are its kind.
mod frame {
    pub(super) const KIND: u8 = 3;
    /// The pc is what the frame's slot holds, or rip for the innermost frame.
    pub(super) const PC_FROM_STACK: u8 = 4;
    /// The saved registers are known.
    pub(super) const SAVED: u8 = 8;
    /// Some of them differ from those of the frame inside.
    pub(super) const SAVED_DIFFER: u8 = 16;
    pub(super) const ALL: u8 = 0x1f;
}

/// Most slots of one thread.
const SLOTS_MAX: usize = 64;

/// What is remembered of one place of a thread's memory.
#[derive(Debug, Default)]
struct Slot {
    window: Window,
    /// Of the region that was last here.
    bounds: Range<u64>,
    next_sp: u64,
    region: Range<u64>,
}

/// What is remembered of a thread.
#[derive(Debug, Default)]
struct Thread {
    pid: u32,
    tid: u32,
    regs: [Regs; 3],
    slots: Vec<Slot>,
    truth: Vec<TrueFrame>,
    recorded: Vec<Vec<u64>>,
    branches: Vec<Vec<Branch>>,
}

impl Thread {
    fn new(pid: u32, tid: u32) -> Thread {
        Thread {
            pid,
            tid,
            ..Thread::default()
        }
    }

    fn set_regs(&mut self, regs: &SampleRegs) {
        let [sampled, fetch, own] = &mut self.regs;
        *sampled = regs.sampled;
        *fetch = regs.fetch.unwrap_or(*fetch);
        *own = regs.own.unwrap_or(*own);
    }
}

/// What the frame being coded is compared with: the frame inside it.
struct Inner {
    pc: u64,
    cfa: u64,
    saved: [u64; 6],
}

impl Inner {
    /// Before the innermost frame: the live registers.
    fn new(regs: &SampleRegs) -> Inner {
        let live = regs.live().copied().unwrap_or(Regs::UNKNOWN);
        let saved = Reg::CALLEE_SAVED.map(|r| live.get_or_zero(r));
        Inner {
            pc: live.rip(),
            cfa: live.rsp(),
            saved,
        }
    }

    fn set(&mut self, frame: &TrueFrame) {
        (self.pc, self.cfa) = (frame.pc, frame.cfa);
        self.saved = frame.saved.unwrap_or(self.saved);
    }
}

/// The address of the word that must hold the pc of a frame of `kind` that lies outside of
/// `frames`; the twin of `Truth::slot` for a chain that is still being read.
fn pc_slot(frames: &[TrueFrame], kind: TrueKind) -> Option<u64> {
    /// From a signal handler's CFA to the saved rip (`unwind/truth`).
    const SIGNAL_FRAME_RIP: u64 = 168;
    let back = |n: usize| frames.len().checked_sub(n).map(|i| frames[i].cfa);
    match kind {
        TrueKind::Top | TrueKind::Trapped => None,
        TrueKind::Call => Some(back(1)?.wrapping_sub(8)),
        TrueKind::Interrupted => Some(back(2)?.wrapping_add(SIGNAL_FRAME_RIP)),
    }
}

/// What the role's two bits say.
const ROLES: [RegionRole; 4] = [
    RegionRole::Stack,
    RegionRole::OtherStack,
    RegionRole::Data,
    RegionRole::User,
];

fn kind_of(number: u8) -> Option<TrueKind> {
    let kinds = [
        TrueKind::Top,
        TrueKind::Call,
        TrueKind::Interrupted,
        TrueKind::Trapped,
    ];
    kinds.into_iter().find(|k| *k as u8 == number)
}

/// What a sample counts for in `CHUNK_DECODED_BYTES_MAX`.
pub(crate) fn weight(sample: &Sample<'_>) -> u64 {
    let regions: usize = sample.regions.iter().map(|r| r.bytes.len()).sum();
    let ips: usize = sample.recorded.iter().map(|r| r.ips.len()).sum();
    let states = sample.kernel.as_ref().map_or(0, |k| kernel::weight(k));
    let branches = branches::weight(&sample.branches);
    states
        + branches
        + regions as u64
        + ips as u64 * 8
        + sample.truth.frames().len() as u64 * FRAME_BYTES
}

#[cfg(test)]
mod tests;

//! Samples, delta-encoded against the thread's previous sample.
//!
//! A samples block is self-contained: it starts with empty state. [`encode`] and [`decode`] are
//! counterparts that keep the same state between samples, a [`Thread`] for each thread. Blocks, and
//! the storage of literal bytes, are handled elsewhere.

mod branches;
pub(crate) mod decode;
pub(crate) mod details;
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
    /// Shift of the two truth bits: 0 unknown, 1 known, 2 complete.
    pub(super) const TRUTH_SHIFT: u8 = 3;
    pub(super) const KERNEL: u8 = 0x20;
    pub(super) const BRANCHES: u8 = 0x40;
    pub(super) const ALL: u8 = 0x7f;
}

/// Bits of a region's head byte; the lowest two are its role.
mod region {
    pub(super) const ROLE: u8 = 3;
    /// Bounds and `next_sp` follow; otherwise those of the slot are unchanged.
    pub(super) const BOUNDS: u8 = 4;
    /// The slot's window is cleared first.
    pub(super) const FRESH: u8 = 8;
    pub(super) const ALL: u8 = 0xf;
}

/// Bits of a true frame's head byte; the lowest two are its kind.
mod frame {
    pub(super) const KIND: u8 = 3;
    /// The pc is the word in the frame's slot, or rip for the innermost frame.
    pub(super) const PC_FROM_STACK: u8 = 4;
    /// The saved registers are known.
    pub(super) const SAVED: u8 = 8;
    /// Some of them differ from those of the inner frame.
    pub(super) const SAVED_DIFFER: u8 = 16;
    pub(super) const ALL: u8 = 0x1f;
}

/// Maximum slots per thread.
const SLOTS_MAX: usize = 64;

/// State of one memory area of a thread.
#[derive(Debug, Default)]
struct Slot {
    window: Window,
    /// Bounds, `next_sp` and addresses of the latest region in this slot.
    bounds: Range<u64>,
    next_sp: u64,
    region: Range<u64>,
}

/// State of one thread.
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

/// The inner frame, against which the current frame is encoded.
struct Inner {
    pc: u64,
    cfa: u64,
    saved: [u64; 6],
}

impl Inner {
    /// The live registers, for the innermost frame.
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

/// The address of the word that must hold the pc of the next frame outwards of `frames`, which is
/// of kind `kind`; the counterpart of `Truth::slot` for a chain that is still being read.
fn pc_slot(frames: &[TrueFrame], kind: TrueKind) -> Option<u64> {
    /// Distance from a signal handler's CFA to the saved rip (`unwind/truth`).
    const SIGNAL_FRAME_RIP: u64 = 168;
    let back = |n: usize| frames.len().checked_sub(n).map(|i| frames[i].cfa);
    match kind {
        TrueKind::Top | TrueKind::Trapped => None,
        TrueKind::Call => Some(back(1)?.wrapping_sub(8)),
        TrueKind::Interrupted => Some(back(2)?.wrapping_add(SIGNAL_FRAME_RIP)),
    }
}

/// The roles by the value of the two role bits.
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

/// Bytes that a sample counts towards `CHUNK_DECODED_BYTES_MAX`.
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

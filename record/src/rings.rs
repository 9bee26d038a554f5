//! Branch records of a program in the emulated machine: rings in call-stack mode, user space only,
//! as configured by `perf record --call-graph lbr`.

use unwind_sim_perf_model::lbr::{Branch, Depth, Kind, Ring, Select};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::lbr::{self, BranchStack};

/// Rings of several depths that get the same branches.
pub(super) struct Rings(Vec<Ring>);

impl Rings {
    /// Empty rings.
    pub(super) fn new(depths: &[Depth]) -> Rings {
        let ring = |&depth: &Depth| Ring::new(depth, Select::CALL_STACK_USER);
        Rings(depths.iter().map(ring).collect())
    }

    /// Clears the rings when another program starts, as the kernel does (`intel_pmu_lbr_reset`).
    pub(super) fn reset(&mut self) {
        self.0.iter_mut().for_each(Ring::reset);
    }

    /// Records the instruction at `from`, after which the next one is at `to`.
    #[inline]
    pub(super) fn branch(&mut self, insn: Insn, from: u64, to: u64) {
        let kind = match insn {
            Insn::Call {
                indirect: false, ..
            } => Kind::Call,
            Insn::Call { indirect: true, .. } => Kind::IndirectCall,
            Insn::Ret => Kind::Return,
            // Call-stack mode filters out everything else.
            _ => return,
        };
        let task = 0;
        for ring in &mut self.0 {
            ring.branch(Branch {
                from,
                to,
                kind,
                task,
            });
        }
    }

    /// The contents of the rings.
    pub(super) fn read(&self) -> Vec<BranchStack> {
        let stack = |ring: &Ring| BranchStack {
            depth: ring.depth() as u32,
            hw_index: Some(ring.tos() as u64),
            entries: ring
                .read()
                .iter()
                .map(|b| lbr::Branch {
                    from: b.from,
                    to: b.to,
                })
                .collect(),
        };
        self.0.iter().map(stack).collect()
    }
}

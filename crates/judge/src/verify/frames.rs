//! The input and output of checks: true frames with their registers, and what is wrong as bits.

use super::claim::{self, Wrong};
use crate::check::Contradiction;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{Cpu, ShadowFrame, TrueFrame, TrueKind};

pub(super) fn top(cpu: &Cpu, cfa: u64) -> TrueFrame {
    TrueFrame {
        pc: cpu.rip,
        cfa,
        kind: TrueKind::Top,
        saved: Some(cpu.saved),
    }
}

/// The frame that `held` returns to.
pub(super) fn outer(held: &ShadowFrame, cfa: u64) -> TrueFrame {
    TrueFrame {
        pc: held.pc,
        cfa,
        kind: held.kind,
        saved: Some(held.saved),
    }
}

pub(super) fn wrong_in(contradictions: &[Contradiction]) -> Wrong {
    let mut wrong = 0;
    for contradiction in contradictions {
        wrong |= match (contradiction.given, contradiction.reg) {
            (None, _) => claim::NOTHING,
            _ if contradiction.misread => claim::MISREAD,
            (_, Reg::Rsp) => claim::CFA,
            (_, Reg::Rip) => claim::RA,
            (_, reg) => match Reg::CALLEE_SAVED.iter().position(|&r| r == reg) {
                Some(index) => claim::SAVED << index,
                None => claim::NOTHING,
            },
        };
    }
    wrong
}

#[cfg(test)]
mod tests;

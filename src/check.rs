//! The one-frame check: a rule, put in front of the true registers of a frame, has to give the
//! true registers of its caller.
//!
//! It finds the row that is wrong even where the walk went wrong only frames later, and a wrong
//! slot of a register even where no frame was lost. Not here: full walks and their verdicts.

use std::sync::Arc;
use unwind_sim_unwind::address::{CodeAddress, Lookup};
use unwind_sim_unwind::apply::Frame;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::step::{Row, Stepped, step};
use unwind_sim_unwind::truth::{TrueKind, Truth};
use unwind_sim_unwind::walk::{Finder, Place};

/// What is wrong with one row in one frame.
#[derive(Clone, Debug)]
pub struct Contradiction {
    /// The frame, counted in the true chain.
    pub frame: usize,
    /// Its pc.
    pub pc: CodeAddress,
    /// The code: US501, US502, US503, US504, or why the rule could not be applied.
    pub code: Code,
    /// The register concerned: rsp for the CFA, rip for the return address.
    pub reg: Reg,
    /// What the row gave, if it gave anything.
    pub given: Option<u64>,
    /// What is true.
    pub truth: u64,
    /// The return address is right, but taken for an interrupted instruction, or the other way
    /// round: then these are the addresses at which the caller's row is looked up.
    pub misread: bool,
    /// Why the row gave nothing.
    pub reason: Option<Reason>,
    /// The row.
    pub row: Option<Arc<Row>>,
}

/// The frame `index` of the true chain, with its true registers; `None` where they are not known.
pub fn true_frame(truth: &Truth, live: &Regs, index: usize) -> Option<Frame> {
    let frames = truth.frames();
    let this = frames.get(index)?;
    if index == 0 {
        return Some(Frame::top(*live));
    }
    let mut regs = Regs::UNKNOWN;
    regs.set(Reg::Rip, this.pc);
    regs.set(Reg::Rsp, frames[index - 1].cfa);
    for (reg, value) in Reg::CALLEE_SAVED.into_iter().zip(this.saved?) {
        regs.set(reg, value);
    }
    let mut frame = Frame::top(regs);
    frame.topmost = false;
    frame.slot = truth.slot(index);
    frame.pc = match this.kind {
        TrueKind::Call => CodeAddress::Return(this.pc),
        TrueKind::Top | TrueKind::Interrupted | TrueKind::Trapped => {
            CodeAddress::Instruction(this.pc)
        }
    };
    Some(frame)
}

/// What the check of one frame needs.
pub struct Subject<'a> {
    /// The code.
    pub space: &'a AddressSpace,
    /// The memory.
    pub memory: &'a dyn Memory,
    /// The true chain.
    pub truth: &'a Truth,
    /// The live registers of the innermost frame.
    pub live: &'a Regs,
}

impl Subject<'_> {
    /// All contradictions between `finder`'s rule in true frame `index` and its true caller. The
    /// root, which has none, is not checked.
    pub fn check_frame(
        &self,
        finder: &dyn Finder,
        index: usize,
        cache: &mut Cache,
    ) -> Vec<Contradiction> {
        let Some(next) = self.truth.frames().get(index + 1) else {
            return Vec::new();
        };
        let Some(frame) = true_frame(self.truth, self.live, index) else {
            return Vec::new();
        };
        let mut restricted = frame.clone();
        if index > 0 {
            restricted.regs = frame.regs.restricted(finder.carries());
        }
        let place = Place {
            space: self.space,
            memory: self.memory,
        };
        let stepped = step(finder, &place, &restricted, cache);
        let contradiction = |code, reg, given, truth, reason| Contradiction {
            frame: index,
            pc: frame.pc,
            code,
            reg,
            given,
            truth,
            misread: false,
            reason,
            row: stepped.row.ok().map(Arc::new),
        };
        let caller = match &stepped.caller {
            Ok(caller) => caller,
            Err(reason) => {
                let executed = match (frame.pc, finder.lookup()) {
                    (CodeAddress::Instruction(_), _) => true,
                    // In front of a signal trampoline nobody called.
                    (CodeAddress::Return(_), Lookup::InsideCall) => {
                        next.kind != TrueKind::Interrupted
                    }
                    (CodeAddress::Return(_), Lookup::AtReturn) => false,
                };
                let code = failure_code(&stepped, *reason, executed);
                return vec![contradiction(code, Reg::Rip, None, next.pc, Some(*reason))];
            }
        };
        let mut out = Vec::new();
        let cfa = self.truth.frames()[index].cfa;
        if caller.regs.rsp() != cfa {
            out.push(contradiction(
                Code::WrongCfa,
                Reg::Rsp,
                Some(caller.regs.rsp()),
                cfa,
                None,
            ));
        }
        if caller.pc.value() != next.pc {
            let given = Some(caller.pc.value());
            out.push(contradiction(
                Code::WrongReturnAddress,
                Reg::Rip,
                given,
                next.pc,
                None,
            ));
        } else {
            // Taken for a return address, or for an interrupted instruction, when it is not: the
            // caller's row is then looked up at the wrong address.
            let kind = match next.kind {
                TrueKind::Call => CodeAddress::Return(next.pc),
                TrueKind::Top | TrueKind::Interrupted | TrueKind::Trapped => {
                    CodeAddress::Instruction(next.pc)
                }
            };
            let [given, truth] = [caller.pc, kind].map(|pc| pc.lookup(finder.lookup()));
            if given != truth {
                let code = Code::WrongReturnAddress;
                out.push(Contradiction {
                    misread: true,
                    ..contradiction(code, Reg::Rip, Some(given), truth, None)
                });
            }
        }
        let saved = next.saved.unwrap_or_default();
        for (reg, truth) in Reg::CALLEE_SAVED.into_iter().zip(saved) {
            // What the walk does not know it does not claim.
            let Some(given) = caller.regs.get(reg) else {
                continue;
            };
            if next.saved.is_some() && given != truth {
                out.push(contradiction(
                    Code::WrongRegister,
                    reg,
                    Some(given),
                    truth,
                    None,
                ));
            }
        }
        out
    }
}

/// The code for a rule that gave nothing although the frame has a caller.
fn failure_code(stepped: &Stepped, reason: Reason, executed: bool) -> Code {
    match reason {
        Reason::NoRow { .. } if executed && stepped.row.is_err() => Code::NoRowForExecuted,
        Reason::RootReached | Reason::NotAtRoot => Code::WrongReturnAddress,
        other => other.code(),
    }
}

impl std::fmt::Display for Contradiction {
    /// `cfa is 0x7ffe10, the row gives 0x7ffe08`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.reg {
            _ if self.misread => "the caller's row is looked up: its address",
            Reg::Rsp => "cfa",
            Reg::Rip => "return address",
            reg => reg.as_str(),
        };
        write!(f, "{what} is {:#x}, ", self.truth)?;
        match (self.given, self.reason) {
            (Some(given), _) => write!(f, "the row gives {given:#x}"),
            (None, Some(reason)) => write!(f, "but {reason}"),
            (None, None) => f.write_str("the row gives nothing"),
        }
    }
}

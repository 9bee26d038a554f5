//! The one-frame check: a rule, applied to the true registers of a frame, must give the true
//! registers of its caller.
//!
//! It finds the wrong row even if the walk goes wrong only frames later, and a wrong slot of a
//! register even if no frame is lost.

use crate::target;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::address::{CodeAddress, Lookup};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::frame::Frame;
use unwind_sim_unwind::image::AddressSpace;
use unwind_sim_unwind::memory::Memory;
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::row::{Row, TableKind};
use unwind_sim_unwind::step::{Stepped, first_doubt, step};
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};
use unwind_sim_unwind::walk::WalkTarget;

/// A contradiction between a row and the truth in one frame.
#[derive(Clone, Debug)]
pub struct Contradiction {
    /// The index of the frame in the true chain.
    pub frame: usize,
    /// The frame's pc.
    pub pc: CodeAddress,
    /// The reason code: one of US501 to US506, or why the rule could not be applied.
    pub code: Code,
    /// The register concerned: rsp for the CFA, rip for the return address.
    pub reg: Reg,
    /// The value that the row gave, if any.
    pub given: Option<u64>,
    /// The true value.
    pub truth: u64,
    /// The return address is right, but was taken for an interrupted instruction, or the other way
    /// round. Then the values are the addresses at which the caller's row is looked up.
    pub misread: bool,
    /// Why the row gave nothing.
    pub reason: Option<Reason>,
    /// The row.
    pub row: Option<Arc<Row>>,
}

/// Frame `index` of the true chain with its true registers; `None` if they are not known.
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
    frame.pc = this.address();
    Some(frame)
}

/// The input of the check of a frame.
pub struct Subject<'a> {
    /// The mapped images.
    pub space: &'a AddressSpace,
    /// The memory.
    pub memory: &'a dyn Memory,
    /// The true chain.
    pub truth: &'a Truth,
    /// The live registers of the innermost frame.
    pub live: &'a Regs,
    /// Whether the memory is all that the program has, and not what was recorded of it: then a slot at an
    /// address without memory is wrong.
    pub is_whole: bool,
}

impl<'a> Subject<'a> {
    /// That of a sample, with the memory that a rule may read.
    pub fn of(view: &View<'a>, memory: &'a dyn Memory, live: &'a Regs) -> Subject<'a> {
        Subject {
            space: view.space,
            memory,
            truth: &view.sample.truth,
            live,
            is_whole: false,
        }
    }

    /// The first of the true frames `range` that may have contradictions. See [`first_doubt`].
    pub fn first_doubt(
        &self,
        finder: &dyn Finder,
        range: Range<usize>,
        cache: &mut Cache,
    ) -> Option<usize> {
        let place = WalkTarget {
            space: self.space,
            memory: self.memory,
        };
        first_doubt(finder, &place, (self.truth, self.live), range, cache)
    }

    /// All contradictions between `finder`'s rule in true frame `index` and the true caller. The
    /// root has no caller and is not checked.
    pub fn check_frame(
        &self,
        finder: &dyn Finder,
        index: usize,
        cache: &mut Cache,
    ) -> Vec<Contradiction> {
        // Most rows are right, and this is much cheaper than the search for what is wrong.
        if self.first_doubt(finder, index..index + 1, cache).is_none() {
            return Vec::new();
        }
        let Some(mut frame) = true_frame(self.truth, self.live, index) else {
            return Vec::new();
        };

        // Above the first frame, a walk knows only what its unwinder carries from frame to frame.
        if index > 0 {
            frame.regs = frame.regs.restricted(finder.carries());
        }
        let mut found = self.check_in(finder, &frame, index, cache);
        self.blame_lookup(finder, &frame, index, &mut found, cache);
        if target::is_described(self, finder, (&frame, index), &found, cache) {
            for contradiction in &mut found {
                contradiction.code = Code::RowOfTarget;
            }
        }
        found
    }

    /// Like [`check_frame`](Self::check_frame), for a frame with registers of the caller's choice.
    /// A missing row counts as executed code without a row, unless it is looked up at a return
    /// address.
    pub fn check_in(
        &self,
        finder: &dyn Finder,
        frame: &Frame,
        index: usize,
        cache: &mut Cache,
    ) -> Vec<Contradiction> {
        let frames = self.truth.frames();

        // The root has no caller to compare with: `check_root` looks at that.
        let (Some(this), Some(next)) = (frames.get(index), frames.get(index + 1)) else {
            return Vec::new();
        };

        let place = WalkTarget {
            space: self.space,
            memory: self.memory,
        };
        let stepped = step(finder, &place, frame, cache);

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

        let mut out = Vec::new();
        // The consequences of a wrong CFA are not reported separately.
        if let Some(cfa) = stepped.cfa.filter(|&cfa| cfa != this.cfa) {
            let reason = stepped.caller.as_ref().err().copied();
            let reg = Reg::Rsp;
            out.push(contradiction(
                Code::WrongCfa,
                reg,
                Some(cfa),
                this.cfa,
                reason,
            ));
        }

        let caller = match &stepped.caller {
            Ok(caller) => caller,
            Err(_) if !out.is_empty() => return out,
            Err(reason) => {
                let executed = match (frame.pc, finder.lookup()) {
                    (CodeAddress::Instruction(_), _) => true,
                    // There is no call before a signal trampoline.
                    (CodeAddress::Return(_), Lookup::InsideCall) => {
                        next.kind != TrueKind::Interrupted
                    }
                    (CodeAddress::Return(_), Lookup::AtReturn) => false,
                };
                let code = failure_code(&stepped, *reason, executed);
                return vec![contradiction(code, Reg::Rip, None, next.pc, Some(*reason))];
            }
        };

        if caller.pc.value() == next.pc {
            // If an address is wrongly taken for a return address or for an interrupted
            // instruction, the caller's row is looked up at the wrong address.
            let [given, truth] = [caller.pc, next.address()].map(|pc| pc.lookup(finder.lookup()));
            if given != truth && !is_read_alike(finder, &place, (caller, next), cache) {
                let code = Code::WrongReturnAddress;
                out.push(Contradiction {
                    misread: true,
                    ..contradiction(code, Reg::Rip, Some(given), truth, None)
                });
            }
        } else if out.is_empty() {
            // The CFA is right, so the slot of the return address, or its value, is not.
            let given = Some(caller.pc.value());
            let code = Code::WrongReturnAddress;
            out.push(contradiction(code, Reg::Rip, given, next.pc, None));
        }

        // What a row claims of a register that it does not name depends on the convention of the
        // code.
        let saved = next.saved.unwrap_or_default();
        let convention = self.space.convention(frame.pc.lookup(finder.lookup()));

        for (reg, truth) in Reg::CALLEE_SAVED.into_iter().zip(saved) {
            let is_unclaimed = |row: &Row| {
                let is_dwarf = row.source.table.is_dwarf();
                !convention.is_claimed(reg, row.rule.saved(reg), is_dwarf)
            };
            if stepped.row.as_ref().is_ok_and(is_unclaimed) {
                continue;
            }

            let Some(given) = caller.regs.get(reg) else {
                let reason = caller.why_unknown(reg);
                // A register that the table gives up, or that the walk does not know, is not a claim.
                let is_claim = match reason.code() {
                    Code::ExpressionFailed => true,
                    Code::Unmapped => self.is_whole,
                    _ => false,
                };
                if is_claim && next.saved.is_some() {
                    let code = Code::WrongRegister;
                    out.push(contradiction(code, reg, None, truth, Some(reason)));
                }
                continue;
            };

            // Of a frame whose registers are not known, nothing can be said.
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

    /// If a call does not return, or ends its function, the row at its return address is not the
    /// call's row. If the call's own row is right, the lookup is to blame.
    fn blame_lookup(
        &self,
        finder: &dyn Finder,
        frame: &Frame,
        index: usize,
        found: &mut [Contradiction],
        cache: &mut Cache,
    ) {
        let (CodeAddress::Return(_), Lookup::AtReturn) = (frame.pc, finder.lookup()) else {
            return;
        };

        // The kernel puts the address of the signal trampoline there (sigreturn(2)): no call is
        // before it.
        let is_restorer = self
            .truth
            .frames()
            .get(index + 1)
            .is_some_and(|next| next.kind == TrueKind::Interrupted);

        let is_loss = |c: &Contradiction| c.class() == Class::Loss;
        if found.is_empty() || is_restorer || found.iter().any(is_loss) {
            return;
        }

        // The row of the call itself is found one byte before the return address.
        let mut inside = frame.clone();
        inside.pc = CodeAddress::Instruction(frame.pc.lookup(Lookup::InsideCall));
        let inside = self.check_in(finder, &inside, index, cache);

        for contradiction in found {
            let is_missing = contradiction.code == Code::NoRow;
            if is_missing && inside.iter().any(|c| c.code == Code::NoRowForExecuted) {
                contradiction.code = Code::NoRowForExecuted;
            } else if !is_missing && inside.is_empty() {
                contradiction.code = Code::RowBehindCall;
            }
        }
    }
}

/// Whether the row of a called function is marked as a signal frame's, and the row that a walk then
/// reads for its caller, at the return address itself, gives what the one before it gives. Then the
/// mark, which OCaml's runtime puts on functions that switch stacks, makes nothing wrong.
fn is_read_alike(
    finder: &dyn Finder,
    place: &WalkTarget<'_, dyn Memory + '_>,
    (caller, truth): (&Frame, &TrueFrame),
    cache: &mut Cache,
) -> bool {
    if truth.kind == TrueKind::Interrupted || !caller.pc.is_instruction() {
        return false;
    }
    let mut called = caller.clone();
    called.pc = CodeAddress::Return(caller.pc.value());
    let [read, right] = [caller, &called].map(|frame| {
        let stepped = step(finder, place, frame, cache);
        let outer = stepped.caller.map(|outer| (outer.pc.value(), outer.regs));
        (stepped.cfa, outer.map_err(|reason| reason.code()))
    });
    read == right
}

/// The code for a rule that gave nothing although the frame has a caller.
fn failure_code(stepped: &Stepped, reason: Reason, executed: bool) -> Code {
    match reason {
        Reason::NoRow { .. } if executed && stepped.row.is_err() => Code::NoRowForExecuted,
        Reason::RootReached | Reason::NotAtRoot => Code::WrongReturnAddress,
        other => other.code(),
    }
}

/// What a contradiction says about the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// The row is wrong, or there is none.
    Wrong,
    /// The table is derived from another one, and its format cannot represent the row.
    Loss,
    /// The row describes, on purpose, the frame that the code is about to jump or return to, or the
    /// one that rsp has just left for that.
    Target,
}

impl Class {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Wrong => "wrong",
            Class::Loss => "loss",
            Class::Target => "target",
        }
    }

    /// Whether it affects the exit status. Losses do only if `strict`.
    pub const fn counts(self, strict: bool) -> bool {
        match self {
            Class::Wrong => true,
            Class::Loss => strict,
            Class::Target => false,
        }
    }
}

impl Contradiction {
    fn is_derived(&self) -> bool {
        let table = self.row.as_ref().map(|row| row.source.table);
        matches!(
            table,
            Some(TableKind::SframeDerived | TableKind::OrcDerived)
        )
    }

    /// The class.
    pub fn class(&self) -> Class {
        match (self.code, self.reason) {
            (Code::RowOfTarget, _) => Class::Target,
            (_, Some(Reason::NotHeld { .. })) => Class::Loss,
            // The format cannot represent the rows that would have kept the register either.
            (_, Some(Reason::RegisterNotCarried { .. })) if self.is_derived() => Class::Loss,
            _ => Class::Wrong,
        }
    }
}

impl std::fmt::Display for Contradiction {
    /// `cfa is 0x7ffe10, the row gives 0x7ffe08`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.reg {
            _ if self.misread => "the lookup address of the caller's row",
            Reg::Rsp => "cfa",
            Reg::Rip => "return address",
            reg => reg.as_str(),
        };
        match (self.reg, self.truth) {
            (Reg::Rip, 0) => f.write_str("the frame is the root, which has no caller,  ")?,
            (_, truth) => write!(f, "{what} is {truth:#x}, ")?,
        }
        match (self.given, self.reason) {
            (Some(given), _) => write!(f, "the row gives {given:#x}"),
            (None, Some(reason)) => write!(f, "but {reason}"),
            (None, None) => f.write_str("the row gives nothing"),
        }
    }
}

//! What was seen to be true at instructions: where the frame, the return address and the registers of
//! the caller are, and which rows contradict that.

use super::{RuleColumn, RuleInsn, subject};
use crate::saved::saved_registers;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use unwind_sim_judge::check::{Class, Subject, true_frame};
use unwind_sim_judge::precise::is_shifted;
use unwind_sim_recordings::view::{MemoryView, View};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::image::Contents;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::TrueKind;

/// The number of instructions that are remembered, at most.
const PLACES_MAX: usize = 1 << 15;
/// The distance up to which an address is given relative to a register, bytes. Further away is
/// another stack.
const NEAR: u64 = 1 << 20;

/// What was seen at instructions of one address space.
#[derive(Default)]
pub struct Observed {
    /// The address space that it was seen in.
    space: Option<Contents>,
    /// By address: of an instruction, or of the last byte of a call.
    truths: BTreeMap<u64, Truth>,
    /// By the address that the row was looked up at, and the unwinder.
    wrong: BTreeMap<(u64, String), BTreeSet<&'static str>>,
}

/// What is true in a frame at an instruction. What was not the same each time is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Truth {
    kind: Option<&'static str>,
    /// The CFA and its distances from rsp and rbp.
    cfa: Option<u64>,
    from_rsp: Option<i64>,
    from_rbp: Option<i64>,
    /// The distance of the return address from the CFA.
    ra: Option<i64>,
    /// Where the caller's registers are.
    saved: [Place; 6],
}

/// Where a register of the caller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In the register itself, or nothing is known of it.
    Kept,
    /// In the word at this distance from the CFA.
    At(i64),
    /// Somewhere else; or here and there, at different times.
    Elsewhere,
}

impl Observed {
    /// Whether what was seen is of the address space of this state.
    pub fn is_of(&self, view: &View<'_>) -> bool {
        self.space == Some(view.space.contents())
    }

    /// Looks at the innermost frames of a state, at most `frames`, with the rows of `columns`. `dwarf`
    /// tells where registers are, where it is right.
    pub fn add(
        &mut self,
        view: &View<'_>,
        memory: MemoryView,
        frames: usize,
        columns: &mut [RuleColumn<'_>],
        (dwarf, cache): (&Dwarf, &mut Cache),
    ) {
        // Addresses mean something else where something else is mapped.
        if !self.is_of(view) || self.truths.len() >= PLACES_MAX {
            *self = Observed {
                space: Some(view.space.contents()),
                ..Observed::default()
            };
        }

        let live = view.live();
        let memory = view.memory(memory);
        let subject = Subject::of(view, &memory, &live);
        let count = view.sample.truth.frames().len().min(frames);

        // Registers that are not those of the instruction say nothing of its rows.
        let is_other = view.sample.regs.is_fake() || is_shifted(&live, view.space);
        for index in usize::from(is_other)..count {
            self.frame(view, &subject, index, columns, (dwarf, &mut *cache));
        }
    }

    fn frame(
        &mut self,
        view: &View<'_>,
        checked: &Subject<'_>,
        index: usize,
        columns: &mut [RuleColumn<'_>],
        dwarf: (&Dwarf, &mut Cache),
    ) {
        let Some(frame) = true_frame(checked.truth, checked.live, index) else {
            return;
        };
        let truth = Truth::of(view, checked, index, dwarf);
        let at = frame.pc.symbol_address();
        match self.truths.get_mut(&at) {
            Some(known) => known.join(&truth),
            None => {
                self.truths.insert(at, truth);
            }
        }

        for column in columns {
            let found = checked.check_frame(column.finder, index, column.cache);
            let key = (frame.pc.lookup(column.finder.lookup()), column.name.clone());
            // What a derived table cannot hold is not an error of the row.
            for contradiction in found.iter().filter(|c| c.class() == Class::Wrong) {
                let wrong = self.wrong.entry(key.clone()).or_default();
                wrong.insert(subject(contradiction));
            }
        }
    }

    /// What is true at `insn`, in the form of a rule.
    pub(super) fn truth(&self, insn: &RuleInsn) -> Option<String> {
        // What was seen at the instruction itself comes first; else at the return from its call.
        let mut seen = self.truths.range(insn.address..insn.end);
        Some(seen.next()?.1.text())
    }

    /// What is wrong with the rows of an unwinder at `insn`.
    pub(super) fn wrong(&self, name: &str, insn: &RuleInsn) -> Vec<&'static str> {
        let from = (insn.address, String::new());
        let seen = self.wrong.range(from..(insn.end, String::new()));
        let own = seen.filter(|((_, unwinder), _)| unwinder == name);
        let all: BTreeSet<_> = own.flat_map(|(_, names)| names).copied().collect();
        all.into_iter().collect()
    }
}

impl Truth {
    fn of(
        view: &View<'_>,
        checked: &Subject<'_>,
        index: usize,
        (dwarf, cache): (&Dwarf, &mut Cache),
    ) -> Truth {
        let truth = checked.truth;
        let frames = truth.frames();
        let this = frames[index];
        let regs = true_frame(truth, checked.live, index).map(|frame| frame.regs);
        let value = |reg: Reg| regs.as_ref().and_then(|regs| regs.get(reg));
        let distance = |reg| Some(this.cfa.wrapping_sub(value(reg)?) as i64);

        // The outermost frame has no caller, and no CFA that means anything.
        let Some(caller) = frames.get(index + 1) else {
            let kind = truth.is_complete().then_some("outermost");
            return Truth {
                kind: Some(kind.unwrap_or("unknown")),
                cfa: None,
                from_rsp: None,
                from_rbp: None,
                ra: None,
                saved: [Place::Kept; 6],
            };
        };

        // Where the registers were found; a register that was changed must be somewhere.
        let low = value(Reg::Rsp).unwrap_or(this.cfa);
        let found = saved_registers(view, checked, (dwarf, cache), (index, low));
        let saved = Reg::CALLEE_SAVED.map(|reg| {
            let at = found.iter().find(|(_, saved)| *saved == reg);
            let index = Reg::CALLEE_SAVED.iter().position(|r| *r == reg);
            let wanted = caller.saved.zip(index).map(|(values, at)| values[at]);
            match (at, value(reg), wanted) {
                (Some((address, _)), ..) => Place::At(address.wrapping_sub(this.cfa) as i64),
                (None, Some(has), Some(wanted)) if has != wanted => Place::Elsewhere,
                _ => Place::Kept,
            }
        });

        Truth {
            kind: match caller.kind {
                TrueKind::Interrupted => Some("signal"),
                TrueKind::Trapped => Some("trapped"),
                TrueKind::Top | TrueKind::Call => Some("call"),
            },
            cfa: Some(this.cfa),
            from_rsp: distance(Reg::Rsp),
            from_rbp: distance(Reg::Rbp),
            ra: truth
                .slot(index + 1)
                .map(|slot| slot.wrapping_sub(this.cfa) as i64),
            saved,
        }
    }

    /// Forgets what is not the same in `other`.
    fn join(&mut self, other: &Truth) {
        fn same<T: PartialEq + Copy>(this: &mut Option<T>, other: Option<T>) {
            *this = this.filter(|value| Some(*value) == other);
        }
        same(&mut self.kind, other.kind);
        same(&mut self.cfa, other.cfa);
        same(&mut self.from_rsp, other.from_rsp);
        same(&mut self.from_rbp, other.from_rbp);
        same(&mut self.ra, other.ra);
        for (this, other) in self.saved.iter_mut().zip(other.saved) {
            if *this != other {
                *this = Place::Elsewhere;
            }
        }
    }

    /// `cfa=rsp+16 ra=[cfa-8] rbp=[cfa-16]`; `?` is what differs from time to time, or is not known.
    fn text(&self) -> String {
        let mut text = match self.kind {
            Some("call") => String::new(),
            Some(kind @ ("signal" | "trapped")) => format!("{kind} "),
            Some(other) => return other.to_owned(),
            None => "? ".to_owned(),
        };
        let near = |distance: &i64| distance.unsigned_abs() < NEAR;
        let cfa = match (self.from_rsp, self.from_rbp, self.cfa) {
            (Some(rsp), ..) if near(&rsp) => format!("rsp{}", offset(rsp)),
            (_, Some(rbp), _) if near(&rbp) => format!("rbp{}", offset(rbp)),
            (_, _, Some(cfa)) => format!("{cfa:#x}"),
            _ => "?".to_owned(),
        };
        let ra = match self.ra {
            Some(at) => format!("[cfa{}]", offset(at)),
            None => "?".to_owned(),
        };
        let _ = write!(text, "cfa={cfa} ra={ra}");

        for (reg, place) in Reg::CALLEE_SAVED.iter().zip(self.saved) {
            let _ = match place {
                Place::Kept => Ok(()),
                Place::At(at) => write!(text, " {reg}=[cfa{}]", offset(at)),
                Place::Elsewhere => write!(text, " {reg}=?"),
            };
        }
        text
    }
}

/// `+8`, `-16`, nothing for 0.
fn offset(number: i64) -> String {
    match number {
        0 => String::new(),
        _ => format!("{number:+}"),
    }
}

//! The row for what is known at an instruction.
//!
//! Of several right rows the one is taken that GCC and objtool write: the CFA relative to rbp from the
//! instruction on that makes rbp point to its saved value, and a register in its slot from the store
//! on, not only when the register changes.

use crate::proof::derive::reach;
use crate::proof::state::{Slot, State};
use crate::proof::value::{Value, is_callee_saved};
use arrayvec::ArrayVec;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base, Rule, RuleKind};

/// The registers besides rsp and rbp that a realigned stack's CFA is kept in, the usual ones first.
const OTHERS: [Reg; 14] = [
    Reg::R10,
    Reg::R13,
    Reg::Rdi,
    Reg::Rdx,
    Reg::Rax,
    Reg::Rcx,
    Reg::Rbx,
    Reg::Rsi,
    Reg::R8,
    Reg::R9,
    Reg::R11,
    Reg::R12,
    Reg::R14,
    Reg::R15,
];

/// The number of values that a row looks for in the stack: the return address and the callee-saved
/// registers.
const PLACES_MAX: usize = 1 + Reg::CALLEE_SAVED.len();

/// What frame a state describes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// That of a function that was called.
    Function,
    /// What a hint says; where the caller's registers are, it does not say.
    Hinted(RuleKind),
    /// None: nothing has called this.
    Outermost,
    /// By a hint, nobody knows.
    Undefined,
}

/// The row for `state`, which describes `frame`; `None` if there is none.
pub fn row(state: &State, frame: FrameKind) -> Option<Rule> {
    match frame {
        FrameKind::Function => rule(state),
        FrameKind::Hinted(kind) => {
            let known = rule(state).filter(|_| kind == RuleKind::Call || kind == RuleKind::Signal);
            let rbp = known.map_or(rule::Value::Same, |rule| rule.saved(Reg::Rbp));
            let rbp = match rbp {
                rule::Value::Undefined => rule::Value::Same,
                rbp => rbp,
            };
            let said = Rule::call(cfa(state)?).with_saved(Reg::Rbp, rbp);
            Some(Rule { kind, ..said })
        }
        FrameKind::Outermost => Some(Rule::OUTERMOST),
        FrameKind::Undefined => None,
    }
}

/// The rule for `state`; `None` if the CFA, the return address or a register is not known.
fn rule(state: &State) -> Option<Rule> {
    let places = Places::find(state);
    let mut rule = Rule {
        kind: RuleKind::Call,
        by_frame_pointer: false,
        cfa: cfa(state)?,
        ra: places.of(Value::ReturnAddress)?,
        sp: rule::Value::Unspecified,
        saved: [rule::Value::Unspecified; 6],
    };

    // In this order: a slot at a distance from the CFA, the register itself, another slot or
    // register.
    for (reg, saved) in Reg::CALLEE_SAVED.into_iter().zip(&mut rule.saved) {
        let entry = Value::entry(reg);
        let kept = || (state.reg(reg) == entry).then_some(rule::Value::Same);

        // A register may have been moved into another one.
        let moved = || {
            let mut others = OTHERS.into_iter();
            let other = others.find(|&other| state.reg(other) == entry)?;
            Some(rule::Value::reg(other, 0))
        };

        // A slot counts from the store on, even while the register itself is unchanged (see above).
        let value = places.of(entry);
        let at_cfa = value.filter(|value| is_at_cfa(*value));
        let value = at_cfa.or_else(kept).or(value).or_else(moved);
        *saved = match value {
            Some(value) => value,
            // It may be in a slot that was forgotten.
            None if state.is_lossy || state.reg(reg) == Value::Unknown => return None,
            None => rule::Value::Undefined,
        };
    }
    Some(rule)
}

/// The CFA; `None` if it is not known.
pub(super) fn cfa(state: &State) -> Option<rule::Value> {
    let by_register = |reg: Reg| match state.reg(reg) {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => Some(rule::Value::reg(reg, 8i32.checked_sub(offset)?)),
        _ => None,
    };
    let frame_pointer = state.reg(Reg::Rbp);
    let by_frame_pointer = || {
        let is_base =
            frame_pointer.is_stack() && state.load(frame_pointer, 8) == Value::entry(Reg::Rbp);
        is_base.then(|| by_register(Reg::Rbp)).flatten()
    };
    by_frame_pointer()
        .or_else(|| by_register(Reg::Rsp))
        .or_else(|| by_register(Reg::Rbp))
        .or_else(|| from_slot(state, Reg::Rbp))
        .or_else(|| OTHERS.into_iter().find_map(by_register))
        .or_else(|| from_slot(state, Reg::Rsp))
}

/// The CFA, or an address at a known distance from it, in a slot that `base` finds.
fn from_slot(state: &State, base: Reg) -> Option<rule::Value> {
    let mut slots = state.slots().filter(|s| !is_below_sp(state, s));
    slots.find_map(|slot| match slot.value {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => {
            let (reg, distance) = reach(state, slot.at).filter(|found| found.0 == base)?;
            Some(rule::Value::Load {
                base: Base::Reg(reg),
                offset: distance,
                addend: 8i32.checked_sub(offset)?,
            })
        }
        _ => None,
    })
}

/// Where the return address and the callee-saved registers are in the stack: for each value the
/// highest slot that has it, not below rsp; one at a known distance from the CFA if there is one (a
/// realigned frame has a copy of the return address).
#[derive(Default)]
struct Places {
    found: ArrayVec<(Value, rule::Value), PLACES_MAX>,
}

impl Places {
    fn find(state: &State) -> Places {
        let mut places = Places::default();
        for slot in state.slots() {
            let is_wanted = match slot.value {
                Value::ReturnAddress => true,
                Value::Entry { reg, offset: 0 } => reg != Reg::Rsp && is_callee_saved(reg),
                _ => false,
            };
            if !is_wanted || slot.size != 8 || is_below_sp(state, &slot) {
                continue;
            }
            if let Some(place) = place(state, slot.at) {
                places.add(slot.value, place);
            }
        }
        places
    }

    /// Adds a place of `value`; the best one counts, of equal ones the last.
    fn add(&mut self, value: Value, place: rule::Value) {
        let rank = |place| match place {
            rule::Value::Load { base, offset, .. } => (base == Base::Cfa, offset),
            _ => (false, i32::MIN),
        };
        match self.found.iter_mut().find(|found| found.0 == value) {
            Some((_, old)) if rank(place) >= rank(*old) => *old = place,
            Some(_) => {}
            // There are no more values than that.
            None => drop(self.found.try_push((value, place))),
        }
    }

    fn of(&self, value: Value) -> Option<rule::Value> {
        let mut found = self.found.iter();
        found.find(|found| found.0 == value).map(|found| found.1)
    }
}

/// What a row says of the slot at the stack address `at`.
fn place(state: &State, at: Value) -> Option<rule::Value> {
    match at {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => Some(rule::Value::at_cfa(offset.checked_sub(8)?)),
        at => reach(state, at).map(|(reg, offset)| rule::Value::Load {
            base: Base::Reg(reg),
            offset,
            addend: 0,
        }),
    }
}

fn is_at_cfa(value: rule::Value) -> bool {
    matches!(
        value,
        rule::Value::Load {
            base: Base::Cfa,
            ..
        }
    )
}

/// Whether the slot lies below rsp, where a signal handler or an interrupt overwrites it.
fn is_below_sp(state: &State, slot: &Slot) -> bool {
    match (slot.at, state.reg(Reg::Rsp)) {
        (
            Value::Entry {
                reg: Reg::Rsp,
                offset,
            },
            Value::Entry {
                reg: Reg::Rsp,
                offset: sp,
            },
        ) => offset < sp,
        (
            Value::Below { anchor, offset },
            Value::Below {
                anchor: other,
                offset: sp,
            },
        ) => anchor == other && offset < sp,
        _ => false,
    }
}

//! Arriving at an instruction: what hints say there, and what other ways know.

use super::{FrameContext, Next, Walker};
use crate::generate::breach::Breach;
use crate::generate::function::Gap;
use crate::generate::rows::{self, FrameKind};
use crate::hints::Hint;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{FlowControl, Instruction};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base, Rule};

impl Walker<'_> {
    /// Continues at `target` (svma) of a part that is followed, once it is its turn.
    pub(super) fn meet(&mut self, target: u64, state: &State, standing: FrameContext) {
        let Some(number) = self.part_at(target) else {
            return;
        };
        let Some(part) = self.parts.get_mut(number) else {
            return;
        };
        let Some(offset) = part.body.offset(target) else {
            return;
        };

        if !part.body.is_leader(offset) {
            part.body.lead(target);
            // Ways have gone on here before: they meet this one.
            if part.found.get(offset).is_some_and(|found| *found != 0) {
                let start = part.body.range.start;
                let mut before = (start..target).rev();
                let first = before.find_map(|at| {
                    let offset = part.body.offset(at).filter(|_| part.body.is_met(at))?;
                    *part.body.meeting(self.file, offset)?
                });
                if let Some(first) = first {
                    self.meetings.wait(first);
                }
            }
        }

        if let Some(met) = self.arrive(number, offset, state, standing) {
            self.meetings.wait(met);
        }
    }

    /// What is known at the save that a hint refers to.
    fn saved(&mut self, save: u64) -> Option<(State, FrameContext)> {
        let part = self.part_at(save)?;
        let body = &mut self.parts.get_mut(part)?.body;
        let offset = body.offset(save)?;
        let number = (*body.meeting(self.file, offset)?)?;
        let known = self.meetings.get(number);
        Some((known.state.clone(), known.way))
    }

    /// What is known at `pc` by the `hint` there, whatever ways have led to it; `None` if the way ends.
    fn obey(&mut self, part: usize, pc: u64, hint: Hint) -> Option<(State, FrameContext)> {
        let mut state = State::entry();

        let frame = match hint {
            Hint::Undefined => FrameKind::Undefined,
            Hint::EndOfStack => FrameKind::Outermost,
            Hint::Function => FrameKind::Function,
            Hint::Restore(save) => {
                let saved = save.and_then(|save| self.saved(save));
                if saved.is_none() {
                    self.gap(part, Gap::Hint, pc);
                }
                return saved;
            }
            Hint::Frame { kind, cfa } => {
                state = self.hinted(pc, cfa);
                FrameKind::Hinted(kind)
            }
        };

        // Neither says where rsp is, and no row is made that would need it.
        if matches!(frame, FrameKind::Undefined | FrameKind::Outermost) {
            state.set(Reg::Rsp, Value::Unknown);
        }

        let standing = FrameContext {
            frame,
            is_spoilt: false,
        };
        Some((state, standing))
    }

    /// The state in which the CFA (or the address of saved registers) is where a hint says. What the
    /// caller's registers are, it does not say: they count as unchanged.
    fn hinted(&mut self, pc: u64, cfa: rule::Value) -> State {
        // The CFA lies 8 bytes above rsp at the entry.
        let below_cfa = |distance: i32| Value::frame(8).plus(-i64::from(distance));
        let mut state = State::entry();

        match cfa {
            rule::Value::Offset {
                base: Base::Reg(reg),
                offset,
            } => {
                // The hint does not say where rsp is: somewhere in the stack.
                if reg != Reg::Rsp {
                    state.set(Reg::Rsp, self.machine.lowered(pc));
                }
                state.set(reg, below_cfa(offset));
            }
            rule::Value::Load {
                base: Base::Reg(reg),
                offset,
                addend,
            } => {
                let at = self.machine.lowered(pc);
                state.set(Reg::Rsp, Value::Unknown);
                state.set(reg, at);
                state.store(at.plus(offset.into()), 8, below_cfa(addend));
            }
            _ => state.set(Reg::Rsp, Value::Unknown),
        }
        state
    }

    /// Where execution goes on, as assembly says: behind code that stops, or not behind this.
    pub(super) fn told(&self, insn: &Instruction, next: Next) -> Next {
        let behind = insn.next_ip();
        match next {
            Next::Go(to) if to == behind && self.hints.unreachable.contains(&behind) => Next::End,
            Next::End if self.hints.reachable.contains(&behind) && stops(insn) => Next::Go(behind),
            next => next,
        }
    }

    /// Joins the state with what is known `offset` bytes from the start of a part. Returns the number of
    /// what is known, if that is news.
    pub(super) fn arrive(
        &mut self,
        part: usize,
        offset: usize,
        state: &State,
        standing: FrameContext,
    ) -> Option<u32> {
        let here = self.parts.get_mut(part)?;
        let pc = here.body.range.start + offset as u64;
        if here.is_told_of.has(offset)
            && let Some(&hint) = self.hints.at.get(&pc)
        {
            let (state, standing) = self.obey(part, pc, hint)?;
            return self.join_at(part, offset, &state, standing);
        }
        self.join_at(part, offset, state, standing)
    }

    fn join_at(
        &mut self,
        part: usize,
        offset: usize,
        state: &State,
        standing: FrameContext,
    ) -> Option<u32> {
        let body = &mut self.parts.get_mut(part)?.body;
        let pc = body.range.start + offset as u64;

        let first = body.meeting(self.file, offset)?;
        let Some(number) = *first else {
            let new = self.meetings.add(part, pc, state, standing);
            *first = Some(new);
            return Some(new);
        };

        let known = self.meetings.get_mut(number);
        let is_same = || known.way == standing && known.state == *state;
        // What is spoilt stays so, and a way that knows nothing else need not be followed again.
        if known.way.is_spoilt || is_same() {
            return None;
        }

        let joined = if known.way == standing {
            join(&mut known.state, state, standing.frame)
        } else {
            None
        };
        match joined {
            Some((changed, breach)) => {
                // What follows is joined again, and differs as much.
                let is_told = |known: &Breach| matches!(known, Breach::RegMismatch(..));
                if let Some(breach) = breach
                    && !self.breaches.values().any(is_told)
                {
                    self.breaches.insert((pc, breach.as_str()), breach);
                }
                changed.then_some(number)
            }
            None => {
                if !standing.is_spoilt {
                    let old = (&known.state, known.way.frame);
                    let breach = Breach::between(old, (state, standing.frame));
                    self.breaches.insert((pc, breach.as_str()), breach);
                }
                known.way.is_spoilt = true;
                Some(number)
            }
        }
    }
}

/// Joins `other` into `known`, if one row can be right for both. Returns whether `known` changed, and
/// what objtool says if only one of them has saved a register.
fn join(known: &mut State, other: &State, frame: FrameKind) -> Option<(bool, Option<Breach>)> {
    let is_saved = saved(known) == saved(other);
    let before = (!is_saved).then(|| known.clone());
    if let Some(changed) = known.join(other) {
        let breach = before.map(|before| Breach::between((&before, frame), (other, frame)));
        // Others are about where rows cannot be had anyway.
        let breach = breach.filter(|breach| matches!(breach, Breach::RegMismatch(..)));
        return Some((changed, breach));
    }

    let (old, new) = (rows::row(known, frame), rows::row(other, frame));
    if old == new {
        return Some((known.weaken(other), None));
    }

    // A register that only one way has changed may have a copy on both.
    let (old, new) = (old?, new?);
    let mut both = known.clone();
    both.weaken(other);
    let row = rows::row(&both, frame)?;

    if !covers(&row, &old, &new) {
        return None;
    }

    let is_saved = |value| {
        matches!(
            value,
            rule::Value::Load {
                base: Base::Cfa,
                ..
            }
        )
    };
    let mut pairs = old.saved.iter().zip(&new.saved);
    let differ = pairs.any(|(a, b)| a != b && (is_saved(*a) || is_saved(*b)));
    let breach = differ.then(|| Breach::between((known, frame), (other, frame)));

    *known = both;
    Some((true, breach))
}

/// The callee-saved registers with a slot above rsp that do not have their value at entry: bit n is the one with DWARF number n.
fn saved(state: &State) -> u16 {
    let sp = state.reg(Reg::Rsp);
    let slots = state.slots().filter(|slot| match (slot.at, sp) {
        (Value::Entry { offset: at, .. }, Value::Entry { offset: sp, .. }) => at >= sp,
        // Where a frame was realigned, slots are forgotten sooner.
        _ => false,
    });
    slots.fold(0, |mask, slot| match slot.value {
        value @ Value::Entry { reg, offset: 0 } if reg != Reg::Rsp && state.reg(reg) != value => {
            mask | 1 << reg as u16
        }
        _ => mask,
    })
}

/// Whether `row` finds the frame where both others do, and every register that both others find.
fn covers(row: &Rule, old: &Rule, new: &Rule) -> bool {
    let frame = |rule: &Rule| (rule.kind, rule.cfa, rule.ra, rule.sp);
    let is_lost = |value| value == rule::Value::Undefined;
    let mut saved = row.saved.iter().zip(old.saved.iter().zip(&new.saved));
    frame(row) == frame(old)
        && frame(row) == frame(new)
        && saved.all(|(row, (old, new))| !is_lost(*row) || is_lost(*old) || is_lost(*new))
}

/// Whether nothing is executed behind `insn`, or only if its callee returns.
fn stops(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::Exception
            | FlowControl::Interrupt
            | FlowControl::Call
            | FlowControl::IndirectCall
    )
}

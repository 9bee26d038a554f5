//! What a conditional jump tells of what was compared before.

use super::index_up_to;
use crate::proof::jump_table::ENTRIES_MAX;
use crate::proof::state::{ComparedPlace, Comparison, State};
use crate::proof::value::Value;
use iced_x86::ConditionCode;
use unwind_sim_unwind::regs::Reg;

/// What the outcome of a conditional jump says of the place that was compared.
enum BranchFact {
    /// It is this stack address.
    Is(Value),
    /// It is a number, at most this.
    AtMost(u32),
    /// The jump never has this outcome.
    Impossible,
}

/// Whether it says anything of `state` that a conditional jump is `taken`, or not.
pub fn tells(state: &State, condition: ConditionCode, taken: bool) -> bool {
    told(state, condition, taken).is_some()
}

fn told(state: &State, condition: ConditionCode, taken: bool) -> Option<BranchFact> {
    use ConditionCode as C;
    let comparison = state.comparison.as_ref()?;

    // What is held is only known of a register: memory may have been changed through a pointer.
    let held = match comparison.place {
        ComparedPlace::Reg(reg) => state.reg(reg),
        ComparedPlace::Memory(_) => Value::Unknown,
    };

    // Addresses on the stack are not compared but with rsp: a slot may hold another one than was stored.
    if let (Value::Const(a), Value::Const(b)) = (held, comparison.with)
        && let Some(is_so) = is_so(condition, [a, b], comparison.width)
    {
        return (is_so != taken).then_some(BranchFact::Impossible);
    }

    // On one side of the jump both are equal, so what is known of either holds for both.
    let equal = matches!((condition, taken), (C::e, true) | (C::ne, false));
    if equal && comparison.width == 8 && comparison.with.is_stack() {
        // An address in the frame stays one; one at an unknown distance from it is known now.
        let frame = |value| matches!(value, Value::Entry { reg: Reg::Rsp, .. });
        // rsp is what it is known to be, unlike what a slot held: the loop goes on.
        let is_rsp = matches!(comparison.place, ComparedPlace::Reg(Reg::Rsp));
        if is_rsp && frame(held) && frame(comparison.with) && held != comparison.with {
            return Some(BranchFact::Impossible);
        }
        let is_better = !held.is_stack() || !frame(held) && frame(comparison.with);
        return is_better.then_some(BranchFact::Is(comparison.with));
    }

    // Everything below is about numbers that are not negative, such as the bounds of jump tables.
    let Value::Const(limit @ 0..) = comparison.with else {
        return None;
    };
    let limit = limit.unsigned_abs();

    // Only unsigned comparisons bound an index: signed ones let negative numbers through.
    let max = match (condition, taken) {
        (C::a, false) | (C::be, true) => limit,
        (C::ae, false) | (C::b, true) => limit.checked_sub(1)?,
        _ if equal => limit,
        _ => return None,
    };

    // A bound that is larger than any table is of no use as one.
    (max < ENTRIES_MAX).then_some(BranchFact::AtMost(max))
}

/// Whether a jump on `condition` is taken after numbers were compared of which `width` bytes count;
/// `None` if it is not about their order.
fn is_so(condition: ConditionCode, [a, b]: [i32; 2], width: u8) -> Option<bool> {
    use ConditionCode as C;
    let unused = 64 - 8 * u32::from(width.clamp(1, 8));
    let [a, b] = [a, b].map(|n| i64::from(n) << unused);
    let unsigned = a.cast_unsigned().cmp(&b.cast_unsigned());
    match condition {
        C::e => Some(unsigned.is_eq()),
        C::ne => Some(unsigned.is_ne()),
        C::b => Some(unsigned.is_lt()),
        C::ae => Some(unsigned.is_ge()),
        C::be => Some(unsigned.is_le()),
        C::a => Some(unsigned.is_gt()),
        C::l => Some(a < b),
        C::ge => Some(a >= b),
        C::le => Some(a <= b),
        C::g => Some(a > b),
        _ => None,
    }
}

/// The outcome of a conditional jump: what is known of the state on the way where it was `taken`,
/// or not. Whether there is such a way: a jump may be known to have the other outcome.
pub fn refine(state: &mut State, condition: ConditionCode, taken: bool) -> bool {
    let told = told(state, condition, taken);

    // Without a comparison nothing is known of the flags.
    let Some(comparison) = state.comparison else {
        return true;
    };
    let Comparison { place, width, .. } = comparison;

    match (told, place) {
        (Some(BranchFact::Impossible), _) => return false,
        (None, _) | (Some(BranchFact::Is(_)), ComparedPlace::Memory(_)) => {}
        (Some(BranchFact::Is(address)), ComparedPlace::Reg(reg)) => state.set(reg, address),
        (Some(BranchFact::AtMost(max)), ComparedPlace::Reg(reg)) => {
            let old = state.reg(reg);
            // Those say more.
            let more = old.is_stack() || old.is_of_caller() || matches!(old, Value::Const(_));
            let better =
                matches!(old, Value::Index { max: old, width: w, .. } if old <= max && w >= width);
            if !more && !better {
                // A number known to fit the compared bytes is known as a whole.
                let width = match old {
                    Value::Index {
                        shift: 0,
                        width: w,
                        max,
                    } if u64::from(max) >> (8 * u32::from(width).min(7)) == 0 => w,
                    _ => width,
                };
                state.set(reg, index_up_to(max, width));
                // `set` has dropped it, though it still holds: the number is the same.
                state.comparison = Some(comparison);
            }
        }
        (Some(BranchFact::AtMost(max)), ComparedPlace::Memory(at)) => {
            // A saved register there says more (a way over a list in the frame that is never taken).
            if width >= 4 && !state.is_saved(at, width.into()) {
                state.store(at, width.into(), index_up_to(max, width));
            }
            state.comparison = Some(comparison);
        }
    }

    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_jump_tells_nothing_the_state_stays() {
        use ConditionCode as C;
        let places = [
            // One of each kind: a register that was compared, another one, and a slot.
            ComparedPlace::Reg(Reg::Rax),
            ComparedPlace::Reg(Reg::Rbx),
            ComparedPlace::Memory(Value::frame(-32)),
        ];

        // Numbers at the edges, an address, and nothing known.
        let numbers = [0, 1, 7, i32::MAX, -1].map(Value::Const);
        let mut told = Vec::new();
        for place in places {
            for with in numbers
                .into_iter()
                .chain([Value::frame(-16), Value::Unknown])
            {
                for condition in C::values() {
                    for taken in [true, false] {
                        let mut state = State::entry();
                        let width = 8;
                        state.comparison = Some(Comparison { place, width, with });
                        let before = state.clone();
                        refine(&mut state, condition, taken);
                        let tells = tells(&before, condition, taken);

                        // Where nothing is told, nothing of the state may change.
                        assert!(tells || state == before, "{place:?} {with:?} {condition:?}");
                        if state != before && place == places[0] && with == Value::Const(7) {
                            told.push((condition, taken, state.reg(Reg::Rax)));
                        }
                    }
                }
            }
        }

        let up_to = |max| index_up_to(max, 8);

        // All outcomes that bound rax after a comparison with 7.
        let mut wanted = vec![
            (C::b, true, up_to(6)),
            (C::ae, false, up_to(6)),
            (C::e, true, up_to(7)),
            (C::ne, false, up_to(7)),
            (C::be, true, up_to(7)),
            (C::a, false, up_to(7)),
        ];

        let key = |t: &(C, bool, Value)| (t.0 as u32, t.1);
        wanted.sort_by_key(key);
        told.sort_by_key(key);
        assert_eq!(told, wanted);
    }
}

//! What a conditional jump tells of what was compared before.

use super::index_up_to;
use crate::proof::jump_table::ENTRIES_MAX;
use crate::proof::state::{Comparison, Place, State};
use crate::proof::value::{Value, is_callee_saved};
use iced_x86::ConditionCode;

/// The outcome of a conditional jump: what is known of the state on the way where it was `taken`,
/// or not.
pub fn refine(state: &mut State, condition: ConditionCode, taken: bool) {
    use ConditionCode as C;
    let Some(Comparison { place, width, with }) = state.comparison else {
        return;
    };
    let equal = matches!((condition, taken), (C::e, true) | (C::ne, false));
    if equal && width == 8 && with.is_stack() {
        if let Place::Reg(reg) = place {
            state.set(reg, with);
        }
        return;
    }
    let Value::Const(limit @ 0..) = with else {
        return;
    };
    let limit = limit.unsigned_abs();
    let max = match (condition, taken) {
        (C::a, false) | (C::be, true) => Some(limit),
        (C::ae, false) | (C::b, true) => limit.checked_sub(1),
        (C::e, true) | (C::ne, false) => Some(limit),
        _ => None,
    };
    let Some(max) = max.filter(|&max| max < ENTRIES_MAX) else {
        return;
    };
    match place {
        Place::Reg(reg) => {
            let old = state.reg(reg);
            let frame = old.is_stack()
                || matches!(old, Value::Entry { offset: 0, reg: r } if r == reg && is_callee_saved(r));
            let better =
                matches!(old, Value::Index { max: old, width: w, .. } if old <= max && w >= width);
            if !frame && !better {
                let comparison = state.comparison;
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
                state.comparison = comparison;
            }
        }
        Place::Memory(at) => {
            let comparison = state.comparison;
            // A saved register there says more (a way over a list in the frame that is never taken).
            if width >= 4 && !state.is_saved(at, width.into()) {
                state.store(at, width.into(), index_up_to(max, width));
            }
            state.comparison = comparison;
        }
    }
}

//! Steps without their states, for callers that want only addresses. What a step does is in `orc`;
//! this is the part of it that nearly every step needs.

use super::{Kernel, State, Unwind, hijack};
use crate::memory::Memory;
use crate::rule::Shape;
use alloc::vec::Vec;

/// Stores return addresses in `out`, at most `left`, as long as steps are common: a call's frame on
/// the current stack, whose address was looked up before and got a packed rule ([`Code::find`]).
/// Stops before any other step, in the state that the steps so far give.
///
/// [`Code::find`]: super::Code::find
#[inline(never)]
pub(super) fn glide<M: Memory + ?Sized>(
    unwind: &mut Unwind<'_, M>,
    left: &mut u32,
    out: &mut Vec<u64>,
) {
    let Kernel { code, task, memory } = unwind.kernel;
    let State::Orc(state) = &mut unwind.state else {
        return;
    };

    let stack = state.stack;
    // The loop looks up ip - 1, which is right only behind a call.
    let is_plain = !state.signal && !state.regs.is_some();
    // `sp` only ascends from here, so a word at or above it is on the stack up to the last word.
    let (true, true, Some(last_word)) =
        (is_plain, stack.holds(state.sp, 1), stack.end.checked_sub(8))
    else {
        return;
    };

    let (mut ip, mut sp, mut bp) = (state.ip, state.sp, state.bp);
    let (mut callers, found) = unwind.finds.split();
    let (mut last, mut room) = (None, *left);

    while room > 0 {
        let Some((row, packed)) = callers.next(ip.wrapping_sub(1)) else {
            break;
        };

        let base = match packed.shape() {
            Shape::Rsp => sp,
            Shape::Rbp => bp,
            Shape::Generic => break,
        };

        let cfa = base.wrapping_add(packed.cfa_offset());
        let ra_slot = cfa.wrapping_sub(8);
        let bp_distance = 8 * u64::from(packed.slot(1));
        // Outside of the stack the full step says what the kernel does.
        if ra_slot < sp || ra_slot > last_word || bp_distance > cfa - sp {
            break;
        }

        let next_bp = match bp_distance {
            0 => Ok(bp),
            _ => memory.read_u64(cfa - bp_distance),
        };
        let (Ok(word), Ok(next_bp)) = (memory.read_u64(ra_slot), next_bp) else {
            break;
        };

        out.push(ip);
        room -= 1;
        last = Some(row);
        (ip, sp, bp) = (word, cfa, next_bp);
    }

    // A step was done in full or not at all, so the state can be taken over at any of them.
    *left = room;
    if let Some(row) = last {
        // Addresses that tracers put there have no common step, so that the last one is tested
        // alone.
        let cursors = &mut state.cursors;
        let ip = hijack::recover(code, task, cursors, ip, sp.wrapping_sub(8));
        (state.ip, state.sp, state.bp) = (ip, sp, bp);
        unwind.found = found.get(row.index() as usize).copied().flatten();
    }
}

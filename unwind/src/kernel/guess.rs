//! The kernel's guess unwinder: Linux `arch/x86/kernel/unwind_guess.c`.

use super::end::Ended;
use super::hijack::{self, Cursors};
use super::stacks::{StackInfo, get_stack_info};
use super::{State, Unwind};
use crate::memory::Memory;

/// `struct unwind_state` with `CONFIG_UNWINDER_GUESS`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs)]
pub struct GuessState {
    pub stack: StackInfo,
    pub stack_mask: u64,
    pub sp: u64,
}

const fn align(address: u64) -> u64 {
    address.wrapping_add(7) & !7
}

pub(super) fn start<M: Memory + ?Sized>(
    unwind: &mut Unwind<'_, M>,
    first_frame: u64,
    skipped: &mut dyn FnMut(&Unwind<'_, M>),
) {
    let task = unwind.kernel.task;
    let mut state = GuessState {
        sp: align(first_frame),
        ..GuessState::default()
    };

    // The mark itself may lie on no stack, for example after an overflow; then nothing is reported.
    let (info, mask) = (&mut state.stack, &mut state.stack_mask);
    let found = get_stack_info(&task.stacks, task.is_current, first_frame, info, mask);
    unwind.state = State::Guess(state);
    if found.is_err() {
        unwind.end(Ended::StartNotOnStack { sp: first_frame }, false);
        return;
    }

    // The word at the mark counts, if all of it is on the stack.
    let is_first = match unwind.kernel.memory.read_u64(first_frame) {
        _ if !state.stack.holds(first_frame, 8) => false,
        Ok(word) => unwind.kernel.code.is_text(word),
        Err(error) => {
            unwind.not_recorded(error);
            return;
        }
    };

    if !is_first {
        skipped(unwind);
        unwind.next_frame();
    }
}

pub(super) fn next_frame<M: Memory + ?Sized>(
    unwind: &mut Unwind<'_, M>,
    mut state: GuessState,
) -> bool {
    let kernel = unwind.kernel;
    loop {
        // The word of the last state has been reported, so the scan goes on behind it.
        state.sp = state.sp.wrapping_add(8);
        while state.sp < state.stack.end {
            let word = match kernel.memory.read_u64(state.sp) {
                Ok(word) => word,
                Err(error) => {
                    unwind.state = State::Guess(state);
                    return unwind.not_recorded(error);
                }
            };

            // Any word that is text may be a return address; nothing else is tested.
            if kernel.code.is_text(word) {
                unwind.state = State::Guess(state);
                return true;
            }
            state.sp = state.sp.wrapping_add(8);
        }

        // The end of this stack says where the interrupted one goes on.
        state.sp = align(state.stack.next_sp);
        let (info, mask) = (&mut state.stack, &mut state.stack_mask);
        let current = kernel.task.is_current;
        if get_stack_info(&kernel.task.stacks, current, state.sp, info, mask).is_err() {
            unwind.state = State::Guess(state);
            return unwind.end(Ended::OutOfStacks, false);
        }
    }
}

/// The current word, or the address that a tracer replaced there.
pub(super) fn return_address<M: Memory + ?Sized>(
    unwind: &Unwind<'_, M>,
    state: GuessState,
) -> Option<u64> {
    let kernel = unwind.kernel;
    let word = kernel.memory.read_u64(state.sp).ok()?;
    // The kernel keeps its cursors in its state and asks once per state.
    let mut cursors = Cursors::default();
    let address = hijack::recover(kernel.code, kernel.task, &mut cursors, word, state.sp);
    (address != 0).then_some(address)
}

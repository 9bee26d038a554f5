//! The kernel's frame-pointer unwinder: Linux `arch/x86/kernel/unwind_frame.c`.

use super::boundary::task_pt_regs;
use super::end::Ended;
use super::entry_regs::{RegsPtr, is_user_cs};
use super::hijack::{self, Cursors};
use super::orc::INACTIVE_BP;
use super::stacks::{StackInfo, StackType, get_stack_info};
use super::{StartFrom, State, Unwind};
use crate::memory::{Memory, MemoryError};
use crate::pt_regs::{PT_REGS_LEN, offset_of};
use crate::regs::Reg;

/// `struct unwind_state` with `CONFIG_UNWINDER_FRAME_POINTER`. Addresses are 0 for NULL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[allow(missing_docs)]
pub struct FpState {
    pub stack: StackInfo,
    pub stack_mask: u64,
    /// `graph_idx` and `kr_cur`.
    pub cursors: Cursors,
    pub error: bool,
    pub got_irq: bool,
    pub bp: u64,
    pub orig_sp: u64,
    pub ip: u64,
    /// rbp of a call through a null pointer, whose frame is incomplete.
    pub next_bp: u64,
    pub regs: RegsPtr,
}

/// Size of a frame, bytes: rbp and the return address.
const FRAME_LEN: u64 = 16;

pub(super) fn start<M: Memory + ?Sized>(
    unwind: &mut Unwind<'_, M>,
    from: StartFrom<'_>,
    first_frame: u64,
    skipped: &mut dyn FnMut(&Unwind<'_, M>),
) {
    let task = unwind.kernel.task;
    let mut state = FpState {
        got_irq: matches!(from, StartFrom::Regs(_)),
        ..FpState::default()
    };
    unwind.state = State::Fp(state);

    let mut bp = match from {
        StartFrom::Regs(regs) if is_user_cs(regs.get(Reg::Cs).unwrap_or(0)) => {
            unwind.end(Ended::StartedInUser, false);
            return;
        }
        StartFrom::Regs(regs) | StartFrom::Own(regs) => regs.get(Reg::Rbp).unwrap_or(0),
        // The last two words of `struct inactive_task_frame` form a frame.
        StartFrom::Inactive => task.thread_sp.wrapping_add(INACTIVE_BP),
    };

    // A call of a null pointer: rsp points to the return address, where a frame would have it
    // (`__unwind_start` in `unwind_frame.c`).
    if let StartFrom::Regs(regs) = from
        && regs.rip() == 0
        && regs.rsp() >= first_frame
    {
        state.next_bp = bp;
        bp = regs.rsp().wrapping_sub(8);
    }

    let (info, mask) = (&mut state.stack, &mut state.stack_mask);
    // The kernel ignores this failure, too.
    let _ = get_stack_info(&task.stacks, task.is_current, bp, info, mask);

    let updated = update(unwind, &mut state, bp);
    unwind.state = State::Fp(state);
    if let Err(error) = updated {
        unwind.not_recorded(error);
    } else if state.stack.kind == StackType::Unknown {
        unwind.end(Ended::StartNotOnStack { sp: bp }, false);
    }

    while let State::Fp(state) = unwind.state
        && state.stack.kind != StackType::Unknown
        && (!state.stack.holds(first_frame, 8) || (state.next_bp == 0 && state.bp < first_frame))
    {
        skipped(unwind);
        unwind.next_frame();
    }
}

/// `update_stack_state`: moves to the frame at `next_bp`, or to the registers that it encodes.
/// Returns false if it leads nowhere.
fn update<M: Memory + ?Sized>(
    unwind: &Unwind<'_, M>,
    state: &mut FpState,
    next_bp: u64,
) -> Result<bool, MemoryError> {
    let kernel = unwind.kernel;

    // What the new frame must not overlap: the registers, or the two words, of the last one.
    let prev_type = state.stack.kind;
    let prev_end = match state.regs {
        RegsPtr::At(regs) => regs.wrapping_add(PT_REGS_LEN),
        RegsPtr::Start | RegsPtr::None => state.bp.wrapping_add(FRAME_LEN),
    };

    // ENCODE_FRAME_POINTER: the lowest bit means that these are registers.
    let encoded = next_bp & 1 != 0;
    let (frame, len) = if encoded {
        (next_bp & !1, PT_REGS_LEN)
    } else {
        (next_bp, FRAME_LEN)
    };
    state.got_irq |= encoded;

    // A frame that is not on this stack may be on the one that was interrupted.
    while !state.stack.holds(frame, len) {
        let next_sp = state.stack.next_sp;
        let (info, mask) = (&mut state.stack, &mut state.stack_mask);
        let task = kernel.task;
        if get_stack_info(&task.stacks, task.is_current, next_sp, info, mask).is_err() {
            return Ok(false);
        }
    }

    // Within a stack, frames only go up and do not overlap (`update_stack_state`).
    if state.orig_sp != 0 && state.stack.kind == prev_type && frame < prev_end {
        return Ok(false);
    }

    // After registers, rbp is read from them and not from the stack.
    (state.regs, state.bp) = if encoded {
        (RegsPtr::At(frame), 0)
    } else {
        (RegsPtr::None, next_bp)
    };

    // Registers of user space end the walk, so their ip is not an address of this chain.
    state.ip = if unwind.is_user(state.regs)? {
        0
    } else {
        let slot = if encoded {
            frame.wrapping_add(offset_of(Reg::Rip))
        } else {
            frame.wrapping_add(8)
        };
        let word = kernel.memory.read_u64(slot)?;
        hijack::recover(kernel.code, kernel.task, &mut state.cursors, word, slot)
    };

    // Set once: before that there is no frame to compare with.
    if state.orig_sp == 0 {
        state.orig_sp = frame;
    }
    Ok(true)
}

/// `is_last_task_frame`, for a task whose registers are at `regs`.
fn is_last<M: Memory + ?Sized>(
    unwind: &Unwind<'_, M>,
    bp: u64,
    regs: u64,
) -> Result<bool, MemoryError> {
    let word = |address: u64| unwind.kernel.memory.read_u64(address);
    let last = regs.wrapping_sub(16);
    Ok(match last.wrapping_sub(bp) {
        0 => true,
        // gcc realigned the stack and copied the return address.
        8 => word(last)? == word(last.wrapping_add(8))?,
        // ftrace's frame precedes the function's.
        24 => word(bp)? == word(bp + 16)? && word(bp + 8)? == word(bp + 32)?,
        _ => false,
    })
}

pub(super) fn next_frame<M: Memory + ?Sized>(unwind: &mut Unwind<'_, M>, state: FpState) -> bool {
    match step(unwind, state) {
        Ok(going_on) => going_on,
        Err(error) => unwind.not_recorded(error),
    }
}

fn step<M: Memory + ?Sized>(
    unwind: &mut Unwind<'_, M>,
    mut state: FpState,
) -> Result<bool, MemoryError> {
    if unwind.is_user(state.regs)? {
        return Ok(unwind.end(Ended::UserRegs, false));
    }

    // The task's own registers are at a fixed place at the end of its stack.
    let memory = unwind.kernel.memory;
    let task_regs = task_pt_regs(unwind.kernel.task);
    if let Some(regs) = task_regs
        && is_last(unwind, state.bp, regs)?
    {
        let regs = RegsPtr::At(regs);
        // A kernel thread has registers at the end of its stack, but they say nothing.
        if !unwind.is_user(regs)? {
            return Ok(unwind.end(Ended::EndOfStack, false));
        }
        // The registers of a system call, which no frame pointer encodes.
        (state.regs, state.bp, state.ip) = (regs, 0, 0);
        unwind.state = State::Fp(state);
        return Ok(true);
    }

    // Set at the start for a call through a null pointer: rbp is still the caller's.
    let next_bp = match state.regs {
        _ if state.next_bp != 0 => core::mem::take(&mut state.next_bp),
        RegsPtr::None => memory.read_u64(state.bp)?,
        regs => regs.read(unwind.start, memory, Reg::Rbp)?,
    };

    // The state is kept even if the step failed, as the kernel's is.
    let updated = update(unwind, &mut state, next_bp)?;
    unwind.state = State::Fp(state);
    if updated {
        return Ok(true);
    }

    let why = bad_address(unwind, &state, next_bp, task_regs)?;
    Ok(unwind.end(why, true))
}

/// Why the walk got lost. The kernel does not warn where it expects this.
fn bad_address<M: Memory + ?Sized>(
    unwind: &Unwind<'_, M>,
    state: &FpState,
    value: u64,
    task_regs: Option<u64>,
) -> Result<Ended, MemoryError> {
    let kernel = unwind.kernel;
    let (frame, in_regs) = match state.regs {
        RegsPtr::At(regs) => (regs, true),
        RegsPtr::Start | RegsPtr::None => (state.bp, false),
    };

    // Entry code, and a handler before its first frame, have not set up a frame pointer.
    let in_entry = state.got_irq && kernel.code.is_entry_text(state.ip);
    let at_end = match (in_regs, task_regs) {
        (true, Some(end)) => {
            let sp = state.regs.read(unwind.start, kernel.memory, Reg::Rsp)?;
            sp >= end.wrapping_sub(24) && sp < end
        }
        _ => false,
    };

    // Another task may run and change its stack while it is read.
    if !kernel.task.is_current || in_entry || at_end {
        return Ok(Ended::OutOfStacks);
    }

    Ok(Ended::BadFramePointer {
        frame,
        in_regs,
        value,
    })
}

//! The guess unwinder: it reports every word on the stack that is a code address.
//!
//! It never fails and proves nothing. It starts at the mark, or at rsp, and reads upwards to the
//! end of the recorded stack (Linux `arch/x86/kernel/unwind_guess.c`).

use crate::address::CodeAddress;
use crate::chain::{End, How, Sink, Step};
use crate::event::Event;
use crate::memory::{Memory, MemoryError};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::start::Start;
use crate::walk::{Limits, WalkTarget};

/// The maximum number of words that a scan reads: a stack of 8 MiB.
pub const WORDS_MAX: u32 = 1 << 20;

/// Scans from `start`. Reports the start's own pc first, unless there is a mark.
pub fn walk<M: Memory + ?Sized, S: Sink>(
    place: &WalkTarget<'_, M>,
    start: &Start,
    limits: &Limits,
    sink: &mut S,
) -> End {
    for reg in [Reg::Rip, Reg::Rsp] {
        if start.regs.get(reg).is_none() {
            return Reason::RegistersMissing { reg }.into();
        }
    }

    let (rip, rsp) = (start.regs.rip(), start.regs.rsp());
    if S::DETAIL {
        sink.event(Event::Started {
            regs: start.regs,
            first_frame: start.first_frame,
        });
    }

    if let Some(ip) = start.sampled_ip {
        // Fake registers: the ip is that of the caller of the function that made them.
        sink.frame(Step {
            pc: CodeAddress::Return(ip),
            sp: 0,
            slot: None,
            how: How::SampledIp,
        });
    }

    let mut frames = 0;
    // With a mark, the registers are the unwinder's own and not those of the sample.
    if start.first_frame.is_none() {
        let pc = CodeAddress::Instruction(rip);
        sink.frame(Step {
            pc,
            sp: rsp,
            slot: None,
            how: How::Start,
        });
        frames = 1;
    }

    // Aligned as in `__unwind_start` (`unwind_guess.c`).
    let first = start.first_frame.unwrap_or(rsp).wrapping_add(7) & !7;
    for i in 0..u64::from(WORDS_MAX) {
        let slot = first.wrapping_add(8 * i);
        let word = match place.memory.read_u64(slot) {
            Ok(word) => word,
            // Every scan ends at the end of the stack.
            Err(MemoryError::BeyondCopy { .. }) if i > 0 => return Reason::NotAtRoot.into(),
            Err(error) => return Reason::from(error).into(),
        };

        // A return address is the end of a call, so the byte before it is code.
        if !place.space.is_text(word.wrapping_sub(1)) {
            continue;
        }

        // Only a frame too many is beyond the limit: the end of the stack may come first.
        if frames == limits.frames_max {
            return Reason::FrameLimit {
                limit: limits.frames_max,
            }
            .into();
        }

        frames += 1;
        let (pc, sp) = (CodeAddress::Return(word), slot.wrapping_add(8));
        sink.frame(Step {
            pc,
            sp,
            slot: Some(slot),
            how: How::Guess,
        });
    }

    Reason::FrameLimit { limit: WORDS_MAX }.into()
}

#[cfg(test)]
mod tests;

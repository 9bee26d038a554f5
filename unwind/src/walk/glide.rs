//! The loop for the common frames, which is all that a warm walk needs.

use super::{Origin, Walk};
use crate::address::{CodeAddress, Lookup};
use crate::cache::{Cache, RowId, Sources};
use crate::chain::{How, RowRef, Sink, Step, Word};
use crate::finder::Finder;
use crate::memory::Memory;
use crate::regs::{Reg, RegMask};
use crate::rule::Shape;

impl<F: Finder + ?Sized, M: Memory + ?Sized, S: Sink> Walk<'_, F, M, S> {
    /// Handles most frames of most walks: ip, sp and bp are carried, the rule is hot and common.
    /// Stops before any other frame, without having changed anything for it. `left` is the number
    /// of frames that may still be found.
    #[inline(never)]
    pub(super) fn glide(&mut self, left: &mut u32, lookup: Lookup, cache: &mut Cache) {
        let (Some(sp), Some(bp)) = (self.frame.regs.get(Reg::Rsp), self.frame.regs.get(Reg::Rbp))
        else {
            return;
        };

        let memory = self.place.memory;
        let (mut budget, mut last) = (*left, self.last);
        let (mut pc, mut sp, mut bp, mut slot) = (self.frame.pc, sp, bp, self.frame.slot);
        // How the current frame was found, unless it is still as the walk says.
        let mut by: Option<(RowId, [Word; 2], bool)> = None;
        let (mut callers, sources) = cache.split();

        while budget > 0 {
            let address = pc.lookup(lookup);
            let Some((row, packed)) = callers.next(address) else {
                break;
            };

            // A zero rbp may be the root, which the rule decides.
            let base = match packed.shape() {
                Shape::Rsp => sp,
                Shape::Rbp if bp != 0 => bp,
                _ => break,
            };

            let cfa = base.wrapping_add(packed.cfa_offset());
            let ra_slot = cfa.wrapping_sub(8);

            // Slot 0 means that rbp is not saved, which makes this address the CFA itself.
            let bp_slot = cfa.wrapping_sub(8 * u64::from(packed.slot(1)));
            let saves_bp = bp_slot != cfa;
            let next_bp = if saves_bp {
                memory.read_u64(bp_slot)
            } else {
                Ok(bp)
            };

            // A return address of zero ends the walk for a reason, which the full step finds.
            let (Ok(ra @ 1..), Ok(next_bp)) = (memory.read_u64(ra_slot), next_bp) else {
                break;
            };

            // Each turn reports the frame that it starts from, not the one that it finds.
            let skip = self
                .first_frame
                .is_some_and(|mark| self.finder.skips(sp, mark));
            // sp that stays, and skipped frames that are events, are for the full step.
            if cfa <= sp || (S::DETAIL && skip) {
                break;
            }

            if !skip {
                match by {
                    Some((row, [ra, bp], saves_bp)) => {
                        let words: &[Word] = if saves_bp { &[ra, bp] } else { &[ra] };
                        let row = RowRef::cached(&sources, row);
                        let how = How::Rule { row, words };
                        self.sink.frame(Step { pc, sp, slot, how });
                    }
                    None if S::DETAIL => self.report_first(&sources),
                    None => {
                        let how = How::Start;
                        self.sink.frame(Step { pc, sp, slot, how });
                    }
                }
            }

            // The words are needed only by sinks with details.
            if S::DETAIL {
                let word = |address, value| Word { address, value };
                by = Some((row, [word(ra_slot, ra), word(bp_slot, next_bp)], saves_bp));
            }

            slot = Some(ra_slot);
            (pc, sp, bp) = (CodeAddress::Return(ra), cfa, next_bp);
            last = address;
            budget -= 1;
        }

        // No frame was found, so the walk's state is still its own.
        if budget == *left {
            return;
        }

        // The walk goes on from the last frame that was found, by the row that found it.
        if let Some((row, [ra, bp], saves_bp)) = by {
            self.origin = Origin::Row(row, last, None);
            self.words.clear();
            self.words.push(ra);
            if saves_bp {
                self.words.push(bp);
            }
        }

        (*left, self.last) = (budget, last);
        // The other registers belong to the frame where this began.
        self.frame.regs.keep(RegMask::FRAME);
        self.frame.regs.set(Reg::Rbp, bp);
        self.frame.enter(pc, sp, slot);
    }

    /// Reports the frame that the walk was at before.
    #[inline(never)]
    fn report_first(&mut self, sources: &Sources<'_>) {
        let how = self.origin.how(&self.words, sources);
        let (pc, sp, slot) = (self.frame.pc, self.frame.regs.rsp(), self.frame.slot);
        self.sink.frame(Step { pc, sp, slot, how });
    }
}

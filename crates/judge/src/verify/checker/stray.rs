//! The memory that the last outcome depends on.
//!
//! Slots of a right row are in the frame. A row with a wrong CFA names slots anywhere: where rbp has
//! another use, those of the frame-pointer rule are in the heap, or nowhere. Only a store to just
//! these changes its outcome.

use super::outcome::Outcome;
use super::unwinders::Unwinders;
use std::ops::Range;
use unwind_sim_unwind::truth::{ShadowFrame, Tracker};

/// The slots that the last outcome depends on, and all live slots.
#[derive(Clone, Copy)]
pub(super) struct SlotsRead {
    /// The lowest one, without those that rows with a wrong CFA name elsewhere.
    lowest: u64,
    /// Where those are.
    stray_start: u64,
    stray_end: u64,
}

impl SlotsRead {
    /// Any memory may be a slot.
    pub(super) const EVERYWHERE: SlotsRead = SlotsRead {
        lowest: 0,
        stray_start: u64::MAX,
        stray_end: 0,
    };

    /// Whether a store from `start` to `end` may change one of them.
    #[inline(always)]
    pub(super) fn are_in(&self, start: u64, end: u64) -> bool {
        end > self.lowest || (start < self.stray_end && end > self.stray_start)
    }

    /// Adds a slot below the others, which a push makes.
    #[inline]
    pub(super) fn lower(&mut self, slot: u64) {
        self.lowest = self.lowest.min(slot);
    }
}

impl Outcome {
    /// Whether the outcome may depend on memory in `range`.
    pub(super) fn is_read(&self, range: &Range<u64>, unwinders: usize) -> bool {
        let all = &self.judged[..unwinders];
        all.iter()
            .any(|judged| judged.lowest < range.end && range.start < judged.end)
    }

    /// The slots that the outcome in the frame `held` depends on.
    ///
    /// The live slots are all at or above those of right rows, if there is one stack and the row
    /// that says where registers are saved has the right CFA. Otherwise nothing is taken for
    /// elsewhere.
    #[inline]
    pub(super) fn slots_read(
        &self,
        held: &ShadowFrame,
        unwinders: &Unwinders<'_>,
        tracker: &Tracker,
    ) -> SlotsRead {
        let is_right = |which: usize| self.judged[which].cfa == held.cfa;
        let has_stray = unwinders.carries_all.is_none_or(is_right) && tracker.is_on_one_stack();
        let mut slots = SlotsRead {
            lowest: held.slot,
            ..SlotsRead::EVERYWHERE
        };
        for judged in &self.judged[..unwinders.len()] {
            if has_stray && judged.cfa != held.cfa && judged.lowest < judged.end {
                slots.stray_start = slots.stray_start.min(judged.lowest);
                slots.stray_end = slots.stray_end.max(judged.end);
            } else {
                slots.lowest = slots.lowest.min(judged.lowest);
            }
        }
        slots
    }
}

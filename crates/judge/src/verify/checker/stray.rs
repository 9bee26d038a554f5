//! The memory that the last outcome depends on.
//!
//! Slots of a right row are in the frame. A row with a wrong CFA names slots anywhere: where rbp has
//! another use, those of the frame-pointer rule are in the heap, or nowhere. Only a store to just
//! these changes its outcome.

use super::outcome::Outcome;
use super::unwinders::Unwinders;
use std::ops::Range;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_unwind::truth::{ShadowFrame, Tracker};

/// Any memory may be a slot.
pub(super) const EVERYWHERE: Guard = Guard::new(0, 0..0);

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
    ) -> Guard {
        let is_right = |which: usize| self.judged[which].cfa == held.cfa;
        let has_stray = unwinders.carries_all.is_none_or(is_right) && tracker.is_on_one_stack();
        let (mut lowest, mut start, mut end) = (held.slot, u64::MAX, 0);
        for judged in &self.judged[..unwinders.len()] {
            if has_stray && judged.cfa != held.cfa && judged.lowest < judged.end {
                start = start.min(judged.lowest);
                end = end.max(judged.end);
            } else {
                lowest = lowest.min(judged.lowest);
            }
        }
        Guard::new(lowest, start..end)
    }
}

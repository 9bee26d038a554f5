//! Stacks that are copied elsewhere while no instruction runs on them, as Go does when a stack
//! grows or shrinks: their return addresses are then at the same distance from the new rsp.

use super::stacks::{Chain, RETURN_SLACK, Segment, Suspended, World};
use alloc::vec::Vec;

/// The number of return addresses that must agree before a stack counts as a copy of another. A
/// single one may be what every new coroutine starts with.
const FRAMES_MIN: usize = 2;
/// The number of suspended chains of which all [`PLACES_MAX`] places are tried, latest first.
const LATEST_MAX: usize = 16;
/// The number of values of rsp tried for each: from where the stack was left, upwards.
const PLACES_MAX: usize = 32;
/// The number of segments tried for each, innermost first: a coroutine that has left by a borrowed
/// stack resumes on its own.
const SEGMENTS_MAX: usize = 2;
/// The number of words that are read only once.
const WORDS_MAX: usize = 512;

/// The words of the new stack, from its rsp upwards.
struct NewStack<'a> {
    rsp: u64,
    known: Vec<Option<Option<u64>>>,
    world: &'a mut dyn World,
}

impl NewStack<'_> {
    fn at(rsp: u64, world: &mut dyn World) -> NewStack<'_> {
        NewStack {
            rsp,
            known: Vec::new(),
            world,
        }
    }

    /// The word this many bytes above rsp.
    fn above(&mut self, distance: u64) -> Option<u64> {
        let address = self.rsp.wrapping_add(distance);
        let index = usize::try_from(distance / 8).unwrap_or(usize::MAX);
        if index >= WORDS_MAX || !distance.is_multiple_of(8) {
            return self.world.word(address);
        }
        if self.known.len() <= index {
            self.known.resize(index + 1, None);
        }
        *self.known[index].get_or_insert_with(|| self.world.word(address))
    }
}

/// Which values of rsp are tried as that at which a stack was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Candidates {
    /// Where it was left, and after the return of the innermost frame.
    Likely,
    /// All words from where it was left to a little above the innermost frame.
    All,
}

impl Chain {
    /// The distance by which a segment was moved, if it was copied so that rsp became that of
    /// `words`: memory there has the pcs of all its frames.
    fn moved(
        &self,
        segment: Segment,
        rsp: u64,
        places: Candidates,
        words: &mut NewStack<'_>,
    ) -> Option<u64> {
        // Frames are ordered from the outside in, so the last one has the lowest address.
        let frames = self.frames_of(segment);
        let (outermost, top) = (frames.first()?.slot, frames.last()?.slot);

        let mut is_copied_from = |sp: u64| {
            let delta = words.rsp.wrapping_sub(sp);
            // A copy does not overlap: with recursion, a stack looks like itself some frames away.
            if delta.min(delta.wrapping_neg()) <= outermost.saturating_sub(sp) {
                return false;
            }

            // Every live return address has to be there: single words are equal by chance too
            // often.
            let mut count = 0;
            let mut live = frames.iter().rev().filter(|f| f.slot >= sp);
            let all = live.all(|f| {
                count += 1;
                words.above(f.slot - sp) == Some(f.pc)
            });
            all && count >= FRAMES_MIN
        };

        let place = match places {
            Candidates::Likely => [top.wrapping_add(8), rsp]
                .into_iter()
                .find(|&sp| is_copied_from(sp)),
            // The limit bounds the work for each chain.
            Candidates::All => (rsp..=top.saturating_add(RETURN_SLACK).min(segment.high))
                .step_by(8)
                .take(PLACES_MAX)
                .find(|&sp| is_copied_from(sp)),
        };

        place.map(|sp| words.rsp.wrapping_sub(sp))
    }

    /// The segment of a suspended chain that was copied so that rsp became that of `words`, and the
    /// distance.
    fn copied(&self, places: Candidates, words: &mut NewStack<'_>) -> Option<(usize, u64)> {
        let innermost = self.segments.iter().enumerate().rev().take(SEGMENTS_MAX);
        let mut rsp = self.rsp;
        for (index, segment) in innermost {
            if index + 1 < self.segments.len() {
                rsp = segment.low;
            }
            if let Some(delta) = self.moved(*segment, rsp, places, words) {
                return Some((index, delta));
            }
        }
        None
    }

    /// If the stack that the chain last left was copied, with its frames, so that its rsp is `new`,
    /// returns to the copy.
    pub(super) fn return_to_copy(&mut self, new: u64, world: &mut dyn World) -> bool {
        let Some(index) = self.segments.len().checked_sub(2) else {
            return false;
        };
        let segment = self.segments[index];
        // With recursion, a stack looks like a copy of itself some frames away.
        if self.is_intact(segment, new, world) {
            return false;
        }
        let mut words = NewStack::at(new, world);
        match self.moved(segment, segment.low, Candidates::All, &mut words) {
            Some(delta) => {
                self.cut_to_segment(index);
                self.relocate(delta, world);
                true
            }
            None => false,
        }
    }

    /// Moves the last segment up by `delta`, and with it the earlier ones on the same stack: those
    /// above it, of which memory has all pcs there. A register of their frames that points into the
    /// stack is moved with it: the program has to do so, too, before it uses the pointer.
    fn relocate(&mut self, delta: u64, world: &mut dyn World) {
        // The segments are moved together, because one copy moved the whole stack.
        let last = self.segments.len() - 1;
        let end = self.segments[last].high;

        let mut is_moved = |segment: Segment| {
            let frames = self.frames_of(segment);
            let is_above = frames.last().is_some_and(|f| f.slot > end);
            let mut moved = frames
                .iter()
                .map(|f| world.word(f.slot.wrapping_add(delta)) == Some(f.pc));
            is_above && moved.all(|is_moved| is_moved)
        };

        let mut moved: Vec<usize> = (0..last).filter(|&i| is_moved(self.segments[i])).collect();
        moved.push(last);

        let low = self.top().map_or(self.segments[last].low, |f| f.slot);
        let highs = moved.iter().map(|&i| self.segments[i].high);
        // Pointers into this range are pointers into the stack that was moved.
        let stack = low..=highs.max().unwrap_or(end);

        for index in moved {
            let segment = self.segments[index];
            let count = self.frames_of(segment).len();

            // Frames keep their distances, so one delta is right for every address.
            for frame in &mut self.frames[segment.first..][..count] {
                frame.slot = frame.slot.wrapping_add(delta);
                frame.cfa = frame.cfa.wrapping_add(delta);
                for value in frame.saved.iter_mut().filter(|v| stack.contains(v)) {
                    *value = value.wrapping_add(delta);
                }
            }

            let segment = &mut self.segments[index];
            segment.low = segment.low.wrapping_add(delta);
            segment.high = segment.high.wrapping_add(delta);
        }
    }
}

impl Suspended {
    /// Takes the chain whose stack was copied elsewhere, and which resumes there when rsp becomes
    /// `sp`.
    pub(super) fn claim_moved(&mut self, sp: u64, world: &mut dyn World) -> Option<Chain> {
        // Read once for all candidates: the words of the new stack are the same for each of them.
        let mut words = NewStack::at(sp, world);

        // The latest come first, and only of those all places are tried.
        let displaced = self.displaced.iter().rev();
        let mut copied = displaced.chain(self.chains.iter().rev()).enumerate();
        let found = copied.find_map(|(age, chain)| {
            let places = if age < LATEST_MAX {
                Candidates::All
            } else {
                Candidates::Likely
            };
            let (segment, delta) = chain.copied(places, &mut words)?;
            Some((age, segment, delta))
        });
        let (age, segment, delta) = found?;

        // The age counts over both lists, displaced chains first.
        let mut chain = match self.displaced.len().checked_sub(age + 1) {
            Some(index) => self.displaced.remove(index)?,
            None => {
                let age = age - self.displaced.len();
                self.chains.remove(self.chains.len() - 1 - age)
            }
        };
        chain.cut_to_segment(segment);
        chain.relocate(delta, world);
        Some(chain)
    }
}

//! Counts how often the same instructions were executed with the same wrong outcomes, one number for
//! all of them. A table that is wrong nearly everywhere, like the frame pointer's in code without
//! frame pointers, would else have an outcome to count at each instruction.

use super::claim::Wrong;
use super::memory::list_bytes;
use super::numbered::{NONE, push_tight, reserve_tight};

/// The maximum number of unwinders that are wrong.
const UNWINDERS: usize = 2;
/// The maximum number of repeats that begin with one instruction. Others are counted by outcome.
const ALTERNATIVES_MAX: usize = 4;

/// Which unwinders are wrong, and in what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Key(u32);

impl Key {
    /// Nothing is wrong.
    pub(super) const RIGHT: Key = Key(0);
    /// More unwinders are wrong than a key has room for.
    pub(super) const TOO_MANY: Key = Key(u32::MAX);

    /// `wrong` has the unwinders, by a bit for each.
    #[inline]
    pub(super) fn new(wrong: u8, in_what: impl Fn(usize) -> Wrong) -> Key {
        // Not 0 for unwinder 0, with room for what is wrong.
        const EACH: u32 = 14;
        if wrong.count_ones() as usize > UNWINDERS {
            return Key::TOO_MANY;
        }
        let (mut key, mut left) = (0, wrong);
        while left != 0 {
            let which = left.trailing_zeros();
            left &= left - 1;
            let wrong = u32::from(in_what(which as usize));
            key = key << EACH | 1 << 13 | which << 10 | wrong;
        }
        Key(key)
    }

    /// The wrong unwinders, in the order of an instruction's outcomes.
    fn unwinders(self) -> impl Iterator<Item = usize> {
        let of = |bits: u32| (bits & 1 << 13 != 0).then_some((bits >> 10 & 7) as usize);
        [of(self.0 >> 14), of(self.0)].into_iter().flatten()
    }
}

/// Instructions that were executed several times with the same outcomes.
struct Repeat {
    key: Key,
    /// The index of its first outcome in [`Repeats::outcomes`].
    start: u32,
    /// How often.
    count: u64,
    /// Another one that begins with the same instruction.
    next: u32,
    /// The number of instructions.
    len: u8,
    /// By wrong unwinder, how many of its outcomes are contradictions.
    contradictions: [u8; UNWINDERS],
    /// By wrong unwinder, how many of its outcomes have values that are remembered until their
    /// function is left.
    remembered: [u8; UNWINDERS],
}

/// All of them.
#[derive(Default)]
pub(super) struct Repeats {
    all: Vec<Repeat>,
    /// By repeat, instruction and unwinder.
    outcomes: Vec<u32>,
}

impl Repeats {
    /// The repeat with these outcomes among those that begin with `first`.
    #[inline]
    pub(super) fn find(&self, first: u32, key: Key, len: u32) -> Option<u32> {
        let mut id = first;
        loop {
            let repeat = self.all.get(id as usize)?;
            if repeat.key == key && u32::from(repeat.len) == len {
                return Some(id);
            }
            id = repeat.next;
        }
    }

    /// Adds a repeat to those that begin with `first`, whose outcomes are those of `len` instructions.
    /// `outcome` says whether an outcome is a contradiction, and whether its values are remembered
    /// until its function is left. `None` if there are too many.
    #[cold]
    pub(super) fn add(
        &mut self,
        first: &mut u32,
        (key, len): (Key, u32),
        outcomes: &[u32],
        outcome: impl Fn(u32) -> (bool, bool),
    ) -> Option<u32> {
        let (mut id, mut count) = (*first, 0);
        // Only to count the alternatives: a new one goes to the front of the list.
        while let Some(repeat) = self.all.get(id as usize) {
            (id, count) = (repeat.next, count + 1);
        }

        // Runs are not longer than this: their length is kept in a byte, too.
        let len = u8::try_from(len).ok()?;
        if count == ALTERNATIVES_MAX {
            return None;
        }

        // Outcomes are ordered by instruction, and for each by unwinder.
        let each = key.unwinders().count().max(1);
        let (mut contradictions, mut remembered) = ([0; UNWINDERS], [0; UNWINDERS]);
        for (id, at) in outcomes.iter().zip((0..each).cycle()) {
            let (is_wrong, is_remembered) = outcome(*id);
            contradictions[at] += u8::from(is_wrong);
            remembered[at] += u8::from(is_remembered);
        }

        let id = self.all.len() as u32;
        let repeat = Repeat {
            key,
            start: self.outcomes.len() as u32,
            count: 0,
            next: *first,
            len,
            contradictions,
            remembered,
        };

        push_tight(&mut self.all, repeat);
        reserve_tight(&mut self.outcomes, outcomes.len());
        self.outcomes.extend(outcomes);

        *first = id;
        Some(id)
    }

    /// Counts one more execution.
    #[inline]
    pub(super) fn count(&mut self, id: u32) {
        self.all[id as usize].count += 1;
    }

    /// Takes back an execution that was counted.
    #[cold]
    pub(super) fn uncount(&mut self, id: u32) {
        self.all[id as usize].count -= 1;
    }

    /// The number of contradictions in all executions, by unwinder.
    pub(super) fn contradictions(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.all.iter().flat_map(|repeat| {
            let contradictions = repeat.contradictions;
            let each = contradictions.map(|count| u64::from(count) * repeat.count);
            repeat.key.unwinders().zip(each)
        })
    }

    /// Whether an outcome has values that are remembered until its function is left.
    #[inline]
    pub(super) fn is_remembered(&self, id: u32) -> bool {
        let repeat = self.all.get(id as usize);
        repeat.is_some_and(|repeat| repeat.remembered != [0; UNWINDERS])
    }

    /// By wrong unwinder, the number of its outcomes whose values are remembered until their function
    /// is left.
    #[inline]
    pub(super) fn remembered(&self, id: u32) -> impl Iterator<Item = (usize, usize)> + use<> {
        let repeat = self.all.get(id as usize);
        let remembered = repeat.map(|repeat| {
            let counts = repeat.remembered.map(usize::from);
            repeat.key.unwinders().zip(counts)
        });
        remembered
            .into_iter()
            .flatten()
            .filter(|&(_, count)| count != 0)
    }

    /// The outcomes of one execution.
    #[inline]
    pub(super) fn outcomes(&self, id: u32) -> &[u32] {
        let Some(repeat) = self.all.get(id as usize) else {
            return &[];
        };
        let start = repeat.start as usize;
        let count = usize::from(repeat.len) * repeat.key.unwinders().count();
        self.outcomes.get(start..start + count).unwrap_or(&[])
    }

    /// Each with how often it was executed.
    pub(super) fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..NONE)
            .zip(&self.all)
            .map(|(id, repeat)| (id, repeat.count))
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        list_bytes(&self.all) + list_bytes(&self.outcomes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_has_an_instruction_a_length_and_what_is_wrong() {
        let in_what = |which: usize| [0, 5, 1 << 9][which];
        let keys = [0b000, 0b010, 0b100, 0b110].map(|wrong| Key::new(wrong, in_what));
        let [none, one, other, both] = keys;
        assert_eq!(none, Key::RIGHT);
        // A key has room for two unwinders.
        assert_eq!(Key::new(0b111, |_| 1), Key::TOO_MANY);
        assert_ne!(Key::new(0b001, |_| 0), none);

        let mut repeats = Repeats::default();
        let mut first = NONE;
        let mut add = |first: &mut u32, key, outcomes: &[u32]| {
            let is = |outcome: u32| (outcome % 2 == 1, outcome == 3);
            repeats.add(first, (key, 2), outcomes, is)
        };

        let id = add(&mut first, both, &[1, 2, 3, 5]).expect("room");
        let alone = add(&mut first, one, &[8, 9]).expect("room");
        assert_ne!(add(&mut first, other, &[7, 7]), None);
        assert_ne!(add(&mut first, none, &[]), None);
        assert_eq!(add(&mut first, one, &[8, 9]), None, "there are four");

        assert_eq!(repeats.find(first, both, 2), Some(id));
        assert_eq!(repeats.find(first, one, 2), Some(alone));
        assert_eq!(repeats.find(first, both, 3), None);
        assert_eq!(repeats.find(NONE, both, 2), None);

        assert_eq!(repeats.outcomes(id), [1, 2, 3, 5]);
        assert_eq!(repeats.outcomes(alone), [8, 9]);
        // Outcome 3 is the only one whose values are remembered.
        let remembered = [id, alone, NONE].map(|id| repeats.remembered(id).collect::<Vec<_>>());
        assert_eq!(remembered, [vec![(1, 1)], vec![], vec![]]);

        let is_remembered = [id, alone, NONE].map(|id| repeats.is_remembered(id));
        assert_eq!(is_remembered, [true, false, false]);

        for id in [id, alone, id, id] {
            repeats.count(id);
        }
        repeats.uncount(id);
        // Of `both` three outcomes are contradictions, of `one` one.
        let contradictions: Vec<_> = repeats.contradictions().collect();
        assert_eq!(&contradictions[..3], [(1, 4), (2, 2), (1, 1)]);

        let counts: Vec<_> = repeats.counts().collect();
        assert_eq!(counts, [(0, 2), (1, 1), (2, 0), (3, 0)]);
        assert!(repeats.bytes() >= 4 * 24 + 8 * 4);
    }
}

//! Delta-encodes stacks against the thread's previous memory contents.
//!
//! A [`Window`] holds the last known contents of one range of a thread's memory. A region of a
//! sample is written as the words that differ from the window, plus everything outside the window;
//! afterwards the window covers both. Consecutive samples of a thread differ in only a few words,
//! and a stack that shrinks and grows again mostly holds its old bytes.
//!
//! Work and memory are bounded by the number of literal bytes read: only they make a window grow.

use super::error::Bad;
use super::varint::{Cursor, put};
use std::ops::Range;

/// Granularity of changes, bytes.
const WORD: usize = 8;

/// The last known bytes of one range of memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Address of the first byte.
    low: u64,
    /// The bytes start at `front`; the space before it is for growing downwards.
    bytes: Vec<u8>,
    front: usize,
}

impl Window {
    /// Number of bytes held.
    fn len(&self) -> usize {
        self.bytes.len() - self.front
    }

    /// The addresses held.
    pub(crate) fn range(&self) -> Range<u64> {
        self.low..self.low + self.len() as u64
    }

    /// Does `region` overlap or adjoin the window? A window can only grow at its ends.
    pub(crate) fn touches(&self, region: &Range<u64>) -> bool {
        let own = self.range();
        !own.is_empty() && region.start <= own.end && own.start <= region.end
    }

    /// Discards all contents.
    pub(crate) fn clear(&mut self) {
        *self = Window::default();
    }

    /// The part of `region` that the window holds; if none, an empty range at the start of the
    /// region.
    pub(crate) fn overlap(&self, region: &Range<u64>) -> Range<u64> {
        let own = self.range();
        let overlap = own.start.max(region.start)..own.end.min(region.end);
        if overlap.is_empty() {
            // Disjoint, or adjoining on one side only: the whole region is new.
            region.start..region.start
        } else {
            overlap
        }
    }

    /// The bytes of `range`, if the window holds all of them.
    pub(crate) fn get(&self, range: &Range<u64>) -> Option<&[u8]> {
        let start = usize::try_from(range.start.checked_sub(self.low)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.low)?).ok()?;
        self.bytes[self.front..].get(start..end)
    }

    fn get_mut(&mut self, range: &Range<u64>) -> &mut [u8] {
        let start = (range.start - self.low) as usize + self.front;
        let end = (range.end - self.low) as usize + self.front;
        &mut self.bytes[start..end]
    }

    /// Extends the window to hold `region`; new bytes are zero. The contents are kept if `region`
    /// touches the window.
    fn cover(&mut self, region: &Range<u64>) {
        if !self.touches(region) {
            self.clear();
            self.low = region.start;
        }
        let more = self.low.saturating_sub(region.start);
        self.low -= more;
        let more = more as usize;
        if more > self.front {
            // Doubles the room, so that a stack that grows in small steps is not copied at every
            // step.
            let room = self.len() + more;
            let mut bytes = vec![0; room];
            bytes.extend_from_slice(&self.bytes[self.front..]);
            (self.bytes, self.front) = (bytes, room);
        }
        self.front -= more;
        let end = (region.end - self.low) as usize + self.front;
        self.bytes.resize(end.max(self.bytes.len()), 0);
    }
}

/// Number of words in `bytes`; the last one may be partial.
fn words(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(WORD)
}

/// Number of equal words at the start of two runs of words. Most words are equal, so they are compared
/// in blocks.
fn equal(old: &[[u8; WORD]], new: &[[u8; WORD]]) -> usize {
    const BLOCK: usize = 8;
    let is_equal = |(old, new): &(&[[u8; WORD]; BLOCK], &[[u8; WORD]; BLOCK])| {
        let pairs = old.iter().zip(*new);
        let differences = pairs.map(|(a, b)| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b));
        differences.fold(0, |all, one| all | one) == 0
    };
    let blocks = old.as_chunks().0.iter().zip(new.as_chunks().0);
    let at = BLOCK * blocks.take_while(is_equal).count();
    let rest = old[at..].iter().zip(&new[at..]);
    at + rest.take_while(|(a, b)| a == b).count()
}

/// The lengths of alternating runs of equal and different words, as pairs, up to the end.
fn compare(old: &[u8], new: &[u8]) -> Vec<(usize, usize)> {
    let ((old, old_tail), (new, new_tail)) = (old.as_chunks::<WORD>(), new.as_chunks::<WORD>());
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < new.len() {
        let same = equal(&old[at..], &new[at..]);
        at += same;
        let pairs = old[at..].iter().zip(&new[at..]);
        let other = pairs.take_while(|(a, b)| a != b).count();
        at += other;
        runs.push((same, other));
    }
    if !new_tail.is_empty() {
        let equal = old_tail == new_tail;
        match runs.last_mut() {
            Some((same, 0)) if equal => *same += 1,
            Some((_, other)) if !equal => *other += 1,
            _ => runs.push((usize::from(equal), usize::from(!equal))),
        }
    }
    runs
}

/// Encodes `bytes` at `address` against `window`, which may hold a part of them. The runs are
/// written to `runs`, the literal bytes to `literals`. Afterwards the window holds the region.
///
/// If the runs would take more than `budget` bytes, leaves `runs` empty, changes nothing else and
/// returns `false`.
pub(crate) fn encode(
    window: &mut Window,
    address: u64,
    bytes: &[u8],
    budget: usize,
    runs: &mut Vec<u8>,
    literals: &mut Vec<u8>,
) -> bool {
    let region = address..address + bytes.len() as u64;
    let overlap = window.overlap(&region);
    let shared = (overlap.start - address) as usize..(overlap.end - address) as usize;

    let changes = window
        .get(&overlap)
        .map(|old| compare(old, &bytes[shared.clone()]));
    // Without a common part, all bytes are literals.
    let changes = changes.unwrap_or_default();

    runs.clear();
    for &(same, other) in &changes {
        put(runs, same as u64);
        put(runs, other as u64);
    }

    // Before anything has changed, so that the caller can try again without a window.
    if runs.len() > budget {
        runs.clear();
        return false;
    }

    window.cover(&region);
    let held = window.get_mut(&region);

    let mut change = |range: Range<usize>| {
        literals.extend_from_slice(&bytes[range.clone()]);
        held[range.clone()].copy_from_slice(&bytes[range]);
    };

    // Literals come in the order of their addresses: below the old window, in it, above it.
    change(0..shared.start);
    let mut at = shared.start;
    for (same, other) in changes {
        // Runs count words, and the end of the common part may cut the last word off.
        let start = shared.end.min(at + same * WORD);
        at = shared.end.min(start + other * WORD);
        change(start..at);
    }
    change(shared.end..bytes.len());
    true
}

/// The counterpart of [`encode`]: updates `window` to its state after encoding.
pub(crate) fn decode(
    window: &mut Window,
    region: &Range<u64>,
    runs: &mut Cursor<'_>,
    literals: &mut Cursor<'_>,
) -> Result<(), Bad> {
    let overlap = window.overlap(region);
    let below = (overlap.start - region.start) as usize;
    let above = (region.end - overlap.end) as usize;

    // Before the window grows: the region's size comes from the file, that of the literals is real.
    if below.saturating_add(above) > literals.left() {
        return Err(runs.bad("the literals end too early"));
    }

    window.cover(region);
    let target = window.get_mut(region);

    let (low, rest) = target.split_at_mut(below);
    let (mut shared, high) = rest.split_at_mut(rest.len() - above);

    low.copy_from_slice(literals.take(below)?);
    while !shared.is_empty() {
        let what = "a run of words extends past the region";
        // The last word may be short.
        let most = words(shared);
        let same = runs.count(most, what)?;
        let other = runs.count(most - same, what)?;
        // With such runs this loop would not end.
        if same + other == 0 {
            return Err(runs.bad("an empty run of words"));
        }

        let rest = shared.split_at_mut(shared.len().min(same * WORD)).1;
        let (changed, rest) = rest.split_at_mut(rest.len().min(other * WORD));
        let literal = literals.take(changed.len());
        changed.copy_from_slice(literal.map_err(|_| runs.bad("the literals end too early"))?);
        shared = rest;
    }

    high.copy_from_slice(literals.take(above)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes each region against the previous ones, decodes, and returns the literal bytes of
    /// each.
    fn trip(regions: &[(u64, Vec<u8>)]) -> Vec<usize> {
        let (mut writer, mut reader) = (Window::default(), Window::default());
        let mut sizes = Vec::new();
        for (address, bytes) in regions {
            let (mut runs, mut literals) = (Vec::new(), Vec::new());
            let region = *address..address + bytes.len() as u64;
            assert!(encode(
                &mut writer,
                *address,
                bytes,
                usize::MAX,
                &mut runs,
                &mut literals
            ));
            let (mut run, mut literal) = (Cursor::new(&runs, 0), Cursor::new(&literals, 0));
            decode(&mut reader, &region, &mut run, &mut literal).unwrap();
            assert_eq!((run.left(), literal.left()), (0, 0));
            assert_eq!(reader.get(&region), Some(&bytes[..]));
            assert_eq!(writer.range(), reader.range());
            sizes.push(literals.len());
        }
        sizes
    }

    fn pattern(length: usize, seed: u8) -> Vec<u8> {
        (0..length)
            .map(|i| (i as u8).wrapping_mul(31) ^ seed)
            .collect()
    }

    #[test]
    fn only_changes_are_literal() {
        let mut second = pattern(100, 1);
        second[17] ^= 1;
        second[99] ^= 1;
        // One full word, and the partial last word of four bytes.
        assert_eq!(trip(&[(1000, pattern(100, 1)), (1000, second)]), [100, 12]);
    }

    #[test]
    fn a_stack_grows_shrinks_and_grows_again() {
        let all = pattern(64, 9);
        let part = |skip: usize| (1000 + skip as u64, all[skip..].to_vec());
        let sizes = trip(&[part(32), part(16), part(48), part(16), part(0)]);
        assert_eq!(sizes, [32, 16, 0, 0, 16]);
    }

    #[test]
    fn elsewhere_and_empty_regions() {
        let steps = [
            (1000, pattern(16, 1)),
            (1016, pattern(16, 2)),
            (984, pattern(16, 3)),
            (2000, pattern(16, 4)),
            (2000, Vec::new()),
            (5000, Vec::new()),
            (5000, pattern(3, 5)),
            (u64::MAX - 8, pattern(8, 6)),
        ];
        assert_eq!(trip(&steps), [16, 16, 16, 16, 0, 0, 3, 8]);
    }

    #[test]
    fn the_budget_is_kept_and_results_do_not_change() {
        let mut window = Window::default();
        let (mut runs, mut literals) = (Vec::new(), Vec::new());
        assert!(encode(
            &mut window,
            0,
            &[1; 64],
            0,
            &mut runs,
            &mut literals
        ));
        let (mut other, before) = (vec![1; 64], literals.clone());
        other[0] = 2;
        assert!(!encode(&mut window, 0, &other, 1, &mut runs, &mut literals));
        assert_eq!((runs.len(), literals), (0, before));
        assert_eq!(window.get(&(0..64)), Some(&[1; 64][..]));
    }

    #[test]
    fn lying_runs_are_refused() {
        let mut window = Window::default();
        let lie = |window: &mut Window, region, runs: &[u8], literals: &[u8]| {
            let (mut runs, mut literals) = (Cursor::new(runs, 0), Cursor::new(literals, 0));
            decode(window, &region, &mut runs, &mut literals).map_err(|b| b.what)
        };
        let long = "the literals end too early";
        assert_eq!(lie(&mut window, 0..u64::MAX, &[], &[1; 8]), Err(long));
        assert_eq!(lie(&mut window, 0..64, &[], &[1; 64]), Ok(()));
        let behind = Err("a run of words extends past the region");
        assert_eq!(lie(&mut window, 0..64, &[9, 0], &[]), behind);
        assert_eq!(lie(&mut window, 0..64, &[4, 5], &[1; 64]), behind);
        assert_eq!(
            lie(&mut window, 0..64, &[0, 0], &[]),
            Err("an empty run of words")
        );
        assert_eq!(lie(&mut window, 0..64, &[0, 8], &[1; 63]), Err(long));
    }

    #[test]
    fn runs_are_as_few_as_can_be() {
        let words = |words: &[u8], tail: u8| -> Vec<u8> {
            let words = words.iter().flat_map(|w| [*w; WORD]);
            words.chain([tail; 3]).collect()
        };
        let runs = |old: (&[u8], u8), new: (&[u8], u8)| {
            compare(&words(old.0, old.1), &words(new.0, new.1))
        };
        let old = (&[1, 1][..], 1);
        assert_eq!(runs(old, (&[1, 1], 1)), [(3, 0)]);
        assert_eq!(runs(old, (&[1, 1], 2)), [(2, 1)]);
        assert_eq!(runs(old, (&[2, 2], 2)), [(0, 3)]);
        assert_eq!(runs(old, (&[2, 2], 1)), [(0, 2), (1, 0)]);
        assert_eq!(runs(old, (&[1, 2], 2)), [(1, 2)]);
        assert_eq!(runs(old, (&[2, 1], 1)), [(0, 1), (2, 0)]);
        assert_eq!(runs((&[], 1), (&[], 1)), [(1, 0)]);
        assert_eq!(runs((&[], 1), (&[], 2)), [(0, 1)]);
        assert_eq!(compare(&[1; 16], &[1; 16]), [(2, 0)], "no short word");
    }

    #[test]
    fn a_window_grows_downwards_into_as_much_room_again() {
        let mut window = Window::default();
        let mut grow = |low| {
            window.cover(&(low..1016));
            (window.low, window.len(), window.front)
        };
        assert_eq!(grow(1000), (1000, 16, 0));
        // Moved: 32 bytes of room, 16 of them used at once.
        assert_eq!(grow(984), (984, 32, 16));
        // The room is used up to its last byte.
        assert_eq!(grow(968), (968, 48, 0));
        assert_eq!(grow(967), (967, 49, 48), "one byte more is moved again");
        assert_eq!(window.bytes.len(), 97);
        window.cover(&(970..980));
        assert_eq!((window.range(), window.bytes.len()), (967..1016, 97));
        window.cover(&(1016..1017));
        assert_eq!((window.range(), window.bytes.len()), (967..1017, 98));
    }

    #[test]
    fn what_a_region_shares_with_a_window_lies_in_both() {
        let mut window = Window::default();
        window.cover(&(1000..1016));
        let overlap = |start, end| window.overlap(&(start..end));
        assert_eq!(overlap(1000, 1016), 1000..1016);
        assert_eq!(overlap(990, 1001), 1000..1001);
        assert_eq!(overlap(1015, 1030), 1015..1016);
        assert_eq!(overlap(1004, 1008), 1004..1008);
        // Only adjoining, or disjoint: nothing, at the region's start.
        assert_eq!(overlap(1016, 1030), 1016..1016);
        assert_eq!(overlap(990, 1000), 990..990);
        assert_eq!(overlap(2000, 2010), 2000..2000);
        assert_eq!(overlap(10, 20), 10..10);
        assert!(window.touches(&(1016..1030)) && window.touches(&(990..1000)));
        assert!(!window.touches(&(1017..1030)) && !window.touches(&(990..999)));
    }
}

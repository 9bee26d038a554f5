//! What differs between two contents of a memory, in a form that leads from each to the other.

use super::history::{LINE, ones};
use super::limits::PAGE_SIZE;
use std::cmp::Ordering;

/// The lines in which two contents of a memory differ. Applied to either, it gives the other: each byte
/// is the exclusive or of both.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Difference {
    /// The frames that differ, in order, and a bit for each line of it that does.
    frames: Vec<(u32, u64)>,
    /// The lines, one after the other.
    lines: Vec<u8>,
}

impl Difference {
    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.frames.capacity() * size_of::<(u32, u64)>() + self.lines.capacity()
    }

    /// That of frames, in order: each with its number and both contents.
    pub(super) fn of<'a>(frames: impl Iterator<Item = (u32, &'a [u8], &'a [u8])>) -> Difference {
        let mut difference = Difference::default();
        for (frame, was, now) in frames {
            let mut mask = 0;
            let lines = was.as_chunks::<LINE>().0.iter().zip(now.as_chunks().0);
            for (index, (was, now)) in lines.enumerate() {
                if was != now {
                    mask |= 1 << index;
                    let both = was.iter().zip(now).map(|(was, now)| was ^ now);
                    difference.lines.extend(both);
                }
            }
            if mask != 0 {
                difference.frames.push((frame, mask));
            }
        }
        difference.frames.shrink_to_fit();
        difference.lines.shrink_to_fit();
        difference
    }

    /// Its frames, with their lines.
    fn parts(&self) -> impl Iterator<Item = (u32, u64, &[u8])> {
        let mut left = self.lines.as_slice();
        self.frames.iter().map(move |&(frame, mask)| {
            let (lines, rest) = left.split_at(mask.count_ones() as usize * LINE);
            left = rest;
            (frame, mask, lines)
        })
    }

    /// The frames that differ, in order.
    pub(super) fn frames(&self) -> impl Iterator<Item = u32> {
        self.frames.iter().map(|(frame, _)| *frame)
    }

    /// Applies it to the bytes of all frames.
    pub(super) fn apply(&self, bytes: &mut [u8]) {
        const PAGE: usize = PAGE_SIZE as usize;
        for (frame, mask, lines) in self.parts() {
            exchange(&mut bytes[frame as usize * PAGE..][..PAGE], mask, lines);
        }
    }

    /// What leads over this one and then over `next`.
    #[must_use]
    pub fn then(&self, next: &Difference) -> Difference {
        let mut both = Difference::default();
        let (mut first, mut second) = (self.parts().peekable(), next.parts().peekable());
        loop {
            let order = match (first.peek(), second.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(first), Some(second)) => first.0.cmp(&second.0),
            };
            let mut frame = [0; PAGE_SIZE as usize];
            let mut all = (0, 0);
            let mut add = |part: Option<(u32, u64, &[u8])>| {
                if let Some((number, mask, lines)) = part {
                    exchange(&mut frame, mask, lines);
                    all = (number, all.1 | mask);
                }
            };
            if order.is_le() {
                add(first.next());
            }
            if order.is_ge() {
                add(second.next());
            }
            both.frames.push(all);
            for index in ones(all.1) {
                both.lines.extend_from_slice(&frame[index * LINE..][..LINE]);
            }
        }
        both.frames.shrink_to_fit();
        both.lines.shrink_to_fit();
        both
    }
}

fn exchange(frame: &mut [u8], mask: u64, lines: &[u8]) {
    for (line, index) in lines.chunks_exact(LINE).zip(ones(mask)) {
        let to = frame[index * LINE..][..LINE].iter_mut();
        to.zip(line).for_each(|(to, byte)| *to ^= byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Memory = Vec<Vec<u8>>;

    fn memory(changes: &[(usize, usize, u8)]) -> Memory {
        let mut memory = vec![vec![7; PAGE_SIZE as usize]; 4];
        for &(frame, at, byte) in changes {
            memory[frame][at] = byte;
        }
        memory
    }

    fn between(was: &Memory, now: &Memory) -> Difference {
        let both = (0..).zip(was.iter().zip(now));
        Difference::of(both.map(|(number, (was, now))| (number, &was[..], &now[..])))
    }

    fn applied(to: &Memory, difference: &Difference) -> Memory {
        let mut bytes = to.concat();
        difference.apply(&mut bytes);
        let frames = bytes.chunks(PAGE_SIZE as usize);
        frames.map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn it_leads_in_both_directions() {
        let (first, second) = (
            memory(&[(0, 0, 1)]),
            memory(&[(1, 100, 2), (3, 4095, 3), (3, 63, 4)]),
        );
        let difference = between(&first, &second);
        assert_eq!(applied(&first, &difference), second);
        assert_eq!(applied(&second, &difference), first);
        // Three frames, and a line of each but the last one.
        assert_eq!(difference.lines.len(), 4 * LINE);
        assert_eq!(between(&first, &first), Difference::default());
    }

    #[test]
    fn two_are_one() {
        let first = memory(&[(0, 0, 1), (2, 64, 9)]);
        let second = memory(&[(0, 1, 2), (1, 100, 2)]);
        let third = memory(&[(0, 1, 3), (3, 200, 5)]);
        let both = between(&first, &second).then(&between(&second, &third));
        assert_eq!(applied(&first, &both), third);
        assert_eq!(applied(&third, &both), first);
    }
}

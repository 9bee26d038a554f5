//! The user stacks that programs walk themselves, compared with the ground truth.

use super::Oracle;
use super::rule::Rule;
use crate::log::{Entry, Fact};
use crate::record::{Body, Record};
use crate::stack::Leaf;

/// A walk and its ground truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The number of the sample, from 1.
    pub number: u64,
    /// The thread.
    pub tid: i32,
    /// The frames that the program wrote, innermost first.
    pub found: Vec<u64>,
    /// The true frames.
    pub truth: Vec<u64>,
}

/// The difference between a walk and the ground truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkVerdict {
    /// All frames, and no other.
    Right,
    /// The walk ends too early.
    Truncated,
    /// Frames are left out, and all others are true.
    Missing,
    /// The frame with this index, from 0, is not among the remaining true frames.
    Wrong(usize),
}

impl Walk {
    /// The difference to the ground truth.
    pub fn outcome(&self) -> WalkVerdict {
        let mut left = self.truth.iter();
        for (index, frame) in self.found.iter().enumerate() {
            if !left.any(|truth| truth == frame) {
                return WalkVerdict::Wrong(index);
            }
        }
        match (self.truth.starts_with(&self.found), left.next()) {
            (true, None) => WalkVerdict::Right,
            (true, Some(_)) => WalkVerdict::Truncated,
            (false, _) => WalkVerdict::Missing,
        }
    }
}

impl Oracle<'_> {
    /// Reads the output of a walking program at a sample: a number, and as many frames.
    pub(super) fn walked(&mut self, entry: &Entry, record: &Record) {
        let (Fact::Output { number, .. }, Body::Raw { data }) = (entry.fact, &record.body) else {
            return;
        };

        let words = data.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|bytes| u64::from_le_bytes(*bytes)).collect();

        // The program writes the count first; words behind the frames are not looked at.
        let found = words.split_first().and_then(|(count, frames)| {
            let count = usize::try_from(*count).ok()?;
            frames.get(..count)
        });

        let Some(found) = found else {
            let what = format!("sample {number}: its program did not write a list of frames");
            return self.fault(Rule::Program, entry.time, what);
        };

        let Some((tid, Some((stack, leaf)))) = self.truth(number).map(|t| (t.tid, t.stack)) else {
            return;
        };

        // The true chain at the sample, from the innermost frame outwards.
        let depth = self.stacks.depth(stack);
        let mut truth: Vec<u64> = (0..depth).map(|i| self.stacks.frame(stack, i)).collect();
        // The opcode of the push has one byte.
        if let Some(first) = truth.first_mut().filter(|_| leaf == Leaf::AfterPush) {
            *first += 1;
        }

        self.walks.push(Walk {
            number,
            tid,
            found: found.to_vec(),
            truth,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_is_right_too_short_or_wrong() {
        let outcome = |found: &[u64]| {
            let walk = Walk {
                number: 1,
                tid: 1,
                found: found.to_vec(),
                truth: vec![4, 3, 2, 1],
            };
            walk.outcome()
        };
        assert_eq!(outcome(&[4, 3, 2, 1]), WalkVerdict::Right);
        assert_eq!(outcome(&[4, 3]), WalkVerdict::Truncated);
        assert_eq!(outcome(&[]), WalkVerdict::Truncated);
        assert_eq!(outcome(&[4, 2, 1]), WalkVerdict::Missing);
        assert_eq!(outcome(&[4, 2]), WalkVerdict::Missing);
        assert_eq!(outcome(&[4, 5]), WalkVerdict::Wrong(1));
        // Nothing follows the outermost frame, and no frame comes twice.
        assert_eq!(outcome(&[4, 3, 2, 1, 9]), WalkVerdict::Wrong(4));
        assert_eq!(outcome(&[4, 4]), WalkVerdict::Wrong(1));
    }
}

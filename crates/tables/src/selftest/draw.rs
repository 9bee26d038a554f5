//! Random choices. By remainders, so that the seeds of published scores give the same defects.

use crate::random::Random;

/// A number below `limit`; 0 if that is 0.
pub(super) fn below(random: &mut Random, limit: usize) -> usize {
    (random.bits() % (limit as u64).max(1)) as usize
}

/// One of `things`.
pub(super) fn one<'a, T>(random: &mut Random, things: &'a [T]) -> Option<&'a T> {
    things.get(below(random, things.len()))
}

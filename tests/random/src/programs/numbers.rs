//! The random numbers of a program: each purpose has its own, so that more of one changes no other.

use crate::random::Random;

/// The numbers of `purpose`. The same seed and purpose give the same ones.
pub(super) fn numbers(seed: u64, purpose: u64) -> Random {
    let first = Random::new(seed).bits();
    Random::new(first ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03))
}

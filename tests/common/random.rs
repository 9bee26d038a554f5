//! The random numbers of tests, of fuzzers, and of commands that test with random inputs: a seed gives the
//! same numbers on every machine, and forever, since seeds are printed and documented.
//!
//! Packages read this file through a link at the same path below their own folder, so that none depends on
//! another for it. Not here: the numbers that programs get in the emulated machine
//! (`emulator/src/random.rs`), and those of quickcheck.
//!
//! Source: SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each package uses a part of it, and some show it to others"
)]

/// A source of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// 64 random bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number less than `end`; 0 if `end` is 0.
    #[inline]
    pub const fn below(&mut self, end: usize) -> usize {
        self.below_u64(end as u64) as usize
    }

    /// A number less than `end`; 0 if `end` is 0.
    #[inline]
    pub const fn below_u64(&mut self, end: u64) -> u64 {
        // The high half of the product: a remainder would take the low bits only, and a division.
        ((self.bits() as u128 * end as u128) >> 64) as u64
    }

    /// True with probability `part / whole`.
    #[inline]
    pub const fn chance(&mut self, part: usize, whole: usize) -> bool {
        self.below(whole) < part
    }

    /// A random element.
    ///
    /// # Panics
    /// If `all` is empty.
    #[inline]
    pub const fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Puts the elements into a random order.
    pub fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }
}

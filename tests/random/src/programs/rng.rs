//! Random numbers from a seed: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
//! number generators", 2014).

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// The same seed and `purpose` give the same numbers.
    pub(super) fn new(seed: u64, purpose: u64) -> Rng {
        let mut rng = Rng(seed);
        rng.0 = rng.next() ^ purpose.wrapping_mul(0xd1b5_4a32_d192_ed03);
        rng
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number less than `bound`, or 0 if `bound` is 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// True with probability `part` / `whole`.
    pub(super) fn chance(&mut self, part: usize, whole: usize) -> bool {
        self.below(whole) < part
    }

    /// A random element.
    ///
    /// # Panics
    /// If `all` is empty.
    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Shuffles the elements.
    pub(super) fn shuffle<T>(&mut self, all: &mut [T]) {
        for last in (1..all.len()).rev() {
            all.swap(last, self.below(last + 1));
        }
    }
}

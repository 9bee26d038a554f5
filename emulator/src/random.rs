//! The machine's random numbers, which its programs get: they depend on the seed of a run alone, so that a run
//! can be repeated. Not here: the numbers of tests (`tests/common/random.rs`).
//!
//! Source: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).

/// What the state grows by at each step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The number of `seed` after `steps` steps.
#[inline]
pub(crate) const fn number(seed: u64, steps: u64) -> u64 {
    let mut z = seed.wrapping_add(steps.wrapping_mul(STEP));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A source of random bytes.
#[cfg(unix)]
#[derive(Clone, Debug)]
pub(crate) struct Random {
    seed: u64,
    steps: u64,
}

#[cfg(unix)]
impl Random {
    pub(crate) const fn new(seed: u64) -> Random {
        Random { seed, steps: 0 }
    }

    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            self.steps = self.steps.wrapping_add(1);
            let bytes = number(self.seed, self.steps).to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, as the reference implementation gives them
    /// (<https://prng.di.unimi.it/splitmix64.c>; they stand in Rosetta Code, "Pseudo-random numbers/Splitmix64").
    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let numbers = [1, 2, 3].map(|steps| number(1_234_567, steps));
        assert_eq!(
            numbers,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn bytes_are_those_of_the_numbers() {
        let mut random = Random::new(1_234_567);
        let mut bytes = [0; 19];
        random.fill(&mut bytes[..11]);
        random.fill(&mut bytes[11..]);

        // Each call starts with a new number.
        let numbers = [1, 2, 3].map(|steps| number(1_234_567, steps).to_le_bytes());
        let wanted = [&numbers[0][..], &numbers[1][..3], &numbers[2]].concat();
        assert_eq!(bytes[..], wanted);
    }
}

//! Two hashes of many bytes in one pass, to tell images apart. The standard hash of all images takes a
//! tenth of a short import.

use std::hash::Hasher;

/// Odd numbers without a pattern: the fraction of the golden ratio, and that of the square root of 3.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b];

/// The hashes so far.
pub(super) struct Fingerprint {
    one: u64,
    other: u64,
}

impl Default for Fingerprint {
    /// Not zero, which a word of zeros would leave as it is.
    fn default() -> Self {
        let [one, other] = FACTORS;
        Self { one, other }
    }
}

impl Fingerprint {
    /// Both hashes.
    pub(super) fn both(self) -> (u64, u64) {
        (self.one, self.other)
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.one
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            // The length, so that zeros at the end count.
            word[7] = rest.len() as u8;
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.one = mixed(self.one ^ word, FACTORS[0]);
        self.other = mixed(self.other.rotate_left(23) ^ word, FACTORS[1]);
    }
}

/// Both halves of a product, together: each bit of the word changes many bits of it.
fn mixed(word: u64, factor: u64) -> u64 {
    let product = u128::from(word) * u128::from(factor);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> (u64, u64) {
        let mut state = Fingerprint::default();
        state.write(bytes);
        state.both()
    }

    /// Each single bit, each length of zeros, and the place of a byte change both hashes.
    #[test]
    fn similar_bytes_have_different_hashes() {
        let mut bytes = vec![0; 67];
        let (mut ones, mut others) = (Vec::new(), Vec::new());
        let mut add = |bytes: &[u8]| {
            let (one, other) = of(bytes);
            ones.push(one);
            others.push(other);
        };
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] = 1 << (bit % 8);
            add(&bytes);
            bytes[bit / 8] = 0;
        }
        for length in 0..bytes.len() {
            add(&bytes[..length]);
        }
        for mut hashes in [ones, others] {
            let count = hashes.len();
            hashes.sort_unstable();
            hashes.dedup();
            assert_eq!(hashes.len(), count);
        }
    }
}

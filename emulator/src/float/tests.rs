//! Comparisons with the host's arithmetic and with recorded results of a CPU.

mod elementary;
mod native;
mod sse_vectors;
mod x87_vectors;

use crate::test_random::Random;

/// A fixed sequence of numbers.
struct Sequence(Random);

impl Sequence {
    fn new(seed: u64) -> Sequence {
        Sequence(Random::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// Half of the numbers have few bits set, so that exact results and ties occur.
    fn sparse(&mut self) -> u64 {
        match self.next() % 4 {
            0 => self.next() & self.next() & self.next(),
            1 => u64::MAX << (self.next() % 64),
            _ => self.next(),
        }
    }

    /// A binary64; some have extreme exponents.
    fn binary64(&mut self) -> u64 {
        let exponent = match self.next() % 6 {
            0 => 0,
            1 => 1 + self.next() % 3,
            2 => 2044 + self.next() % 4,
            3 => 1000 + self.next() % 50,
            _ => self.next() % 2048,
        };
        let fraction = self.sparse() >> 12;
        (self.next() & 1) << 63 | exponent << 52 | fraction
    }

    /// A binary32; some have extreme exponents.
    fn binary32(&mut self) -> u32 {
        let exponent = match self.next() % 6 {
            0 => 0,
            1 => 1 + self.next() % 3,
            2 => 252 + self.next() % 4,
            3 => 110 + self.next() % 34,
            _ => self.next() % 256,
        };
        let fraction = self.sparse() >> 41;
        ((self.next() & 1) << 31 | exponent << 23 | fraction) as u32
    }
}

/// The lines of a vector file, split into fields, without comments.
fn vectors<const FIELDS: usize>(text: &str) -> impl Iterator<Item = [&str; FIELDS]> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            fields
                .try_into()
                .unwrap_or_else(|_| panic!("malformed line: {line}"))
        })
}

fn hex(digits: &str) -> u64 {
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("not hexadecimal: {digits}"))
}

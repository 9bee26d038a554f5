//! Choices from bytes: first the bytes themselves, so that a fuzzer steers them, then numbers drawn
//! from a seed that all bytes together make.

use crate::random::Random;

/// The source of all choices of one run.
pub(super) struct Choices<'a> {
    rest: &'a [u8],
    /// The numbers after the end of the bytes.
    further: Random,
    /// Whether unlikely choices are made at all: most runs are to reach what is behind the checks.
    is_wild: bool,
}

impl<'a> Choices<'a> {
    pub(super) fn new(data: &'a [u8]) -> Choices<'a> {
        Choices {
            rest: data,
            further: Random::new(crc32c::crc32c(data).into()),
            is_wild: true,
        }
    }

    /// The next two bytes; random numbers after the end.
    fn next(&mut self) -> u64 {
        if let Some((first, rest)) = self.rest.split_first_chunk::<2>() {
            self.rest = rest;
            return u16::from_le_bytes(*first).into();
        }
        self.further.bits()
    }

    /// The number that follows all bytes.
    pub(super) fn last(mut self) -> u64 {
        self.rest = &[];
        self.next()
    }

    /// A number below `end`; 0 if there is none.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % (end.max(1) as u64)) as usize
    }

    /// True once in `n` times.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// From now on, makes unlikely choices or not.
    pub(super) fn set_wild(&mut self, is_wild: bool) {
        self.is_wild = is_wild;
    }

    /// An unlikely choice: true once in `n` times, if they are made at all.
    pub(super) fn rarely(&mut self, n: usize) -> bool {
        self.is_wild && self.one_in(n)
    }

    /// One of `all`, of which there is at least one.
    pub(super) fn one_of<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[self.below(all.len())]
    }
}

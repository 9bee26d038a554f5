//! The vector registers. Not here: their masks, and the upper halves of zmm registers, which no
//! modelled instruction uses.

/// Number of registers.
const COUNT: usize = 16;
/// Number of 128-bit lanes in a register.
const LANES: usize = 2;

/// The registers ymm0 to ymm15; their lower halves are xmm0 to xmm15.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Vectors {
    /// By number, the lowest lane first.
    registers: [[u128; LANES]; COUNT],
}

impl Vectors {
    /// The lower half of a register. Numbers count modulo 16, here and below.
    #[inline(always)]
    pub fn xmm(&self, number: usize) -> u128 {
        self.registers[number % COUNT][0]
    }

    /// Sets the lower half, and keeps the upper one, as instructions of SSE do.
    #[inline(always)]
    pub fn set_xmm(&mut self, number: usize, value: u128) {
        self.registers[number % COUNT][0] = value;
    }

    /// A whole register, its lower half first.
    #[inline(always)]
    pub fn ymm(&self, number: usize) -> [u128; LANES] {
        self.registers[number % COUNT]
    }

    /// Sets a whole register. Instructions of AVX with xmm registers clear the upper half.
    #[inline(always)]
    pub fn set_ymm(&mut self, number: usize, value: [u128; LANES]) {
        self.registers[number % COUNT] = value;
    }

    /// The lower halves of all registers.
    pub fn lower(&self) -> [u128; COUNT] {
        self.registers.map(|[lower, _]| lower)
    }

    /// Sets the lower halves of all registers, and keeps the upper ones.
    pub fn set_lower(&mut self, values: [u128; COUNT]) {
        for (register, value) in self.registers.iter_mut().zip(values) {
            register[0] = value;
        }
    }
}

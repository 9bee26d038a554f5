//! Random numbers, and operand values: some arbitrary, many near points where behaviour changes,
//! such as small numbers, powers of two, and the limits of a format.

/// A random number generator (wyrand). The same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
        random.bits();
        random
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let wide = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        (wide >> 64) as u64 ^ wide as u64
    }

    /// A number below `end`, which must not be 0.
    #[inline]
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// True with probability `parts` / 256.
    #[inline]
    pub fn chance(&mut self, parts: u8) -> bool {
        (self.bits() >> 56) as u8 <= parts.wrapping_sub(1) && parts != 0
    }

    /// A random element.
    #[inline]
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// A value for a general register.
pub(super) fn integer(random: &mut Random) -> u64 {
    let bits = random.bits();
    let shift = bits >> 8 & 63;
    match bits & 15 {
        0..6 => random.bits(),
        6 | 7 => shift,
        8 => (shift as i64 - 32) as u64,
        9 => 1 << shift,
        10 => (1_u64 << shift).wrapping_sub(1 + (bits >> 16 & 1)),
        11 => u64::MAX << shift,
        12 => random.bits() >> shift,
        13 => random.bits() as i64 as i32 as u64,
        14 => (bits >> 16 & 0xff) * 0x0101_0101_0101_0101,
        _ => *random.pick(&EDGES),
    }
}

const EDGES: [u64; 16] = [
    0,
    1,
    u64::MAX,
    i64::MAX as u64,
    i64::MIN as u64,
    i32::MAX as u64,
    1 << 31,
    u32::MAX as u64,
    i32::MIN as i64 as u64,
    0x7fff,
    0x8000,
    0xffff,
    0x7f,
    0x80,
    0xff,
    0x8000_8000_8000_8000,
];

const SINGLES: [u32; 20] = [
    0,
    1,
    0x007f_ffff,
    0x0080_0000,
    0x0080_0001,
    0x3f80_0000,
    0x3f7f_ffff,
    0x3f00_0000,
    0x4000_0000,
    0x4b00_0000,
    0x4f00_0000,
    0x4eff_ffff,
    0x5f00_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0x7f80_0001,
    0x7fc0_0000,
    0x7fff_ffff,
    0x0040_0000,
    0x2000_0000,
];

const DOUBLES: [u64; 20] = [
    0,
    1,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x0010_0000_0000_0001,
    0x3ff0_0000_0000_0000,
    0x3fef_ffff_ffff_ffff,
    0x3fe0_0000_0000_0000,
    0x4000_0000_0000_0000,
    0x4330_0000_0000_0000,
    0x43e0_0000_0000_0000,
    0x41df_ffff_ffc0_0000,
    0x41e0_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x7ff0_0000_0000_0000,
    0x7ff0_0000_0000_0001,
    0x7ff8_0000_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x36a0_0000_0000_0000,
    0x47ef_ffff_e000_0000,
];

/// A binary32 value: special, near a special one, of moderate size, halfway between two numbers of
/// a smaller format, denormal, a NaN, or arbitrary.
pub(super) fn single(random: &mut Random) -> u32 {
    let bits = random.bits();
    let sign = (bits as u32) & 1 << 31;
    let (small, large) = ((bits >> 8 & 31) as u32, (bits >> 41) as u32);

    match bits & 15 {
        0..3 => *random.pick(&SINGLES) | sign,
        // Neighbours of the special values.
        3 | 4 => {
            random
                .pick(&SINGLES)
                .wrapping_add((bits >> 8 & 7) as u32)
                .wrapping_sub(3)
                ^ sign
        }
        // Integers and their halves, which are ties when rounded to an integer.
        5 => (((bits >> 32) as i32 >> small) as f32).to_bits(),
        6 => (((bits >> 32) as i32 >> small) as f32 / 2.0).to_bits(),
        // Of moderate size, so that a sum or a product of two is normal.
        7..10 => sign | (small + 112) << 23 | large,
        // Around the middle of two halves, also of denormal ones and of those that overflow.
        10 | 11 => {
            let exponent = 0x7f - 26 + (bits >> 8) as u32 % 44;
            let middle = (large & !0x1fff | 0x1000).wrapping_add((bits >> 16 & 3) as u32);
            sign | exponent << 23 | middle.wrapping_sub(1)
        }
        // Denormal numbers; NaNs.
        12 => sign | large,
        13 => sign | 0xff << 23 | large | 1 << (bits >> 16 & 15),
        _ => (bits >> 32) as u32,
    }
}

/// A binary64 value: like [`single`].
pub(super) fn double(random: &mut Random) -> u64 {
    let bits = random.bits();
    let sign = random.bits() & 1 << 63;
    let large = bits >> 12;

    match bits & 15 {
        0..3 => *random.pick(&DOUBLES) | sign,
        // Neighbours of the special values.
        3 | 4 => {
            random
                .pick(&DOUBLES)
                .wrapping_add(bits >> 8 & 7)
                .wrapping_sub(3)
                ^ sign
        }
        // Integers and their halves, which are ties when rounded to an integer.
        5 => f64::from((bits >> 32) as i32 >> (bits >> 8 & 31)).to_bits(),
        6 => (f64::from((bits >> 32) as i32 >> (bits >> 8 & 31)) / 2.0).to_bits(),
        // Of moderate size, so that a sum or a product of two is normal.
        7..10 => sign | ((bits >> 4 & 127) + 960) << 52 | large,
        // Around the middle of two singles, also of denormal ones and of those that overflow.
        10 | 11 => {
            let choice = random.bits();
            let exponent = match choice & 3 {
                0 => 0x3ff - 152 + choice % 28,
                1 => 0x3ff + 120 + choice % 12,
                _ => 0x3ff - 32 + choice % 64,
            };
            let middle = (large & !0x1fff_ffff | 0x1000_0000) + (choice >> 8 & 3);
            sign | exponent << 52 | (middle - 1)
        }
        // Denormal numbers; NaNs.
        12 => sign | large,
        13 => sign | 0x7ff << 52 | large | 1 << (bits >> 16 & 31),
        _ => random.bits(),
    }
}

const EXTENDED: [(u16, u64); 20] = [
    (0, 0),
    (0, 1),
    (0, i64::MAX as u64),
    (0, 1 << 63), // A pseudo-denormal.
    (1, 1 << 63),
    (1, 1), // An unnormal.
    (0x3fff, 1 << 63),
    (0x3ffe, u64::MAX),
    (0x3fff, u64::MAX),
    (0x4000, 0xc90f_daa2_2168_c235),
    (0x3fff, 0xc90f_daa2_2168_c235),
    (0x403e, 1 << 63),
    (0x403d, u64::MAX),
    (0x43ff, 1 << 63),
    (0x7ffe, u64::MAX),
    (0x7fff, 1 << 63),
    (0x7fff, 0xc000_0000_0000_0000),
    (0x7fff, 0xa000_0000_0000_0000),
    (0x7fff, 0), // A pseudo-infinity.
    (0x7fff, 1),
];

/// An 80-bit x87 value: sign and exponent, then the significand.
pub(super) fn extended(random: &mut Random) -> (u16, u64) {
    let bits = random.bits();
    let sign = (bits as u16) & 1 << 15;
    let normal = random.bits() | 1 << 63;
    match bits & 7 {
        0 | 1 => {
            let (exponent, significand) = *random.pick(&EXTENDED);
            (exponent | sign, significand)
        }
        2 => {
            let integer = normal & (u64::MAX << (bits >> 16 & 63));
            (sign | (0x3fff + (bits >> 24 & 63) as u16), integer)
        }
        3..6 => (sign | (0x3fdf + (bits >> 24 & 63) as u16), normal),
        6 => (sign | ((bits >> 32) as u16 & 0x7fff), normal),
        _ => ((bits >> 32) as u16, random.bits()),
    }
}

/// What vectors hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    /// binary32 numbers.
    Single,
    /// binary64 numbers.
    Double,
    /// Anything else.
    Other,
}

impl Element {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Element; 3] = [Element::Single, Element::Double, Element::Other];
}

/// 16 bytes for an SSE register or memory: numbers of this kind; or, if it is [`Element::Other`], of
/// any.
pub(super) fn vector(element: Element, random: &mut Random) -> [u8; 16] {
    let wide = |high: u64, low: u64| u128::from(high) << 64 | u128::from(low);
    let bits = random.bits();

    // Integer instructions get floating-point values, too, now and then.
    let element = match (element, bits & 7) {
        (Element::Other, 0) => Element::Single,
        (Element::Other, 1) => Element::Double,
        (element, _) => element,
    };

    let value = match element {
        Element::Single => {
            let mut pair = || u64::from(single(random)) << 32 | u64::from(single(random));
            wide(pair(), pair())
        }
        Element::Double => wide(double(random), double(random)),
        Element::Other => match bits & 7 {
            2 | 3 => wide(integer(random), integer(random)),
            4 => {
                let (exponent, significand) = extended(random);
                wide(exponent.into(), significand)
            }
            // Bytes or words of few values, so that some are equal.
            5 => {
                let mask = if bits & 8 != 0 { 0x0303 } else { 0x0083 };
                wide(random.bits(), random.bits()) & (u128::MAX / 0xffff * mask)
            }
            _ => wide(random.bits(), random.bits()),
        },
    };

    value.to_le_bytes()
}

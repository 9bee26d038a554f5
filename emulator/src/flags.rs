//! The arithmetic flags, kept as the values they are computed from until they are needed.
//!
//! An instruction leaves its result and the carries out of each bit. CF, OF and AF are carries; ZF,
//! SF and PF are properties of the result. Where the flags do not come from one result (`popf`,
//! `inc`, which keeps CF), two corrections adjust what the result gives.

/// Carry.
pub const CF: u64 = 1;
/// Parity of the low byte: set if even.
pub const PF: u64 = 1 << 2;
/// Carry out of bit 3.
pub const AF: u64 = 1 << 4;
/// Zero.
pub const ZF: u64 = 1 << 6;
/// Sign.
pub const SF: u64 = 1 << 7;
/// Trap after each instruction.
pub const TF: u64 = 1 << 8;
/// Interrupts enabled.
pub const IF: u64 = 1 << 9;
/// Direction: string instructions go down.
pub const DF: u64 = 1 << 10;
/// Overflow.
pub const OF: u64 = 1 << 11;
/// The privilege level up to which code may use ports and change IF: two bits.
pub const IOPL: u64 = 3 << 12;
/// Nested task.
pub const NT: u64 = 1 << 14;
/// Resume.
pub const RF: u64 = 1 << 16;
/// Virtual-8086 mode.
pub const VM: u64 = 1 << 17;
/// Alignment check.
pub const AC: u64 = 1 << 18;
/// IF of virtual-8086 mode.
pub const VIF: u64 = 1 << 19;
/// An interrupt of virtual-8086 mode is pending.
pub const VIP: u64 = 1 << 20;
/// Can be changed if `cpuid` exists.
pub const ID: u64 = 1 << 21;
/// Always set.
pub const FIXED: u64 = 1 << 1;
/// The flags that arithmetic sets.
pub const ARITHMETIC: u64 = CF | PF | AF | ZF | SF | OF;
/// The flags that `popf` can change in user mode.
pub const USER: u64 = ARITHMETIC | TF | DF | NT | AC | ID;

/// All flags that exist.
pub(crate) const ALL: u64 = USER | IF | IOPL | RF | VM | VIF | VIP;

/// The two bits that encode CF and OF.
const TOP: u64 = 0b11 << 62;
const AUX: u64 = 1 << 3;
/// The sign is the opposite of the result's.
const SIGN_FLIP: u64 = 1;

/// The six arithmetic flags, unevaluated.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// The result, sign-extended from the operand's width.
    result: u64,
    /// Bit 63: the carry out. Bit 62: the carry into the sign bit. Bit 3: the carry out of bit 3.
    /// Bit 0: flips the sign. Bits 8 to 15: flip bits of the byte whose parity is PF.
    carries: u64,
}

impl Flags {
    /// The flags of an addition `a + b` of `W` bits, with or without carry; the operands are
    /// zero-extended.
    #[inline(always)]
    pub fn add<const W: u32>(a: u64, b: u64, result: u64) -> Flags {
        Flags::with::<W>(result, (a & b) | ((a | b) & !result))
    }

    /// The flags of a subtraction `a - b`, with or without borrow.
    #[inline(always)]
    pub fn sub<const W: u32>(a: u64, b: u64, result: u64) -> Flags {
        Flags::with::<W>(result, (!a & b) | ((!a | b) & result))
    }

    #[inline(always)]
    fn with<const W: u32>(result: u64, carries: u64) -> Flags {
        Flags {
            result: sign_extend::<W>(result),
            carries: ((carries << (64 - W)) & TOP) | (carries & AUX),
        }
    }

    /// The flags of a logical operation: CF, OF and AF are clear.
    #[inline(always)]
    pub fn logic<const W: u32>(result: u64) -> Flags {
        Flags {
            result: sign_extend::<W>(result),
            carries: 0,
        }
    }

    /// ZF, SF and PF of a result, with the given CF and OF; AF is clear.
    #[inline(always)]
    pub fn result_with<const W: u32>(result: u64, cf: bool, of: bool) -> Flags {
        let mut flags = Flags::logic::<W>(result);
        flags.set_carries(cf, of);
        flags
    }

    /// The flags in rflags.
    pub fn from_bits(bits: u64) -> Flags {
        let zero = bits & ZF != 0;
        let mut flags = Flags {
            result: if zero { 0 } else { 1 << 8 },
            carries: 0,
        };
        if bits & SF != 0 {
            flags.carries |= SIGN_FLIP;
        }
        if bits & PF == 0 {
            flags.carries |= 1 << 8;
        }
        if bits & AF != 0 {
            flags.carries |= AUX;
        }
        flags.set_carries(bits & CF != 0, bits & OF != 0);
        flags
    }

    /// The flags as bits of rflags.
    pub fn bits(self) -> u64 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(self.cf(), CF)
            | bit(self.pf(), PF)
            | bit(self.af(), AF)
            | bit(self.zf(), ZF)
            | bit(self.sf(), SF)
            | bit(self.of(), OF)
    }

    /// Sets CF and OF.
    #[inline(always)]
    pub fn set_carries(&mut self, cf: bool, of: bool) {
        let top = u64::from(cf) << 63 | u64::from(cf != of) << 62;
        self.carries = (self.carries & !TOP) | top;
    }

    /// Sets CF.
    #[inline(always)]
    pub fn set_cf(&mut self, cf: bool) {
        let of = self.of();
        self.set_carries(cf, of);
    }

    /// Carry.
    #[inline(always)]
    pub fn cf(self) -> bool {
        self.carries.cast_signed() < 0
    }

    /// Overflow.
    #[inline(always)]
    pub fn of(self) -> bool {
        (self.carries ^ self.carries << 1).cast_signed() < 0
    }

    /// Zero.
    #[inline(always)]
    pub fn zf(self) -> bool {
        self.result == 0
    }

    /// Sign.
    #[inline(always)]
    pub fn sf(self) -> bool {
        (self.result ^ self.carries << 63).cast_signed() < 0
    }

    /// Even parity of the low byte.
    #[inline(always)]
    pub fn pf(self) -> bool {
        ((self.result ^ self.carries >> 8) as u8)
            .count_ones()
            .is_multiple_of(2)
    }

    /// Carry out of bit 3.
    #[inline(always)]
    pub fn af(self) -> bool {
        self.carries & AUX != 0
    }

    /// Condition `CC` as instructions encode it (SDM volume 2, table B-10): 0 is `o`, 15 is `g`.
    #[inline(always)]
    pub fn condition<const CC: u8>(self) -> bool {
        let even = match CC & !1 {
            0 => self.of(),
            2 => self.cf(),
            4 => self.zf(),
            6 => self.cf() || self.zf(),
            8 => self.sf(),
            10 => self.pf(),
            12 => self.sf() != self.of(),
            _ => self.zf() || self.sf() != self.of(),
        };
        even != (CC & 1 != 0)
    }
}

/// Sign-extends the low `W` bits.
#[inline(always)]
pub(crate) const fn sign_extend<const W: u32>(value: u64) -> u64 {
    match W {
        8 => value as u8 as i8 as u64,
        16 => value as u16 as i16 as u64,
        32 => value as u32 as i32 as u64,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_kept() {
        for n in 0..64 {
            let flag = |bit: u32, flag| if n >> bit & 1 != 0 { flag } else { 0 };
            let bits =
                flag(0, CF) | flag(1, PF) | flag(2, AF) | flag(3, ZF) | flag(4, SF) | flag(5, OF);
            assert_eq!(Flags::from_bits(bits).bits(), bits, "{bits:#x}");
            let mut changed = Flags::from_bits(bits);
            changed.set_cf(bits & CF == 0);
            assert_eq!(changed.bits(), bits ^ CF, "{bits:#x}");
        }
    }

    /// Compares with the definitions in wider integers, for all pairs of bytes.
    #[test]
    fn additions_and_subtractions_of_bytes() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let common = |r: u8| {
                    let flag = |set, flag| if set { flag } else { 0 };
                    flag(r == 0, ZF)
                        | flag(r >= 0x80, SF)
                        | flag(r.count_ones().is_multiple_of(2), PF)
                        | flag((a ^ b ^ r) & 0x10 != 0, AF)
                };
                let (r, carry) = a.overflowing_add(b);
                let of = a.cast_signed().checked_add(b.cast_signed()).is_none();
                let want = common(r) | u64::from(carry) | if of { OF } else { 0 };
                assert_eq!(Flags::add::<8>(a.into(), b.into(), r.into()).bits(), want);
                let (r, borrow) = a.overflowing_sub(b);
                let of = a.cast_signed().checked_sub(b.cast_signed()).is_none();
                let want = common(r) | u64::from(borrow) | if of { OF } else { 0 };
                let wide = u64::from(a).wrapping_sub(b.into()) & 0xff;
                assert_eq!(wide, r.into());
                assert_eq!(Flags::sub::<8>(a.into(), b.into(), wide).bits(), want);
            }
        }
    }
}

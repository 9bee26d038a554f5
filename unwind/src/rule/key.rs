//! The short form of a rule: sixteen bytes that can represent nearly every rule. Used to find
//! duplicates and in the walk's fast path.

use super::{Base, Rule, RuleKind, Value};
use crate::regs::Reg;

/// The columns: the callee-saved registers in the order of [`Reg::CALLEE_SAVED`], sp, ra.
pub(crate) const COLUMNS: usize = 8;
pub(crate) const SP: usize = 6;
pub(crate) const RA: usize = 7;
const RBP_COLUMN: usize = 1;

/// One byte per column: 0 is unspecified, 1 to `CODE_MAX` is the word at cfa - 8 * code.
const UNSPECIFIED: u8 = 0;
const CODE_MAX: u8 = 252;
const UNDEFINED: u8 = 253;
const SAME: u8 = 254;
/// A value that has no code.
const OTHER: u8 = 255;

#[inline]
const fn code(value: Value) -> u8 {
    match value {
        Value::Unspecified => UNSPECIFIED,
        Value::Undefined => UNDEFINED,
        Value::Same => SAME,
        Value::Load {
            base: Base::Cfa,
            offset: o @ -2016..=-8,
            addend: 0,
        } if o % 8 == 0 => (-o / 8) as u8,
        _ => OTHER,
    }
}

/// The codes of all columns, one byte each. A single word instead of an array, so that reading all
/// of them right after writing one does not stall on memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Codes(u64);

impl Codes {
    /// All columns unspecified.
    pub(crate) const NONE: Codes = Codes(UNSPECIFIED as u64);

    /// Sets a column; returns whether its value has a code.
    #[inline]
    pub(crate) const fn set(&mut self, column: usize, value: Value) -> bool {
        let code = code(value);
        self.put(column, code);
        code != OTHER
    }

    /// Sets a column to the word at cfa - 8 * `words`; returns whether that has a code.
    #[inline]
    pub(crate) const fn set_slot(&mut self, column: usize, words: u8) -> bool {
        let has_code = words != UNSPECIFIED && words <= CODE_MAX;
        if has_code {
            self.put(column, words);
        }
        has_code
    }

    /// Copies a column from `other`; returns whether the column has a code there.
    #[inline]
    pub(crate) const fn copy(&mut self, column: usize, other: Codes) -> bool {
        let code = other.code(column);
        self.put(column, code);
        code != OTHER
    }

    #[inline]
    const fn put(&mut self, column: usize, code: u8) {
        let shift = 8 * column;
        self.0 = self.0 & !(0xff << shift) | (code as u64) << shift;
    }

    #[inline]
    const fn code(self, column: usize) -> u8 {
        (self.0 >> (8 * column)) as u8
    }

    /// The column's value, if it has a code.
    pub(crate) const fn value(self, column: usize) -> Option<Value> {
        match self.code(column) {
            UNSPECIFIED => Some(Value::Unspecified),
            UNDEFINED => Some(Value::Undefined),
            SAME => Some(Value::Same),
            OTHER => None,
            words => Some(Value::at_cfa(-8 * words as i32)),
        }
    }

    /// Whether the column is undefined.
    #[inline]
    pub(crate) const fn is_undefined(self, column: usize) -> bool {
        self.code(column) == UNDEFINED
    }

    /// Whether any column has no code.
    #[inline]
    pub(crate) const fn has_other(self) -> bool {
        // The usual test for a zero byte, applied to the complement.
        const LOW: u64 = u64::from_le_bytes([1; 8]);
        let inverted = !self.0;
        inverted.wrapping_sub(LOW) & self.0 & (LOW << 7) != 0
    }
}

/// The short form of a CFA in one word: the offset in the low half, then the number of the base
/// register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CfaCode(u64);

const BASE_SHIFT: u32 = 32;
const KIND_SHIFT: u32 = 40;
const BY_FRAME_POINTER: u64 = 1 << 48;

impl CfaCode {
    /// A CFA that is not a register plus an offset.
    pub(crate) const OTHER: CfaCode = CfaCode(0xff << BASE_SHIFT);

    /// `reg + offset`.
    #[inline]
    pub(crate) const fn reg(reg: Reg, offset: i32) -> CfaCode {
        CfaCode((reg as u64) << BASE_SHIFT | offset.cast_unsigned() as u64)
    }

    /// The same base with another offset.
    #[inline]
    pub(crate) const fn with_offset(self, offset: i32) -> CfaCode {
        CfaCode(self.0 >> BASE_SHIFT << BASE_SHIFT | offset.cast_unsigned() as u64)
    }

    /// The offset.
    #[inline]
    pub(crate) const fn offset(self) -> i32 {
        (self.0 as u32).cast_signed()
    }

    /// The base register.
    #[inline]
    pub(crate) fn base(self) -> Option<Reg> {
        Reg::ALL
            .get((self.0 >> BASE_SHIFT) as usize & 0xff)
            .copied()
    }

    /// Whether it is not a register plus an offset.
    #[inline]
    pub(crate) fn is_other(self) -> bool {
        self == CfaCode::OTHER
    }
}

/// A rule whose CFA depends on a register and whose columns all have a code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RuleKey {
    /// A [`CfaCode`], the rule's kind, and whether it follows the frame-pointer convention.
    head: u64,
    codes: Codes,
}

impl RuleKey {
    /// The short form of a table's rule with this CFA and these codes, if there is one.
    #[inline]
    pub(crate) fn new(kind: RuleKind, cfa: CfaCode, codes: Codes) -> Option<RuleKey> {
        (!cfa.is_other() && !codes.has_other()).then_some(RuleKey {
            head: cfa.0 | (kind as u64) << KIND_SHIFT,
            codes,
        })
    }

    pub(crate) fn of(rule: &Rule) -> Option<RuleKey> {
        let Value::Offset {
            base: Base::Reg(base),
            offset,
        } = rule.cfa
        else {
            return None;
        };
        let mut codes = Codes::NONE;
        for (column, value) in rule.saved.into_iter().enumerate() {
            codes.set(column, value);
        }
        codes.set(SP, rule.sp);
        codes.set(RA, rule.ra);
        let mut key = RuleKey::new(rule.kind, CfaCode::reg(base, offset), codes)?;
        if rule.by_frame_pointer {
            key.head |= BY_FRAME_POINTER;
        }
        Some(key)
    }

    /// The CFA, return address and rbp of an ordinary frame's rule, if the CFA is rsp or rbp plus
    /// an offset of 16 bits and the return address is below it, and whether the rule has more:
    /// values for rbx or r12 to r15. rbp without a slot is `Same`.
    #[inline]
    pub(crate) fn of_frame(self) -> Option<(RuleKey, bool)> {
        let cfa = CfaCode(self.head & ((1 << KIND_SHIFT) - 1));
        let is_usual = self.head >> KIND_SHIFT == RuleKind::Call as u64
            && matches!(cfa.base(), Some(Reg::Rsp | Reg::Rbp))
            && i16::try_from(cfa.offset()).is_ok();
        let (ra, sp) = (self.codes.code(RA), self.codes.code(SP));
        let rbp = match self.codes.code(RBP_COLUMN) {
            UNSPECIFIED | SAME => SAME,
            words @ 1..=CODE_MAX => words,
            _ => return None,
        };
        if !is_usual || (ra, sp) != (1, UNSPECIFIED) {
            return None;
        }
        let mut codes = Codes::NONE;
        codes.put(RBP_COLUMN, rbp);
        codes.put(RA, ra);
        let says = |column: usize| !matches!(self.codes.code(column), UNSPECIFIED | SAME);
        let more = [0, 2, 3, 4, 5].into_iter().any(says);
        Some((RuleKey { codes, ..self }, more))
    }

    /// The rule with this short form, which [`RuleKey::of_frame`] made.
    pub(crate) fn frame_rule(self) -> Rule {
        let value = |column| self.codes.value(column).unwrap_or(Value::Unspecified);
        let cfa = CfaCode(self.head & ((1 << KIND_SHIFT) - 1));
        let cfa = cfa.base().map(|base| Value::reg(base, cfa.offset()));
        let rule = Rule::call(cfa.unwrap_or(Value::Undefined));
        rule.with_saved(Reg::Rbp, value(RBP_COLUMN))
    }

    /// Spreads the keys evenly over the numbers below `1 << bits`; not proof against input made to
    /// collide.
    #[inline]
    pub(crate) const fn spread(&self, bits: u32) -> usize {
        let mixed = self.head.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ self.codes.0.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        (mixed >> (64 - bits)) as usize
    }
}

/// How a rule is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// With the full rule instead of the packed one.
    Generic,
    /// cfa = rsp + offset, ra at cfa - 8.
    Rsp,
    /// cfa = rbp + offset, ra at cfa - 8.
    Rbp,
}

/// The parts of a rule that the walk's fast path needs, in one word.
///
/// Bits 0 and 1 are the shape, bits 2 to 15 the CFA's offset in words. Byte 2 + i is the slot of
/// callee-saved register i.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed(u64);

const RSP: u16 = 1;
const RBP: u16 = 2;
const SHAPE: u16 = RSP | RBP;

impl Packed {
    pub(crate) const GENERIC: Packed = Packed(0);

    /// The packed form of a rule with the base rsp (`RSP`) or rbp (`RBP`), if its offset fits: a
    /// multiple of 8 below 128 KiB.
    fn new(base: u16, cfa_offset: i32, slots: [u8; 6]) -> Packed {
        let words = u16::try_from(cfa_offset / 8).ok();
        let [a, b, c, d, e, f] = slots;
        match words.filter(|words| cfa_offset % 8 == 0 && *words <= u16::MAX >> 2) {
            Some(words) => {
                let [low, high] = (words << 2 | base).to_le_bytes();
                Packed(u64::from_le_bytes([low, high, a, b, c, d, e, f]))
            }
            None => Packed::GENERIC,
        }
    }

    /// How the rule is applied.
    #[inline]
    pub(crate) const fn shape(self) -> Shape {
        match self.0 as u16 & SHAPE {
            RSP => Shape::Rsp,
            RBP => Shape::Rbp,
            _ => Shape::Generic,
        }
    }

    /// The CFA's offset from its base register, bytes.
    #[inline]
    pub(crate) const fn cfa_offset(self) -> u64 {
        (self.0 as u16 & !SHAPE) as u64 * 2
    }

    /// How far below the CFA callee-saved register `index` is, in words; 0 means that the register
    /// keeps its value.
    #[inline]
    pub(crate) const fn slot(self, index: usize) -> u8 {
        (self.0 >> (16 + 8 * index)) as u8
    }
}

impl Packed {
    /// The packed form of an ordinary frame's rule; [`Packed::GENERIC`] for any other rule.
    pub(crate) fn of(key: &RuleKey) -> Packed {
        let cfa = CfaCode(key.head & ((1 << KIND_SHIFT) - 1));
        let base = match cfa.base() {
            Some(Reg::Rsp) if key.head & BY_FRAME_POINTER == 0 => RSP,
            Some(Reg::Rbp) => RBP,
            _ => return Packed::GENERIC,
        };
        let columns = key.codes.0.to_le_bytes();
        let kind = (key.head >> KIND_SHIFT) as u8;
        if kind != RuleKind::Call as u8 || columns[SP] != UNSPECIFIED || columns[RA] != 1 {
            return Packed::GENERIC;
        }
        let mut slots = [0; 6];
        for (slot, code) in slots.iter_mut().zip(columns) {
            *slot = match code {
                SAME => 0,
                code @ 0..=CODE_MAX => code,
                _ => return Packed::GENERIC,
            };
        }
        Packed::new(base, cfa.offset(), slots)
    }
}

//! The short form of a rule: sixteen bytes that can represent nearly every rule. Used to find
//! duplicates and in the walk's fast path.

use super::{Base, Rule, RuleKind, Value};
use crate::regs::Reg;
use core::hash::{Hash, Hasher};

/// The columns: the callee-saved registers in the order of [`Reg::CALLEE_SAVED`], sp, ra.
pub(crate) const COLUMNS: usize = 8;
pub(crate) const SP: usize = 6;
pub(crate) const RA: usize = 7;

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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Codes(u64);

impl Codes {
    /// All columns unspecified.
    pub(crate) const NONE: Codes = Codes(UNSPECIFIED as u64);

    #[inline]
    pub(crate) const fn set(&mut self, column: usize, value: Value) {
        let shift = 8 * column;
        self.0 = self.0 & !(0xff << shift) | (code(value) as u64) << shift;
    }

    /// Whether any column has no code.
    #[inline]
    const fn has_other(self) -> bool {
        // The usual test for a zero byte, applied to the complement.
        const LOW: u64 = u64::from_le_bytes([1; 8]);
        let inverted = !self.0;
        inverted.wrapping_sub(LOW) & self.0 & (LOW << 7) != 0
    }
}

/// A rule whose CFA depends on a register and whose columns all have a code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    kind: RuleKind,
    by_frame_pointer: bool,
    base: Reg,
    offset: i32,
    codes: Codes,
}

impl Key {
    /// The short form of a table's rule with this CFA and these codes, if there is one.
    #[inline]
    pub(crate) fn new(kind: RuleKind, cfa: Value, codes: Codes) -> Option<Key> {
        match cfa {
            Value::Offset {
                base: Base::Reg(base),
                offset,
            } if !codes.has_other() => Some(Key {
                kind,
                by_frame_pointer: false,
                base,
                offset,
                codes,
            }),
            _ => None,
        }
    }

    pub(crate) fn of(rule: &Rule) -> Option<Key> {
        let mut codes = Codes::NONE;
        for (column, value) in rule.saved.into_iter().enumerate() {
            codes.set(column, value);
        }
        codes.set(SP, rule.sp);
        codes.set(RA, rule.ra);
        let key = Key::new(rule.kind, rule.cfa, codes)?;
        Some(Key {
            by_frame_pointer: rule.by_frame_pointer,
            ..key
        })
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [a, b, c, d] = self.offset.to_le_bytes();
        let (base, kind) = (self.base as u8, self.kind as u8);
        let head = [a, b, c, d, base, kind, self.by_frame_pointer.into(), 0];
        state.write_u64(u64::from_le_bytes(head));
        state.write_u64(self.codes.0);
    }
}

/// How a rule is applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Shape {
    /// With the full rule instead of the packed one.
    Generic,
    /// cfa = rsp + offset, ra at cfa - 8.
    Rsp,
    /// cfa = rbp + offset, ra at cfa - 8.
    Rbp,
}

/// The parts of a rule that the walk's fast path needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed {
    pub(crate) cfa_offset: i32,
    /// Callee-saved register i is at cfa - 8 * slots\[i\]; 0 means that it keeps its value.
    pub(crate) slots: [u8; 6],
    pub(crate) shape: Shape,
}

impl Packed {
    pub(crate) const GENERIC: Packed = Packed {
        cfa_offset: 0,
        slots: [0; 6],
        shape: Shape::Generic,
    };

    /// The packed form of an ordinary frame's rule; [`Packed::GENERIC`] for any other rule.
    pub(crate) fn of(key: &Key) -> Packed {
        let shape = match key.base {
            Reg::Rsp if !key.by_frame_pointer => Shape::Rsp,
            Reg::Rbp => Shape::Rbp,
            _ => return Packed::GENERIC,
        };
        let columns = key.codes.0.to_le_bytes();
        if key.kind != RuleKind::Call || columns[SP] != UNSPECIFIED || columns[RA] != 1 {
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
        Packed {
            cfa_offset: key.offset,
            slots,
            shape,
        }
    }
}

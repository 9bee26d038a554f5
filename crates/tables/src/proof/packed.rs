//! A [`Value`] as one number, which states keep: what is the same is found by comparing numbers.

use super::claim;
use super::value::{Value, is_callee_saved};
use std::fmt;
use unwind_sim_unwind::regs::Reg;

/// A value as one number: equal values are equal numbers, and a stack address is what it is based on
/// in the lower half and its offset in the upper one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed(u64);

const UNKNOWN: u8 = 0;
const VARIES: u8 = 1;
const COMPUTED: u8 = 2;
const ENTRY: u8 = 3;
const RETURN_ADDRESS: u8 = 4;
const CONST: u8 = 5;
const BELOW: u8 = 6;
const INDEX: u8 = 7;
const TABLE_ENTRY: u8 = 8;
const TABLE_TARGET: u8 = 9;
const GUESSED: u8 = 10;
const BY_CALLEE: u8 = 11;
const INSIDE: u8 = 12;

/// For each register: its place in [`Reg::CALLEE_SAVED`].
const NUMBERS: [Option<usize>; 16] = {
    let mut numbers = [None; 16];
    let mut n = 0;
    while n < Reg::CALLEE_SAVED.len() {
        numbers[Reg::CALLEE_SAVED[n] as usize] = Some(n);
        n += 1;
    }
    numbers
};

impl Packed {
    pub(super) const UNKNOWN: Packed = Packed::new(Value::Unknown);
    pub(super) const COMPUTED: Packed = Packed::new(Value::Computed);
    /// rsp at entry.
    const FRAME: Packed = Packed::new(Value::frame(0));

    #[inline]
    pub(super) const fn new(value: Value) -> Packed {
        const fn with(kind: u8, low: u64, high: u32) -> Packed {
            Packed(kind as u64 | low | (high as u64) << 32)
        }
        match value {
            Value::Unknown => with(UNKNOWN, 0, 0),
            Value::Varies => with(VARIES, 0, 0),
            Value::Guessed => with(GUESSED, 0, 0),
            Value::ByCallee => with(BY_CALLEE, 0, 0),
            Value::Computed => with(COMPUTED, 0, 0),
            // The kind is in the lowest byte; what is added to an address is in the upper half,
            // where it can be changed by a sum.
            Value::Entry { reg, offset } => with(ENTRY, (reg as u64) << 8, offset.cast_unsigned()),
            Value::ReturnAddress => with(RETURN_ADDRESS, 0, 0),
            Value::Inside => with(INSIDE, 0, 0),
            Value::Const(n) => with(CONST, 0, n.cast_unsigned()),
            Value::Below { anchor, offset } => {
                with(BELOW, (anchor as u64) << 16, offset.cast_unsigned())
            }
            Value::Index { shift, width, max } => {
                with(INDEX, (shift as u64) << 8 | (width as u64) << 16, max)
            }
            Value::TableEntry { table } => with(TABLE_ENTRY, (table as u64) << 16, 0),
            Value::TableTarget { table, base } => {
                with(TABLE_TARGET, (table as u64) << 16, base.cast_unsigned())
            }
        }
    }

    const fn kind(self) -> u8 {
        self.0 as u8
    }

    /// The register of a value at entry.
    #[inline]
    pub(super) const fn reg(self) -> Reg {
        Reg::ALL[(self.0 >> 8) as usize & 15]
    }

    /// The upper half of a stack address: its offset, bytes.
    #[inline]
    pub(super) const fn offset(self) -> i32 {
        ((self.0 >> 32) as u32).cast_signed()
    }

    /// Whether two stack addresses are at a known distance from each other.
    #[inline]
    pub(super) const fn has_base_of(self, other: Packed) -> bool {
        self.0 as u32 == other.0 as u32
    }

    /// See [`Value::is_stack`].
    #[inline]
    pub(super) const fn is_stack(self) -> bool {
        self.has_base_of(Self::FRAME) || self.kind() == BELOW
    }

    /// Whether a row may say that a register or slot has this value.
    #[inline]
    pub(super) const fn matters(self) -> bool {
        match self.kind() {
            UNKNOWN | VARIES | GUESSED | BY_CALLEE | RETURN_ADDRESS | BELOW => true,
            ENTRY => {
                let reg = self.reg();
                matches!(reg, Reg::Rsp) || self.offset() == 0 && is_callee_saved(reg)
            }
            _ => false,
        }
    }

    /// Whether it is the return address, or what a register but rsp was at entry, plus a number.
    #[inline]
    pub(super) const fn is_of_caller(self) -> bool {
        match self.kind() {
            RETURN_ADDRESS => true,
            ENTRY => !matches!(self.reg(), Reg::Rsp),
            _ => false,
        }
    }

    /// The place in [`super::claim::CommonRow::slots`] of a register's value at entry, or of the return
    /// address.
    #[inline]
    pub(super) fn number_in_row(self) -> Option<usize> {
        match self.kind() {
            RETURN_ADDRESS => Some(claim::RETURN_ADDRESS),
            ENTRY if self.offset() == 0 => NUMBERS[self.reg() as usize & 15],
            _ => None,
        }
    }

    /// The value, as it was before it was packed.
    #[inline]
    pub(super) const fn value(self) -> Value {
        // The fields lie where `new` has put them.
        let high = (self.0 >> 32) as u32;
        let middle = (self.0 >> 16) as u16;
        match self.kind() {
            VARIES => Value::Varies,
            GUESSED => Value::Guessed,
            BY_CALLEE => Value::ByCallee,
            INSIDE => Value::Inside,
            COMPUTED => Value::Computed,
            ENTRY => Value::Entry {
                reg: self.reg(),
                offset: high.cast_signed(),
            },
            RETURN_ADDRESS => Value::ReturnAddress,
            CONST => Value::Const(high.cast_signed()),
            BELOW => Value::Below {
                anchor: middle,
                offset: high.cast_signed(),
            },
            INDEX => Value::Index {
                shift: (self.0 >> 8) as u8,
                width: middle as u8,
                max: high,
            },
            TABLE_ENTRY => Value::TableEntry { table: middle },
            TABLE_TARGET => Value::TableTarget {
                table: middle,
                base: high.cast_signed(),
            },
            _ => Value::Unknown,
        }
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// The place of a slot: a stack address, and the slot's size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotKey(u64);

impl SlotKey {
    /// Where the size is, which no stack address uses.
    const SIZE_SHIFT: u32 = 12;
    const SIZE: u64 = 0xf << Self::SIZE_SHIFT;

    /// The `size` bytes, 4 or 8, at the stack address `at`.
    #[inline]
    pub(super) const fn new(at: Value, size: u8) -> SlotKey {
        SlotKey(Packed::new(at).0 | (size as u64 & 0xf) << Self::SIZE_SHIFT)
    }

    #[inline]
    pub(super) const fn size(self) -> u8 {
        (self.0 >> Self::SIZE_SHIFT) as u8 & 0xf
    }

    /// The stack address of the slot.
    #[inline]
    pub(super) const fn at(self) -> Packed {
        Packed(self.0 & !Self::SIZE)
    }

    /// Whether it has a byte in the `size` bytes at the stack address `at`.
    #[inline]
    pub(super) fn overlaps(self, at: Packed, size: u32) -> bool {
        let mine = self.at();
        let (start, other) = (i64::from(mine.offset()), i64::from(at.offset()));
        mine.has_base_of(at)
            && start < other + i64::from(size)
            && other < start + i64::from(self.size())
    }

    /// Whether all of its bytes are in the `size` bytes at the stack address `at`.
    pub(super) fn is_within(self, at: Packed, size: u32) -> bool {
        let mine = self.at();
        let (start, other) = (i64::from(mine.offset()), i64::from(at.offset()));
        mine.has_base_of(at)
            && other <= start
            && start + i64::from(self.size()) <= other + i64::from(size)
    }
}

impl fmt::Debug for SlotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:?}", self.size(), self.at())
    }
}

/// The registers of a set with one bit for each.
#[inline]
pub fn registers(mut set: u16) -> impl Iterator<Item = Reg> {
    std::iter::from_fn(move || {
        let first = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        Reg::ALL.get(first).copied().filter(|_| first < 16)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_value_is_the_same_value() {
        // The ends of what 32 bits hold, since offsets are packed into half a word.
        let numbers = [0, 1, -1, 8, i32::MIN, i32::MAX];
        let mut values = vec![
            Value::Unknown,
            Value::Varies,
            Value::Guessed,
            Value::ByCallee,
            Value::Inside,
            Value::Computed,
            Value::ReturnAddress,
        ];

        for n in numbers {
            values.extend(
                Reg::ALL
                    .into_iter()
                    .take(16)
                    .map(|reg| Value::Entry { reg, offset: n }),
            );
            values.push(Value::Const(n));
            for anchor in [0, 1, u16::MAX] {
                values.push(Value::Below { anchor, offset: n });
                values.push(Value::TableEntry { table: anchor });
                values.push(Value::TableTarget {
                    table: anchor,
                    base: n,
                });
            }
            for (shift, width) in [(0, 8), (3, 4), (255, 1)] {
                values.push(Value::Index {
                    shift,
                    width,
                    max: n.cast_unsigned(),
                });
            }
        }

        for &value in &values {
            let packed = Packed::new(value);
            assert_eq!(packed.value(), value);
            assert_eq!(packed.is_stack(), value.is_stack(), "{value:?}");

            // Two values are equal if and only if their numbers are: states compare nothing else.
            for &other in &values {
                assert_eq!(packed == Packed::new(other), value == other);
            }

            // A slot's key packs an address once more, with a size.
            if value.is_stack() {
                for size in [4, 8] {
                    let key = SlotKey::new(value, size);
                    assert_eq!((key.at(), key.size()), (packed, size));
                }
            }
        }
    }

    #[test]
    fn slots_overlap_if_they_share_a_byte() {
        let slot = SlotKey::new(Value::frame(-16), 8);
        let hits = |offset, size| slot.overlaps(Packed::new(Value::frame(offset)), size);
        assert!(hits(-16, 1) && hits(-9, 1) && hits(-20, 5) && hits(-24, 32));
        assert!(!hits(-8, 8) && !hits(-20, 4) && !hits(-17, 1));
        let below = |anchor| Value::Below {
            anchor,
            offset: -16,
        };
        assert!(!slot.overlaps(Packed::new(below(0)), 8));
        assert!(SlotKey::new(below(1), 8).overlaps(Packed::new(below(1)), 8));
        assert!(!SlotKey::new(below(1), 8).overlaps(Packed::new(below(2)), 8));
    }
}

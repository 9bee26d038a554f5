//! What an abstract value stands for in a concrete state.

use std::ops::Range;
use unwind_sim_emulator_compare::differential::Random;
use unwind_sim_emulator_native::single::{WINDOW, WINDOW_PAGE, WINDOW_SIZE};
use unwind_sim_tables::proof::jump_table::JumpTable;
use unwind_sim_tables::proof::value::{Anchor, Value, is_callee_saved};
use unwind_sim_unwind::regs::Reg;

/// Memory that does not belong to the frame.
pub(super) const HEAP: Range<u64> = WINDOW..WINDOW + 192;
/// Where rsp at entry may lie.
const ENTRIES: Range<u64> = WINDOW + 512..WINDOW_PAGE.end - 128;
/// The stack is aligned to this many bytes at calls (psABI, section 3.2.2).
const STACK_ALIGN: u64 = 16;
/// How far from the frame's start an address is still one of the frame, bytes.
const FRAME: u64 = 1024;
/// The maximum number of entries of a table that are looked at.
const ENTRIES_MAX: u64 = 1 << 10;

/// What a register or a word really holds, whatever is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The value that a register had at entry, plus a number.
    Entry(Reg, i64),
    /// The return address.
    Return,
    /// An address at an [`Anchor`].
    Below(u16, i64),
    /// This number.
    Number(u64),
    /// A multiple of `1 << shift`, at most `max << shift`.
    Index { shift: u8, max: u32 },
    /// An address that is not in the frame.
    Heap,
    /// Something else.
    Random,
}

/// What is the same in all of one concrete state.
#[derive(Clone, Debug)]
pub(super) struct ConcreteContext {
    /// The registers at entry, in DWARF order. That of rsp is the address of the return address.
    pub(super) entry: [u64; 16],
    pub(super) return_address: u64,
    /// Where anchors are.
    pub(super) anchors: Vec<u64>,
}

impl ConcreteContext {
    /// A world with these anchors. With `align`, rsp at entry has that address modulo 64.
    pub(super) fn new(
        anchors: &[Anchor],
        align: Option<u64>,
        random: &mut Random,
    ) -> ConcreteContext {
        let mut entry = [0; 16];
        for value in &mut entry {
            *value = match random.below(5) {
                0 => heap(random),
                _ => random.bits() >> 1,
            };
        }

        let step = if align.is_some() { 64 } else { STACK_ALIGN };
        // At an entry rsp is 8 modulo 16: the call has pushed the return address (psABI 3.2.2).
        let start = ENTRIES.start + align.unwrap_or(8);
        let count = (ENTRIES.end - start) / step;
        entry[Reg::Rsp as usize] = start + step * random.bits().checked_rem(count).unwrap_or(0);

        let mut world = ConcreteContext {
            entry,
            // 47 bits: an address of user space.
            return_address: random.bits() >> 17 | 1 << 45,
            anchors: Vec::new(),
        };

        for anchor in anchors {
            let at = match *anchor {
                Anchor::Aligned { of, align } => {
                    world.address(of) & u64::from(align).wrapping_neg()
                }
                // Below all that is above it in the frame, or where rsp was.
                Anchor::Lowered { .. } => {
                    let below = world.frame().wrapping_sub(96 + 8 * (random.bits() % 24));
                    below & !15
                }
            };
            world.anchors.push(at);
        }

        world
    }

    /// rsp at entry.
    pub(super) fn frame(&self) -> u64 {
        self.entry[Reg::Rsp as usize]
    }

    /// The number that a known value is.
    pub(super) fn number(&self, value: Value) -> Option<u64> {
        Some(match value {
            Value::Entry { reg, offset } => {
                self.entry[reg as usize & 15].wrapping_add_signed(offset.into())
            }
            Value::ReturnAddress => self.return_address,
            Value::Const(n) => i64::from(n).cast_unsigned(),
            Value::Below { anchor, offset } => {
                let at = self.anchors.get(usize::from(anchor))?;
                at.wrapping_add_signed(offset.into())
            }
            _ => return None,
        })
    }

    fn address(&self, value: Value) -> u64 {
        self.number(value).unwrap_or(self.frame())
    }

    /// What a source gives in this world.
    pub(super) fn give(&self, source: Source, random: &mut Random) -> u64 {
        match source {
            Source::Entry(reg, offset) => self.entry[reg as usize & 15].wrapping_add_signed(offset),
            Source::Return => self.return_address,
            Source::Below(anchor, offset) => {
                let at = self.anchors.get(usize::from(anchor)).copied();
                at.unwrap_or(self.frame()).wrapping_add_signed(offset)
            }
            Source::Number(number) => number,
            Source::Index { shift, max } => (random.bits() % (u64::from(max) + 1)) << shift,
            Source::Heap => heap(random),
            Source::Random => self.other(random),
        }
    }

    /// A number that is nothing of the caller's, and not in the frame.
    fn other(&self, random: &mut Random) -> u64 {
        loop {
            let value = match random.below(4) {
                0 => random.bits() & 0xff,
                1 => random.bits() >> 32,
                _ => random.bits(),
            };
            if self.of_caller(value).is_none() && !self.is_in_frame(value) {
                return value;
            }
        }
    }

    /// Which callee-saved register had this value at entry; the return address is that of rip.
    pub(super) fn of_caller(&self, value: u64) -> Option<Reg> {
        if value == self.return_address {
            return Some(Reg::Rip);
        }
        let mut saved = Reg::CALLEE_SAVED.into_iter();
        saved.find(|reg| self.entry[*reg as usize] == value)
    }

    pub(super) fn is_in_frame(&self, value: u64) -> bool {
        value.abs_diff(self.frame()) <= FRAME && !HEAP.contains(&value)
    }

    /// Whether a value stands for a number, of which the low `size` bytes count. Of values that say
    /// only what it is not, `true`.
    pub(super) fn holds(
        &self,
        value: Value,
        number: u64,
        size: u8,
        tables: &[JumpTable],
        word: impl Fn(u64, u8) -> Option<u64>,
    ) -> bool {
        // At least one byte: a shift by 64 would overflow.
        let mask = |size: u8| u64::MAX >> (64 - 8 * u32::from(size.clamp(1, 8)));

        match value {
            Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee | Value::Computed => {
                true
            }
            // Zero is a multiple of every power of two.
            Value::Index { shift, width, max } => {
                let bits = number & mask(width.min(size));
                let shift = u32::from(shift).min(63);
                bits.trailing_zeros() >= shift && bits >> shift <= max.into() || bits == 0
            }
            Value::TableEntry { table } | Value::TableTarget { table, .. } => {
                let Some(table) = tables.get(usize::from(table)) else {
                    return false;
                };
                let base = match value {
                    Value::TableTarget { base, .. } => i64::from(base).cast_unsigned(),
                    _ => 0,
                };

                // A target is the table's base plus an entry.
                let wanted = number.wrapping_sub(base);
                let count = table.count.map_or(ENTRIES_MAX, u64::from).min(ENTRIES_MAX);
                let mut entries = (0..count).map(|index| {
                    let distance = index.wrapping_mul(table.stride.into());
                    word(table.at.wrapping_add(distance), table.size)
                });
                // What lies outside of the window is not known here.
                entries
                    .any(|entry| entry.is_none_or(|entry| (entry ^ wanted) & mask(table.size) == 0))
            }
            known => self
                .number(known)
                .is_some_and(|known| (known ^ number) & mask(size) == 0),
        }
    }
}

/// An address that is not in the frame.
fn heap(random: &mut Random) -> u64 {
    let odd = if random.chance(64) {
        random.bits() & 15
    } else {
        0
    };
    HEAP.start + 16 * (random.bits() % ((HEAP.end - HEAP.start) / 32)) + odd
}

/// Whether a value says what number it is.
pub(super) fn is_exact(value: Value) -> bool {
    match value {
        Value::Entry { reg, offset } => reg == Reg::Rsp || offset == 0 || is_callee_saved(reg),
        Value::ReturnAddress | Value::Const(_) | Value::Below { .. } => true,
        Value::Index { .. } | Value::TableEntry { .. } | Value::TableTarget { .. } => true,
        // Single instructions know no place inside of a function.
        Value::Inside => false,
        Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee | Value::Computed => {
            false
        }
    }
}

/// The word of `size` bytes at `address` in a window.
pub(super) fn word(window: &[u8; WINDOW_SIZE], address: u64, size: u8) -> Option<u64> {
    let at = usize::try_from(address.checked_sub(WINDOW)?).ok()?;
    let bytes = window.get(at..at.checked_add(usize::from(size))?)?;
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

//! What is known at one instruction: registers, slots of the stack, the last comparison.

use super::claim::CommonRow;
pub use super::packed::registers;
use super::packed::{Packed, SlotKey};
use super::swizzle::Swizzle;
use super::value::Value;
use arrayvec::ArrayVec;
use unwind_sim_unwind::regs::{Reg, RegMask};

/// The maximum number of slots that a state remembers. Six saved registers, the return address and
/// a few stack addresses are usual.
const SLOTS_MAX: usize = 20;

const GUESSED: Packed = Packed::new(Value::Guessed);
const BY_CALLEE: Packed = Packed::new(Value::ByCallee);

/// A word on the stack whose value is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Its address, a stack address.
    pub at: Value,
    /// Its size, 4 or 8 bytes.
    pub size: u8,
    /// Its value.
    pub value: Value,
}

/// A place that an instruction compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ComparedPlace {
    /// A register.
    Reg(Reg),
    /// A word on the stack.
    Memory(Value),
}

/// A comparison whose outcome the flags still hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// What was compared.
    pub place: ComparedPlace,
    /// With how many bytes of it.
    pub width: u8,
    /// What it was compared with.
    pub with: Value,
}

/// A slot, as a state keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PackedSlot {
    pub(super) key: SlotKey,
    pub(super) value: Packed,
}

/// Where string instructions go: what the direction flag says, which is clear at entry (psABI, section
/// 3.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To higher addresses.
    Up,
    /// To lower addresses.
    Down,
    /// It is not known.
    Unknown,
}

/// What is known before an instruction.
#[derive(Debug)]
pub struct State {
    pub(super) regs: [Packed; 16],
    pub(super) slots: ArrayVec<PackedSlot, SLOTS_MAX>,
    /// The last comparison, if the flags still hold its outcome.
    pub comparison: Option<Comparison>,
    /// The first half of a change of stacks.
    pub swizzle: Option<Swizzle>,
    /// Whether a register's value at entry was put where it is not followed: into a vector register,
    /// or to an unknown address. What comes from there may be that value.
    pub is_elsewhere: bool,
    /// Whether there was a call on the way here.
    pub has_called: bool,
    /// Whether a call on the way here never returns: the code is dead, but its rows can be right.
    pub is_dead: bool,
    /// Whether slots were forgotten: then a slot that is not known may still hold anything.
    pub is_lossy: bool,
    /// Whether a jump on the way here was guessed, so that the way may not exist.
    pub is_guessed: bool,
    /// Whether there was a conditional jump on the way here, of which only the values decide which way it
    /// goes.
    pub has_branched: bool,
    /// Whether rsp, if it is not known, was set to something that is no address in the frame.
    pub is_foreign: bool,
    /// Where string instructions go.
    pub direction: Direction,
    /// The registers, one bit for each, whose values were loaded from memory, which may hold something
    /// else on ways that are taken.
    pub(super) loaded: u16,
    /// The registers that the function has to keep.
    pub(super) preserved: RegMask,
    /// Changes with everything that a row can say something about.
    pub(super) version: u32,
}

impl Clone for State {
    #[inline]
    fn clone(&self) -> State {
        let mut slots = ArrayVec::new();
        // All at once.
        let _ = slots.try_extend_from_slice(&self.slots);
        State { slots, ..*self }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.regs == other.regs
            && self.slots == other.slots
            && self.comparison == other.comparison
            && self.swizzle == other.swizzle
            && self.is_lossy == other.is_lossy
            && self.is_elsewhere == other.is_elsewhere
            && self.has_called == other.has_called
            && self.is_guessed == other.is_guessed
            && self.has_branched == other.has_branched
            && self.is_foreign == other.is_foreign
            && self.direction == other.direction
            && self.loaded == other.loaded
    }
}

impl State {
    /// The state at the entry of a function that is called as the psABI says.
    pub fn entry() -> State {
        State::entry_of(RegMask::CALLEE_SAVED)
    }

    /// The state at the entry of a function that is called, and has to keep the registers `preserved`.
    pub fn entry_of(preserved: RegMask) -> State {
        // The call has pushed the return address, to which rsp points (psABI 3.2.2).
        let mut slots = ArrayVec::new();
        slots.push(PackedSlot {
            key: SlotKey::new(Value::frame(0), 8),
            value: Packed::new(Value::ReturnAddress),
        });

        // Every register has the value that it had at entry.
        let mut regs = [Packed::UNKNOWN; 16];
        for (value, reg) in regs.iter_mut().zip(Reg::ALL) {
            *value = Packed::new(Value::entry(reg));
        }

        State {
            regs,
            slots,
            comparison: None,
            swizzle: None,
            has_called: false,
            is_dead: false,
            is_elsewhere: false,
            is_lossy: false,
            is_guessed: false,
            has_branched: false,
            is_foreign: false,
            // The direction flag is clear on entry (see `Direction`).
            direction: Direction::Up,
            loaded: 0,
            preserved,
            version: 0,
        }
    }

    /// A number that changes with everything that a row can say something about, along one way.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Whether both states are the same in all that a row can say something about.
    pub fn is_same_for_rows(&self, other: &State) -> bool {
        let mut regs = self.regs.iter().zip(&other.regs);
        self.is_lossy == other.is_lossy
            && regs.all(|(a, b)| a == b || !a.matters() && !b.matters())
            && self.slots == other.slots
    }

    /// The value of a general register.
    #[inline]
    pub fn reg(&self, reg: Reg) -> Value {
        self.packed(reg).value()
    }

    #[inline]
    pub(super) fn packed(&self, reg: Reg) -> Packed {
        self.regs[reg as usize & 15]
    }

    #[inline]
    pub(super) fn is_at_entry(&self, reg: Reg) -> bool {
        self.packed(reg) == Packed::new(Value::entry(reg))
    }

    /// Changes a general register.
    #[inline]
    pub fn set(&mut self, reg: Reg, value: Value) {
        // rsp is followed only as a stack address, since every slot is found by it.
        let value = match reg {
            // Another stack, or a place in this one that was not followed.
            Reg::Rsp if !value.is_stack() && value != Value::ByCallee => {
                let was_unknown = self.packed(reg) == Packed::UNKNOWN;
                self.is_foreign = !value.is_vague() || self.is_foreign && was_unknown;
                Value::Unknown
            }
            _ => value,
        };

        let value = Packed::new(value);
        self.loaded &= !(1 << (reg as usize & 15));
        let place = &mut self.regs[reg as usize & 15];

        // Only values that rows can need make a new version.
        if *place != value {
            if place.matters() || value.matters() {
                self.version = self.version.wrapping_add(1);
            }
            *place = value;
        }

        // Nothing that was known of the register's old value is true of the new one.
        self.swizzle = self.swizzle.filter(|swizzle| swizzle.top != reg);
        if let Some(c) = self.comparison
            && c.place == ComparedPlace::Reg(reg)
        {
            self.comparison = None;
        }
    }

    /// Changes a general register to what memory holds.
    pub fn set_loaded(&mut self, reg: Reg, value: Value) {
        self.set(reg, value);
        self.loaded |= 1 << (reg as usize & 15);
    }

    /// Whether the value of a general register was loaded from memory.
    pub fn is_loaded(&self, reg: Reg) -> bool {
        self.loaded & 1 << (reg as usize & 15) != 0
    }

    /// The slots, in no order.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().map(|slot| Slot {
            at: slot.key.at().value(),
            size: slot.key.size(),
            value: slot.value.value(),
        })
    }

    /// The value of the `size` bytes at the stack address `at`.
    pub fn load(&self, at: Value, size: u8) -> Value {
        let key = SlotKey::new(at, size);
        match self.slots.iter().find(|s| s.key == key) {
            Some(slot) => slot.value.value(),
            None if self.is_lossy => Value::Unknown,
            // Above an aligned or lowered rsp, at an unknown distance, is the rest of the frame.
            None => match at {
                Value::Below { offset: 0.., .. } => Value::Unknown,
                _ => Value::Computed,
            },
        }
    }

    /// Whether a part of the word at `at` is a part of a slot.
    pub fn is_parted(&self, at: Value) -> bool {
        let (packed, key) = (Packed::new(at), SlotKey::new(at, 8));
        let mut slots = self.slots.iter().filter(|s| s.key != key);
        at.is_stack() && slots.any(|s| s.value.matters() && s.key.overlaps(packed, 8))
    }

    /// Whether the `size` bytes at `at` are some, not all, of the bytes of a slot.
    pub fn has_part_of_slot(&self, at: Value, size: u32) -> bool {
        let at = Packed::new(at);
        let mut slots = self.slots.iter().filter(|s| s.value.matters());
        slots.any(|s| s.key.overlaps(at, size) && !s.key.is_within(at, size))
    }

    /// Whether the `size` bytes at `at` belong to the return address or to a saved register.
    pub fn is_saved(&self, at: Value, size: u32) -> bool {
        let at = Packed::new(at);
        let mut slots = self.slots.iter();
        slots.any(|s| (s.value.is_of_caller() || s.value == GUESSED) && s.key.overlaps(at, size))
    }

    /// What may be known of the `size` bytes at `at`: unlike [`State::load`], also where a slot is only a
    /// part of them.
    pub fn may_hold(&self, at: Value, size: u32) -> Value {
        if size == 8 {
            return self.load(at, 8);
        }
        let packed = Packed::new(at);
        let mut slots = self.slots.iter();
        if self.is_lossy || slots.any(|s| s.value.matters() && s.key.overlaps(packed, size)) {
            Value::Unknown
        } else {
            Value::Computed
        }
    }

    /// Whether a slot is at no known distance from the stack address `at`: whether a store there hits
    /// it is not known.
    pub fn has_other_base(&self, at: Value) -> bool {
        let at = Packed::new(at);
        self.slots.iter().any(|s| !s.key.at().has_base_of(at))
    }

    /// A store over saved registers or the return address, on a way that may not exist.
    pub fn guess_store(&mut self, at: Value, size: u32) {
        let packed = Packed::new(at);
        for slot in &mut self.slots {
            if slot.value.is_of_caller() && slot.key.overlaps(packed, size) {
                slot.value = GUESSED;
                self.version = self.version.wrapping_add(1);
            }
        }
        if matches!(self.comparison, Some(c) if matches!(c.place, ComparedPlace::Memory(_))) {
            self.comparison = None;
        }
    }

    /// Some bytes from the stack address `at` on may be overwritten: what slots there hold is not known.
    pub fn may_store(&mut self, at: Value, size: u32) {
        let packed = Packed::new(at);
        let mut hit = false;
        for slot in &mut self.slots {
            if slot.value != Packed::UNKNOWN && slot.key.overlaps(packed, size) {
                slot.value = Packed::UNKNOWN;
                hit = true;
            }
        }
        if hit {
            self.version = self.version.wrapping_add(1);
        }
        if matches!(self.comparison, Some(c) if matches!(c.place, ComparedPlace::Memory(_))) {
            self.comparison = None;
        }
    }

    /// Forgets all that is said in terms of the anchors that `is_gone`.
    pub fn forget_anchors(&mut self, is_gone: impl Fn(u16) -> bool) {
        let is_gone =
            |value: Value| matches!(value, Value::Below { anchor, .. } if is_gone(anchor));
        for reg in Reg::ALL.into_iter().take(16) {
            if is_gone(self.reg(reg)) {
                self.set(reg, Value::Unknown);
            }
        }
        self.slots.retain(|slot| !is_gone(slot.key.at().value()));
        for slot in &mut self.slots {
            if is_gone(slot.value.value()) {
                slot.value = Packed::UNKNOWN;
            }
        }
        (self.comparison, self.swizzle) = (None, None);
        self.version = self.version.wrapping_add(1);
    }

    /// Stores `size` bytes at the stack address `at`.
    pub fn store(&mut self, at: Value, size: u32, value: Value) {
        let packed = Packed::new(at);
        let is_hit = |s: &PackedSlot| s.key.overlaps(packed, size);
        if self.slots.iter().any(is_hit) {
            // A slot that is hit in part is lost as a whole.
            self.slots.retain(|s| !is_hit(s));
            self.version = self.version.wrapping_add(1);
        }

        // The memory compared may be what is stored to.
        if let Some(c) = self.comparison
            && matches!(c.place, ComparedPlace::Memory(_))
        {
            self.comparison = None;
        }

        // Only whole words are kept, and the indexes of jump tables, which may have 4 bytes.
        // Everything else would only push out what a row needs.
        let fits = size == 8 || size == 4 && matches!(value, Value::Index { .. });
        if !fits || !value.is_worth_keeping() {
            return;
        }

        // One has to go: at first one that only a jump table needs.
        if self.slots.is_full() {
            let spare = |s: &PackedSlot| matches!(s.value.value(), Value::Index { .. });
            let unknown = |s: &PackedSlot| s.value == Packed::UNKNOWN;
            // Spilled addresses of locals outnumber saved registers; a saved CFA is above the frame.
            let local = |s: &PackedSlot| match s.value.value() {
                Value::Below { .. } => true,
                Value::Entry { reg, offset } => reg == Reg::Rsp && offset < 0,
                _ => false,
            };
            let drop = self.slots.iter().position(spare).unwrap_or_else(|| {
                self.is_lossy = true;
                let mut slots = self.slots.iter();
                let drop = slots.position(unknown);
                // Or else the oldest but the return address.
                drop.or_else(|| self.slots.iter().position(local))
                    .unwrap_or(1)
            });
            self.slots.remove(drop);
        }

        // A row may say where this value is, so it has to be judged again.
        self.version = self.version.wrapping_add(1);
        self.slots.push(PackedSlot {
            key: SlotKey::new(at, size as u8),
            value: Packed::new(value),
        });
    }

    /// What a call does apart from its result: registers that the callee need not preserve are lost,
    /// and so is everything below rsp. (Assembly relies on what its own helpers leave alone, so a
    /// stack address in such a register may still be there.)
    pub fn call(&mut self, preserved: RegMask) {
        for (value, reg) in self.regs.iter_mut().zip(Reg::ALL) {
            if reg == Reg::Rsp || preserved.contains(reg) {
                continue;
            }
            let after = match *value {
                value if value.is_stack() => Packed::UNKNOWN,
                // The callee need not change what the function has to keep.
                _ if self.preserved.contains(reg) => Packed::UNKNOWN,
                Packed::UNKNOWN | BY_CALLEE => Packed::UNKNOWN,
                _ => Packed::COMPUTED,
            };
            if *value != after && value.matters() {
                self.version = self.version.wrapping_add(1);
            }
            *value = after;
        }
        (self.comparison, self.swizzle) = (None, None);
        if self.direction != Direction::Up {
            self.direction = Direction::Unknown;
        }
        self.has_called = true;
        self.forget_below(self.packed(Reg::Rsp));
    }

    /// Forgets the slots below the stack address `sp`; without a known distance, those that are not at
    /// a known distance from the frame either.
    fn forget_below(&mut self, sp: Packed) {
        if !sp.is_stack() {
            return;
        }
        let frame = Packed::new(Value::frame(0));
        let is_kept = |slot: &PackedSlot| {
            let at = slot.key.at();
            if at.has_base_of(sp) {
                at.offset() >= sp.offset()
            } else {
                !sp.has_base_of(frame)
            }
        };
        if !self.slots.iter().all(is_kept) {
            self.slots.retain(|slot| is_kept(slot));
            self.version = self.version.wrapping_add(1);
        }
    }

    /// Whether all that a row of the usual form claims is so, and if so, whether one of the slots that
    /// it names lies below rsp.
    pub fn proves(&self, row: &CommonRow) -> Option<bool> {
        if self.packed(row.base) != row.base_value {
            return None;
        }
        let is_changed =
            |(number, reg): (u8, Reg)| row.unchanged & 1 << number != 0 && !self.is_at_entry(reg);
        if (0..).zip(Reg::CALLEE_SAVED).any(is_changed) {
            return None;
        }
        let mut left = row.in_slots;
        for slot in &self.slots {
            if let Some(number) = slot.value.number_in_row()
                && slot.key == SlotKey::new(Value::frame(row.slots[number]), 8)
            {
                left &= !(1 << number);
            }
        }
        let sp = self.packed(Reg::Rsp);
        let is_known = sp.has_base_of(Packed::new(Value::frame(0)));
        let is_overwritten = is_known && row.lowest < sp.offset().saturating_sub(row.red_zone);
        (left == 0 && !is_overwritten).then_some(is_known && row.lowest < sp.offset())
    }

    /// What a caller would find changed, though it must not be: the rsp that it did not push, or a
    /// callee-saved register. Only what is certain.
    pub fn breaks_the_abi(&self) -> bool {
        let lost = |reg: Reg| {
            let value = self.reg(reg);
            value != Value::entry(reg) && !matches!(value, Value::Unknown | Value::Guessed)
        };
        let sp = self.reg(Reg::Rsp);
        sp != Value::Unknown && sp != Value::frame(0) || self.kept().any(lost)
    }

    /// Whether everything that a caller relies on is as at entry: a jump out of the function is
    /// then a tail call, and a return is right.
    pub fn is_as_at_entry(&self) -> bool {
        self.reg(Reg::Rsp) == Value::frame(0)
            && self.load(Value::frame(0), 8) == Value::ReturnAddress
            && self.kept().all(|reg| self.reg(reg) == Value::entry(reg))
    }

    /// The registers of [`Reg::CALLEE_SAVED`] that the function has to keep.
    fn kept(&self) -> impl Iterator<Item = Reg> {
        let all = Reg::CALLEE_SAVED.into_iter();
        all.filter(|&reg| self.keeps(reg))
    }

    /// Whether the function has to keep `reg`.
    pub(super) fn keeps(&self, reg: Reg) -> bool {
        self.preserved.contains(reg)
    }
}

#[cfg(test)]
mod tests;

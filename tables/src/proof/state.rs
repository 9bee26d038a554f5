//! What is known at one instruction: registers, slots of the stack, the last comparison.

use super::value::{Value, is_callee_saved};
use arrayvec::ArrayVec;
use unwind_sim_unwind::regs::Reg;

/// The maximum number of slots that a state remembers. Six saved registers, the return address and
/// a few stack addresses are usual.
const SLOTS_MAX: usize = 20;

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
pub enum Place {
    /// A register.
    Reg(Reg),
    /// A word on the stack.
    Memory(Value),
}

/// A comparison whose outcome the flags still hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// What was compared.
    pub place: Place,
    /// With how many bytes of it.
    pub width: u8,
    /// With what.
    pub with: Value,
}

/// What is known before an instruction.
#[derive(Clone, Debug)]
pub struct State {
    regs: [Value; 16],
    slots: ArrayVec<Slot, SLOTS_MAX>,
    /// The last comparison, if the flags still hold its outcome.
    pub comparison: Option<Comparison>,
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
    /// Changes with everything that a row can say something about.
    version: u32,
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.regs == other.regs
            && self.slots == other.slots
            && self.comparison == other.comparison
            && self.is_lossy == other.is_lossy
            && self.is_elsewhere == other.is_elsewhere
            && self.has_called == other.has_called
            && self.is_guessed == other.is_guessed
    }
}

impl State {
    /// The state at the entry of a function that is called as the psABI says.
    pub fn entry() -> State {
        let mut slots = ArrayVec::new();
        slots.push(Slot {
            at: Value::frame(0),
            size: 8,
            value: Value::ReturnAddress,
        });
        let mut regs = [Value::Unknown; 16];
        for (value, reg) in regs.iter_mut().zip(Reg::ALL) {
            *value = Value::entry(reg);
        }
        State {
            regs,
            slots,
            comparison: None,
            has_called: false,
            is_dead: false,
            is_elsewhere: false,
            is_lossy: false,
            is_guessed: false,
            version: 0,
        }
    }

    /// A number that changes with everything that a row can say something about, along one way.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The value of a general register.
    #[inline]
    pub fn reg(&self, reg: Reg) -> Value {
        self.regs[reg as usize & 15]
    }

    /// Changes a general register.
    #[inline]
    pub fn set(&mut self, reg: Reg, value: Value) {
        let value = match reg {
            // Another stack, or a place in this one that was not followed.
            Reg::Rsp if !value.is_stack() => Value::Unknown,
            _ => value,
        };
        let place = &mut self.regs[reg as usize & 15];
        if matters(*place) || matters(value) {
            self.version = self.version.wrapping_add(1);
        }
        *place = value;
        if let Some(c) = self.comparison
            && c.place == Place::Reg(reg)
        {
            self.comparison = None;
        }
    }

    /// The slots, in no order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The value of the `size` bytes at the stack address `at`.
    pub fn load(&self, at: Value, size: u8) -> Value {
        let slot = self.slots.iter().find(|s| s.at == at && s.size == size);
        match slot {
            Some(slot) => slot.value,
            None if self.is_lossy => Value::Unknown,
            // Above an aligned or lowered rsp, at an unknown distance, is the rest of the frame.
            None => match at {
                Value::Below { offset: 0.., .. } => Value::Unknown,
                _ => Value::Computed,
            },
        }
    }

    /// Whether the `size` bytes at `at` belong to the return address or to a saved register.
    pub fn is_saved(&self, at: Value, size: u32) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|s| {
            let saved = match s.value {
                Value::Entry { reg, .. } => reg != Reg::Rsp,
                value => value == Value::ReturnAddress,
            };
            saved && overlaps(s, at, size)
        })
    }

    /// Stores `size` bytes at the stack address `at`.
    pub fn store(&mut self, at: Value, size: u32, value: Value) {
        let before = self.slots.len();
        self.slots.retain(|s| !overlaps(s, at, size));
        if self.slots.len() != before {
            self.version = self.version.wrapping_add(1);
        }
        if let Some(c) = self.comparison
            && matches!(c.place, Place::Memory(_))
        {
            self.comparison = None;
        }
        let fits = size == 8 || size == 4 && matches!(value, Value::Index { .. });
        if !fits || !value.is_worth_keeping() {
            return;
        }
        if self.slots.is_full() {
            let spare = |s: &Slot| matches!(s.value, Value::Index { .. } | Value::Unknown);
            // Spilled addresses of locals outnumber saved registers; a saved CFA is above the frame.
            let local = |s: &Slot| match s.value {
                Value::Below { .. } => true,
                Value::Entry { reg, offset } => reg == Reg::Rsp && offset < 0,
                _ => false,
            };
            let drop = self.slots.iter().position(spare).unwrap_or_else(|| {
                self.is_lossy = true;
                // Or else the oldest but the return address.
                self.slots.iter().position(local).unwrap_or(1)
            });
            self.slots.remove(drop);
        }
        self.version = self.version.wrapping_add(1);
        self.slots.push(Slot {
            at,
            size: size as u8,
            value,
        });
    }

    /// What a call does apart from its result: registers that callees need not preserve are lost,
    /// and so is everything below rsp. (Assembly relies on what its own helpers leave alone, so a
    /// stack address in such a register may still be there.)
    pub fn call(&mut self) {
        for (value, reg) in self.regs.iter_mut().zip(Reg::ALL) {
            if reg != Reg::Rsp && !is_callee_saved(reg) {
                *value = match *value {
                    value if value.is_stack() => Value::Unknown,
                    Value::Unknown => Value::Unknown,
                    _ => Value::Computed,
                };
            }
        }
        self.comparison = None;
        self.has_called = true;
        self.version = self.version.wrapping_add(1);
        self.forget_below(self.reg(Reg::Rsp));
    }

    /// Forgets the slots below the stack address `sp`.
    fn forget_below(&mut self, sp: Value) {
        match sp {
            Value::Entry {
                reg: Reg::Rsp,
                offset: limit,
            } => self.slots.retain(|s| match s.at {
                Value::Entry { offset, .. } => offset >= limit,
                _ => false,
            }),
            Value::Below {
                anchor: of,
                offset: limit,
            } => self.slots.retain(|s| match s.at {
                Value::Below { anchor, offset } => anchor != of || offset >= limit,
                _ => true,
            }),
            _ => {}
        }
    }

    /// What a caller would find changed, though it must not be: the rsp that it did not push, or a
    /// callee-saved register. Only what is certain.
    pub fn breaks_the_abi(&self) -> bool {
        let lost = |reg: Reg| {
            let value = self.reg(reg);
            value != Value::entry(reg) && value != Value::Unknown
        };
        let sp = self.reg(Reg::Rsp);
        sp != Value::Unknown && sp != Value::frame(0) || Reg::CALLEE_SAVED.into_iter().any(lost)
    }

    /// Whether everything that a caller relies on is as at entry: a jump out of the function is
    /// then a tail call, and a return is right.
    pub fn is_as_at_entry(&self) -> bool {
        self.reg(Reg::Rsp) == Value::frame(0)
            && self.load(Value::frame(0), 8) == Value::ReturnAddress
            && Reg::CALLEE_SAVED
                .into_iter()
                .all(|reg| self.reg(reg) == Value::entry(reg))
    }

    /// Whether the states differ in what a row must say: where the frame is, and which registers
    /// still have their value at entry.
    fn differs_in_frame(&self, other: &State) -> bool {
        let kept = |s: &State, reg| s.reg(reg) == Value::entry(reg);
        // A register that both have saved in the same place may have changed on one way only.
        let saved = |reg| {
            let is = |slot: &&Slot| slot.value == Value::entry(reg) && slot.size == 8;
            let mut mine = self.slots.iter().filter(is);
            mine.any(|slot| other.slots.contains(slot))
        };
        self.reg(Reg::Rsp) != other.reg(Reg::Rsp)
            || Reg::CALLEE_SAVED
                .into_iter()
                .any(|reg| kept(self, reg) != kept(other, reg) && !saved(reg))
    }

    /// Joins `other` into this state, if they agree in what a row must say. Returns whether this
    /// state changed; `None` if they do not agree.
    pub fn join(&mut self, other: &State) -> Option<bool> {
        if self.differs_in_frame(other) {
            return None;
        }
        Some(self.weaken(other))
    }

    /// Keeps what both states know.
    pub fn weaken(&mut self, other: &State) -> bool {
        let mut changed = false;
        for (mine, &theirs) in self.regs.iter_mut().zip(&other.regs) {
            let joined = join_values(*mine, theirs);
            changed |= joined != *mine;
            *mine = joined;
        }
        let before = self.slots.len();
        let mut index = 0;
        self.slots.retain(|slot| {
            // Mostly, both have it in the same place.
            let there = other.slots.get(index);
            index += 1;
            if there.is_some_and(|s| s == slot) {
                return true;
            }
            let same = other
                .slots
                .iter()
                .find(|s| s.at == slot.at && s.size == slot.size);
            let Some(theirs) = same else { return false };
            let joined = join_values(slot.value, theirs.value);
            changed |= joined != slot.value;
            slot.value = joined;
            joined.is_worth_keeping()
        });
        changed |= self.slots.len() != before;
        for (mine, theirs) in [
            (&mut self.is_lossy, other.is_lossy),
            (&mut self.is_elsewhere, other.is_elsewhere),
            (&mut self.has_called, other.has_called),
            (&mut self.is_guessed, other.is_guessed),
        ] {
            changed |= theirs && !*mine;
            *mine |= theirs;
        }
        if self.comparison != other.comparison && self.comparison.is_some() {
            self.comparison = None;
            changed = true;
        }
        changed
    }
}

fn join_values(a: Value, b: Value) -> Value {
    match (a, b) {
        _ if a == b => a,
        (Value::Unknown, _) | (_, Value::Unknown) => Value::Unknown,
        (
            Value::Index {
                shift,
                width,
                max: x,
            },
            Value::Index {
                shift: s,
                width: w,
                max: y,
            },
        ) if shift == s => Value::Index {
            shift,
            width: width.min(w),
            max: x.max(y),
        },
        _ if matters(a) || matters(b) => Value::Varies,
        _ => Value::Computed,
    }
}

/// Whether a row may say that a register or slot has this value.
fn matters(value: Value) -> bool {
    value == Value::Varies || value.is_worth_keeping() && !matches!(value, Value::Index { .. })
}

/// Whether `slot` has a byte in the `size` bytes at `at`.
fn overlaps(slot: &Slot, at: Value, size: u32) -> bool {
    let offsets = match (slot.at, at) {
        (Value::Entry { reg: a, offset: x }, Value::Entry { reg: b, offset: y }) if a == b => {
            (x, y)
        }
        (
            Value::Below {
                anchor: a,
                offset: x,
            },
            Value::Below {
                anchor: b,
                offset: y,
            },
        ) if a == b => (x, y),
        _ => return false,
    };
    let (slot_at, store_at) = (i64::from(offsets.0), i64::from(offsets.1));
    slot_at < store_at + i64::from(size) && store_at < slot_at + i64::from(slot.size)
}

//! What two states have in common, where ways meet.

use super::packed::{Packed, registers};
use super::state::{Direction, State};
use super::value::{Value, is_callee_saved};
use unwind_sim_unwind::regs::Reg;

impl State {
    /// Whether the states differ in what a row must say: where the frame is, and which registers
    /// still have their value at entry.
    fn differs_in_frame(&self, other: &State) -> bool {
        // A register that both have saved in the same place may have changed on one way only.
        let saved = |reg| {
            let value = Packed::new(Value::entry(reg));
            let mut mine = self.slots.iter();
            mine.any(|slot| {
                slot.value == value && slot.key.size() == 8 && other.slots.contains(slot)
            })
        };
        let differs = |reg| match reg {
            Reg::Rsp => true,
            _ => {
                is_callee_saved(reg)
                    && self.preserved.contains(reg)
                    && self.is_at_entry(reg) != other.is_at_entry(reg)
                    && !saved(reg)
            }
        };
        registers(self.differing(other)).any(differs)
    }

    /// The registers that have different values, one bit for each.
    #[inline]
    fn differing(&self, other: &State) -> u16 {
        let mut differing = 0;
        for (number, (mine, theirs)) in self.regs.iter().zip(&other.regs).enumerate() {
            differing |= u16::from(mine != theirs) << number;
        }
        differing
    }

    /// Joins `other` into this state, if they agree in what a row must say. Returns whether this
    /// state changed; `None` if they do not agree.
    pub fn join(&mut self, other: &State) -> Option<bool> {
        if self.differs_in_frame(other) {
            return None;
        }
        Some(self.weaken(other))
    }

    /// Keeps what both states know. Returns whether this state changed; if rows may turn out otherwise
    /// (rsp, a callee-saved register, where one is saved), it has a new version.
    pub fn weaken(&mut self, other: &State) -> bool {
        let (mut changed, mut matters) = (false, false);

        // Registers are compared as packed numbers, so equal ones cost nothing.
        for reg in registers(self.differing(other)) {
            let mine = self.packed(reg);
            let joined = join_values(mine, other.packed(reg));
            if joined != mine {
                changed = true;

                // Only rsp and callee-saved registers are in rows; others may change without a new
                // proof.
                matters |= joined.matters() && (reg == Reg::Rsp || is_callee_saved(reg));
                self.regs[reg as usize & 15] = joined;
            }
        }

        // A slot that only `other` has is not known on both ways: it is not added.
        let before = self.slots.len();
        let mut index = 0;
        self.slots.retain(|slot| {
            // Mostly, both have it in the same place.
            let there = other.slots.get(index);
            index += 1;
            if there.is_some_and(|s| s == slot) {
                return true;
            }

            let same = other.slots.iter().find(|s| s.key == slot.key);
            let Some(theirs) = same else {
                matters |= slot.value.is_of_caller();
                return false;
            };

            let joined = join_values(slot.value, theirs.value);
            if joined != slot.value {
                changed = true;
                matters |= slot.value.is_of_caller();
                slot.value = joined;
            }

            joined.value().is_worth_keeping()
        });

        changed |= self.slots.len() != before;

        // A way that may not exist makes the joined state a guess as well.
        matters |= other.is_guessed && !self.is_guessed;

        for reg in registers(other.loaded & !self.loaded) {
            // It says something of stack addresses only.
            if self.packed(reg).is_stack() {
                self.loaded |= 1 << reg as u16;
                changed = true;
            }
        }

        // True on one way is true from here on. None becomes false again, so that joining ends.
        for (mine, theirs) in [
            (&mut self.is_lossy, other.is_lossy),
            (&mut self.is_elsewhere, other.is_elsewhere),
            (&mut self.has_called, other.has_called),
            (&mut self.is_guessed, other.is_guessed),
            (&mut self.has_branched, other.has_branched),
            (&mut self.is_foreign, other.is_foreign),
        ] {
            changed |= theirs && !*mine;
            *mine |= theirs;
        }

        // Flags and directions have no order: what differs is not known.
        if self.direction != other.direction && self.direction != Direction::Unknown {
            self.direction = Direction::Unknown;
            changed = true;
        }
        if self.comparison != other.comparison && self.comparison.is_some() {
            self.comparison = None;
            changed = true;
        }
        if self.swizzle != other.swizzle && self.swizzle.take().is_some() {
            changed = true;
        }

        // The version tells those who have judged a row with this state that they must judge again.
        if matters {
            self.version = self.version.wrapping_add(1);
        }
        changed || matters
    }
}

/// What is known of a place that holds one of two values.
pub(super) fn either(a: Value, b: Value) -> Value {
    join_values(Packed::new(a), Packed::new(b)).value()
}

fn join_values(a: Packed, b: Packed) -> Packed {
    if a == b {
        return a;
    }

    let joined = match (a.value(), b.value()) {
        // The first of these reasons wins, so that the order of joins does not matter.
        (Value::ByCallee, _) | (_, Value::ByCallee) => Value::ByCallee,
        (Value::Unknown, _) | (_, Value::Unknown) => Value::Unknown,
        (Value::Guessed, _) | (_, Value::Guessed) => Value::Guessed,
        // The looser bound holds for both.
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
        // Different values that a row could need are told apart from those that are merely
        // computed.
        _ if a.matters() || b.matters() => Value::Varies,
        _ => Value::Computed,
    };

    Packed::new(joined)
}

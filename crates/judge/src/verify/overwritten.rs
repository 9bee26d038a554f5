//! Slots of saved registers into which another function has put something else, by frame. The owner
//! returns with that.

use super::departures::Activation;
use hashbrown::HashMap;
use unwind_sim_unwind::regs::Reg;

/// The maximum number of frames that are remembered.
const FRAMES_MAX: usize = 4096;

/// By the call of a function, the registers and values in its frame.
#[derive(Default)]
pub(super) struct Overwritten(HashMap<u64, Vec<(Reg, u64)>>);

impl Overwritten {
    /// Whether there is none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the value of a register's slot in the frame of `owner`. Returns false if the others had to
    /// be forgotten for it.
    pub(super) fn add(&mut self, owner: Activation, reg: Reg, value: u64) -> bool {
        let Some(owner) = owner else { return true };
        let has_room = self.0.len() < FRAMES_MAX || self.0.contains_key(&owner);
        if !has_room {
            self.0.clear();
        }
        let slots = self.0.entry(owner).or_default();
        slots.retain(|(known, _)| *known != reg);
        slots.push((reg, value));
        has_room
    }

    /// The value of a register's slot in the frame of `owner`.
    pub(super) fn value(&self, owner: Activation, reg: Reg) -> Option<u64> {
        let slots = self.0.get(&owner?)?;
        let slot = slots.iter().find(|(known, _)| *known == reg);
        slot.map(|(_, value)| *value)
    }

    /// Takes all of the frame of `owner`.
    pub(super) fn take(&mut self, owner: Activation) -> Option<Vec<(Reg, u64)>> {
        self.0.remove(&owner?)
    }

    /// The heap memory used, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.allocation_size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_slot_counts_until_the_function_returns() {
        let mut overwritten = Overwritten::default();
        assert!(overwritten.is_empty() && overwritten.add(None, Reg::Rbx, 1));
        assert!(overwritten.is_empty());
        assert!(overwritten.add(Some(5), Reg::Rbx, 1) && overwritten.add(Some(5), Reg::Rbx, 2));
        assert!(overwritten.add(Some(5), Reg::R12, 3));
        let values = [Reg::Rbx, Reg::R12, Reg::R13].map(|reg| overwritten.value(Some(5), reg));
        assert_eq!(values, [Some(2), Some(3), None]);
        assert_eq!(overwritten.value(None, Reg::Rbx), None);
        let all = vec![(Reg::Rbx, 2), (Reg::R12, 3)];
        assert_eq!(overwritten.take(Some(5)), Some(all));
        assert_eq!(overwritten.take(Some(5)), None);
        // Of more than 4,096 frames, the others are forgotten.
        assert!((0..4096).all(|frame| overwritten.add(Some(frame), Reg::Rbx, 7)));
        assert!(overwritten.add(Some(0), Reg::Rbx, 8));
        assert!(!overwritten.add(Some(4096), Reg::Rbx, 7));
        assert_eq!(overwritten.value(Some(0), Reg::Rbx), None);
        assert!(overwritten.bytes() > 0);
    }
}

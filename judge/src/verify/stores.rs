//! Stores into slots that somebody goes back by: which instruction, which slot, and what came of
//! it.

use super::places::PlaceId;
use hashbrown::HashMap;
use unwind_sim_unwind::regs::Reg;

/// Slots whose fate is waited for at a time.
const OPEN_MAX: usize = 64;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// The return address of a frame.
    ReturnAddress,
    /// The caller's value of a callee-saved register, as the row in force says; by its number in
    /// [`Reg::CALLEE_SAVED`].
    Saved(u8),
}

impl Slot {
    /// The register that a walk takes from it.
    pub fn reg(self) -> Reg {
        match self {
            Slot::ReturnAddress => Reg::Rip,
            Slot::Saved(index) => Reg::CALLEE_SAVED[usize::from(index)],
        }
    }
}

/// What stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Writer {
    /// The instruction.
    pub address: u64,
    /// What was mapped there.
    pub place: PlaceId,
    /// The system call, if the kernel did it.
    pub call: Option<&'static str>,
}

/// The stores of one instruction into slots of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotStore {
    /// What stored.
    pub writer: Writer,
    /// Into what.
    pub slot: Slot,
    /// How often what was there was changed.
    pub count: u64,
    /// How often not: what was stored was there already.
    pub same: u64,
    /// How often execution then returned by what was stored. Of a return address only.
    pub taken: u64,
    /// How often what was there before was put back before that.
    pub restored: u64,
    /// The first of those that changed something, if there is one: the number of the
    /// instruction, from 0.
    pub first: u64,
    /// The address of its slot.
    pub address: u64,
    /// A pc in the function whose frame the slot is in.
    pub owner: u64,
    /// What was mapped there.
    pub owner_place: PlaceId,
    /// What was there.
    pub old: u64,
    /// What was stored.
    pub new: u64,
}

/// All of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotStores {
    /// By address of the instruction.
    pub all: Vec<SlotStore>,
}

impl SlotStores {
    /// How many changed something.
    pub fn count(&self) -> u64 {
        self.all.iter().map(|store| store.count).sum()
    }

    /// How many stored what was there already.
    pub fn same(&self) -> u64 {
        self.all.iter().map(|store| store.same).sum()
    }
}

/// A live slot that is about to be stored into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) address: u64,
    pub(super) old: u64,
    pub(super) slot: Slot,
    pub(super) owner: u64,
    pub(super) owner_place: PlaceId,
}

/// A return address that was changed and is to be returned by.
struct Open {
    address: u64,
    old: u64,
    new: u64,
    change: usize,
}

/// Collects them.
#[derive(Default)]
pub(super) struct Collector {
    stores: SlotStores,
    by_writer: HashMap<(Writer, Slot), usize>,
    open: Vec<Open>,
}

impl Collector {
    /// A hit slot has this value now.
    pub(super) fn add(&mut self, hit: &Hit, writer: Writer, number: u64, new: u64) {
        // The kernel was only asked whether it stored.
        if new == hit.old && writer.call.is_some() {
            return;
        }
        if let Some(at) = self.open.iter().position(|o| o.address == hit.address) {
            let before = self.open.remove(at);
            if before.old == new {
                self.stores.all[before.change].restored += 1;
                return;
            }
        }
        let next = self.stores.all.len();
        let change = *self.by_writer.entry((writer, hit.slot)).or_insert(next);
        if change == next {
            self.stores.all.push(SlotStore {
                writer,
                slot: hit.slot,
                count: 0,
                same: 0,
                taken: 0,
                restored: 0,
                first: number,
                address: hit.address,
                owner: hit.owner,
                owner_place: hit.owner_place,
                old: hit.old,
                new,
            });
        }
        let known = &mut self.stores.all[change];
        if new == hit.old {
            known.same += 1;
            return;
        }
        if known.count == 0 {
            // What was stored without a change is less worth telling of.
            let (first, address, owner) = (number, hit.address, hit.owner);
            let (count, (old, new)) = (1, (hit.old, new));
            *known = SlotStore {
                first,
                address,
                owner,
                owner_place: hit.owner_place,
                count,
                old,
                new,
                ..*known
            };
        } else {
            known.count += 1;
        }
        if hit.slot == Slot::ReturnAddress {
            if self.open.len() >= OPEN_MAX {
                self.open.remove(0);
            }
            self.open.push(Open {
                address: hit.address,
                old: hit.old,
                new,
                change,
            });
        }
    }

    /// Is there a return address that was changed and may be returned by?
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Execution returned by the word at `slot`.
    #[cold]
    pub(super) fn returned(&mut self, slot: u64, to: u64) {
        if let Some(at) = self.open.iter().position(|o| o.address == slot) {
            let open = self.open.remove(at);
            if open.new == to {
                self.stores.all[open.change].taken += 1;
            }
        }
    }

    pub(super) fn finish(self) -> SlotStores {
        let mut stores = self.stores;
        stores.all.sort_by_key(|store| (store.writer, store.slot));
        stores
    }
}

#[cfg(test)]
mod tests;

//! Stores into live slots: the instruction, the slot, and what followed.

use super::places::PlaceId;
use hashbrown::HashMap;
use unwind_sim_unwind::regs::Reg;

/// The maximum number of changed slots that are watched at a time.
const OPEN_MAX: usize = 64;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Slot {
    /// The return address of a frame.
    ReturnAddress,
    /// The caller's value of a callee-saved register, according to the row in force; the number is
    /// the index in [`Reg::CALLEE_SAVED`].
    Saved(u8),
}

impl Slot {
    /// The register that a walk reads from the slot.
    pub fn reg(self) -> Reg {
        match self {
            Slot::ReturnAddress => Reg::Rip,
            Slot::Saved(index) => Reg::CALLEE_SAVED[usize::from(index)],
        }
    }
}

/// The source of a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Writer {
    /// The address of the instruction.
    pub address: u64,
    /// What was mapped at that address.
    pub place: PlaceId,
    /// The system call, if the kernel made the store.
    pub call: Option<&'static str>,
}

/// The stores of one instruction into slots of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotStore {
    /// The source of the stores.
    pub writer: Writer,
    /// The kind of slot.
    pub slot: Slot,
    /// How often the value was changed.
    pub count: u64,
    /// How often the stored value was already there.
    pub same: u64,
    /// How often execution then returned through the stored value; only for return addresses.
    pub taken: u64,
    /// How often the old value was put back before that.
    pub restored: u64,
    /// The number of the instruction that made the first change, or else the first store, from 0.
    pub first: u64,
    /// The address of the slot in that first store.
    pub address: u64,
    /// A pc in the function whose frame the slot is in.
    pub owner: u64,
    /// What was mapped at that pc.
    pub owner_place: PlaceId,
    /// The old value.
    pub old: u64,
    /// The stored value.
    pub new: u64,
}

/// All stores into live slots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SlotStores {
    /// The stores, by address of the instruction.
    pub all: Vec<SlotStore>,
}

impl SlotStores {
    /// The number of stores that changed the value.
    pub fn count(&self) -> u64 {
        self.all.iter().map(|store| store.count).sum()
    }

    /// The number of stores that left the value as it was.
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
    /// Whether it holds the true value, which a store changes. Otherwise another function has changed it
    /// before.
    pub(super) is_live: bool,
    /// The index of the frame by which the owner returns.
    pub(super) frame: usize,
    pub(super) owner: u64,
    pub(super) owner_place: PlaceId,
}

/// A changed return address that may still be used.
struct Open {
    address: u64,
    old: u64,
    new: u64,
    change: usize,
}

/// Collects the stores.
#[derive(Default)]
pub(super) struct Collector {
    stores: SlotStores,
    by_writer: HashMap<(Writer, Slot), usize>,
    open: Vec<Open>,
}

impl Collector {
    /// Records that a hit slot has the value `new` now.
    pub(super) fn add(&mut self, hit: &Hit, writer: Writer, number: u64, new: u64) {
        // For a system call a hit means only that the kernel may have stored.
        if new == hit.old && writer.call.is_some() {
            return;
        }

        // The old value is back: what the earlier store did is undone, and this one is not a change
        // of its own.
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
            // A change is reported rather than a store without a change.
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

        // Only returns are seen later, so only here can it be said whether the new value was used.
        if hit.slot == Slot::ReturnAddress {
            // A program may change slots without ever returning by them: the oldest is given up.
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

    /// Whether there is a changed return address that may still be used.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Records that execution returned by the word at `slot`.
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

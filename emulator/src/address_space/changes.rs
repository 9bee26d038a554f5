//! Notes changes of memory, for callers that keep a copy of it.

use super::AddressSpace;
use super::space::Change;

impl AddressSpace {
    /// Starts or stops noting changes of the running space. The machine is slower while it does.
    /// What other spaces store to an object is not noted.
    pub fn note_changes(&mut self, wanted: bool) {
        self.own.changes = wanted.then(Vec::new);
        self.tlb.flush_writes();
    }

    /// Appends the changes since the last call to `to`, in order.
    pub fn take_changes(&mut self, to: &mut Vec<Change>) {
        if let Some(changes) = &mut self.own.changes {
            to.append(changes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Permissions;

    #[test]
    fn every_change_is_noted_and_only_while_wanted() {
        let mut memory = AddressSpace::default();
        let range = 0x10000..0x12000;
        memory.map(range.clone(), Permissions::READ_WRITE).unwrap();
        memory.store_bytes(0x10ff8, [1; 8]).unwrap();
        memory.note_changes(true);

        let mut changes = Vec::new();
        // The page was used just before; a store across its end is one store.
        memory.store_bytes(0x10ffc, [2; 8]).unwrap();
        memory.store_bytes(0x10ffc, [2; 8]).unwrap();
        memory.write(0x11000, b"three").unwrap();

        // What is refused changes nothing; `writable` gives no bytes that could change unnoticed.
        assert!(memory.store_bytes(0x11ffc, [4; 8]).is_none());
        assert!(memory.take_refusal().is_some());
        assert!(memory.writable(0x10000).is_none() && memory.take_refusal().is_none());

        memory.take_changes(&mut changes);
        let stored = |start, size| Change::Stored(start..start + size);
        assert_eq!(
            changes,
            [stored(0x10ffc, 8), stored(0x10ffc, 8), stored(0x11000, 5)]
        );
        changes.clear();

        let page = 0x11000..0x12000;
        memory.protect(page.clone(), Permissions::READ).unwrap();
        memory.discard(page.clone()).unwrap();
        memory.unmap(page.clone()).unwrap();
        memory.map(page.clone(), Permissions::READ_WRITE).unwrap();
        memory.take_changes(&mut changes);
        assert_eq!(changes, vec![Change::Mapped(page); 4]);

        memory.note_changes(false);
        memory.store_bytes(0x10000, [5]).unwrap();
        assert!(memory.writable(0x10000).is_some());
        changes.clear();
        memory.take_changes(&mut changes);
        assert_eq!(changes, []);
    }
}

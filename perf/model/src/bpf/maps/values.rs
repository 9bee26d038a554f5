//! Values of one size in a row: one for each entry, or one for each entry and processor.

/// Where a map keeps its values; a *slot* is the number of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    size: u32,
    cpus: u32,
    bytes: Vec<u8>,
}

impl Values {
    /// None yet, of `size` bytes, so many for each entry.
    pub(super) fn new(size: u32, cpus: u32) -> Self {
        Self {
            size,
            cpus,
            bytes: Vec::new(),
        }
    }

    /// Bytes of a value.
    pub(super) fn size(&self) -> usize {
        self.size as usize
    }

    /// The slot of an entry on a processor. A model of more processors than the maps were made for
    /// has no value for them.
    pub(super) fn slot(&self, entry: u32, cpu: u32) -> Option<u32> {
        let cpu = if self.cpus > 1 { cpu } else { 0 };
        (cpu < self.cpus).then(|| entry * self.cpus + cpu)
    }

    /// Makes the values of an entry, and all before it, zero where they are new; those of the entry
    /// itself in any case.
    pub(super) fn clear(&mut self, entry: u32) {
        let each = self.size() * self.cpus as usize;
        let start = entry as usize * each;
        if self.bytes.len() < start + each {
            self.bytes.resize(start + each, 0);
        }
        self.bytes[start..start + each].fill(0);
    }

    fn range(&self, slot: u32) -> std::ops::Range<usize> {
        let start = slot as usize * self.size();
        start..start + self.size()
    }

    /// The value in a slot.
    pub(super) fn get(&self, slot: u32) -> Option<&[u8]> {
        self.bytes.get(self.range(slot))
    }

    /// The value in a slot, to be changed.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let range = self.range(slot);
        self.bytes.get_mut(range)
    }

    /// All values of an entry, processor by processor.
    pub(super) fn of_entry(&self, entry: u32) -> Vec<&[u8]> {
        let slots = (0..self.cpus).map(|cpu| entry * self.cpus + cpu);
        slots.filter_map(|slot| self.get(slot)).collect()
    }
}

//! Arrays: all entries exist, with the value zero at first.

use super::{Errno, NOEXIST};

/// An array, with one value for each entry, or one for each entry and processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    value_size: u32,
    entries: u32,
    /// Values for each entry.
    cpus: u32,
    /// All values, by entry and processor.
    bytes: Vec<u8>,
}

impl Array {
    pub(super) fn new(value_size: u32, entries: u32, cpus: u32) -> Self {
        Self {
            value_size,
            entries,
            cpus,
            bytes: Vec::new(),
        }
    }

    pub(super) fn fill(&mut self, initial: &[u8]) {
        let values = self.entries as usize * self.cpus as usize;
        self.bytes = vec![0; values * self.value_size as usize];
        self.bytes[..initial.len()].copy_from_slice(initial);
    }

    pub(super) fn lookup(&self, index: u32, cpu: u32) -> Option<u32> {
        // A model of more processors than the maps were made for has no value for them.
        let slot = if self.cpus > 1 { cpu } else { 0 };
        (index < self.entries && slot < self.cpus).then(|| index * self.cpus + slot)
    }

    pub(super) fn update(
        &mut self,
        index: u32,
        value: &[u8],
        flags: u64,
        cpu: u32,
    ) -> Result<(), Errno> {
        let slot = self.lookup(index, cpu).ok_or(Errno::E2big)?;
        if flags == NOEXIST {
            return Err(Errno::Eexist);
        }
        match self.value_mut(slot) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            _ => return Err(Errno::Einval),
        }
        Ok(())
    }

    fn range(&self, slot: u32) -> std::ops::Range<usize> {
        let size = self.value_size as usize;
        let start = slot as usize * size;
        start..start + size
    }

    pub(super) fn value(&self, slot: u32) -> Option<&[u8]> {
        self.bytes.get(self.range(slot))
    }

    pub(super) fn value_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let range = self.range(slot);
        self.bytes.get_mut(range)
    }

    pub(super) fn dump(&self) -> Vec<(Vec<u8>, Vec<&[u8]>)> {
        let of = |index: u32| {
            let values = (0..self.cpus).filter_map(|cpu| self.value(index * self.cpus + cpu));
            (index.to_le_bytes().to_vec(), values.collect())
        };
        (0..self.entries).map(of).collect()
    }
}

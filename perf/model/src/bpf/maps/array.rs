//! Arrays: all entries exist, and are zero at first.

use super::{Errno, NOEXIST, Table, Values, index_of};

/// An array, with one value for each entry, or one for each entry and processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    entries: u32,
    values: Values,
}

impl Array {
    pub(super) fn new(value_size: u32, entries: u32, cpus: u32) -> Self {
        Self {
            entries,
            values: Values::new(value_size, cpus),
        }
    }

    /// Allocates the memory. The first value is `initial`, the rest is zero.
    pub(super) fn fill(&mut self, initial: &[u8]) {
        if let Some(last) = self.entries.checked_sub(1) {
            self.values.clear(last);
        }
        if let Some(value) = self.values.get_mut(0) {
            value[..initial.len()].copy_from_slice(initial);
        }
    }
}

impl Table for Array {
    fn lookup(&mut self, key: &[u8], cpu: u32) -> Option<u32> {
        let index = index_of(key)?;
        let slot = || self.values.slot(index, cpu);
        (index < self.entries).then(slot).flatten()
    }

    fn update(&mut self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        if key.len() != 4 {
            return Err(Errno::Einval);
        }
        let slot = self.lookup(key, cpu).ok_or(Errno::E2big)?;
        if flags == NOEXIST {
            return Err(Errno::Eexist);
        }
        match self.values.get_mut(slot) {
            Some(old) if old.len() == value.len() => old.copy_from_slice(value),
            _ => return Err(Errno::Einval),
        }
        Ok(())
    }

    fn dump(&self) -> Vec<(Vec<u8>, Vec<&[u8]>)> {
        let of = |index: u32| {
            let key = index.to_le_bytes().to_vec();
            (key, self.values.of_entry(index))
        };
        (0..self.entries).map(of).collect()
    }

    fn values(&self) -> &Values {
        &self.values
    }

    fn values_mut(&mut self) -> &mut Values {
        &mut self.values
    }
}

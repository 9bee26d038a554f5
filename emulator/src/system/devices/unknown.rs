//! Accesses to what is not modelled.

use std::collections::BTreeMap;

/// Different accesses that are remembered.
const ACCESSES_MAX: usize = 64;

/// An access without a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// A read of the port.
    PortRead(u16),
    /// A write to the port.
    PortWrite(u16),
    /// A read at the physical address.
    MmioRead(u64),
    /// A write at the physical address.
    MmioWrite(u64),
}

/// The accesses with their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct UnknownAccesses(BTreeMap<Unknown, u64>);

impl UnknownAccesses {
    pub(super) fn add(&mut self, access: Unknown) {
        if let Some(count) = self.0.get_mut(&access) {
            *count = count.saturating_add(1);
        } else if self.0.len() < ACCESSES_MAX {
            self.0.insert(access, 1);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Unknown, u64)> {
        self.0.iter().map(|(&access, &count)| (access, count))
    }
}

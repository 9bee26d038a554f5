//! Jump tables: where a `switch` goes.

use crate::file::File;

/// The maximum number of entries read from a table whose end the code does not say.
const GUESSED_MAX: u32 = 4096;
/// The maximum number of entries of a table; a larger bound was no bound for a table.
pub const ENTRIES_MAX: u32 = (1 << 16) + 1;

/// A table that an instruction loads an entry from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JumpTable {
    /// The address (svma) of its first entry.
    pub at: u64,
    /// From one entry to the next, bytes.
    pub stride: u32,
    /// Size of an entry, bytes: 4, added to the table's address, or 8, an address.
    pub size: u8,
    /// The number of entries that the index can reach; `None` if the code sets no limit that was
    /// understood.
    pub count: Option<u32>,
}

/// Where a jump through a table can go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Targets {
    /// The addresses (svma), each once.
    pub addresses: Vec<u64>,
    /// Whether their number is a guess: the code does not say where the table ends, or says it in a
    /// way that was not understood.
    pub is_guess: bool,
    /// The number of entries.
    pub entries: u64,
}

impl JumpTable {
    /// Where a jump through the table can go. Entries of 4 bytes are added to `base`. The table ends
    /// before the first entry that `may_be` does not accept, and at `next`, where another table may
    /// begin.
    pub fn targets(
        &self,
        file: &File,
        base: u64,
        next: Option<u64>,
        mut may_be: impl FnMut(u64) -> bool,
    ) -> Targets {
        // Without a count, the table is read until an entry does not fit.
        let count = self
            .count
            .map_or(GUESSED_MAX, |count| count.min(ENTRIES_MAX));

        // A limit may come from a mask that is larger than the table.
        let end = next.unwrap_or(u64::MAX);
        let addresses = (0..count).map_while(|index| {
            // The first entry that cannot be one ends the table.
            let distance = u64::from(index) * u64::from(self.stride);
            let at = self.at.wrapping_add(distance);
            let target = self.entry(file, base, at)?;
            (at < end && may_be(target)).then_some(target)
        });

        let mut addresses: Vec<u64> = addresses.collect();

        // It ended where an entry did not fit, not where the code says.
        let is_guess = self
            .count
            .is_none_or(|count| addresses.len() as u64 != u64::from(count));

        // Counted before equal targets are joined, which says how long the table is.
        let entries = addresses.len() as u64;
        addresses.sort_unstable();
        addresses.dedup();

        Targets {
            addresses,
            is_guess,
            entries,
        }
    }

    fn entry(&self, file: &File, base: u64, at: u64) -> Option<u64> {
        if self.size == 8 {
            return file.pointer(at);
        }
        let bytes = file.bytes(at).first_chunk()?;
        Some(base.wrapping_add_signed(i32::from_le_bytes(*bytes).into()))
    }
}

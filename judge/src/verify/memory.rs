//! What a run keeps for each instruction that it has seen, measured from what its containers have
//! allocated.

/// Heap bytes at the end of a run, by what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Decoded code of the machine.
    pub decoded: usize,
    /// What is known of each decoded instruction, and of each return address.
    pub known: usize,
    /// The distinct claims.
    pub claims: usize,
    /// Outcomes that were wrong, and what was found.
    pub findings: usize,
    /// The addresses and rows that were met, to count them.
    pub met: usize,
    /// Compiled rows of all unwinders, without the indices of sections.
    pub rows: usize,
}

impl MemoryUse {
    /// All of it.
    pub fn total(&self) -> usize {
        let MemoryUse {
            decoded,
            known,
            claims,
            findings,
            met,
            rows,
        } = self;
        decoded + known + claims + findings + met + rows
    }
}

/// Heap bytes of a list.
pub(super) fn list_bytes<T>(list: &Vec<T>) -> usize {
    list.capacity() * size_of::<T>()
}

impl std::fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kib = |bytes: usize| bytes.div_ceil(1024);
        write!(
            f,
            "{} KiB: decoded code {}, instructions {}, claims {}, findings {}, addresses and rows \
             met {}, compiled rows {}",
            kib(self.total()),
            kib(self.decoded),
            kib(self.known),
            kib(self.claims),
            kib(self.findings),
            kib(self.met),
            kib(self.rows)
        )
    }
}

#[cfg(test)]
mod tests;

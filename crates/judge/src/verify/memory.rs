//! The memory of a run, measured from the allocations of its containers.

/// The heap memory at the end of a run by content, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Decoded code of the machine.
    pub decoded: usize,
    /// Facts about each decoded instruction and each return address.
    pub known: usize,
    /// The distinct claims.
    pub claims: usize,
    /// Wrong outcomes, and the findings.
    pub findings: usize,
    /// The sets of addresses and rows that were met.
    pub met: usize,
    /// Compiled rows of all unwinders, without the indices of sections.
    pub rows: usize,
}

impl MemoryUse {
    /// The total.
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

/// The heap memory of a list, in bytes.
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

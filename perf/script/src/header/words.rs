//! The words of a feature section.

use unwind_sim_perf_data::le;

/// A cursor: the bytes not yet read.
pub(super) struct FeatureCursor<'a>(pub(super) &'a [u8]);

impl<'a> FeatureCursor<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        le::u32_at(self.bytes(4)?, 0)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        le::u64_at(self.bytes(8)?, 0)
    }

    /// A string, stored as its padded length and NUL-padded bytes.
    pub(super) fn string(&mut self) -> Option<String> {
        let length = self.u32()?;
        let bytes = self.bytes(length as usize)?;
        Some(printable(le::until_nul(bytes)))
    }

    /// A list of names with values.
    pub(super) fn pairs(&mut self) -> Option<Vec<(String, String)>> {
        let count = self.u32()?;
        (0..count)
            .map(|_| Some((self.string()?, self.string()?)))
            .collect()
    }

    /// A list of names with numbers, such as those of PMUs.
    pub(super) fn numbered(&mut self) -> Option<Vec<(u32, String)>> {
        let count = self.u32()?;
        (0..count)
            .map(|_| Some((self.u32()?, self.string()?)))
            .collect()
    }
}

/// `bytes` as text, with replacement characters for invalid UTF-8.
pub(super) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

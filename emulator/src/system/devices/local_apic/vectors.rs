//! A set of vectors in the layout of the APIC's 256-bit registers.

/// One bit for each vector, 32 in each register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Vectors([u32; 8]);

impl Vectors {
    pub(super) fn get(&self, vector: u8) -> bool {
        self.0[usize::from(vector / 32)] & (1 << (vector % 32)) != 0
    }

    pub(super) fn set(&mut self, vector: u8, value: bool) {
        let register = &mut self.0[usize::from(vector / 32)];
        let bit = 1 << (vector % 32);
        if value {
            *register |= bit;
        } else {
            *register &= !bit;
        }
    }

    pub(super) fn highest(&self) -> Option<u8> {
        let register = self.0.iter().rposition(|&bits| bits != 0)?;
        Some((register as u32 * 32 + self.0[register].ilog2()) as u8)
    }

    /// Register 0 to 7 of the set.
    pub(super) fn register(&self, number: u32) -> u32 {
        self.0[number as usize % self.0.len()]
    }
}

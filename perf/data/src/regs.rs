//! perf's x86 register numbers (`arch/x86/include/uapi/asm/perf_regs.h`, Linux 7.2), their DWARF
//! numbers, and the register sets of samples.

use crate::le;

/// One more than the highest general-purpose register (`PERF_REG_X86_64_MAX`).
pub const PERF_REG_X86_64_MAX: u32 = 24;
/// First vector register (`PERF_REG_X86_XMM0`); each one takes two mask bits and two words.
pub const PERF_REG_X86_XMM0: u32 = 32;

macro_rules! registers {
    ($($(#[$doc:meta])* $constant:ident = $number:literal, $name:literal, $dwarf:expr;)*) => {
        $($(#[$doc])* pub const $constant: u32 = $number;)*
        /// Names and DWARF numbers, by perf number.
        const TABLE: [(&str, Option<u16>); PERF_REG_X86_64_MAX as usize] = [
            $(($name, $dwarf)),*
        ];
    };
}

registers! {
    /// rax.
    PERF_REG_X86_AX = 0, "rax", Some(0);
    /// rbx.
    PERF_REG_X86_BX = 1, "rbx", Some(3);
    /// rcx.
    PERF_REG_X86_CX = 2, "rcx", Some(2);
    /// rdx.
    PERF_REG_X86_DX = 3, "rdx", Some(1);
    /// rsi.
    PERF_REG_X86_SI = 4, "rsi", Some(4);
    /// rdi.
    PERF_REG_X86_DI = 5, "rdi", Some(5);
    /// rbp.
    PERF_REG_X86_BP = 6, "rbp", Some(6);
    /// rsp.
    PERF_REG_X86_SP = 7, "rsp", Some(7);
    /// rip; DWARF calls it the return-address column.
    PERF_REG_X86_IP = 8, "rip", Some(16);
    /// rflags.
    PERF_REG_X86_FLAGS = 9, "rflags", Some(49);
    /// cs.
    PERF_REG_X86_CS = 10, "cs", Some(51);
    /// ss.
    PERF_REG_X86_SS = 11, "ss", Some(52);
    /// ds; not in 64-bit samples.
    PERF_REG_X86_DS = 12, "ds", Some(53);
    /// es; not in 64-bit samples.
    PERF_REG_X86_ES = 13, "es", Some(50);
    /// fs; not in 64-bit samples.
    PERF_REG_X86_FS = 14, "fs", Some(54);
    /// gs; not in 64-bit samples.
    PERF_REG_X86_GS = 15, "gs", Some(55);
    /// r8.
    PERF_REG_X86_R8 = 16, "r8", Some(8);
    /// r9.
    PERF_REG_X86_R9 = 17, "r9", Some(9);
    /// r10.
    PERF_REG_X86_R10 = 18, "r10", Some(10);
    /// r11.
    PERF_REG_X86_R11 = 19, "r11", Some(11);
    /// r12.
    PERF_REG_X86_R12 = 20, "r12", Some(12);
    /// r13.
    PERF_REG_X86_R13 = 21, "r13", Some(13);
    /// r14.
    PERF_REG_X86_R14 = 22, "r14", Some(14);
    /// r15.
    PERF_REG_X86_R15 = 23, "r15", Some(15);
}

/// The name of a general-purpose register by perf number; `None` for vector and unknown numbers.
pub fn name(register: u32) -> Option<&'static str> {
    TABLE.get(register as usize).map(|entry| entry.0)
}

/// The DWARF number (System V x86-64 psABI, figure 3.36) of a perf register number.
pub const fn dwarf_number(register: u32) -> Option<u16> {
    if (register as usize) < TABLE.len() {
        return TABLE[register as usize].1;
    }
    // xmm0..xmm15 are DWARF 17..32; the second half of each has no DWARF number.
    if register >= PERF_REG_X86_XMM0 && register < 64 && register.is_multiple_of(2) {
        return Some(17 + ((register - PERF_REG_X86_XMM0) / 2) as u16);
    }
    None
}

/// The mode of the registers (`enum perf_sample_regs_abi`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegsAbi {
    /// No registers: a kernel thread, or none available.
    None,
    /// A 32-bit task.
    Bits32,
    /// A 64-bit task.
    Bits64,
    /// A value unknown to this reader.
    Unknown(u64),
}

impl From<u64> for RegsAbi {
    fn from(value: u64) -> Self {
        match value {
            0 => Self::None,
            1 => Self::Bits32,
            2 => Self::Bits64,
            other => Self::Unknown(other),
        }
    }
}

/// The registers of a sample, borrowed from the record: one word for each bit of the mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRegs<'a> {
    /// Mode of the registers.
    pub abi: RegsAbi,
    /// Bit n: perf register n is present. Zero if `abi` is [`RegsAbi::None`].
    pub mask: u64,
    values: &'a [u8],
}

impl<'a> SampleRegs<'a> {
    /// A register set from its mask and its words, in ascending order of register number.
    pub fn new(abi: RegsAbi, mask: u64, values: &'a [u8]) -> Self {
        Self { abi, mask, values }
    }

    /// The value of a register by perf number, if it was recorded.
    pub fn get(&self, register: u32) -> Option<u64> {
        let bit = 1u64.checked_shl(register)?;
        if self.mask & bit == 0 {
            return None;
        }
        let index = (self.mask & (bit - 1)).count_ones() as usize;
        le::u64_at(self.values, index * 8)
    }

    /// All registers as (perf number, value).
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + 'a {
        let words = self.values.as_chunks::<8>().0.iter();
        let mut mask = self.mask;
        words.map_while(move |word| {
            let register = (mask != 0).then(|| mask.trailing_zeros())?;
            mask &= mask - 1;
            Some((register, u64::from_le_bytes(*word)))
        })
    }

    /// The general-purpose registers by perf number; those not recorded are zero (see `mask`).
    pub fn general(&self) -> [u64; PERF_REG_X86_64_MAX as usize] {
        let mut out = [0; PERF_REG_X86_64_MAX as usize];
        for (register, value) in self.iter() {
            if let Some(slot) = out.get_mut(register as usize) {
                *slot = value;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_by_counting_mask_bits() {
        let mask = (1 << PERF_REG_X86_BP) | (1 << PERF_REG_X86_IP) | (1 << PERF_REG_X86_R15);
        let values: Vec<u8> = [0x11u64, 0x22, 0x33]
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect();
        let regs = SampleRegs::new(RegsAbi::Bits64, mask, &values);
        assert_eq!(regs.get(PERF_REG_X86_BP), Some(0x11));
        assert_eq!(regs.get(PERF_REG_X86_IP), Some(0x22));
        assert_eq!(regs.get(PERF_REG_X86_R15), Some(0x33));
        assert_eq!(regs.get(PERF_REG_X86_SP), None);
        assert_eq!(regs.get(64), None);
        assert_eq!(
            regs.iter().collect::<Vec<_>>(),
            [(6, 0x11), (8, 0x22), (23, 0x33)]
        );
        assert_eq!(regs.general()[23], 0x33);
    }

    #[test]
    fn dwarf_numbers_are_those_of_the_psabi() {
        let numbers: Vec<_> = (0..24).filter_map(dwarf_number).collect();
        let expected = [
            0, 3, 2, 1, 4, 5, 6, 7, 16, 49, 51, 52, 53, 50, 54, 55, 8, 9, 10, 11, 12, 13, 14, 15,
        ];
        assert_eq!(numbers, expected);
        assert_eq!(name(PERF_REG_X86_R12), Some("r12"));
        assert_eq!(dwarf_number(32), Some(17));
        assert_eq!(dwarf_number(33), None);
        assert_eq!(dwarf_number(62), Some(32));
        assert_eq!(dwarf_number(24), None);
    }
}

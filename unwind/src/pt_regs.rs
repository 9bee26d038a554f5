//! The layout of `struct pt_regs` (Linux `arch/x86/include/asm/ptrace.h`). The
//! `struct user_regs_struct` of core files and ptrace starts with the same layout.

use crate::regs::{Reg, Regs};

/// Size of a `struct pt_regs`, bytes.
pub const PT_REGS_LEN: u64 = 168;
/// Offset of the part that the hardware pushes (the iret frame), bytes.
pub const IRET_FRAME_OFFSET: u64 = 128;
/// Size of the iret frame, bytes: ip, cs, flags, sp, ss.
pub const IRET_FRAME_LEN: u64 = 40;

/// The registers below the iret frame, in order. The word after them is `orig_ax`.
pub const BELOW_IRET_FRAME: [Reg; 15] = [
    Reg::R15,
    Reg::R14,
    Reg::R13,
    Reg::R12,
    Reg::Rbp,
    Reg::Rbx,
    Reg::R11,
    Reg::R10,
    Reg::R9,
    Reg::R8,
    Reg::Rax,
    Reg::Rcx,
    Reg::Rdx,
    Reg::Rsi,
    Reg::Rdi,
];

/// The offset of a register, bytes.
pub const fn offset_of(reg: Reg) -> u64 {
    match reg {
        Reg::R15 => 0,
        Reg::R14 => 8,
        Reg::R13 => 16,
        Reg::R12 => 24,
        Reg::Rbp => 32,
        Reg::Rbx => 40,
        Reg::R11 => 48,
        Reg::R10 => 56,
        Reg::R9 => 64,
        Reg::R8 => 72,
        Reg::Rax => 80,
        Reg::Rcx => 88,
        Reg::Rdx => 96,
        Reg::Rsi => 104,
        Reg::Rdi => 112,
        Reg::Rip => 128,
        Reg::Cs => 136,
        Reg::Rflags => 144,
        Reg::Rsp => 152,
    }
}

/// Reads registers from the bytes of a `struct pt_regs`, which may be cut short.
pub fn regs_from(bytes: &[u8]) -> Regs {
    let mut regs = Regs::UNKNOWN;
    for reg in Reg::ALL {
        let word = bytes.get(offset_of(reg) as usize..);
        if let Some(word) = word.and_then(|b| b.first_chunk()) {
            regs.set(reg, u64::from_le_bytes(*word));
        }
    }
    regs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registers_below_the_hardware_s_part_are_in_order() {
        let offsets = BELOW_IRET_FRAME.map(offset_of);
        assert!(
            (0..)
                .step_by(8)
                .zip(offsets)
                .all(|(expected, at)| at == expected)
        );
        assert_eq!(offsets[14] + 16, IRET_FRAME_OFFSET);
    }
}

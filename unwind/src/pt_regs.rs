//! The layout of `struct pt_regs` (Linux `arch/x86/include/asm/ptrace.h`). A core file and ptrace have the
//! same one at the beginning of their `struct user_regs_struct`.

use crate::regs::{Reg, Regs};

/// Bytes of a `struct pt_regs`.
pub const PT_REGS_LEN: u64 = 168;
/// Where the hardware's part of it begins, bytes.
pub const IRET_FRAME_OFFSET: u64 = 128;
/// Bytes of the hardware's part: ip, cs, flags, sp, ss.
pub const IRET_FRAME_LEN: u64 = 40;

/// The registers below the hardware's part, in order. The word behind them is `orig_ax`.
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

/// Where each register is, bytes.
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

/// The registers in the bytes of a `struct pt_regs`, as far as they go.
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

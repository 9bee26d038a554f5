//! The context of a program: for perf events, registers, period and address.
//!
//! Source: `include/uapi/linux/bpf_perf_event.h`, `arch/x86/include/uapi/asm/ptrace.h`,
//! `pe_prog_is_valid_access` of `kernel/trace/bpf_trace.c`, Linux 6.18.

use super::fault::FaultKind;
use unwind_sim_perf_data::regs;

/// Bytes of `struct pt_regs` on x86-64.
const REGS_SIZE: usize = 168;
/// Offset of `sample_period`.
const PERIOD_OFFSET: usize = 168;
/// Offset of `addr`.
const ADDRESS_OFFSET: usize = 176;
/// Bytes of `struct bpf_perf_event_data`.
const DATA_SIZE: usize = 184;

/// The words of `struct pt_regs`, by perf's number of the register; `None` for `orig_ax`.
const PT_REGS: [Option<u32>; REGS_SIZE / 8] = [
    Some(regs::PERF_REG_X86_R15),
    Some(regs::PERF_REG_X86_R14),
    Some(regs::PERF_REG_X86_R13),
    Some(regs::PERF_REG_X86_R12),
    Some(regs::PERF_REG_X86_BP),
    Some(regs::PERF_REG_X86_BX),
    Some(regs::PERF_REG_X86_R11),
    Some(regs::PERF_REG_X86_R10),
    Some(regs::PERF_REG_X86_R9),
    Some(regs::PERF_REG_X86_R8),
    Some(regs::PERF_REG_X86_AX),
    Some(regs::PERF_REG_X86_CX),
    Some(regs::PERF_REG_X86_DX),
    Some(regs::PERF_REG_X86_SI),
    Some(regs::PERF_REG_X86_DI),
    None,
    Some(regs::PERF_REG_X86_IP),
    Some(regs::PERF_REG_X86_CS),
    Some(regs::PERF_REG_X86_FLAGS),
    Some(regs::PERF_REG_X86_SP),
    Some(regs::PERF_REG_X86_SS),
];

/// `struct bpf_perf_event_data`, with a mark on each word that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerfEventData {
    words: [Option<u64>; DATA_SIZE / 8],
}

impl PerfEventData {
    /// A context in which no word is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a register by perf's number of it; those that `pt_regs` does not have are ignored.
    pub fn set_reg(&mut self, register: u32, value: u64) {
        let index = PT_REGS.iter().position(|found| *found == Some(register));
        if let Some(index) = index {
            self.words[index] = Some(value);
        }
    }

    /// A register by perf's number of it.
    pub fn reg(&self, register: u32) -> Option<u64> {
        let index = PT_REGS.iter().position(|found| *found == Some(register))?;
        self.words[index]
    }

    /// Sets the word at an offset, such as `orig_ax` at 120.
    pub fn set_word(&mut self, offset: usize, value: u64) {
        if let Some(word) = self.words.get_mut(offset / 8) {
            *word = Some(value);
        }
    }

    /// Sets the period that the event had before it fired.
    pub fn set_sample_period(&mut self, period: u64) {
        self.set_word(PERIOD_OFFSET, period);
    }

    /// Sets the address that the sample is about.
    pub fn set_address(&mut self, address: u64) {
        self.set_word(ADDRESS_OFFSET, address);
    }
}

/// What r1 points to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Context<'a> {
    /// `struct bpf_perf_event_data`, with the verifier's rules.
    PerfEvent(&'a PerfEventData),
    /// Bytes without access rules, for other types of programs.
    Bytes(&'a [u8]),
}

impl Context<'_> {
    /// Reads `size` (1, 2, 4 or 8) bytes.
    pub(super) fn read(&self, offset: i64, size: usize) -> Result<u64, FaultKind> {
        let denied = FaultKind::Context {
            offset,
            size: size as u64,
        };

        // A negative offset is before the context.
        let at = usize::try_from(offset).map_err(|_| denied)?;

        match self {
            Self::Bytes(bytes) => {
                let end = at.checked_add(size).ok_or(denied)?;
                let found = bytes.get(at..end).ok_or(denied)?;
                let mut word = [0; 8];
                word[..size].copy_from_slice(found);
                Ok(u64::from_le_bytes(word))
            }
            Self::PerfEvent(data) => {
                // Registers are read as whole words only (`pe_prog_is_valid_access` in
                // `kernel/trace/bpf_trace.c`).
                let is_narrow_ok = at >= PERIOD_OFFSET;
                if at >= DATA_SIZE || !at.is_multiple_of(size) || (size != 8 && !is_narrow_ok) {
                    return Err(denied);
                }

                // The fields after the registers may be read in parts, in little-endian order.
                let word = data.words[at / 8].ok_or(FaultKind::ContextUnknown { offset })?;
                let shifted = word >> (8 * (at % 8));
                Ok(if size == 8 {
                    shifted
                } else {
                    shifted & ((1 << (8 * size)) - 1)
                })
            }
        }
    }
}

//! The emulated machine between two instructions, as a stopped kernel.

use super::KernelMachine;
use crate::registers::live_registers;
use unwind_sim_emulator::Core;
use unwind_sim_emulator::state::reg;
use unwind_sim_unwind::regs::{Reg, Regs};

/// The code segment of a kernel (Linux `arch/x86/include/asm/segment.h`, `__KERNEL_CS`).
const KERNEL_CS: u64 = 0x10;

/// Memory that is not mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{address:#x} is not mapped")]
pub(crate) struct NotMapped {
    /// The first address.
    pub(crate) address: u64,
}

/// The machine. The next instruction is at `rip`.
pub(crate) struct StoppedCore<'a> {
    pub(crate) core: &'a Core,
    pub(crate) rip: u64,
}

impl StoppedCore<'_> {
    /// All registers.
    pub(crate) fn live(&self) -> Regs {
        let mut regs = live_registers(&self.core.state, self.rip);
        regs.set(Reg::Cs, KERNEL_CS);
        regs
    }

    /// The argument of a function whose first instruction is the next one (psABI 3.2.3).
    pub(crate) fn argument(&self, number: usize) -> u64 {
        const ARGUMENTS: [usize; 4] = [reg::RDI, reg::RSI, reg::RDX, reg::RCX];
        self.core.state.gpr(ARGUMENTS[number])
    }

    /// The text at `address`, as far as it has at most `max` bytes.
    pub(crate) fn text(&mut self, address: u64, max: usize) -> String {
        // Not beyond the page, unless the text is: what follows may not be mapped.
        let mut bytes = Vec::new();
        while bytes.len() < max {
            match self
                .read(address.wrapping_add(bytes.len() as u64), 1)
                .as_deref()
            {
                Ok([byte]) if *byte != 0 => bytes.push(*byte),
                _ => break,
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where such a function returns to, and rsp after that (psABI 3.2.2).
    pub(crate) fn back(&mut self) -> Result<(u64, u64), NotMapped> {
        let rsp = self.core.state.gpr(reg::RSP);
        Ok((self.word(rsp)?, rsp.wrapping_add(8)))
    }
}

impl KernelMachine for StoppedCore<'_> {
    type Error = NotMapped;

    fn register(&mut self, name: &str) -> Result<Option<u64>, NotMapped> {
        Ok(match name {
            "gs_base" => Some(self.core.state.gpr(reg::GS)),
            _ => Reg::from_name(name).and_then(|reg| self.live().get(reg)),
        })
    }

    fn processor_number(&self) -> usize {
        // The machine has one.
        0
    }

    fn read(&mut self, address: u64, len: usize) -> Result<Vec<u8>, NotMapped> {
        let mut bytes = vec![0; len];
        // Not with the rights of the processor: SMAP is no matter here.
        let read = self.core.memory.peek(address, &mut bytes);
        read.map_err(|_| NotMapped { address })?;
        Ok(bytes)
    }
}

//! IA32_APIC_BASE: where the APIC's registers are and which of its modes is on.

use super::LocalApic;

const BOOTSTRAP: u64 = 1 << 8;
const X2APIC: u64 = 1 << 10;
const ENABLE: u64 = 1 << 11;
const PAGE: u64 = 0x000f_ffff_ffff_f000;

/// The value after reset, for the bootstrap processor.
pub(super) const RESET: u64 = 0xfee0_0000 | ENABLE | BOOTSTRAP;

impl LocalApic {
    pub(in super::super) fn base(&self) -> u64 {
        self.base
    }

    /// Neither xAPIC nor x2APIC mode is on without this.
    pub(in super::super) fn is_enabled(&self) -> bool {
        self.base & ENABLE != 0
    }

    pub(in super::super) fn is_x2apic(&self) -> bool {
        self.base & (ENABLE | X2APIC) == ENABLE | X2APIC
    }

    /// The page with the registers, if they are in memory.
    pub(in super::super) fn page(&self) -> Option<u64> {
        (self.base & (ENABLE | X2APIC) == ENABLE).then_some(self.base & PAGE)
    }

    /// Writes IA32_APIC_BASE. `None`: reserved bits or a transition that is not allowed, #GP.
    pub(in super::super) fn set_base(&mut self, value: u64) -> Option<()> {
        if value & !(BOOTSTRAP | X2APIC | ENABLE | PAGE) != 0 {
            return None;
        }

        // SDM, "x2APIC State Transitions": x2APIC mode is entered from xAPIC mode only, and left
        // only by disabling the APIC.
        let mode = |base: u64| (base & ENABLE != 0, base & X2APIC != 0);
        match (mode(self.base), mode(value)) {
            (_, (false, true)) | ((false, _), (true, true)) | ((true, true), (true, false)) => {
                return None;
            }
            // Nothing but an NMI that was already accepted survives.
            ((true, _), (false, false)) => {
                *self = LocalApic {
                    nmi: self.nmi,
                    lint0: self.lint0,
                    ..LocalApic::new()
                };
            }
            // The upper half of the command register is the destination in another format.
            ((true, false), (true, true)) => self.command &= u64::from(u32::MAX),
            _ => {}
        }

        self.base = value;
        Some(())
    }
}

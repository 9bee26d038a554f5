//! The fixed registers of power management (PM1a): the power can be switched off, and nothing else happens.
//!
//! Source: ACPI specification 6.5, 4.8.3.

use crate::system::boot::acpi::{PM1_CONTROL, PM1_EVENT, SOFT_OFF};

/// SCI_EN: the mode is ACPI's.
const ENABLED: u16 = 1;
/// SLP_EN: sleep now, as SLP_TYP says, three bits from the tenth on.
const SLEEP: u16 = 1 << 13;
const SLEEP_TYPE: u16 = 7 << 10;
/// Bytes of the registers: status, enable, control.
const BYTES: u16 = 6;

/// The registers.
#[derive(Clone, Debug, Default)]
pub(super) struct Power {
    enable: u16,
    control: u16,
    /// Whether the power is off.
    pub(super) is_off: bool,
}

impl Power {
    /// Whether the port is one of these.
    pub(super) fn has_port(port: u16) -> bool {
        (PM1_EVENT..PM1_EVENT + BYTES).contains(&port)
    }

    /// Reads a byte.
    pub(super) fn read(&self, port: u16) -> u8 {
        let register = match port & !1 {
            PM1_CONTROL => self.control | ENABLED,
            // No event has happened.
            PM1_EVENT => 0,
            _ => self.enable,
        };
        register.to_le_bytes()[usize::from(port & 1)]
    }

    /// Writes a byte.
    pub(super) fn write(&mut self, port: u16, byte: u8) {
        let register = match port & !1 {
            PM1_CONTROL => &mut self.control,
            PM1_EVENT => return,
            _ => &mut self.enable,
        };
        let mut bytes = register.to_le_bytes();
        bytes[usize::from(port & 1)] = byte;
        *register = u16::from_le_bytes(bytes);
        let sleeps = self.control & SLEEP != 0;
        // It reads as 0.
        self.control &= !SLEEP;
        let kind = (self.control & SLEEP_TYPE) >> SLEEP_TYPE.trailing_zeros();
        self.is_off |= sleeps && kind == u16::from(SOFT_OFF);
    }
}

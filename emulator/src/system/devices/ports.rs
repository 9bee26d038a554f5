//! Which device a port belongs to.

use super::power::Power;
use super::{Devices, Reset, Unknown};

/// The first port of the serial port ttyS0.
const SERIAL: u16 = 0x3f8;
const SERIAL_LAST: u16 = SERIAL + 7;
const PIT: u16 = 0x40;
const PIT_LAST: u16 = PIT + 3;
/// Where firmware writes its progress; Linux writes there to pass time.
const DELAY: u16 = 0x80;
/// The other port that Linux can pass time with (`io_delay=0xed`).
const DELAY_ALTERNATIVE: u16 = 0xed;
/// System control port B.
const SYSTEM_CONTROL_B: u16 = 0x61;
/// System control port A.
const SYSTEM_CONTROL_A: u16 = 0x92;
const KEYBOARD_COMMAND: u16 = 0x64;
const KEYBOARD_RESET: u8 = 0xfe;
const CMOS_INDEX: u16 = 0x70;
const CMOS_DATA: u16 = 0x71;
/// The chipset's reset control register; a byte inside PCI's address register.
const RESET_CONTROL: u16 = 0xcf9;
const RESET_CPU: u8 = 1 << 2;
/// Bits of the reset control register that keep their value: full reset, system reset.
const RESET_CONTROL_BITS: u8 = 0x0a;

const GATE: u8 = 1 << 0;
const SYSTEM_CONTROL_BITS: u8 = 0x0f;
const REFRESH: u8 = 1 << 4;
const SPEAKER_OUTPUT: u8 = 1 << 5;
/// Ticks between changes of the refresh bit of port 0x61: 15 us on a PC.
const REFRESH_TICKS: u64 = 15_000;
/// Bit 1 of port 0x92: address line 20 is not masked.
const A20: u8 = 1 << 1;

/// Whether the port has a device that takes bytes, and that is always there.
fn is_known(port: u16) -> bool {
    matches!(
        port,
        0x20 | 0x21
            | PIT..=PIT_LAST
            | SYSTEM_CONTROL_B
            | KEYBOARD_COMMAND
            | CMOS_INDEX
            | CMOS_DATA
            | DELAY
            | SYSTEM_CONTROL_A
            | 0xa0
            | 0xa1
            | DELAY_ALTERNATIVE
            | SERIAL..=SERIAL_LAST
            | 0x4d0
            | 0x4d1
    )
}

impl Devices {
    /// Reads `bytes` (1, 2 or 4) from the port. A device that has bytes gets several accesses;
    /// what has no device reads as all ones.
    pub fn port_read(&mut self, port: u16, bytes: u32, now: u64) -> u32 {
        self.update(now);
        let ports = ports(port, bytes);

        if bytes == 1 && port == RESET_CONTROL {
            return u32::from(self.reset_control);
        }
        if !ports.clone().any(|port| self.is_known(port)) {
            self.unknown.add(Unknown::PortRead(port));
            return u32::MAX >> (32 - 8 * bytes.clamp(1, 4));
        }

        let mut value = 0;
        for (number, port) in ports.enumerate() {
            let byte = if self.is_known(port) {
                self.read_byte(port, now)
            } else {
                0xff
            };
            value |= u32::from(byte) << (8 * number);
        }
        self.move_lines(now);
        value
    }

    /// Writes `bytes` (1, 2 or 4) to the port; see [`Devices::port_read`].
    pub fn port_write(&mut self, port: u16, bytes: u32, value: u32, now: u64) {
        self.update(now);
        let ports = ports(port, bytes);

        if bytes == 1 && port == RESET_CONTROL {
            self.write_reset_control(value as u8);
            return;
        }
        if !ports.clone().any(|port| self.is_known(port)) {
            self.unknown.add(Unknown::PortWrite(port));
            return;
        }

        for (port, byte) in ports.zip(value.to_le_bytes()) {
            if self.is_known(port) {
                self.write_byte(port, byte, now);
            }
        }
        self.move_lines(now);
    }

    fn is_known(&self, port: u16) -> bool {
        is_known(port) || self.power.is_some() && Power::has_port(port)
    }

    fn read_byte(&mut self, port: u16, now: u64) -> u8 {
        if let Some(power) = self.power.as_ref().filter(|_| Power::has_port(port)) {
            return power.read(port);
        }
        match port {
            0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => self.pics.read(port),
            PIT..=PIT_LAST => self.pit.read(port - PIT, now),
            SYSTEM_CONTROL_B => self.system_control_b(now),
            CMOS_DATA => self.cmos.read(now),
            SYSTEM_CONTROL_A => A20,
            SERIAL..=SERIAL_LAST => self.serial.read(port - SERIAL),
            // No keyboard controller answers; CMOS_INDEX and the delay ports cannot be read.
            _ => 0xff,
        }
    }

    fn write_byte(&mut self, port: u16, value: u8, now: u64) {
        if let Some(power) = self.power.as_mut().filter(|_| Power::has_port(port)) {
            return power.write(port, value);
        }
        match port {
            0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1 => self.pics.write(port, value),
            PIT..=PIT_LAST => self.pit.write(port - PIT, value, now),
            SYSTEM_CONTROL_B => {
                self.system_control = value & SYSTEM_CONTROL_BITS;
                self.pit.set_gate(value & GATE != 0, now);
            }
            KEYBOARD_COMMAND if value == KEYBOARD_RESET => self.ask_for(Reset::Keyboard),
            CMOS_INDEX => self.cmos.select(value),
            CMOS_DATA => self.cmos.write(value, now),
            SYSTEM_CONTROL_A if value & 1 != 0 => self.ask_for(Reset::SystemControl),
            SERIAL..=SERIAL_LAST => self.serial.write(port - SERIAL, value),
            _ => {}
        }
    }

    fn system_control_b(&mut self, now: u64) -> u8 {
        let mut value = self.system_control;
        if !(now / REFRESH_TICKS).is_multiple_of(2) {
            value |= REFRESH;
        }
        if self.pit.speaker(now) {
            value |= SPEAKER_OUTPUT;
        }
        value
    }

    fn write_reset_control(&mut self, value: u8) {
        self.reset_control = value & RESET_CONTROL_BITS;
        if value & RESET_CPU != 0 {
            self.ask_for(Reset::ResetControl);
        }
    }

    /// Only the first request counts.
    fn ask_for(&mut self, reset: Reset) {
        self.reset.get_or_insert(reset);
    }
}

/// The ports that an access covers.
fn ports(port: u16, bytes: u32) -> impl Iterator<Item = u16> + Clone {
    (0..bytes.clamp(1, 4) as u16).map(move |number| port.wrapping_add(number))
}

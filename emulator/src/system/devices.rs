//! The devices around the processor: what Linux needs of a PC without MP table and PCI.
//!
//! Two 8259A whose output is wired to the local APIC's LINT0, the 8254 timer (IRQ 0), a 16550A
//! UART (IRQ 4), the MC146818 clock (IRQ 8), the ports that reset a PC, and, with ACPI, those that switch it off. Everything follows from
//! the accesses and from the virtual time that they are given: there is no other clock.
//!
//! Not modelled: keyboard, PCI, DMA, disks, display. Ports without a device read as all ones.

mod cmos;
mod local_apic;
mod pic;
mod pit;
mod ports;
mod power;
mod serial;
#[cfg(test)]
mod tests;
mod ticks;
mod unknown;

use cmos::Cmos;
use local_apic::LocalApic;
use pic::Pics;
use pit::Pit;
use power::Power;
use serial::Serial;
pub use ticks::{CRYSTAL, TICKS_PER_SECOND};
pub use unknown::Unknown;
use unknown::UnknownAccesses;

const IA32_APIC_BASE: u32 = 0x1b;
const IA32_TSC_DEADLINE: u32 = 0x6e0;
/// First and last MSR of x2APIC mode.
const X2APIC_FIRST: u32 = 0x800;
const X2APIC_LAST: u32 = 0x8ff;
/// Bytes from one register of the APIC to the next.
const REGISTER_STEP: u64 = 16;
const PAGE_BYTES: u64 = 4096;

/// How the guest asked for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The keyboard controller's command 0xfe, port 0x64.
    Keyboard,
    /// The chipset's reset control register, port 0xcf9.
    ResetControl,
    /// Bit 0 of system control port A, 0x92.
    SystemControl,
}

impl Reset {
    /// A stable name, for machines.
    pub fn as_str(self) -> &'static str {
        match self {
            Reset::Keyboard => "keyboard",
            Reset::ResetControl => "reset-control",
            Reset::SystemControl => "system-control",
        }
    }
}

/// The devices. A clone is a snapshot.
#[derive(Clone, Debug)]
pub struct Devices {
    apic: LocalApic,
    pics: Pics,
    pit: Pit,
    serial: Serial,
    cmos: Cmos,
    power: Option<Power>,
    /// Bits 3 to 0 of port 0x61; bit 0 is the gate of the timer's channel 2.
    system_control: u8,
    reset_control: u8,
    reset: Option<Reset>,
    unknown: UnknownAccesses,
}

impl Devices {
    /// The devices as firmware leaves them; the date is in seconds since 1970, at time 0.
    ///
    /// The 8259's inputs are masked and its output interrupts the processor. The local APIC is
    /// enabled in IA32_APIC_BASE and disabled by software (SVR).
    pub fn new(seconds_since_1970: u64) -> Devices {
        Devices {
            apic: LocalApic::new(),
            pics: Pics::new(),
            pit: Pit::new(),
            serial: Serial::new(),
            cmos: Cmos::new(seconds_since_1970),
            power: None,
            system_control: 0,
            reset_control: 0,
            reset: None,
            unknown: UnknownAccesses::default(),
        }
    }

    /// Makes them as the ACPI tables say: with power management, and with a local APIC through which the 8259
    /// interrupts the processor.
    pub(super) fn add_acpi(&mut self) {
        self.power = Some(Power::default());
        self.apic.enable();
    }

    /// Whether the power was switched off.
    pub(super) fn is_off(&self) -> bool {
        self.power.as_ref().is_some_and(|power| power.is_off)
    }

    /// Whether registers of a device are at the physical address: the local APIC's page.
    pub fn is_device(&self, physical: u64) -> bool {
        self.apic.page() == Some(physical & !(PAGE_BYTES - 1))
    }

    /// Reads a device's register. Only the low 32 bits of a register exist; the rest is 0.
    pub fn mmio_read(&mut self, physical: u64, bytes: usize, now: u64) -> u64 {
        let bits = 8 * bytes.min(8) as u32;
        let ones = u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        if !self.is_device(physical) {
            self.unknown.add(Unknown::MmioRead(physical));
            return ones;
        }

        let (register, byte) = register_of(physical);
        let value = match self.apic.read(register, now) {
            Some(value) => u64::from(value).checked_shr(8 * byte).unwrap_or(0),
            None => {
                self.unknown.add(Unknown::MmioRead(physical));
                0
            }
        };
        self.move_lines(now);
        value & ones
    }

    /// Writes a device's register, which takes aligned writes of at least 32 bits only.
    pub fn mmio_write(&mut self, physical: u64, bytes: usize, value: u64, now: u64) {
        let (register, byte) = register_of(physical);
        let whole = self.is_device(physical) && byte == 0 && bytes >= 4;

        if !whole || self.apic.write(register, value as u32, now).is_none() {
            self.unknown.add(Unknown::MmioWrite(physical));
        }
        self.move_lines(now);
    }

    /// Whether the MSR is one of the local APIC.
    pub fn is_msr(msr: u32) -> bool {
        matches!(
            msr,
            IA32_APIC_BASE | IA32_TSC_DEADLINE | X2APIC_FIRST..=X2APIC_LAST
        )
    }

    /// Reads an MSR of the local APIC. `None`: #GP.
    pub fn msr_read(&mut self, msr: u32, now: u64) -> Option<u64> {
        let value = match msr {
            IA32_APIC_BASE => Some(self.apic.base()),
            IA32_TSC_DEADLINE => Some(self.apic.deadline(now)),
            X2APIC_FIRST..=X2APIC_LAST => self.apic.read_x2apic(msr - X2APIC_FIRST, now),
            _ => None,
        };
        self.move_lines(now);
        value
    }

    /// Writes an MSR of the local APIC. `None`: #GP, and nothing was written.
    pub fn msr_write(&mut self, msr: u32, value: u64, now: u64) -> Option<()> {
        let written = match msr {
            IA32_APIC_BASE => self.apic.set_base(value),
            IA32_TSC_DEADLINE => {
                self.apic.set_deadline(value, now);
                Some(())
            }
            X2APIC_FIRST..=X2APIC_LAST => self.apic.write_x2apic(msr - X2APIC_FIRST, value, now),
            _ => None,
        };
        self.move_lines(now);
        written
    }

    /// CR8: the upper half of the task priority register.
    pub fn task_priority(&self) -> u64 {
        self.apic.task_priority()
    }

    /// Writes CR8; only its low four bits exist.
    pub fn set_task_priority(&mut self, value: u64) {
        self.apic.set_task_priority(value);
    }

    /// Lets timers expire and interrupt lines follow, up to the time `now`.
    pub fn update(&mut self, now: u64) {
        self.apic.update(now);
        self.cmos.update(now);
        self.move_lines(now);
    }

    /// Sets the 8259's inputs from the devices, and LINT0 from its output.
    fn move_lines(&mut self, now: u64) {
        let (risen, level) = self.pit.interrupt(now);
        if risen {
            self.pics.set_line(0, false);
            self.pics.set_line(0, true);
        }
        self.pics.set_line(0, level);

        self.pics.set_line(8, self.cmos.interrupt());
        self.move_serial_line();
    }

    fn move_serial_line(&mut self) {
        if self.serial.take_withdrawn() {
            self.pics.set_line(4, false);
        }
        self.pics.set_line(4, self.serial.interrupt());
        self.apic.set_lint0(self.pics.output());
    }

    /// Whether the processor's INTR is asserted, by the local APIC or by the 8259 through it.
    pub fn interrupt(&self) -> bool {
        self.apic.interrupt() || self.apic.external_interrupt()
    }

    /// The interrupt acknowledge cycle: takes the interrupt into service and gives its vector.
    ///
    /// Without an interrupt, the vector is the APIC's spurious one.
    pub fn acknowledge(&mut self) -> u8 {
        if let Some(vector) = self.apic.acknowledge() {
            return vector;
        }
        if !self.apic.external_interrupt() {
            return self.apic.spurious_vector();
        }

        let vector = self.pics.acknowledge();
        self.apic.set_lint0(self.pics.output());
        vector
    }

    /// Whether an NMI is pending, which it then is no longer.
    pub fn take_nmi(&mut self) -> bool {
        self.apic.take_nmi()
    }

    /// Makes an NMI pending.
    pub fn inject_nmi(&mut self) {
        self.apic.inject_nmi();
    }

    /// Reports the overflow of a performance counter to the local APIC, which interrupts as its
    /// entry LVT performance counter says and masks that entry.
    pub fn performance_interrupt(&mut self) {
        self.apic.performance_interrupt();
    }

    /// When [`Devices::update`] changes something, unless there are accesses before: `now` or later.
    pub fn next_event(&self, now: u64) -> Option<u64> {
        let events = [
            self.apic.next_event(now),
            self.pit.next_event(now),
            self.cmos.next_event(now),
        ];
        events.into_iter().flatten().min()
    }

    /// What the guest sent over the serial port since the last call.
    pub fn take_output(&mut self) -> Vec<u8> {
        self.serial.take_output()
    }

    /// Bytes of serial output that were dropped since more than 1 MiB was not taken.
    pub fn dropped_output(&self) -> u64 {
        self.serial.dropped()
    }

    /// Sends bytes to the guest over the serial port.
    pub fn add_input(&mut self, bytes: &[u8]) {
        self.serial.add_input(bytes);
        self.move_serial_line();
    }

    /// Sends bytes to the guest over the serial port, as soon as a driver waits for input and as it takes
    /// them.
    pub fn add_typed(&mut self, bytes: &[u8]) {
        self.serial.add_typed(bytes);
        self.move_serial_line();
    }

    /// The reset that the guest asked for.
    pub fn reset(&self) -> Option<Reset> {
        self.reset
    }

    /// Accesses without a device, with the number of times: the first 64 different ones.
    pub fn unknown(&self) -> impl Iterator<Item = (Unknown, u64)> {
        self.unknown.iter()
    }
}

/// The register of the local APIC at a physical address, and the byte in its 16.
fn register_of(physical: u64) -> (u32, u32) {
    let offset = physical % PAGE_BYTES;
    (
        (offset / REGISTER_STEP) as u32,
        (offset % REGISTER_STEP) as u32,
    )
}

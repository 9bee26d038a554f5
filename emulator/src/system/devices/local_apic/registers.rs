//! The APIC's registers: in memory (xAPIC mode) and as MSRs (x2APIC mode).
//!
//! A register has the same number in both: its offset in the page divided by 16, and its MSR less
//! 0x800.

use super::timer::Mode;
use super::{
    ENTRIES, ILLEGAL_REGISTER, LINT0, LocalApic, MASKED, REMOTE_IRR, SOFTWARE_ENABLE, TIMER,
};

const ID: u32 = 0x02;
const VERSION: u32 = 0x03;
const TASK_PRIORITY: u32 = 0x08;
const ARBITRATION_PRIORITY: u32 = 0x09;
const PROCESSOR_PRIORITY: u32 = 0x0a;
const END_OF_INTERRUPT: u32 = 0x0b;
const REMOTE_READ: u32 = 0x0c;
const LOGICAL_DESTINATION: u32 = 0x0d;
const DESTINATION_FORMAT: u32 = 0x0e;
const SPURIOUS: u32 = 0x0f;
const ERROR_STATUS: u32 = 0x28;
const COMMAND: u32 = 0x30;
const COMMAND_HIGH: u32 = 0x31;
const FIRST_ENTRY: u32 = 0x32;
const LAST_ENTRY: u32 = 0x37;
const INITIAL_COUNT: u32 = 0x38;
const CURRENT_COUNT: u32 = 0x39;
const DIVIDE: u32 = 0x3e;
const SELF_IPI: u32 = 0x3f;

/// Version 0x14, the last entry of the local vector table is number 5.
const VERSION_VALUE: u32 = (ENTRIES as u32 - 1) << 16 | 0x14;
/// The ID of the only processor in the logical format of x2APIC mode: cluster 0, member 0.
const X2APIC_LOGICAL_ID: u32 = 1;
/// Bits of the command register that can be written: not the delivery status, nothing reserved.
const COMMAND_BITS: u32 = 0x000c_cfff;
const SPURIOUS_BITS: u32 = 0x3ff;
/// Delivery status and remote IRR of an entry of the local vector table: read only.
const ENTRY_STATUS: u32 = 1 << 12 | REMOTE_IRR;
/// Bits of each entry of the local vector table that can be written.
const ENTRY_BITS: [u32; ENTRIES] = [0x700ff, 0x107ff, 0x107ff, 0x1a7ff, 0x1a7ff, 0x100ff];

impl LocalApic {
    /// Reads a register in memory. `None`: it does not exist.
    pub(in super::super) fn read(&mut self, register: u32, now: u64) -> Option<u32> {
        self.update(now);

        let value = match register {
            ID | ARBITRATION_PRIORITY | END_OF_INTERRUPT | REMOTE_READ => 0,
            LOGICAL_DESTINATION => self.logical_destination,
            DESTINATION_FORMAT => self.destination_format,
            COMMAND => self.command as u32,
            COMMAND_HIGH => (self.command >> 32) as u32,
            _ => match self.read_common(register, now) {
                Some(value) => value,
                None => {
                    self.error(ILLEGAL_REGISTER);
                    return None;
                }
            },
        };
        Some(value)
    }

    /// Writes a register in memory. `None`: it does not exist or cannot be written.
    pub(in super::super) fn write(&mut self, register: u32, value: u32, now: u64) -> Option<()> {
        self.update(now);

        match register {
            // Read only; such a write is not an error.
            ID
            | VERSION
            | ARBITRATION_PRIORITY
            | PROCESSOR_PRIORITY
            | REMOTE_READ
            | CURRENT_COUNT
            | 0x10..=0x27 => {}
            LOGICAL_DESTINATION => self.logical_destination = value & 0xff00_0000,
            DESTINATION_FORMAT => self.destination_format = value | 0x0fff_ffff,
            COMMAND => {
                let high = self.command & !u64::from(u32::MAX);
                self.send(high | u64::from(value & COMMAND_BITS));
            }
            COMMAND_HIGH => {
                let low = self.command & u64::from(u32::MAX);
                self.command = u64::from(value & 0xff00_0000) << 32 | low;
            }
            _ if self.write_common(register, value, now).is_none() => {
                self.error(ILLEGAL_REGISTER);
                return None;
            }
            _ => {}
        }
        Some(())
    }

    /// Reads a register's MSR. `None`: #GP.
    pub(in super::super) fn read_x2apic(&mut self, register: u32, now: u64) -> Option<u64> {
        if !self.is_x2apic() {
            return None;
        }
        self.update(now);

        match register {
            ID => Some(0),
            LOGICAL_DESTINATION => Some(u64::from(X2APIC_LOGICAL_ID)),
            COMMAND => Some(self.command),
            _ => self.read_common(register, now).map(u64::from),
        }
    }

    /// Writes a register's MSR. `None`: #GP.
    pub(in super::super) fn write_x2apic(
        &mut self,
        register: u32,
        value: u64,
        now: u64,
    ) -> Option<()> {
        if !self.is_x2apic() {
            return None;
        }
        self.update(now);

        if register == COMMAND {
            if value as u32 & !(COMMAND_BITS | 1 << 12) != 0 {
                return None;
            }
            self.send(value & !(1 << 12));
            return Some(());
        }

        let value = u32::try_from(value).ok()?;
        let allowed = match register {
            TASK_PRIORITY | SELF_IPI => 0xff,
            END_OF_INTERRUPT | ERROR_STATUS => 0,
            SPURIOUS => SPURIOUS_BITS,
            FIRST_ENTRY..=LAST_ENTRY => {
                ENTRY_BITS[(register - FIRST_ENTRY) as usize] | ENTRY_STATUS
            }
            INITIAL_COUNT => u32::MAX,
            DIVIDE => 0b1011,
            _ => return None,
        };
        if value & !allowed != 0 {
            return None;
        }

        if register == SELF_IPI {
            self.send_self(value as u8);
            return Some(());
        }
        self.write_common(register, value, now)
    }

    /// Registers that are the same in both modes.
    fn read_common(&self, register: u32, now: u64) -> Option<u32> {
        // These two read as 0 while the timer waits for a deadline.
        let counts = self.timer_mode() != Mode::TscDeadline;

        Some(match register {
            VERSION => VERSION_VALUE,
            TASK_PRIORITY => u32::from(self.task_priority),
            PROCESSOR_PRIORITY => u32::from(self.processor_priority()),
            SPURIOUS => self.spurious,
            0x10..=0x17 => self.in_service.register(register - 0x10),
            0x18..=0x1f => self.trigger_mode.register(register - 0x18),
            0x20..=0x27 => self.requests.register(register - 0x20),
            ERROR_STATUS => self.errors,
            FIRST_ENTRY..=LAST_ENTRY => self.entries[(register - FIRST_ENTRY) as usize],
            INITIAL_COUNT if counts => self.timer.initial(),
            CURRENT_COUNT if counts => self.timer.current(now),
            INITIAL_COUNT | CURRENT_COUNT => 0,
            DIVIDE => self.timer.divide(),
            _ => return None,
        })
    }

    fn write_common(&mut self, register: u32, value: u32, now: u64) -> Option<()> {
        match register {
            TASK_PRIORITY => self.task_priority = value as u8,
            END_OF_INTERRUPT => self.end_of_interrupt(),
            SPURIOUS => self.set_spurious(value),
            // A write latches what happened since the one before.
            ERROR_STATUS => self.errors = std::mem::take(&mut self.new_errors),
            FIRST_ENTRY..=LAST_ENTRY => self.set_entry((register - FIRST_ENTRY) as usize, value),
            INITIAL_COUNT if self.timer_mode() == Mode::TscDeadline => {}
            INITIAL_COUNT => self.timer.set_initial(value, now),
            DIVIDE => self.timer.set_divide(value, self.timer_mode(), now),
            _ => return None,
        }
        Some(())
    }

    fn set_spurious(&mut self, value: u32) {
        self.spurious = value & SPURIOUS_BITS;

        // SDM, "Local APIC State After It Has Been Software Disabled".
        if value & SOFTWARE_ENABLE == 0 {
            for entry in &mut self.entries {
                *entry |= MASKED;
            }
        }
    }

    fn set_entry(&mut self, number: usize, value: u32) {
        let before = self.timer_mode();

        let status = self.entries[number] & ENTRY_STATUS;
        let mut entry = value & ENTRY_BITS[number] | status;
        if !self.software_enabled() {
            entry |= MASKED;
        }
        self.entries[number] = entry;

        match number {
            TIMER => {
                let deadline = |mode| mode == Mode::TscDeadline;
                if deadline(before) != deadline(self.timer_mode()) {
                    self.timer.disarm();
                }
            }
            // An asserted level counts from now on.
            LINT0 => self.set_lint0(self.lint0),
            _ => {}
        }
    }

    /// IA32_TSC_DEADLINE: 0 unless the timer waits for a deadline.
    pub(in super::super) fn deadline(&mut self, now: u64) -> u64 {
        self.update(now);
        if self.timer_mode() == Mode::TscDeadline {
            self.timer.deadline()
        } else {
            0
        }
    }

    /// Writes IA32_TSC_DEADLINE, which only counts in that mode of the timer.
    pub(in super::super) fn set_deadline(&mut self, value: u64, now: u64) {
        self.update(now);
        if self.timer_mode() == Mode::TscDeadline {
            self.timer.set_deadline(value);
            self.update(now);
        }
    }
}

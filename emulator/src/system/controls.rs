//! `mov` from and to control and debug registers.

use super::deliver::Raised;
use super::registers::{cr0, cr4, is_canonical};
use super::{System, vector};
use crate::address_space::PHYSICAL_BITS;
use iced_x86::{Instruction, Register};

/// What CR3 can hold: an address of the width that `cpuid` says, and flags that are ignored.
const LOW_ADDRESS: u64 = (1 << PHYSICAL_BITS) - 1;
/// DR7.GD: the next access to a debug register raises #DB.
const GENERAL_DETECT: u64 = 1 << 13;
/// DR6.BD, which says that it was such an access.
const DEBUG_REGISTER_ACCESS: u64 = 1 << 13;

impl System {
    /// `mov` from or to a control or debug register.
    pub(super) fn move_control(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let (to, from) = (insn.op_register(0), insn.op_register(1));
        if to.is_dr() || from.is_dr() {
            return self.move_debug(to, from);
        }
        if from.is_cr() {
            let value = match from {
                Register::CR0 => self.registers.cr0,
                Register::CR2 => self.registers.cr2,
                Register::CR3 => self.registers.cr3,
                Register::CR4 => self.registers.cr4,
                Register::CR8 => {
                    let devices = self.devices();
                    devices.map_or(0, |devices| devices.task_priority())
                }
                _ => return Err(Raised::new(vector::INVALID_OPCODE, None)),
            };
            self.machine.core.state.set_gpr(to.number(), value);
            return Ok(());
        }
        let value = self.machine.core.state.gpr(from.number());
        match to {
            Register::CR0 => self.set_cr0(value)?,
            Register::CR2 => self.registers.cr2 = value,
            Register::CR3 => {
                // Without PCIDs, bit 63 is reserved, too.
                if value & !LOW_ADDRESS != 0 {
                    return Err(Raised::general());
                }
                // Bits 3 and 4 say how the table is cached.
                self.registers.cr3 = value & 0x000f_ffff_ffff_f018;
                self.set_controls();
            }
            Register::CR4 => self.set_cr4(value)?,
            Register::CR8 => {
                if value > 15 {
                    return Err(Raised::general());
                }
                if let Some(devices) = self.devices() {
                    devices.set_task_priority(value);
                }
            }
            _ => return Err(Raised::new(vector::INVALID_OPCODE, None)),
        }
        Ok(())
    }

    fn set_cr0(&mut self, value: u64) -> Result<(), Raised> {
        let is_bad = value & !0xffff_ffff != 0
            // In 64-bit mode, paging stays on, and so does protection.
            || value & (cr0::PE | cr0::PG) != cr0::PE | cr0::PG
            || value & cr0::NW != 0 && value & cr0::CD == 0;
        if is_bad {
            return Err(Raised::general());
        }
        self.registers.cr0 = value & cr0::ALL | cr0::ET;
        self.set_controls();
        Ok(())
    }

    fn set_cr4(&mut self, value: u64) -> Result<(), Raised> {
        // In 64-bit mode, PAE stays.
        if value & !cr4::ALL != 0 || value & cr4::PAE == 0 {
            return Err(Raised::general());
        }
        self.registers.cr4 = value;
        self.set_controls();
        Ok(())
    }

    /// `mov` from or to a debug register.
    fn move_debug(&mut self, to: Register, from: Register) -> Result<(), Raised> {
        let register = if to.is_dr() { to } else { from };
        let number = match register.number() {
            number @ (0..4 | 6 | 7) => number,
            // Other names of DR6 and DR7, unless CR4.DE takes them away.
            number @ (4 | 5) if self.registers.cr4 & cr4::DE == 0 => number + 2,
            _ => return Err(Raised::new(vector::INVALID_OPCODE, None)),
        };
        if self.registers.debug[7] & GENERAL_DETECT != 0 {
            self.set_debug_status(DEBUG_REGISTER_ACCESS);
            return Err(Raised::new(vector::DEBUG, None));
        }
        if to.is_dr() {
            let value = self.machine.core.state.gpr(from.number());
            return self.set_debug(number, value);
        }
        let value = self.registers.debug[number];
        self.machine.core.state.set_gpr(to.number(), value);
        Ok(())
    }

    /// Says in DR6 why a #DB is raised, whose handler may access the debug registers.
    pub(super) fn set_debug_status(&mut self, bits: u64) {
        self.registers.debug[6] |= bits;
        self.registers.debug[7] &= !GENERAL_DETECT;
    }

    fn set_debug(&mut self, number: usize, value: u64) -> Result<(), Raised> {
        match number {
            0..4 if !is_canonical(value) => return Err(Raised::general()),
            6 | 7 if value >> 32 != 0 => return Err(Raised::general()),
            // Some bits are always set, some never.
            6 => self.registers.debug[6] = value & 0xe00f | 0xffff_0ff0,
            7 => self.registers.debug[7] = value & 0xffff_2bff | 0x400,
            _ => self.registers.debug[number] = value,
        }
        Ok(())
    }
}

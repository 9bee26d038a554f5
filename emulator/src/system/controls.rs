//! `mov` from and to control and debug registers.

use super::deliver::Raised;
use super::registers::{cr0, cr4, is_canonical};
use super::{System, vector};
use iced_x86::{Instruction, Register};

impl System {
    /// `mov` from or to a control or debug register.
    pub(super) fn move_control(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let (to, from) = (insn.op_register(0), insn.op_register(1));
        if from.is_cr() || from.is_dr() {
            let value = match from {
                Register::CR0 => self.registers.cr0,
                Register::CR2 => self.registers.cr2,
                Register::CR3 => self.registers.cr3,
                Register::CR4 => self.registers.cr4,
                Register::CR8 => {
                    let devices = self.devices();
                    devices.map_or(0, |devices| devices.task_priority())
                }
                _ if from.is_dr() => self.registers.debug[from.number() & 7],
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
            _ if to.is_dr() => self.set_debug(to.number() & 7, value)?,
            _ => return Err(Raised::new(vector::INVALID_OPCODE, None)),
        }
        Ok(())
    }

    fn set_cr0(&mut self, value: u64) -> Result<(), Raised> {
        let is_bad = value & !0xffff_ffff != 0
            || value & cr0::PG != 0 && value & cr0::PE == 0
            || value & cr0::NW != 0 && value & cr0::CD == 0;
        if is_bad {
            return Err(Raised::general());
        }
        if value & (cr0::PE | cr0::PG) != cr0::PE | cr0::PG {
            self.end_unmodelled("leaving 64-bit mode");
            return Ok(());
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

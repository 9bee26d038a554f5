//! `in`, `out`, and their string forms.

use super::System;
use super::deliver::Raised;
use super::privileged::{Done, Outcome};
use crate::flags;
use crate::state::reg;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// So many iterations of a repeated instruction count as one instruction, so that each ends.
const ITERATIONS: u64 = 1 << 16;

impl System {
    /// Checks whether the running code may use ports.
    fn check_ports(&mut self, port: u16, size: usize) -> Result<(), Raised> {
        if self.may_change_interrupts() || self.may_use_ports(port, size as u16)? {
            return Ok(());
        }
        Err(Raised::general())
    }

    pub(super) fn port(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let is_in = insn.mnemonic() == Mnemonic::In;
        let (data, number) = if is_in { (0, 1) } else { (1, 0) };
        let port = match insn.op_kind(number) {
            OpKind::Register => self.machine.core.state.gpr(reg::RDX) as u16,
            _ => insn.immediate8().into(),
        };
        let size = insn.op_register(data).size();
        self.check_ports(port, size)?;
        let now = self.now();
        let value = self.machine.core.state.gpr(reg::RAX) as u32;
        let Some(devices) = self.devices() else {
            return Ok(());
        };
        if !is_in {
            devices.port_write(port, size as u32, value, now);
            return Ok(());
        }
        let value = devices.port_read(port, size as u32, now).into();
        let state = &mut self.machine.core.state;
        match size {
            1 => state.set::<8>(reg::RAX as u8, value),
            2 => state.set::<16>(reg::RAX as u8, value),
            _ => state.set::<32>(reg::RAX as u8, value),
        }
        Ok(())
    }

    /// `ins` and `outs`, one iteration.
    pub(super) fn port_string(&mut self, insn: &Instruction) -> Outcome {
        use Mnemonic::{Insb, Insd, Insw, Outsb, Outsw};
        let size = match insn.mnemonic() {
            Insb | Outsb => 1,
            Insw | Outsw => 2,
            _ => 4,
        };
        let is_in = matches!(insn.mnemonic(), Insb | Insw | Insd);
        let is_repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        let state = &self.machine.core.state;
        let port = state.gpr(reg::RDX) as u16;
        let index = if is_in { reg::RDI } else { reg::RSI };
        let by = match state.other_flags & flags::DF {
            0 => size as u64,
            _ => (size as u64).wrapping_neg(),
        };
        let (address, left) = (state.gpr(index), state.gpr(reg::RCX));
        // Also if there is nothing to do.
        self.check_ports(port, size)?;
        if is_repeated && left == 0 {
            return Ok(Done::Next);
        }
        let now = self.now();
        if is_in {
            let value = match self.devices() {
                Some(devices) => devices.port_read(port, size as u32, now),
                None => 0,
            };
            self.store(address, value.into(), size)?;
        } else {
            let value = self.load(address, size)? as u32;
            if let Some(devices) = self.devices() {
                devices.port_write(port, size as u32, value, now);
            }
        }
        let state = &mut self.machine.core.state;
        state.set_gpr(index, address.wrapping_add(by));
        if !is_repeated {
            return Ok(Done::Next);
        }
        state.set_gpr(reg::RCX, left.wrapping_sub(1));
        // Interrupts are taken between iterations. A bound keeps one instruction from taking for ever
        // without being counted.
        Ok(match left {
            1 => Done::Next,
            _ if left.is_multiple_of(ITERATIONS) => {
                self.machine.count();
                Done::Again
            }
            _ => Done::Again,
        })
    }
}

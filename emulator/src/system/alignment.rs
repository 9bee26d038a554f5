//! Alignment checks in ring 3 (#AC): CR0.AM and EFLAGS.AC together, which hardly any program sets. While
//! they are on, each instruction is looked at before it is executed.
//!
//! Source: Intel SDM volume 3, "alignment check exception". Not checked: operands of more than 8 bytes.

use super::System;
use super::registers::cr0;
use crate::flags;
use crate::state::reg;
use iced_x86::{Decoder, Instruction, Mnemonic, OpKind};

/// The size of the largest operand that is checked, bytes.
const SIZE_MAX: u64 = 8;

impl System {
    /// Whether accesses are checked now.
    pub(super) fn checks_alignment(&self) -> bool {
        self.registers.cr0 & cr0::AM != 0
            && self.machine.core.state.other_flags & flags::AC != 0
            && self.privilege() == 3
    }

    /// Whether the next instruction accesses memory that is not aligned.
    pub(super) fn is_misaligned(&self) -> bool {
        let bytes = self.instruction_bytes();
        let rip = self.machine.core.state.rip;
        let options = self.machine.core.processor.decoder_options();
        let insn = Decoder::with_ip(64, &bytes, rip, options).decode();

        let size = insn.memory_size().size() as u64;
        let is_checked = size.is_power_of_two() && size <= SIZE_MAX;
        let is_odd = |address: u64, size: u64| address & size.wrapping_sub(1) != 0;
        let mut operands = 0..insn.op_count();
        let is_operand_odd = operands.any(|number| {
            let address = self.operand_address(&insn, number);
            address.is_some_and(|address| is_odd(address, size))
        });
        if is_checked && is_operand_odd {
            return true;
        }
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let pushed = u64::from(insn.stack_pointer_increment().unsigned_abs());
        insn.is_stack_instruction() && matches!(pushed, 2 | 8) && is_odd(rsp, pushed)
    }

    /// The address of an operand, if it is in memory that is accessed.
    fn operand_address(&self, insn: &Instruction, number: u32) -> Option<u64> {
        let state = &self.machine.core.state;
        match insn.op_kind(number) {
            OpKind::Memory if insn.mnemonic() != Mnemonic::Lea => Some(self.address(insn, 0)),
            OpKind::MemorySegRSI => Some(state.gpr(reg::RSI)),
            OpKind::MemoryESRDI => Some(state.gpr(reg::RDI)),
            _ => None,
        }
    }
}

//! Atomic instructions. Programs run one at a time here, so only the arithmetic matters.

use super::Vm;
use crate::bpf::fault::FaultKind;
use crate::bpf::insn::{Insn, atomic};

impl Vm<'_> {
    pub(super) fn atomic(&mut self, insn: Insn) -> Result<(), FaultKind> {
        let size = insn.access_size();
        let displaced = |base: u64| base.wrapping_add(i64::from(insn.off) as u64);

        // A program runs in one step of the model, so that orderings need no care.
        if insn.imm == atomic::LOAD_ACQ {
            let value = self.load(displaced(self.reg(insn.src)?), size)?;
            self.set(insn.dst, value);
            return Ok(());
        }

        // A load has its address in the source register, all others in the destination.
        let address = displaced(self.reg(insn.dst)?);
        let operand = self.reg(insn.src)?;
        if insn.imm == atomic::STORE_REL {
            return self.store(address, size, operand);
        }

        let cut = |value: u64| {
            if size == 4 {
                u64::from(value as u32)
            } else {
                value
            }
        };

        // The comparison is with R0, of which a 32-bit operation sees the lower half.
        let expected = match insn.imm {
            atomic::CMPXCHG => cut(self.reg(0)?),
            _ => 0,
        };

        // The new value is stored even if it is the old one, so that a read-only value is a fault.
        let old = self.load(address, size)?;
        let new = match insn.imm & !atomic::FETCH {
            atomic::ADD => old.wrapping_add(operand),
            atomic::OR => old | operand,
            atomic::AND => old & operand,
            atomic::XOR => old ^ operand,
            _ if insn.imm == atomic::XCHG => operand,
            _ if insn.imm == atomic::CMPXCHG && old == expected => operand,
            _ if insn.imm == atomic::CMPXCHG => old,
            _ => return Err(FaultKind::Opcode(insn.code)),
        };

        self.store(address, size, new)?;

        // CMPXCHG always returns the old value, and in R0, not in its source.
        match insn.imm {
            atomic::CMPXCHG => self.set(0, old),
            _ if insn.imm & atomic::FETCH != 0 => self.set(insn.src, old),
            _ => {}
        }
        Ok(())
    }
}

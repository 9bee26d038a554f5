//! Instructions that load and look at segments and descriptor tables.

use super::deliver::Raised;
use super::descriptor::{Descriptor, RPL};
use super::registers::{SystemSegment, Table, cr4, is_canonical};
use super::{CS, FS, GS, SS, Shadow, System, vector};
use crate::flags;
use crate::operands::register;
use crate::processor::Vendor;
use crate::state::reg;
use iced_x86::{Instruction, Mnemonic, OpKind};

impl System {
    /// `mov` or `pop` to a segment register.
    pub(super) fn load_segment(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let number = insn.op_register(0).number();
        let is_pop = insn.mnemonic() == Mnemonic::Pop;
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let size = if insn.stack_pointer_increment() == 2 {
            2
        } else {
            8
        };
        let selector = if is_pop {
            self.load(rsp, size)? as u16
        } else {
            self.operand(insn, 1, 2)? as u16
        };
        self.set_segment(number, selector)?;
        if is_pop {
            let state = &mut self.machine.core.state;
            state.set_gpr(reg::RSP, rsp.wrapping_add(size as u64));
        }
        if number == SS {
            self.shadow = Shadow::InterruptsAndTraps;
        }
        Ok(())
    }

    /// `lfs`, `lgs` and `lss`: a register and a segment register from memory.
    pub(super) fn load_pointer(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let number = match insn.mnemonic() {
            Mnemonic::Lfs => FS,
            Mnemonic::Lgs => GS,
            _ => SS,
        };
        let size = insn.op_register(0).size();
        let address = self.address(insn, 0);
        let value = self.load(address, size)?;
        let selector = self.load(address.wrapping_add(size as u64), 2)? as u16;
        self.set_segment(number, selector)?;
        let to = register(insn.op_register(0));
        let state = &mut self.machine.core.state;
        match size {
            2 => state.set::<16>(to, value),
            4 => state.set::<32>(to, value),
            _ => state.set::<64>(to, value),
        }
        Ok(())
    }

    /// Loads a segment register.
    fn set_segment(&mut self, number: usize, selector: u16) -> Result<(), Raised> {
        let privilege = self.privilege();
        let is_null = selector & !RPL == 0;
        let mut base = Some(0);
        match number {
            CS => return Err(Raised::new(vector::INVALID_OPCODE, None)),
            SS if is_null => {
                if privilege == 3 || (selector & RPL) as u8 != privilege {
                    return Err(Raised::general());
                }
            }
            SS => self.check_stack_selector(selector, privilege, vector::STACK)?,
            // AMD's processors keep the base (APM volume 2, "null selectors").
            _ if is_null => {
                let is_kept = self.machine.core.processor.vendor() == Vendor::Amd;
                base = (!is_kept).then_some(0);
            }
            _ => {
                let it = self.descriptor(selector)?;
                let requested = (selector & RPL) as u8;
                let is_readable = it.is_segment() && (!it.is_code() || it.has_second_right());
                let is_free = it.is_code() && it.is_conforming();
                let is_allowed = is_free || it.privilege() >= requested.max(privilege);
                if !is_readable || !is_allowed {
                    return Err(Raised::selector(vector::GENERAL_PROTECTION, selector));
                }
                if !it.is_present() {
                    return Err(Raised::selector(vector::NOT_PRESENT, selector));
                }
                self.mark_accessed(selector, it)?;
                base = Some(it.base());
            }
        }
        let state = &mut self.machine.core.state;
        state.segments[number] = selector;
        match (number, base) {
            (FS, Some(base)) => state.set_gpr(reg::FS, base),
            (GS, Some(base)) => state.set_gpr(reg::GS, base),
            _ => {}
        }
        Ok(())
    }

    /// The descriptor of a selector that `lar`, `lsl`, `verr` and `verw` may look at.
    fn visible(&mut self, selector: u16) -> Result<Option<Descriptor>, Raised> {
        if selector & !RPL == 0 {
            return Ok(None);
        }
        let it = match self.descriptor(selector) {
            Ok(it) => it,
            Err(raised) if raised.vector == vector::GENERAL_PROTECTION => return Ok(None),
            Err(raised) => return Err(raised),
        };
        let least = self.privilege().max((selector & RPL) as u8);
        let is_free = it.is_code() && it.is_conforming();
        Ok((is_free || it.privilege() >= least).then_some(it))
    }

    fn set_zf(&mut self, on: bool) {
        let state = &mut self.machine.core.state;
        let flags = state.rflags() & !flags::ZF | if on { flags::ZF } else { 0 };
        state.set_all_flags(flags);
    }

    pub(super) fn look_up_segment(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let selector = self.operand(insn, 1, 2)? as u16;
        let it = self.visible(selector)?;
        let is_lar = insn.mnemonic() == Mnemonic::Lar;
        // System segments that have a limit: LDT, and both TSS; `lar` knows call gates, too.
        let it = it.filter(|it| {
            it.is_segment() || matches!(it.kind(), 2 | 9 | 11) || is_lar && it.kind() == 12
        });
        self.set_zf(it.is_some());
        let Some(it) = it else { return Ok(()) };
        let value = if is_lar {
            it.access_rights()
        } else {
            it.limit()
        };
        let to = register(insn.op_register(0));
        let state = &mut self.machine.core.state;
        match insn.op_register(0).size() {
            2 => state.set::<16>(to, value.into()),
            4 => state.set::<32>(to, value.into()),
            _ => state.set::<64>(to, value.into()),
        }
        Ok(())
    }

    pub(super) fn verify_segment(&mut self, insn: &Instruction) -> Result<(), Raised> {
        let selector = self.operand(insn, 0, 2)? as u16;
        let it = self.visible(selector)?.filter(|it| it.is_segment());
        let is_allowed = it.is_some_and(|it| match (insn.mnemonic(), it.is_code()) {
            (Mnemonic::Verr, true) => it.has_second_right(),
            (Mnemonic::Verr, false) => true,
            (_, is_code) => !is_code && it.has_second_right(),
        });
        self.set_zf(is_allowed);
        Ok(())
    }

    /// `sgdt`, `sidt`, `sldt`, `str`, `smsw`.
    pub(super) fn store_table(&mut self, insn: &Instruction) -> Result<(), Raised> {
        if self.registers.cr4 & cr4::UMIP != 0 {
            self.require_ring0()?;
        }
        let table = match insn.mnemonic() {
            Mnemonic::Sgdt => self.registers.gdt,
            Mnemonic::Sidt => self.registers.idt,
            other => {
                let value = match other {
                    Mnemonic::Sldt => self.registers.ldt.selector.into(),
                    Mnemonic::Str => self.registers.task.selector.into(),
                    _ => self.registers.cr0,
                };
                if insn.op_kind(0) == OpKind::Memory {
                    let address = self.address(insn, 0);
                    return self.store(address, value & 0xffff, 2);
                }
                let to = register(insn.op_register(0));
                let state = &mut self.machine.core.state;
                match insn.op_register(0).size() {
                    2 => state.set::<16>(to, value),
                    4 => state.set::<32>(to, value),
                    _ => state.set::<64>(to, value),
                }
                return Ok(());
            }
        };
        let address = self.address(insn, 0);
        self.store(address, table.limit.into(), 2)?;
        self.store(address.wrapping_add(2), table.base, 8)
    }

    pub(super) fn load_table(&mut self, insn: &Instruction) -> Result<Table, Raised> {
        let address = self.address(insn, 0);
        let limit = self.load(address, 2)? as u16;
        let base = self.load(address.wrapping_add(2), 8)?;
        match is_canonical(base) {
            true => Ok(Table { base, limit }),
            false => Err(Raised::general()),
        }
    }

    /// The descriptor with 16 bytes of a selector in the global table, whose type must be `kind`.
    fn system_segment(&mut self, selector: u16, kind: u8) -> Result<SystemSegment, Raised> {
        let refused = Raised::selector(vector::GENERAL_PROTECTION, selector);
        let is_local = selector & 4 != 0;
        if is_local {
            return Err(refused);
        }
        let it = self.descriptor(selector)?;
        if it.is_segment() || it.kind() != kind {
            return Err(refused);
        }
        if !it.is_present() {
            return Err(Raised::selector(vector::NOT_PRESENT, selector));
        }
        Ok(SystemSegment {
            selector,
            base: it.base() | self.upper_base(selector)?,
            limit: it.limit(),
        })
    }

    pub(super) fn load_local_table(&mut self, insn: &Instruction) -> Result<(), Raised> {
        const LDT: u8 = 2;
        let selector = self.operand(insn, 0, 2)? as u16;
        self.registers.ldt = if selector & !RPL == 0 {
            SystemSegment {
                selector,
                ..SystemSegment::default()
            }
        } else {
            self.system_segment(selector, LDT)?
        };
        Ok(())
    }

    pub(super) fn load_task(&mut self, insn: &Instruction) -> Result<(), Raised> {
        const AVAILABLE: u8 = 9;
        let selector = self.operand(insn, 0, 2)? as u16;
        if selector & !RPL == 0 {
            return Err(Raised::general());
        }
        let task = self.system_segment(selector, AVAILABLE)?;
        self.set_busy(selector)?;
        self.registers.task = task;
        Ok(())
    }
}

//! Returns from interrupts, far returns, and far jumps and calls.
//!
//! Source: Intel SDM volume 2, IRET, RET, JMP, CALL. Not modelled: call gates, and 32-bit code.

use super::deliver::Raised;
use super::descriptor::{Descriptor, RPL};
use super::registers::is_canonical;
use super::{CS, DS, ES, FS, GS, Passage, SS, System, vector};
use crate::flags;
use crate::processor::Vendor;
use crate::state::reg;
use iced_x86::{Instruction, Mnemonic};

/// The type of a 64-bit call gate.
const CALL_GATE: u8 = 12;

impl System {
    /// `iretq`, or with operands of 4 or 2 bytes.
    pub(super) fn return_from_interrupt(&mut self, size: usize) -> Result<(), Raised> {
        let state = &self.machine.core.state;
        if state.other_flags & flags::NT != 0 {
            return Err(Raised::general());
        }
        let rsp = state.gpr(reg::RSP);
        let mut frame = [0; 5];
        for (number, word) in frame.iter_mut().enumerate() {
            *word = self.load_stack(rsp, number, size)?;
        }
        let [rip, cs, rflags, rsp, ss] = frame;
        let (cs, ss) = (cs as u16, ss as u16);
        let privilege = self.privilege();
        let outer = (cs & RPL) as u8;
        self.check_return(cs, rip, privilege)?;
        if ss & !RPL == 0 {
            // A null selector is legal in 64-bit mode below ring 3, whatever its RPL.
            if outer == 3 {
                return Err(Raised::general());
            }
        } else {
            self.check_stack_selector(ss, outer, vector::NOT_PRESENT)?;
        }

        let mut mask = flags::USER | flags::RF;
        if privilege == 0 {
            mask |= flags::IOPL | flags::VIF | flags::VIP;
        }
        if self.may_change_interrupts() {
            mask |= flags::IF;
        }
        if size == 2 {
            mask &= 0xffff;
        }
        let state = &mut self.machine.core.state;
        let before = state.preserved_at(state.rip);
        let flags = state.rflags() & !mask | rflags & mask;
        state.set_all_flags(flags);
        state.rip = rip;
        state.set_gpr(reg::RSP, rsp);
        state.segments[CS] = cs;
        state.segments[SS] = ss;
        if outer > privilege {
            self.drop_inner_segments(outer);
        }
        self.passage = Some(match outer {
            3 => Passage::Left,
            _ => Passage::Returned { before },
        });
        self.nmi_blocked = false;
        self.mode_changed();
        Ok(())
    }

    /// `retfq`, or with operands of 4 or 2 bytes, which pops `extra` bytes more.
    pub(super) fn return_far(&mut self, size: usize, extra: u64) -> Result<(), Raised> {
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let rip = self.load_stack(rsp, 0, size)?;
        let cs = self.load_stack(rsp, 1, size)? as u16;
        let privilege = self.privilege();
        self.check_return(cs, rip, privilege)?;
        let above = rsp.wrapping_add(2 * size as u64).wrapping_add(extra);
        let outer = (cs & RPL) as u8;
        let mut rsp = above;
        let mut ss = self.machine.core.state.segments[SS];
        if outer > privilege {
            rsp = self.load_stack(above, 0, size)?;
            ss = self.load_stack(above, 1, size)? as u16;
            if ss & !RPL != 0 {
                self.check_stack_selector(ss, outer, vector::STACK)?;
            } else if outer == 3 {
                return Err(Raised::general());
            }
            rsp = rsp.wrapping_add(extra);
        }
        let state = &mut self.machine.core.state;
        state.rip = rip;
        state.set_gpr(reg::RSP, rsp);
        state.segments[CS] = cs;
        state.segments[SS] = ss;
        if outer > privilege {
            self.drop_inner_segments(outer);
        }
        self.mode_changed();
        Ok(())
    }

    /// Checks the code segment and the address of a return.
    fn check_return(&mut self, cs: u16, rip: u64, privilege: u8) -> Result<(), Raised> {
        let refused = Raised::selector(vector::GENERAL_PROTECTION, cs);
        if cs & !RPL == 0 {
            return Err(Raised::general());
        }
        let requested = (cs & RPL) as u8;
        if requested < privilege {
            return Err(refused);
        }
        let code = self.descriptor(cs)?;
        let is_allowed = if code.is_conforming() {
            code.privilege() <= requested
        } else {
            code.privilege() == requested
        };
        if !code.is_code() || !is_allowed {
            return Err(refused);
        }
        self.check_target(cs, code, rip)
    }

    /// Checks the rest of the target of a transfer, and marks its segment as accessed.
    fn check_target(&mut self, cs: u16, code: Descriptor, rip: u64) -> Result<(), Raised> {
        if !code.is_present() {
            return Err(Raised::selector(vector::NOT_PRESENT, cs));
        }
        if !code.is_long() {
            self.end_unmodelled("32-bit code");
            return Ok(());
        }
        if !is_canonical(rip) {
            return Err(Raised::general());
        }
        self.mark_accessed(cs, code)
    }

    /// A far jump or call through a pointer in memory, with operands of `size` bytes.
    pub(super) fn transfer_far(&mut self, insn: &Instruction, size: usize) -> Result<(), Raised> {
        let address = self.address(insn, 0);
        // On AMD's processors a call has at most 32 bits of offset (`processor/amd.rs`).
        let is_call = insn.mnemonic() == Mnemonic::Call;
        let is_amd = self.machine.core.processor.vendor() == Vendor::Amd;
        let offset = if is_call && is_amd { size.min(4) } else { size };
        let rip = self.load(address, offset)?;
        let cs = self.load(address.wrapping_add(offset as u64), 2)? as u16;
        if cs & !RPL == 0 {
            return Err(Raised::general());
        }
        let privilege = self.privilege();
        let code = self.descriptor(cs)?;
        let is_allowed = if code.is_conforming() {
            code.privilege() <= privilege
        } else {
            code.privilege() == privilege && (cs & RPL) as u8 <= privilege
        };
        if !code.is_segment() && code.kind() == CALL_GATE {
            self.end_unmodelled("a call gate");
            return Ok(());
        }
        if !code.is_code() || !is_allowed {
            return Err(Raised::selector(vector::GENERAL_PROTECTION, cs));
        }
        self.check_target(cs, code, rip)?;

        if is_call {
            let state = &self.machine.core.state;
            let behind = state.rip.wrapping_add(insn.len() as u64);
            let (rsp, old) = (state.gpr(reg::RSP), u64::from(state.segments[CS]));
            // The lower word first: if it cannot be stored, neither is the other one.
            let step = size as u64;
            self.store(rsp.wrapping_sub(2 * step), behind, size)?;
            self.store(rsp.wrapping_sub(step), old, size)?;
            let state = &mut self.machine.core.state;
            state.set_gpr(reg::RSP, rsp.wrapping_sub(2 * step));
        }
        let state = &mut self.machine.core.state;
        state.rip = rip;
        state.segments[CS] = cs & !RPL | u16::from(privilege);
        Ok(())
    }

    /// Checks the selector of a stack for a privilege level. If it is not present, it raises `absent`.
    pub(super) fn check_stack_selector(
        &mut self,
        ss: u16,
        privilege: u8,
        absent: u8,
    ) -> Result<(), Raised> {
        let refused = Raised::selector(vector::GENERAL_PROTECTION, ss);
        let data = self.descriptor(ss)?;
        let is_data = data.is_segment() && !data.is_code() && data.has_second_right();
        if (ss & RPL) as u8 != privilege || !is_data || data.privilege() != privilege {
            return Err(refused);
        }
        if !data.is_present() {
            return Err(Raised::selector(absent, ss));
        }
        self.mark_accessed(ss, data)
    }

    /// Makes the segments null that an outer level may not use.
    fn drop_inner_segments(&mut self, privilege: u8) {
        for number in [ES, DS, FS, GS] {
            let selector = self.machine.core.state.segments[number];
            if selector & !RPL == 0 {
                continue;
            }
            let is_inner = match self.descriptor(selector) {
                Ok(it) => it.privilege() < privilege && !(it.is_code() && it.is_conforming()),
                Err(_) => true,
            };
            if is_inner {
                self.machine.core.state.segments[number] = 0;
            }
        }
    }

    /// Word `number` above an address of the running code's stack, of `size` bytes.
    fn load_stack(&mut self, address: u64, number: usize, size: usize) -> Result<u64, Raised> {
        self.load(address.wrapping_add((number * size) as u64), size)
    }
}

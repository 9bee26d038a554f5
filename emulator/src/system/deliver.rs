//! Exceptions, interrupts, `syscall` and the ways back.
//!
//! Source: Intel SDM volume 3, "exception and interrupt handling in 64-bit mode", "conditions for
//! generating a double fault"; volume 2, IRET, SYSCALL, SYSRET.

use super::descriptor::RPL;
use super::registers::{efer, is_canonical, msr};
use super::{CS, DS, ES, FS, GS, Passage, SS, Stopped, System, SystemEntry, vector};
use crate::address_space::{Access, Fault, FaultKind};
use crate::flags;
use crate::processor::Vendor;
use crate::state::reg;
use crate::stop::Exception;

/// Bits of the error code of a page fault.
mod page {
    pub(super) const PRESENT: u32 = 1;
    pub(super) const WRITE: u32 = 1 << 1;
    pub(super) const USER: u32 = 1 << 2;
    pub(super) const RESERVED: u32 = 1 << 3;
    pub(super) const FETCH: u32 = 1 << 4;
}

/// Size of what `iretq` pops, bytes.
const FRAME_BYTES: u64 = 40;
/// Flags that are clear when a handler starts; IF, too, behind an interrupt gate.
const CLEARED: u64 = flags::TF | flags::NT | flags::RF | flags::VM;

/// An exception or interrupt that is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Raised {
    pub(super) vector: u8,
    pub(super) error: Option<u32>,
    /// The address of a page fault.
    pub(super) address: Option<u64>,
}

impl Raised {
    pub(super) fn new(vector: u8, error: Option<u32>) -> Raised {
        Raised {
            vector,
            error,
            address: None,
        }
    }

    /// An exception about a selector.
    pub(super) fn selector(vector: u8, selector: u16) -> Raised {
        Raised::new(vector, Some(u32::from(selector & !RPL)))
    }

    /// A general protection fault with error code 0.
    pub(super) fn general() -> Raised {
        Raised::new(vector::GENERAL_PROTECTION, Some(0))
    }

    /// Whether it belongs to the class of which two are a double fault.
    fn is_contributory(self) -> bool {
        use vector::{DIVIDE, GENERAL_PROTECTION, INVALID_TASK, NOT_PRESENT, STACK};
        matches!(
            self.vector,
            DIVIDE | INVALID_TASK | NOT_PRESENT | STACK | GENERAL_PROTECTION
        )
    }

    fn is_page_fault(self) -> bool {
        self.vector == vector::PAGE_FAULT
    }
}

/// Where something that is delivered comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// An exception of an instruction that will be executed again: RF is set in what is pushed.
    Fault,
    /// An exception of an instruction that was executed.
    Trap,
    /// `int n`, `int3`, `into`: the gate's privilege counts.
    Software,
    /// From outside.
    External,
}

impl System {
    /// The page fault, or other exception, for a memory access that failed. `is_implicit`: by the
    /// processor itself.
    pub(super) fn page_fault(&self, fault: Fault, is_implicit: bool) -> Raised {
        let mut error = match fault.kind {
            FaultKind::NonCanonical => return Raised::general(),
            FaultKind::Protected => page::PRESENT,
            FaultKind::Reserved => page::PRESENT | page::RESERVED,
            FaultKind::Unmapped | FaultKind::Gone | FaultKind::OutOfPages => 0,
        };
        match fault.access {
            Access::Read => {}
            Access::Write => error |= page::WRITE,
            Access::Execute => {
                let controls = self.machine.core.memory.paging_controls();
                if controls.no_execute || controls.smep {
                    error |= page::FETCH;
                }
            }
        }
        if self.privilege() == 3 && !is_implicit {
            error |= page::USER;
        }
        Raised {
            vector: vector::PAGE_FAULT,
            error: Some(error),
            address: Some(fault.address),
        }
    }

    /// Raises what the machine stopped with.
    pub(super) fn raise_exception(&mut self, exception: Exception) {
        let (vector, error) = match exception {
            Exception::Divide => (vector::DIVIDE, None),
            Exception::Debug => return self.raise_trap(vector::DEBUG),
            Exception::Breakpoint => return self.raise_software(vector::BREAKPOINT),
            Exception::Overflow => return self.raise_software(vector::OVERFLOW),
            Exception::Interrupt(_) | Exception::GeneralProtection => {
                (vector::GENERAL_PROTECTION, Some(0))
            }
            Exception::InvalidOpcode => (vector::INVALID_OPCODE, None),
            Exception::Memory(fault) => {
                let raised = self.memory_fault(fault);
                return self.raise_fault(raised);
            }
            Exception::Alignment => (vector::ALIGNMENT, Some(0)),
            Exception::X87 => (vector::X87, None),
            Exception::Simd => (vector::SIMD, None),
        };
        self.raise_fault(Raised::new(vector, error));
    }

    /// The exception for a memory access of an instruction.
    pub(super) fn memory_fault(&self, fault: Fault) -> Raised {
        // Addresses that are not canonical are a stack fault where the stack is used by itself.
        let is_stack = fault.kind == FaultKind::NonCanonical
            && fault.access != Access::Execute
            && self.uses_stack();
        if is_stack {
            return Raised::new(vector::STACK, Some(0));
        }
        self.page_fault(fault, false)
    }

    /// Raises an exception of the next instruction.
    pub(super) fn raise_fault(&mut self, raised: Raised) {
        self.raise(raised, Source::Fault);
    }

    /// Raises an exception of the last instruction.
    pub(super) fn raise_trap(&mut self, vector: u8) {
        if vector == vector::DEBUG {
            // DR6.BS, which says that it was a single step.
            self.registers.debug[6] |= 1 << 14;
        }
        self.raise(Raised::new(vector, None), Source::Trap);
    }

    /// `int n`; rip is behind it.
    pub(super) fn raise_software(&mut self, vector: u8) {
        self.raise(Raised::new(vector, None), Source::Software);
    }

    /// An interrupt or NMI.
    pub(super) fn raise_interrupt(&mut self, vector: u8) {
        self.raise(Raised::new(vector, None), Source::External);
    }

    /// Delivers it; if that raises another exception, that one, or a double fault.
    fn raise(&mut self, first: Raised, source: Source) {
        let rip = self.machine.core.state.rip;
        let (mut raised, mut source) = (first, source);
        // Each exception is of a later kind than the one before, or the last one.
        loop {
            if let Some(address) = raised.address {
                self.registers.cr2 = address;
            }
            let Err(second) = self.enter(raised, source) else {
                return;
            };
            let is_benign = !(raised.is_contributory() || raised.is_page_fault());
            let becomes_double = second.is_contributory() && !is_benign
                || second.is_page_fault() && raised.is_page_fault();
            if raised.vector == vector::DOUBLE_FAULT {
                self.ended = Some(Stopped::TripleFault { rip });
                return;
            }
            source = Source::Fault;
            raised = if becomes_double {
                Raised::new(vector::DOUBLE_FAULT, Some(0))
            } else {
                second
            };
        }
    }

    /// Enters the handler of a vector. Nothing has changed if it fails.
    fn enter(&mut self, raised: Raised, source: Source) -> Result<(), Raised> {
        let is_software = source == Source::Software;
        // Bit 0 says that the event came from outside of the program; bit 1, that it is about the table.
        let about = u32::from(raised.vector) * 8 + 2 + u32::from(!is_software);
        let refused = |vector| Raised::new(vector, Some(about));
        let gate = self.gate(raised.vector, about)?;
        let privilege = self.privilege();
        if is_software && gate.privilege < privilege {
            return Err(refused(vector::GENERAL_PROTECTION));
        }
        if !gate.is_present {
            return Err(refused(vector::NOT_PRESENT));
        }

        let external = u32::from(!is_software);
        let selector_fault = |vector, selector: u16| {
            Raised::new(vector, Some(u32::from(selector & !RPL) | external))
        };
        if gate.selector & !RPL == 0 {
            return Err(Raised::new(vector::GENERAL_PROTECTION, Some(external)));
        }
        let code = self.descriptor(gate.selector)?;
        if !code.is_code() || code.privilege() > privilege || !code.is_long() {
            return Err(selector_fault(vector::GENERAL_PROTECTION, gate.selector));
        }
        if !code.is_present() {
            return Err(selector_fault(vector::NOT_PRESENT, gate.selector));
        }
        let inner = if code.is_conforming() {
            privilege
        } else {
            code.privilege()
        };

        let stack = if gate.stack != 0 {
            self.task_stack(gate.stack)?
        } else if inner < privilege {
            self.task_stack(0)?
        } else {
            self.machine.core.state.gpr(reg::RSP)
        };
        if !is_canonical(gate.target) {
            return Err(Raised::new(vector::GENERAL_PROTECTION, Some(external)));
        }
        if !is_canonical(stack) {
            return Err(Raised::new(vector::STACK, Some(external)));
        }

        let state = &self.machine.core.state;
        let interrupted = state.preserved_at(state.rip);
        let resume = if source == Source::Fault {
            flags::RF
        } else {
            0
        };
        let frame = [
            state.rip,
            state.segments[CS].into(),
            state.rflags() | resume,
            state.gpr(reg::RSP),
            state.segments[SS].into(),
        ];
        let mut bytes = Vec::with_capacity(48);
        if let Some(error) = raised.error {
            bytes.extend_from_slice(&u64::from(error).to_le_bytes());
        }
        bytes.extend(frame.iter().flat_map(|word| word.to_le_bytes()));
        let top = (stack & !0xf).wrapping_sub(bytes.len() as u64);
        let stored = self.machine.core.memory.store_implicit(top, &bytes);
        stored.map_err(|fault| self.page_fault(fault, true))?;

        let cleared = CLEARED | if gate.masks { flags::IF } else { 0 };
        let state = &mut self.machine.core.state;
        state.other_flags &= !cleared;
        state.rip = gate.target;
        state.set_gpr(reg::RSP, top);
        state.segments[CS] = gate.selector & !RPL | u16::from(inner);
        if inner != privilege {
            state.segments[SS] = inner.into();
        }
        self.passage = Some(Passage::Entered(SystemEntry {
            interrupted,
            from_user: privilege == 3,
            frame: Some(top.wrapping_add(bytes.len() as u64 - FRAME_BYTES)),
            vector: Some(raised.vector),
        }));
        self.mode_changed();
        Ok(())
    }

    /// `syscall`; rcx and r11 are already set, and rip is behind it.
    pub(super) fn enter_syscall(&mut self) {
        if self.registers.efer & efer::SCE == 0 {
            // Not an instruction then. It has changed nothing that matters to one that is not there.
            let state = &mut self.machine.core.state;
            state.rip = state.rip.wrapping_sub(2);
            return self.raise_fault(Raised::new(vector::INVALID_OPCODE, None));
        }
        let star = self.registers.kept(msr::STAR);
        let mask = self.registers.kept(msr::FMASK);
        let target = self.registers.kept(msr::LSTAR);
        let state = &mut self.machine.core.state;
        let flags = state.rflags() & !mask & !flags::RF;
        let interrupted = state.preserved_at(state.rip);
        self.passage = Some(Passage::Entered(SystemEntry {
            interrupted,
            from_user: true,
            frame: None,
            vector: None,
        }));
        state.set_all_flags(flags);
        state.rip = target;
        state.segments[CS] = (star >> 32) as u16 & !RPL;
        state.segments[SS] = ((star >> 32) as u16).wrapping_add(8) & !RPL;
        self.mode_changed();
    }

    /// `sysretq`.
    pub(super) fn leave_syscall(&mut self) -> Result<(), Raised> {
        if self.registers.efer & efer::SCE == 0 {
            return Err(Raised::new(vector::INVALID_OPCODE, None));
        }
        let star = self.registers.kept(msr::STAR);
        let target = self.machine.core.state.gpr(reg::RCX);
        let is_intel = self.machine.core.processor.vendor() == Vendor::Intel;
        if is_intel && !is_canonical(target) {
            return Err(Raised::general());
        }
        let state = &mut self.machine.core.state;
        let flags = state.gpr(reg::R11) & !(flags::RF | flags::VM);
        state.set_all_flags(flags);
        state.rip = target;
        let selector = (star >> 48) as u16;
        state.segments[CS] = selector.wrapping_add(16) | 3;
        state.segments[SS] = selector.wrapping_add(8) | 3;
        self.passage = Some(Passage::Left);
        self.mode_changed();
        Ok(())
    }

    /// `iretq`.
    pub(super) fn return_from_interrupt(&mut self) -> Result<(), Raised> {
        let state = &self.machine.core.state;
        if state.other_flags & flags::NT != 0 {
            return Err(Raised::general());
        }
        let rsp = state.gpr(reg::RSP);
        let mut frame = [0; 5];
        for (number, word) in frame.iter_mut().enumerate() {
            *word = self.load_stack(rsp.wrapping_add(8 * number as u64))?;
        }
        let [rip, cs, rflags, rsp, ss] = frame;
        let (cs, ss) = (cs as u16, ss as u16);
        let privilege = self.privilege();
        let outer = (cs & RPL) as u8;
        self.check_return(cs, rip, privilege)?;
        if ss & !RPL == 0 {
            // A null selector is legal in 64-bit mode below ring 3.
            if outer == 3 || (ss & RPL) as u8 != outer {
                return Err(Raised::general());
            }
        } else {
            self.check_stack_selector(ss, outer)?;
        }

        let mut mask = flags::USER | flags::RF;
        if privilege == 0 {
            mask |= flags::IOPL | flags::VIF | flags::VIP;
        }
        if self.may_change_interrupts() {
            mask |= flags::IF;
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

    /// `retfq`, which pops `extra` bytes more.
    pub(super) fn return_far(&mut self, extra: u64) -> Result<(), Raised> {
        let rsp = self.machine.core.state.gpr(reg::RSP);
        let rip = self.load_stack(rsp)?;
        let cs = self.load_stack(rsp.wrapping_add(8))? as u16;
        let privilege = self.privilege();
        self.check_return(cs, rip, privilege)?;
        let above = rsp.wrapping_add(16).wrapping_add(extra);
        let outer = (cs & RPL) as u8;
        let mut rsp = above;
        let mut ss = self.machine.core.state.segments[SS];
        if outer > privilege {
            rsp = self.load_stack(above)?;
            ss = self.load_stack(above.wrapping_add(8))? as u16;
            self.check_stack_selector(ss, outer)?;
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
        Ok(())
    }

    /// Checks the selector of a stack for a privilege level.
    pub(super) fn check_stack_selector(&mut self, ss: u16, privilege: u8) -> Result<(), Raised> {
        let refused = Raised::selector(vector::GENERAL_PROTECTION, ss);
        let data = self.descriptor(ss)?;
        let is_data = data.is_segment() && !data.is_code() && data.has_second_right();
        if (ss & RPL) as u8 != privilege || !is_data || data.privilege() != privilege {
            return Err(refused);
        }
        if !data.is_present() {
            return Err(Raised::selector(vector::STACK, ss));
        }
        Ok(())
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

    /// Whether the running code may change IF.
    pub(super) fn may_change_interrupts(&self) -> bool {
        let level = self.machine.core.state.other_flags & flags::IOPL;
        self.privilege() <= (level >> flags::IOPL.trailing_zeros()) as u8
    }

    /// A word of the running code's stack.
    pub(super) fn load_stack(&mut self, address: u64) -> Result<u64, Raised> {
        let memory = &mut self.machine.core.memory;
        match memory.load_bytes(address) {
            Some(bytes) => Ok(u64::from_le_bytes(bytes)),
            None => Err(self.refused_access()),
        }
    }
}

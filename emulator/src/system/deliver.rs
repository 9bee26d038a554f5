//! Exceptions, interrupts, `syscall` and `sysret`.
//!
//! Source: Intel SDM volume 3, "exception and interrupt handling in 64-bit mode", "conditions for
//! generating a double fault"; volume 2, SYSCALL, SYSRET.

use super::descriptor::RPL;
use super::registers::{efer, is_canonical, msr};
use super::{CS, Next, Passage, SS, Stopped, System, SystemEntry, vector};
use crate::address_space::{Access, Fault, FaultKind};
use crate::flags;
use crate::processor::Vendor;
use crate::state::reg;
use crate::stop::Exception;
use iced_x86::Decoder;

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

    /// An exception about a selector, while something is delivered: `external` is EXT.
    fn caused_by(self, external: u32) -> Raised {
        let is_selector = !self.is_page_fault();
        let bit = if is_selector { external } else { 0 };
        Raised {
            error: self.error.map(|error| error | bit),
            ..self
        }
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
    /// One of an iteration of a repeated instruction that goes on: RF is set in what is pushed.
    TrapWithin,
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
            // In system mode, software interrupts are instructions of the system.
            Exception::Debug
            | Exception::Breakpoint
            | Exception::Overflow
            | Exception::Interrupt(_)
            | Exception::GeneralProtection => (vector::GENERAL_PROTECTION, Some(0)),
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
        let rip = self.machine.core.state.rip;
        self.raise(raised, Source::Fault, rip);
    }

    /// Raises an exception of the instruction at `start`, which was executed.
    pub(super) fn raise_trap(&mut self, vector: u8, start: u64) {
        self.raise(Raised::new(vector, None), Source::Trap, start);
    }

    /// The #DB of the breakpoints with these bits, at the next instruction.
    pub(super) fn raise_breakpoint(&mut self, bits: u64) {
        self.set_debug_status(bits);
        // Of all faults this one alone does not set RF in the frame: the handler does, if it goes on.
        self.raise_trap(vector::DEBUG, self.machine.core.state.rip);
    }

    /// The #DB of a single step, of breakpoints whose memory was accessed, or of both: of the instruction
    /// at `start`, or of one of its iterations.
    pub(super) fn raise_debug_trap(&mut self, start: u64, is_step: bool) {
        // DR6.BS, which says that it was a single step.
        let step = if is_step { 1 << 14 } else { 0 };
        let accessed = std::mem::take(&mut self.pending_breakpoints);
        self.set_debug_status(accessed | step);
        let goes_on = self.goes_on(start);
        let source = if goes_on {
            Source::TrapWithin
        } else {
            Source::Trap
        };
        self.raise(Raised::new(vector::DEBUG, None), source, start);
    }

    /// Whether the instruction at `start` has executed an iteration, and goes on. Only a repeated one goes on
    /// where it started, apart from a jump to itself.
    pub(super) fn goes_on(&self, start: u64) -> bool {
        if self.machine.core.state.rip != start {
            return false;
        }
        let bytes = self.instruction_bytes();
        let insn = Decoder::new(64, &bytes, 0).decode();
        insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix())
    }

    /// `int n` and `int3` at `start`; rip is behind it.
    pub(super) fn raise_software(&mut self, vector: u8, start: u64) {
        self.raise(Raised::new(vector, None), Source::Software, start);
    }

    /// An interrupt or NMI.
    pub(super) fn raise_interrupt(&mut self, vector: u8) {
        let rip = self.machine.core.state.rip;
        self.raise(Raised::new(vector, None), Source::External, rip);
    }

    /// Delivers it; if that raises another exception, that one, or a double fault. `start` is where the
    /// instruction starts that raised it.
    fn raise(&mut self, first: Raised, source: Source, start: u64) {
        let (mut raised, mut source) = (first, source);
        // Each exception is of a later kind than the one before, or the last one.
        loop {
            if let Some(address) = raised.address {
                self.registers.cr2 = address;
            }
            let Err(second) = self.enter(raised, source) else {
                return;
            };
            if raised.vector == vector::DOUBLE_FAULT && source == Source::Fault {
                self.ended = Some(Stopped::TripleFault { rip: start });
                return;
            }
            // Interrupts, also by `int n` with the vector of an exception, are benign.
            let is_exception = source == Source::Fault;
            let becomes_double = is_exception
                && (second.is_contributory()
                    && (raised.is_contributory() || raised.is_page_fault())
                    || second.is_page_fault() && raised.is_page_fault());
            if source == Source::Software {
                // The instruction itself faults.
                self.machine.core.state.rip = start;
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
        let code = self.descriptor(gate.selector);
        let code = code.map_err(|raised| raised.caused_by(external))?;
        if !code.is_code() || code.privilege() > privilege || !code.is_long() {
            return Err(selector_fault(vector::GENERAL_PROTECTION, gate.selector));
        }
        if !code.is_present() {
            return Err(selector_fault(vector::NOT_PRESENT, gate.selector));
        }
        let marked = self.mark_accessed(gate.selector, code);
        marked.map_err(|raised| raised.caused_by(external))?;
        let inner = if code.is_conforming() {
            privilege
        } else {
            code.privilege()
        };

        let stack = if gate.stack != 0 || inner < privilege {
            let stack = self.task_stack(gate.stack);
            stack.map_err(|raised| raised.caused_by(external))?
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
        let resume = if matches!(source, Source::Fault | Source::TrapWithin) {
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
            is_by_instruction: source == Source::Software,
        }));
        self.mode_changed();
        Ok(())
    }

    /// `syscall`; rip is behind it.
    pub(super) fn enter_syscall(&mut self) -> Next {
        if self.registers.efer & efer::SCE == 0 {
            // Not an instruction then.
            let state = &mut self.machine.core.state;
            state.rip = state.rip.wrapping_sub(2);
            self.raise_fault(Raised::new(vector::INVALID_OPCODE, None));
            return Next::Handler;
        }
        let star = self.registers.kept(msr::STAR);
        let mask = self.registers.kept(msr::FMASK);
        let target = self.registers.kept(msr::LSTAR);
        let state = &mut self.machine.core.state;
        self.passage = Some(Passage::Entered(SystemEntry {
            interrupted: state.preserved_at(state.rip),
            from_user: true,
            frame: None,
            vector: None,
            is_by_instruction: true,
        }));
        let flags = state.rflags() & !flags::RF;
        state.set_gpr(reg::RCX, state.rip);
        state.set_gpr(reg::R11, flags);
        state.set_all_flags(flags & !mask);
        state.rip = target;
        state.segments[CS] = (star >> 32) as u16 & !RPL;
        state.segments[SS] = ((star >> 32) as u16).wrapping_add(8) & !RPL;
        self.mode_changed();
        Next::TrapIfStill
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
        let flags = state.gpr(reg::R11) & (flags::ALL & !(flags::RF | flags::VM));
        state.set_all_flags(flags);
        state.rip = target;
        let selector = (star >> 48) as u16;
        state.segments[CS] = selector.wrapping_add(16) | 3;
        state.segments[SS] = selector.wrapping_add(8) | 3;
        self.passage = Some(Passage::Left);
        self.mode_changed();
        Ok(())
    }

    /// Whether the running code may change IF.
    pub(super) fn may_change_interrupts(&self) -> bool {
        let level = self.machine.core.state.other_flags & flags::IOPL;
        self.privilege() <= (level >> flags::IOPL.trailing_zeros()) as u8
    }
}

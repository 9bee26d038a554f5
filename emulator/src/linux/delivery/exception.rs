//! Turns exceptions of the processor into signals.
//!
//! Source: Linux 6.12 `arch/x86/kernel/traps.c`, `arch/x86/mm/fault.c`, and
//! `arch/x86/kernel/fpu/core.c` (`fpu__exception_code`).

use crate::address_space::{Access, Fault, FaultKind, TASK_SIZE};
use crate::linux::kernel::Kernel;
use crate::linux::outcome::{Outcome, SignalOrigin};
use crate::linux::signals::{Info, SI_KERNEL, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};
use crate::state::reg;
use crate::stop::Exception;
use iced_x86::{Decoder, OpKind, Register};

const FPE_INTDIV: i32 = 1;
const FPE_FLTDIV: i32 = 3;
const FPE_FLTOVF: i32 = 4;
const FPE_FLTUND: i32 = 5;
const FPE_FLTRES: i32 = 6;
const FPE_FLTINV: i32 = 7;
const ILL_ILLOPN: i32 = 2;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BUS_ADRALN: i32 = 1;
const BUS_ADRERR: i32 = 2;
const TRAP_BRKPT: i32 = 1;

impl Kernel {
    /// Sends the signal for an exception.
    pub(in crate::linux) fn exception(&mut self, exception: Exception) {
        let rip = self.machine.core.state.rip;
        let why = SignalOrigin::Exception(exception);
        let [.., old_address] = self.process.signals.own.trap;

        // Signal, si_code, si_addr; number and error code of the exception.
        let (signal, code, address, trap, error) = match exception {
            Exception::Divide => (SIGFPE, FPE_INTDIV, rip, 0, 0),
            Exception::Debug => (SIGTRAP, TRAP_BRKPT, rip, 1, 0),
            Exception::Breakpoint => (SIGTRAP, SI_KERNEL, 0, 3, 0),
            Exception::Overflow => (SIGSEGV, SI_KERNEL, 0, 4, 0),
            Exception::InvalidOpcode => (SIGILL, ILL_ILLOPN, rip, 6, 0),
            Exception::GeneralProtection => (SIGSEGV, SI_KERNEL, 0, 13, 0),
            // The error code: an index into the IDT, and the bit that says so.
            Exception::Interrupt(n) => (SIGSEGV, SI_KERNEL, 0, 13, u64::from(n) * 8 + 2),
            Exception::Alignment => (SIGBUS, BUS_ADRALN, 0, 17, 0),
            Exception::X87 => {
                let raised = self.machine.core.state.fpu.unmasked_exceptions();
                (SIGFPE, float_code(raised.into()), rip, 16, 0)
            }
            Exception::Simd => {
                let mxcsr = self.machine.core.state.mxcsr;
                // Raised and not masked: a mask is seven bits above its flag (Intel SDM volume 1,
                // MXCSR).
                (SIGFPE, float_code(!(mxcsr >> 7) & mxcsr), rip, 19, 0)
            }
            Exception::Memory(fault) => return self.memory_fault(fault),
        };

        self.process.signals.own.trap = [trap, error, old_address];
        self.process
            .signals
            .force(Info::fault(signal, code, address, why));
    }

    fn memory_fault(&mut self, fault: Fault) {
        let why = SignalOrigin::Exception(Exception::Memory(fault));
        let Fault {
            address, access, ..
        } = fault;

        let [.., old_address] = self.process.signals.own.trap;
        match fault.kind {
            FaultKind::OutOfPages => {
                let rip = self.machine.core.state.rip;
                self.outcome = Some(Outcome::OutOfPages { rip });
            }
            FaultKind::NonCanonical => {
                // #SS for the stack, #GP for anything else (Intel SDM volume 1).
                let is_stack = access != Access::Execute && self.is_stack_access(address);
                let (signal, trap) = if is_stack {
                    (SIGBUS, 12)
                } else {
                    (SIGSEGV, 13)
                };
                self.process.signals.own.trap = [trap, 0, old_address];
                self.process
                    .signals
                    .force(Info::fault(signal, SI_KERNEL, 0, why));
            }
            kind => {
                // Bits of the error code: 0 present, 1 write, 2 user, 4 fetch. Kernel addresses
                // always count as present.
                let area = self.machine.core.memory.area(address);
                let is_readable = area.is_some_and(|(_, a)| a.permissions().allow(Access::Read));
                let is_gone = kind == FaultKind::Gone;
                let is_present = is_readable && !is_gone || address >= TASK_SIZE;
                let how = match access {
                    Access::Read => 0,
                    Access::Write => 2,
                    Access::Execute => 16,
                };

                self.process.signals.own.trap = [14, u64::from(is_present) | how | 4, address];

                // A page past the end of a file is SIGBUS only for what the mapping allows.
                let behind = self.process.layout.behind(address);
                let is_behind = behind.is_some_and(|may| may.allow(access));
                let info = if is_gone || kind == FaultKind::Protected && is_behind {
                    Info::fault(
                        SIGBUS,
                        BUS_ADRERR,
                        address,
                        SignalOrigin::BehindFile { address },
                    )
                } else if kind == FaultKind::Protected {
                    Info::fault(SIGSEGV, SEGV_ACCERR, address, why)
                } else {
                    Info::fault(SIGSEGV, SEGV_MAPERR, address, why)
                };

                self.process.signals.force(info);
            }
        }
    }

    /// Whether the next instruction accesses the address through ss: by rsp or rbp, or as the top
    /// of the stack. Only the segment prefixes fs and gs count (Intel SDM volume 1).
    fn is_stack_access(&self, address: u64) -> bool {
        let core = &self.machine.core;
        let mut bytes = [0; 15];
        // Byte by byte: those behind the instruction may not be mapped.
        let length = (0..bytes.len())
            .take_while(|&i| {
                let at = core.state.rip.wrapping_add(i as u64);
                core.memory.fetch(at, &mut bytes[i..=i]).is_ok()
            })
            .count();
        let bytes = &bytes[..length];

        let options = core.processor().decoder_options();
        let insn = Decoder::with_ip(64, bytes, core.state.rip, options).decode();

        let operand = (0..insn.op_count()).find(|&n| insn.op_kind(n) == OpKind::Memory);
        let Some(operand) = operand else {
            return insn.is_stack_instruction();
        };

        let value = |register: Register, _, _| match register {
            Register::FS => Some(core.state.gpr(reg::FS)),
            Register::GS => Some(core.state.gpr(reg::GS)),
            register if register.is_segment_register() => Some(0),
            register => Some(core.state.gpr(register.number())),
        };

        let at = insn.virtual_address(operand, 0, value);
        let size = insn.memory_size().size() as u64;
        // A push from memory accesses its operand, too.
        if insn.is_stack_instruction() && at.is_none_or(|at| address.wrapping_sub(at) >= size) {
            return true;
        }

        matches!(insn.memory_base(), Register::RSP | Register::RBP)
            && !matches!(insn.memory_segment(), Register::FS | Register::GS)
    }
}

/// si_code of unmasked floating-point exceptions, which are given as in MXCSR.
fn float_code(raised: u32) -> i32 {
    if raised & 1 != 0 {
        FPE_FLTINV
    } else if raised & 4 != 0 {
        FPE_FLTDIV
    } else if raised & 8 != 0 {
        FPE_FLTOVF
    } else if raised & 0x12 != 0 {
        FPE_FLTUND
    } else if raised & 0x20 != 0 {
        FPE_FLTRES
    } else {
        0
    }
}

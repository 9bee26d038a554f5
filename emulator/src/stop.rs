//! Why a machine stopped: an exception, a call to the kernel, or an instruction that is not
//! modelled.

use crate::address_space::Fault;
use std::fmt;
use std::ops::Range;

/// An exception that the processor raised because of the emulated program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exception {
    /// Division by zero, or a quotient too large (#DE).
    Divide,
    /// `int1`, or the trap flag (#DB). rip is after the instruction.
    Debug,
    /// `int3` (#BP). rip is after the instruction.
    Breakpoint,
    /// `int 4` (#OF). rip is after the instruction.
    Overflow,
    /// `int n` with a vector that user mode may not use: a general protection fault.
    Interrupt(u8),
    /// Not an instruction (#UD).
    InvalidOpcode,
    /// A privileged instruction, a misaligned SSE operand, a bad MXCSR (#GP).
    GeneralProtection,
    /// A memory access: a page fault; for addresses that are not canonical, a general protection or
    /// stack fault.
    Memory(Fault),
    /// A misaligned operand while AC is set (#AC).
    Alignment,
    /// An unmasked x87 exception (#MF).
    X87,
    /// An unmasked SSE exception (#XM).
    Simd,
}

impl Exception {
    /// Whether the instruction is done, with rip after it.
    pub(crate) fn is_trap(self) -> bool {
        use Exception::{Breakpoint, Debug, Overflow};
        matches!(self, Breakpoint | Debug | Overflow)
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Exception::Memory(fault) => return write!(f, "{fault}"),
            Exception::Interrupt(vector) => {
                return write!(f, "interrupt {vector:#x}, which user mode may not use");
            }
            Exception::Divide => "division by zero, or a quotient too large",
            Exception::Debug => "a debug trap",
            Exception::Breakpoint => "a breakpoint",
            Exception::Overflow => "an overflow trap",
            Exception::InvalidOpcode => "an invalid instruction",
            Exception::GeneralProtection => "a general protection fault",
            Exception::Alignment => "a misaligned operand",
            Exception::X87 => "an x87 floating point exception",
            Exception::Simd => "an SSE floating point exception",
        })
    }
}

/// How the program called the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// `syscall`; rcx and r11 are already set.
    Syscall,
    /// `int 0x80`.
    Int80,
}

/// Why an operation did not continue with the next one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// It has not stopped.
    None,
    /// It raised an exception.
    Exception(Exception),
    /// The instruction is done; the kernel is called.
    Kernel(Call),
    /// `hlt`.
    Halt,
    /// The instruction is done; it has set the trap flag.
    Trap,
    /// The instruction is not modelled.
    Unsupported,
    /// A store to decoded instructions, which have to be forgotten first.
    Code(Range<u64>),
    /// The instruction accesses a device, which has to know the time first.
    Device,
    /// An instruction of the system: in system mode, [`crate::system::System`] executes it.
    System,
    /// The operation executes several instructions, which have to be executed one at a time. It has
    /// done nothing that executing them again changes.
    Apart,
    /// One iteration of a string instruction is done, and there are more.
    Again,
}

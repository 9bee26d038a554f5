//! The registers of the x87 unit: a stack of eight 80-bit registers, control, status, tags, and the
//! pointers to the last instruction.
//!
//! Source: Intel SDM volume 1.

use crate::float::x87::{Env, F80, Outcome, Precision};
use crate::float::{Exceptions, Rounding};

/// C0 of the status word.
pub(crate) const C0: u16 = 1 << 8;
/// C1: rounded up; with SF set, the stack overflowed rather than underflowed.
pub(crate) const C1: u16 = 1 << 9;
/// C2.
pub(crate) const C2: u16 = 1 << 10;
/// C3.
pub(crate) const C3: u16 = 1 << 14;
/// SF: stack overflow or underflow.
const STACK_FAULT: u16 = 1 << 6;
/// ES and B: an unmasked exception is pending. They are always equal.
const PENDING: u16 = 1 << 7 | 1 << 15;
/// The six exceptions in the control and status words.
const EXCEPTIONS: u16 = 0x3f;
/// The control word's bits that can be set: masks, PC, RC, and X, which has no effect.
const CONTROL: u16 = 0x1f3f;
/// The control word's bit that is always set.
const CONTROL_FIXED: u16 = 1 << 6;
/// The control word after `fninit`: round to nearest, 64 bits, all exceptions masked.
const CONTROL_DEFAULT: u16 = 0x37f;

/// The x87 unit. The significands of its registers are the MMX registers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fpu {
    /// By register number, not by position on the stack.
    pub(crate) registers: [F80; 8],
    /// One bit for each register, by register number.
    pub(crate) empty: u8,
    /// The number of ST(0).
    pub(crate) top: u8,
    control: u16,
    /// Without TOP.
    status: u16,
    /// The opcode of the last instruction that raised an unmasked exception: bits 0 to 2 of its
    /// first byte, then the second byte (FOP).
    pub(crate) opcode: u16,
    /// The address of the last instruction that was not a control instruction (FIP).
    pub(crate) instruction: u64,
    /// The memory operand of the last instruction that raised an unmasked exception: the offset in
    /// its segment (FDP).
    pub(crate) data: u64,
}

impl Default for Fpu {
    /// The state after a reset.
    fn default() -> Fpu {
        Fpu {
            registers: [F80::default(); 8],
            empty: 0xff,
            top: 0,
            control: CONTROL_DEFAULT,
            status: 0,
            opcode: 0,
            instruction: 0,
            data: 0,
        }
    }
}

impl Fpu {
    /// `fninit`: resets everything except the content of the registers.
    pub(crate) fn initialize(&mut self) {
        *self = Fpu {
            registers: self.registers,
            ..Fpu::default()
        };
    }

    /// The control word.
    pub(crate) fn control_word(&self) -> u16 {
        self.control
    }

    /// Sets the control word; that can make an exception pending.
    pub(crate) fn set_control_word(&mut self, word: u16) {
        self.control = word & CONTROL | CONTROL_FIXED;
        self.update_pending();
    }

    /// The status word.
    pub(crate) fn status_word(&self) -> u16 {
        self.status | u16::from(self.top) << 11
    }

    /// Sets the status word. Whether an exception is pending depends on the control word too.
    pub(crate) fn set_status_word(&mut self, word: u16) {
        self.top = (word >> 11 & 7) as u8;
        self.status = word & !(7 << 11);
        self.update_pending();
    }

    /// Clears all exceptions.
    pub(crate) fn clear_exceptions(&mut self) {
        self.status &= !(EXCEPTIONS | STACK_FAULT);
        self.update_pending();
    }

    /// Masks all exceptions.
    pub(crate) fn mask_exceptions(&mut self) {
        self.control |= EXCEPTIONS;
        self.update_pending();
    }

    /// Whether an exception is pending.
    pub(crate) fn is_pending(&self) -> bool {
        self.status & PENDING != 0
    }

    /// The exceptions that are set and unmasked, as in the status word.
    pub(crate) fn unmasked_exceptions(&self) -> u16 {
        self.status & !self.control & EXCEPTIONS
    }

    fn update_pending(&mut self) {
        self.status &= !PENDING;
        if self.unmasked_exceptions() != 0 {
            self.status |= PENDING;
        }
    }

    /// Whether one of these exceptions is unmasked.
    pub(crate) fn unmasks(&self, exceptions: Exceptions) -> bool {
        u16::from(exceptions.bits()) & !self.control != 0
    }

    /// The part of the control word that affects results.
    pub(crate) fn env(&self) -> Env {
        let masked = |exception: Exceptions| !self.unmasks(exception);
        Env {
            rounding: Rounding::from_bits((self.control >> 10) as u8),
            precision: Precision::from_bits((self.control >> 8) as u8),
            overflow_masked: masked(Exceptions::OVERFLOW),
            underflow_masked: masked(Exceptions::UNDERFLOW),
        }
    }

    fn number(&self, position: u8) -> usize {
        usize::from(self.top.wrapping_add(position) & 7)
    }

    /// The content of ST(i), even if it is empty.
    pub(crate) fn content(&self, position: u8) -> F80 {
        self.registers[self.number(position)]
    }

    /// ST(i), unless it is empty.
    pub(crate) fn st(&self, position: u8) -> Option<F80> {
        let number = self.number(position);
        (self.empty >> number & 1 == 0).then(|| self.registers[number])
    }

    /// Sets ST(i), empty or not.
    pub(crate) fn set_st(&mut self, position: u8, value: F80) {
        let number = self.number(position);
        self.registers[number] = value;
        self.empty &= !(1 << number);
    }

    /// Marks ST(i) as empty.
    pub(crate) fn free(&mut self, position: u8) {
        self.empty |= 1 << self.number(position);
    }

    /// Rotates the stack: ST(i) becomes ST(0).
    pub(crate) fn rotate(&mut self, position: u8) {
        self.top = self.top.wrapping_add(position) & 7;
    }

    /// Pushes, overwriting what is there.
    pub(crate) fn push(&mut self, value: F80) {
        self.rotate(7);
        self.set_st(0, value);
    }

    pub(crate) fn pop(&mut self) {
        self.free(0);
        self.rotate(1);
    }

    /// Sets some of the condition bits C0 to C3, and clears the others in `among`.
    pub(crate) fn set_conditions(&mut self, among: u16, set: u16) {
        self.status = self.status & !among | set;
    }

    /// Sets the flags of exceptions, and C1. Returns whether the instruction continues to write its
    /// result to a register.
    pub(crate) fn report(&mut self, exceptions: Exceptions, rounded_up: bool) -> bool {
        let early = exceptions.before_result();
        let stopped = self.unmasks(early);
        let flags = if stopped { early } else { exceptions };
        let c1 = if rounded_up && !stopped { C1 } else { 0 };
        self.set_conditions(C1, c1);
        self.status |= u16::from(flags.bits());
        self.update_pending();
        !stopped
    }

    /// Reports a stack overflow (`too_full`) or underflow. Returns whether it is masked: then the
    /// result is [`F80::INDEFINITE`].
    pub(crate) fn stack_fault(&mut self, too_full: bool) -> bool {
        self.status |= STACK_FAULT;
        let goes_on = self.report(Exceptions::INVALID, false);
        self.set_conditions(C1, if too_full { C1 } else { 0 });
        goes_on
    }

    /// Writes a result to ST(i); `None` if an operand was empty. Returns whether the instruction
    /// continues.
    pub(crate) fn put(&mut self, position: u8, outcome: Option<Outcome<F80>>) -> bool {
        let (value, goes_on) = match outcome {
            None => (F80::INDEFINITE, self.stack_fault(false)),
            Some(outcome) => (
                outcome.value,
                self.report(outcome.exceptions, outcome.rounded_up),
            ),
        };
        if goes_on {
            self.set_st(position, value);
        }
        goes_on
    }

    /// Pushes a loaded value if there is room, even if DE is raised and unmasked.
    pub(crate) fn load(&mut self, value: F80, exceptions: Exceptions) {
        if self.st(7).is_some() {
            if self.stack_fault(true) {
                self.push(F80::INDEFINITE);
            }
        } else if self.report(exceptions, false)
            || !self.unmasks(exceptions.without(Exceptions::DENORMAL))
        {
            self.push(value);
        }
    }
}

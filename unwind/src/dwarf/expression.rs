//! Evaluates the DWARF expressions that call frame information uses (DWARF 5, sections 2.5 and
//! 6.4.2).
//!
//! Values are untyped 64-bit words. Rejected are typed operations, which belong to debug
//! information, as well as locations (`DW_OP_reg*`, pieces) and everything that needs a compilation
//! unit.

use crate::frame::Frame;
use crate::memory::Memory;
use crate::reason::Reason;
use crate::regs::Reg;
use arrayvec::ArrayVec;
use gimli::{EndianSlice, LittleEndian, Operation};

/// The maximum number of operations in one evaluation. A backward branch is legal, an endless loop
/// is not.
pub const STEPS_MAX: usize = 4096;

/// The maximum number of words on the stack of one evaluation; libgcc's limit.
pub const STACK_MAX: usize = 64;

const ENCODING: gimli::Encoding = gimli::Encoding {
    address_size: 8,
    format: gimli::Format::Dwarf32,
    version: 5,
};

/// Why an expression has no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpressionError {
    /// It is malformed, or uses an operation not allowed in call frame information.
    Malformed(&'static str),
    /// A register or word that it needs is unavailable.
    Unavailable(Reason),
}

impl ExpressionError {
    /// Converts the error to a walk's end reason.
    pub fn into_reason(self, malformed: impl FnOnce(&'static str) -> Reason) -> Reason {
        match self {
            ExpressionError::Malformed(what) => malformed(what),
            ExpressionError::Unavailable(reason) => reason,
        }
    }
}

/// The value of `expression` in `frame`. The evaluation stack starts with `initial` (the CFA, for
/// register rules). `bias` is added to `DW_OP_addr` operands.
///
/// Fails on operations not allowed in call frame information, on registers that are unknown in
/// `frame`, on words missing from `memory`, and at [`STEPS_MAX`] and [`STACK_MAX`].
pub fn evaluate<M: Memory + ?Sized>(
    expression: &[u8],
    frame: &Frame,
    initial: Option<u64>,
    bias: u64,
    memory: &M,
) -> Result<u64, ExpressionError> {
    let mut machine = Machine {
        stack: ArrayVec::new(),
        frame,
        bias,
        memory,
    };
    machine.stack.extend(initial);

    // The operations are decoded one after the other, since a branch may lead anywhere in between.
    let mut rest = EndianSlice::new(expression, LittleEndian);

    // Branches may go backwards, so an expression can loop for ever.
    for _ in 0..STEPS_MAX {
        if rest.is_empty() {
            return machine.pop();
        }
        let operation = Operation::parse(&mut rest, ENCODING).map_err(|error| match error {
            gimli::Error::UnexpectedEof(_) => malformed("ends within an operation"),
            gimli::Error::InvalidExpression(_) => malformed("unknown operation"),
            _ => malformed("malformed operand"),
        })?;

        // Counted from the end of the branch operation (DWARF 5, 2.5.1.5).
        if let Some(distance) = machine.step(operation)? {
            let here = expression.len() - rest.len();
            let target = here.checked_add_signed(distance.into());
            let target = target.and_then(|t| expression.get(t..));
            let target = target.ok_or(malformed("branch target is outside the expression"))?;
            rest = EndianSlice::new(target, LittleEndian);
        }
    }

    Err(malformed("too many steps"))
}

const fn malformed(what: &'static str) -> ExpressionError {
    ExpressionError::Malformed(what)
}

struct Machine<'a, M: Memory + ?Sized> {
    stack: ArrayVec<u64, STACK_MAX>,
    frame: &'a Frame,
    bias: u64,
    memory: &'a M,
}

impl<M: Memory + ?Sized> Machine<'_, M> {
    fn pop(&mut self) -> Result<u64, ExpressionError> {
        self.stack.pop().ok_or(malformed("stack underflow"))
    }

    fn push(&mut self, value: u64) -> Result<(), ExpressionError> {
        let pushed = self.stack.try_push(value);
        pushed.map_err(|_| malformed("stack overflow"))
    }

    /// Pushes a copy of the entry that is `depth` below the top.
    fn pick(&mut self, depth: usize) -> Result<(), ExpressionError> {
        let value = self.stack.iter().rev().nth(depth).copied();
        self.push(value.ok_or(malformed("stack index out of range"))?)
    }

    fn unary(&mut self, f: impl FnOnce(u64) -> u64) -> Result<(), ExpressionError> {
        let value = self.pop()?;
        self.push(f(value))
    }

    /// Replaces the two topmost entries with `f(second, top)`.
    fn binary(&mut self, f: impl FnOnce(u64, u64) -> u64) -> Result<(), ExpressionError> {
        let top = self.pop()?;
        let second = self.pop()?;
        self.push(f(second, top))
    }

    /// Compares as signed numbers, as the specification requires.
    fn compare(&mut self, f: impl FnOnce(i64, i64) -> bool) -> Result<(), ExpressionError> {
        self.binary(|a, b| u64::from(f(a as i64, b as i64)))
    }

    fn register(&self, number: u16) -> Result<u64, ExpressionError> {
        let reg = Reg::from_dwarf(number).ok_or(malformed("not a general register"))?;
        if reg == Reg::Rip {
            return Ok(self.frame.pc.value());
        }
        let value = self.frame.regs.get(reg);
        value.ok_or_else(|| ExpressionError::Unavailable(self.frame.why_unknown(reg)))
    }

    fn load(&mut self, size: u8) -> Result<(), ExpressionError> {
        let address = self.pop()?;
        let mut bytes = [0; 8];
        let part = bytes.get_mut(..size.into());
        let part = part.ok_or(malformed("loads more than 8 bytes"))?;
        let read = self.memory.read(address, part);
        read.map_err(|e| ExpressionError::Unavailable(e.into()))?;
        self.push(u64::from_le_bytes(bytes))
    }

    /// Executes one operation. Returns the distance of a branch that is taken.
    fn step(&mut self, operation: Op<'_>) -> Result<Option<i16>, ExpressionError> {
        match operation {
            Operation::Nop => {}
            Operation::UnsignedConstant { value } => self.push(value)?,
            Operation::SignedConstant { value } => self.push(value as u64)?,
            // The operand is an address of the file; what is computed is one of the process.
            Operation::Address { address } => self.push(address.wrapping_add(self.bias))?,
            // gimli decodes `DW_OP_bregN` and the typed `DW_OP_regval_type` alike.
            Operation::RegisterOffset {
                register,
                offset,
                base_type,
            } => {
                if base_type.0 != 0 {
                    return Err(malformed("typed operations are not supported"));
                }
                let value = self.register(register.0)?;
                self.push(value.wrapping_add(offset as u64))?;
            }
            Operation::Deref {
                base_type,
                size,
                space,
            } => {
                if base_type.0 != 0 || space {
                    return Err(malformed(
                        "typed operations and address spaces are not supported",
                    ));
                }
                self.load(size)?;
            }
            Operation::Skip { target } => return Ok(Some(target)),
            // The condition is taken off the stack whether the branch is taken or not (DWARF 5,
            // 2.5.1.5).
            Operation::Bra { target } => return Ok((self.pop()? != 0).then_some(target)),
            Operation::Drop => {
                self.pop()?;
            }
            Operation::Pick { index } => self.pick(index.into())?,
            Operation::Swap => self.rotate(2)?,
            Operation::Rot => self.rotate(3)?,
            // Its use would be circular (DWARF 5, 6.4.2).
            Operation::CallFrameCFA => {
                return Err(malformed("DW_OP_call_frame_cfa is not allowed in a rule"));
            }
            // It names a register, not a value (DWARF 5, 2.6.1.1.3).
            Operation::Register { .. } => {
                return Err(malformed("DW_OP_regN is not allowed in a rule"));
            }
            other => self.arithmetic(other)?,
        }

        Ok(None)
    }

    /// Moves the top entry below the `count - 1` entries under it.
    fn rotate(&mut self, count: usize) -> Result<(), ExpressionError> {
        let from = self.stack.len().checked_sub(count);
        let from = from.ok_or(malformed("stack index out of range"))?;
        self.stack[from..].rotate_right(1);
        Ok(())
    }

    fn arithmetic(&mut self, operation: Op<'_>) -> Result<(), ExpressionError> {
        match operation {
            Operation::Abs => self.unary(|a| (a as i64).unsigned_abs()),
            Operation::Neg => self.unary(u64::wrapping_neg),
            Operation::Not => self.unary(|a| !a),
            Operation::And => self.binary(|a, b| a & b),
            Operation::Or => self.binary(|a, b| a | b),
            Operation::Xor => self.binary(|a, b| a ^ b),
            Operation::Plus => self.binary(u64::wrapping_add),
            Operation::PlusConstant { value } => self.unary(|a| a.wrapping_add(value)),
            Operation::Minus => self.binary(u64::wrapping_sub),
            Operation::Mul => self.binary(u64::wrapping_mul),
            Operation::Div | Operation::Mod if self.stack.last() == Some(&0) => {
                Err(malformed("division by zero"))
            }
            // Division is signed, the remainder is unsigned (as in libgcc and gdb).
            Operation::Div => self.binary(|a, b| (a as i64).wrapping_div(b as i64) as u64),
            Operation::Mod => self.binary(|a, b| a % b),
            // Unlike a processor, DWARF does not mask the count (2.5.1.4).
            Operation::Shl => self.binary(|a, b| shift(a, b, u64::checked_shl)),
            Operation::Shr => self.binary(|a, b| shift(a, b, u64::checked_shr)),
            Operation::Shra => self.binary(|a, b| ((a as i64) >> b.min(63)) as u64),
            Operation::Eq => self.compare(|a, b| a == b),
            Operation::Ge => self.compare(|a, b| a >= b),
            Operation::Gt => self.compare(|a, b| a > b),
            Operation::Le => self.compare(|a, b| a <= b),
            Operation::Lt => self.compare(|a, b| a < b),
            Operation::Ne => self.compare(|a, b| a != b),
            _ => Err(malformed("operation not allowed in call frame information")),
        }
    }
}

type Op<'a> = Operation<EndianSlice<'a, LittleEndian>>;

/// Shifts of 64 or more give 0.
fn shift(value: u64, by: u64, f: impl FnOnce(u64, u32) -> Option<u64>) -> u64 {
    let by = u32::try_from(by).unwrap_or(u32::MAX);
    f(value, by).unwrap_or(0)
}

#[cfg(test)]
mod tests;

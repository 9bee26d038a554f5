//! Evaluates DWARF expressions on what is known of an instruction's state.
//!
//! The operations are those of DWARF 5, section 2.5, that rows use. An expression with another
//! operation has no known value here.

use super::state::State;
use super::value::Value;
use arrayvec::ArrayVec;
use gimli::{EndianSlice, LittleEndian, Operation};
use unwind_sim_unwind::regs::Reg;

/// The maximum number of operations; the longest in use, a PLT's, has eight.
const STEPS_MAX: usize = 64;
/// The maximum depth of the stack.
const STACK_MAX: usize = 16;

const ENCODING: gimli::Encoding = gimli::Encoding {
    address_size: 8,
    format: gimli::Format::Dwarf32,
    version: 5,
};

/// The last register that unwinders know, rip. What those behind it held is not known to them.
const LAST_REGISTER: u16 = 16;

/// `DW_OP_lo_user`: from here on, operations are those of vendors.
const FIRST_OF_VENDORS: u8 = 0xe0;

/// An entry of the evaluation stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StackEntry {
    Number(u64),
    Value(Value),
}

const UNKNOWN: StackEntry = StackEntry::Value(Value::Unknown);

/// Why an expression has no value.
enum Fault {
    /// It cannot be told here.
    Unknown,
    /// No unwinder can evaluate it: it is cut, it takes more from the stack than there is, or it has
    /// operations that do not belong there (DWARF 5, 6.4.2), or registers that unwinders do not know.
    Invalid,
}

/// The value of `expression` before the instruction at `pc`, with `initial` (the CFA, for a
/// register's rule) on the stack. [`Value::Unknown`] if it cannot be told.
pub fn evaluate(expression: &[u8], state: &State, pc: u64, initial: Option<Value>) -> Value {
    match run(expression, state, pc, initial) {
        Ok(StackEntry::Value(value)) => value,
        Ok(StackEntry::Number(n)) => {
            i32::try_from(n.cast_signed()).map_or(Value::Computed, Value::Const)
        }
        Err(_) => Value::Unknown,
    }
}

/// Whether no unwinder can evaluate it. The arguments are those of [`evaluate`].
pub fn is_invalid(expression: &[u8], state: &State, pc: u64, initial: Option<Value>) -> bool {
    matches!(run(expression, state, pc, initial), Err(Fault::Invalid))
}

/// The stack of an evaluation.
struct Stack(ArrayVec<StackEntry, STACK_MAX>);

impl Stack {
    fn pop(&mut self) -> Result<StackEntry, Fault> {
        self.0.pop().ok_or(Fault::Invalid)
    }

    fn push(&mut self, entry: StackEntry) -> Result<(), Fault> {
        self.0.try_push(entry).map_err(|_| Fault::Unknown)
    }

    /// The entry `depth` below the top.
    fn peek(&self, depth: usize) -> Result<StackEntry, Fault> {
        let at = self.0.len().checked_sub(depth + 1);
        at.map(|at| self.0[at]).ok_or(Fault::Invalid)
    }
}

fn run(
    expression: &[u8],
    state: &State,
    pc: u64,
    initial: Option<Value>,
) -> Result<StackEntry, Fault> {
    // For a register's `DW_CFA_expression`, the CFA lies on the stack before.
    let mut stack = Stack(ArrayVec::new());
    stack.0.extend(initial.map(StackEntry::Value));
    let mut rest = EndianSlice::new(expression, LittleEndian);

    // The steps are bounded, as expressions come from the file.
    for _ in 0..STEPS_MAX {
        if rest.is_empty() {
            return stack.pop();
        }

        // An operation of a vendor may be right; it is only not known here.
        let operation = Operation::parse(&mut rest, ENCODING).map_err(|error| match error {
            gimli::Error::InvalidExpression(op) if op.0 >= FIRST_OF_VENDORS => Fault::Unknown,
            _ => Fault::Invalid,
        })?;

        let next = match operation {
            Operation::UnsignedConstant { value } => StackEntry::Number(value),
            Operation::SignedConstant { value } => StackEntry::Number(value.cast_unsigned()),
            // A register in an expression has its value at the instruction, as far as it is known.
            Operation::RegisterOffset {
                register, offset, ..
            } => match Reg::from_dwarf(register.0) {
                Some(Reg::Rip) => StackEntry::Number(pc.wrapping_add_signed(offset)),
                Some(reg) => StackEntry::Value(state.reg(reg).plus(offset)),
                None => unknown_register(register)?,
            },
            // DWARF has it in location descriptions alone; libgcc takes it for the register's value.
            Operation::Register { register } => unknown_register(register)?,
            Operation::PlusConstant { value } => match stack.pop()? {
                StackEntry::Number(n) => StackEntry::Number(n.wrapping_add(value)),
                StackEntry::Value(v) => {
                    i64::try_from(value).map_or(UNKNOWN, |n| StackEntry::Value(v.plus(n)))
                }
            },
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => match stack.pop()? {
                // Only slots of this frame have known values.
                StackEntry::Value(at) if at.is_stack() => StackEntry::Value(state.load(at, 8)),
                // A register that the function has to keep leads into another frame.
                StackEntry::Value(at) if at.is_callers() => StackEntry::Value(Value::Computed),
                _ => UNKNOWN,
            },
            Operation::Deref { space: false, .. } => {
                // A part of a word says nothing.
                stack.pop()?;
                UNKNOWN
            }
            Operation::Pick { index } => stack.peek(index.into())?,
            Operation::Swap => {
                let (top, second) = (stack.pop()?, stack.pop()?);
                stack.push(top)?;
                second
            }
            Operation::Rot => {
                let (top, second, third) = (stack.pop()?, stack.pop()?, stack.pop()?);
                stack.push(top)?;
                stack.push(third)?;
                second
            }
            Operation::Drop => {
                stack.pop()?;
                continue;
            }
            Operation::Nop => continue,
            Operation::Abs | Operation::Neg | Operation::Not => unary(&operation, stack.pop()?),
            // Where it leads may depend on what is not known.
            Operation::Bra { .. } => {
                stack.pop()?;
                return Err(Fault::Unknown);
            }
            Operation::Skip { .. } => return Err(Fault::Unknown),
            // Addresses of the file are not followed.
            Operation::Address { .. } => UNKNOWN,
            operation if is_binary(&operation) => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                binary(&operation, a, b).unwrap_or(UNKNOWN)
            }
            _ => return Err(Fault::Invalid),
        };

        // The bound of the stack is checked when pushing.
        stack.push(next)?;
    }

    Err(Fault::Unknown)
}

/// The value of `register`, which is none of [`Reg`] or not taken in the usual way.
fn unknown_register(register: gimli::Register) -> Result<StackEntry, Fault> {
    if register.0 <= LAST_REGISTER {
        Ok(UNKNOWN)
    } else {
        Err(Fault::Invalid)
    }
}

type Op<'a> = Operation<EndianSlice<'a, LittleEndian>>;

fn unary(operation: &Op<'_>, value: StackEntry) -> StackEntry {
    match (operation, value) {
        (Operation::Abs, StackEntry::Number(n)) => {
            StackEntry::Number(n.cast_signed().wrapping_abs().cast_unsigned())
        }
        (Operation::Neg, StackEntry::Number(n)) => StackEntry::Number(n.wrapping_neg()),
        (Operation::Not, StackEntry::Number(n)) => StackEntry::Number(!n),
        // Addresses of the stack are positive.
        (Operation::Abs, StackEntry::Value(value)) if value.is_stack() => StackEntry::Value(value),
        (_, StackEntry::Value(value)) if value.is_stack() => StackEntry::Value(Value::Computed),
        _ => UNKNOWN,
    }
}

fn is_binary(operation: &Op<'_>) -> bool {
    matches!(
        operation,
        Operation::Plus
            | Operation::Minus
            | Operation::Mul
            | Operation::Div
            | Operation::Mod
            | Operation::And
            | Operation::Or
            | Operation::Xor
            | Operation::Shl
            | Operation::Shr
            | Operation::Shra
            | Operation::Ge
            | Operation::Gt
            | Operation::Le
            | Operation::Lt
            | Operation::Eq
            | Operation::Ne
    )
}

fn binary(operation: &Op<'_>, a: StackEntry, b: StackEntry) -> Option<StackEntry> {
    // A number added to an address gives an address; of two addresses nothing is known.
    let (a, b) = match (a, b) {
        (StackEntry::Number(a), StackEntry::Number(b)) => (a, b),
        (StackEntry::Value(v), StackEntry::Number(n))
        | (StackEntry::Number(n), StackEntry::Value(v))
            if matches!(operation, Operation::Plus) =>
        {
            return Some(StackEntry::Value(v.plus(n.cast_signed())));
        }
        (StackEntry::Value(v), StackEntry::Number(n)) if matches!(operation, Operation::Minus) => {
            return Some(StackEntry::Value(v.plus(n.cast_signed().checked_neg()?)));
        }
        // No address any more.
        (StackEntry::Value(v), StackEntry::Number(n))
            if v.is_stack()
                && n > 1
                && matches!(
                    operation,
                    Operation::Div
                        | Operation::Mul
                        | Operation::Shl
                        | Operation::Shr
                        | Operation::Shra
                ) =>
        {
            return Some(StackEntry::Value(Value::Computed));
        }
        _ => return None,
    };

    let (x, y) = (a.cast_signed(), b.cast_signed());
    // DWARF 5, sections 2.5.1.4 and 2.5.1.5: division and comparisons are signed.
    Some(StackEntry::Number(match operation {
        Operation::Plus => a.wrapping_add(b),
        Operation::Minus => a.wrapping_sub(b),
        Operation::Mul => a.wrapping_mul(b),
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::Xor => a ^ b,
        Operation::Div => x.checked_div(y)?.cast_unsigned(),
        Operation::Mod => a.checked_rem(b)?,
        Operation::Shl => a.checked_shl(u32::try_from(b).ok()?)?,
        Operation::Shr => a.checked_shr(u32::try_from(b).ok()?)?,
        Operation::Shra => x.checked_shr(u32::try_from(b).ok()?)?.cast_unsigned(),
        Operation::Ge => u64::from(x >= y),
        Operation::Gt => u64::from(x > y),
        Operation::Le => u64::from(x <= y),
        Operation::Lt => u64::from(x < y),
        Operation::Eq => u64::from(x == y),
        Operation::Ne => u64::from(x != y),
        _ => return None,
    }))
}

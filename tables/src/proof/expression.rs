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

/// An entry of the evaluation stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Number(u64),
    Value(Value),
}

/// The value of `expression` before the instruction at `pc`, with `initial` (the CFA, for a
/// register's rule) on the stack. [`Value::Unknown`] if it cannot be told.
pub fn evaluate(expression: &[u8], state: &State, pc: u64, initial: Option<Value>) -> Value {
    match run(expression, state, pc, initial) {
        Some(Entry::Value(value)) => value,
        Some(Entry::Number(n)) => {
            i32::try_from(n.cast_signed()).map_or(Value::Computed, Value::Const)
        }
        None => Value::Unknown,
    }
}

fn run(expression: &[u8], state: &State, pc: u64, initial: Option<Value>) -> Option<Entry> {
    let mut stack: ArrayVec<Entry, STACK_MAX> = ArrayVec::new();
    stack.extend(initial.map(Entry::Value));
    let mut rest = EndianSlice::new(expression, LittleEndian);
    for _ in 0..STEPS_MAX {
        if rest.is_empty() {
            return stack.pop();
        }
        let next = match Operation::parse(&mut rest, ENCODING).ok()? {
            Operation::UnsignedConstant { value } => Entry::Number(value),
            Operation::SignedConstant { value } => Entry::Number(value.cast_unsigned()),
            Operation::RegisterOffset {
                register, offset, ..
            } => match Reg::from_dwarf(register.0)? {
                Reg::Rip => Entry::Number(pc.wrapping_add_signed(offset)),
                reg => Entry::Value(state.reg(reg).plus(offset)),
            },
            Operation::PlusConstant { value } => match stack.pop()? {
                Entry::Number(n) => Entry::Number(n.wrapping_add(value)),
                Entry::Value(v) => Entry::Value(v.plus(i64::try_from(value).ok()?)),
            },
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => match stack.pop()? {
                Entry::Value(at) if at.is_stack() => Entry::Value(state.load(at, 8)),
                _ => return None,
            },
            Operation::Pick { index } => {
                let depth = usize::from(index).checked_add(1)?;
                *stack.get(stack.len().checked_sub(depth)?)?
            }
            Operation::Swap => {
                let (top, second) = (stack.pop()?, stack.pop()?);
                stack.try_push(top).ok()?;
                second
            }
            Operation::Drop => {
                stack.pop()?;
                continue;
            }
            Operation::Nop => continue,
            operation => {
                let (b, a) = (stack.pop()?, stack.pop()?);
                binary(&operation, a, b)?
            }
        };
        stack.try_push(next).ok()?;
    }
    None
}

type Op<'a> = Operation<EndianSlice<'a, LittleEndian>>;

fn binary(operation: &Op<'_>, a: Entry, b: Entry) -> Option<Entry> {
    let (a, b) = match (a, b) {
        (Entry::Number(a), Entry::Number(b)) => (a, b),
        (Entry::Value(v), Entry::Number(n)) | (Entry::Number(n), Entry::Value(v))
            if matches!(operation, Operation::Plus) =>
        {
            return Some(Entry::Value(v.plus(n.cast_signed())));
        }
        (Entry::Value(v), Entry::Number(n)) if matches!(operation, Operation::Minus) => {
            return Some(Entry::Value(v.plus(n.cast_signed().checked_neg()?)));
        }
        _ => return None,
    };
    let (x, y) = (a.cast_signed(), b.cast_signed());
    Some(Entry::Number(match operation {
        Operation::Plus => a.wrapping_add(b),
        Operation::Minus => a.wrapping_sub(b),
        Operation::Mul => a.wrapping_mul(b),
        Operation::And => a & b,
        Operation::Or => a | b,
        Operation::Xor => a ^ b,
        Operation::Shl => a.checked_shl(u32::try_from(b).ok()?)?,
        Operation::Shr => a.checked_shr(u32::try_from(b).ok()?)?,
        Operation::Ge => u64::from(x >= y),
        Operation::Gt => u64::from(x > y),
        Operation::Le => u64::from(x <= y),
        Operation::Lt => u64::from(x < y),
        Operation::Eq => u64::from(x == y),
        Operation::Ne => u64::from(x != y),
        _ => return None,
    }))
}

//! Where memory operands are.

use super::Machine;
use crate::proof::access::general;
use crate::proof::state::State;
use crate::proof::value::Value;
use iced_x86::{Instruction, Register};

/// Where a memory operand is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Address {
    /// On the stack, at a known place.
    Stack(Value),
    /// In the file, at a known place (svma).
    File(u64),
    /// In a table in the file.
    Table {
        at: u64,
        stride: u32,
        max: Option<u32>,
    },
    /// On the stack, somewhere.
    Frame,
    /// Anywhere else.
    Unknown,
}

impl Machine<'_> {
    /// Where the memory operand is.
    pub(super) fn address(&self, insn: &Instruction, state: &State) -> Address {
        if matches!(insn.segment_prefix(), Register::FS | Register::GS) {
            return Address::Unknown;
        }
        let parts = (
            insn.memory_base(),
            insn.memory_index(),
            insn.memory_index_scale(),
        );
        let displacement = match (parts.0, parts.1, insn.memory_displ_size()) {
            // Of an address of 32 bits (prefix 67), the upper half is zero.
            (Register::None, Register::None, 4) => insn.memory_displacement64() & 0xffff_ffff,
            _ => insn.memory_displacement64(),
        };
        self.address_of(parts, displacement, state)
    }

    /// The address that is a base plus an index, times a number, plus `displacement`.
    pub(super) fn address_of(
        &self,
        (base, index, scale): (Register, Register, u32),
        displacement: u64,
        state: &State,
    ) -> Address {
        // The decoder has added the address of the next instruction, so this is an address of the
        // file.
        if matches!(base, Register::RIP | Register::EIP) {
            return Address::File(displacement);
        }
        // An address of 32 bits is cut off: it is not what the registers hold.
        if base.is_gpr() && base.size() != 8 || index.is_gpr() && index.size() != 8 {
            return Address::Unknown;
        }

        // A gather or scatter has one address for each element of its vector.
        let is_vector = index.is_vector_register();
        let base = general(base).map(|reg| state.reg(reg));
        let index = general(index).map(|reg| state.reg(reg));
        let displacement = displacement.cast_signed();

        if is_vector {
            return if base.is_some_and(may_be_stack) {
                Address::Frame
            } else {
                Address::Unknown
            };
        }

        // Without base and index, the displacement is the address.
        match (base, index) {
            (None, None) => Address::File(displacement.cast_unsigned()),
            (Some(base), None) => place(base.plus(displacement)),
            // In a `lea` or an access without a base, the index may be the pointer, if it is not
            // scaled.
            (None, Some(index)) if scale == 1 && (may_be_stack(index)) => {
                place(index.plus(displacement))
            }
            (None, Some(index)) => scaled(displacement.cast_unsigned(), index, scale),
            (Some(base), Some(index)) => match (base, index) {
                (base, Value::Const(n)) => {
                    let distance = i64::from(n) * i64::from(scale);
                    place(base.plus(distance.wrapping_add(displacement)))
                }
                // `8(%rax,%rcx)`, with the pointer in the index.
                (Value::Const(n), index) if scale == 1 && may_be_stack(index) => {
                    place(index.plus(i64::from(n).wrapping_add(displacement)))
                }
                (Value::Const(n), index) => {
                    let at = i64::from(n).wrapping_add(displacement).cast_unsigned();
                    // `(%rdx,%rax)`, with the table in the index.
                    scaled(at, index, scale)
                }

                // With two unknown distances, the address is only known to be somewhere in the
                // frame.
                _ if [base, index].into_iter().any(may_be_stack) => Address::Frame,
                _ => Address::Unknown,
            },
        }
        .or_swapped(base, index, scale, displacement)
    }
}

impl Address {
    /// The same if base and index had been exchanged, where that helps: `(%rax,%rdx)` with the
    /// table in rdx.
    fn or_swapped(
        self,
        base: Option<Value>,
        index: Option<Value>,
        scale: u32,
        displacement: i64,
    ) -> Address {
        match (self, base, index) {
            (Address::Unknown, Some(base), Some(Value::Const(n))) if scale == 1 => {
                let at = i64::from(n).wrapping_add(displacement).cast_unsigned();
                scaled(at, base, 1)
            }
            _ => self,
        }
    }
}

/// Whether the memory operand is rsp or rbp plus a number.
pub(super) fn is_direct(insn: &Instruction) -> bool {
    matches!(insn.memory_base(), Register::RSP | Register::RBP)
        && insn.memory_index() == Register::None
}

/// Whether a value may be an address on the stack.
fn may_be_stack(value: Value) -> bool {
    value.is_vague()
}

/// The place at an address.
fn place(value: Value) -> Address {
    match value {
        Value::Unknown | Value::Varies | Value::Guessed | Value::ByCallee => Address::Frame,
        value if value.is_stack() => Address::Stack(value),
        Value::Const(n) => Address::File(i64::from(n).cast_unsigned()),
        _ => Address::Unknown,
    }
}

/// `at`, plus an index times `scale`.
fn scaled(at: u64, index: Value, scale: u32) -> Address {
    match index {
        Value::Const(n) => Address::File(at.wrapping_add_signed(i64::from(n) * i64::from(scale))),
        Value::Index {
            shift,
            width: 4..,
            max,
        } if shift < 8 => Address::Table {
            at,
            stride: scale << shift,
            // That a byte is at most 255 does not say how long a table is.
            max: Some(max).filter(|&max| max != 0xff && max != 0xffff),
        },
        _ if scale >= 4 => Address::Table {
            at,
            stride: scale,
            max: None,
        },
        _ => Address::Unknown,
    }
}

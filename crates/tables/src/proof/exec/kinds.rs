//! What kind of instruction one is, whatever the state.

use super::{constant, is_direct};
use crate::proof::value::Value;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// Whether a register is ah, ch, dh or bh: the second byte of another.
pub(super) fn is_high(register: Register) -> bool {
    register.is_gpr8() && (4..8).contains(&(register as u32 - Register::AL as u32))
}

pub(super) fn is_conditional_move(insn: &Instruction) -> bool {
    insn.condition_code() != ConditionCode::None
        && insn.op_count() == 2
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register().is_gpr()
}

/// The size of what an instruction works on, bytes.
pub(super) fn operand_size(insn: &Instruction) -> u8 {
    let size = match insn.op0_kind() {
        OpKind::Register => insn.op0_register().size(),
        _ => insn.memory_size().size(),
    };
    u8::try_from(size).unwrap_or(8)
}

/// How far an instruction moves rsp, bytes: a segment register is pushed as a whole word.
pub(super) fn stack_size(insn: &Instruction) -> u8 {
    u8::try_from(insn.stack_pointer_increment().unsigned_abs()).unwrap_or(8)
}

/// `movq %xmm0, %rbx` and its like.
pub(super) fn is_from_vector(insn: &Instruction) -> bool {
    insn.op1_kind() == OpKind::Register
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register().is_gpr64()
        && insn.op1_register().is_vector_register()
}

/// Whether an instruction leaves its operand as it is: `lock orq $0, (%rsp)` is a barrier, or touches a
/// page of the stack; `or %rax, %rax` sets flags.
pub(super) fn changes_nothing(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let size = insn.op0_register().size();
    // The processor looks at the lower bits of a count only.
    // An operand of 4 bytes is left out, as writing it clears the upper half of its register.
    let shifts_by_nothing = |count: u32| {
        let bits = if size == 8 || insn.memory_size().size() == 8 {
            63
        } else {
            31
        };
        size != 4
            && insn
                .try_immediate(count)
                .is_ok_and(|count| count & bits == 0)
    };

    // The operand with which each operation gives back the other operand.
    let neutral = match insn.mnemonic() {
        M::Or | M::Add | M::Sub | M::Xor => 0,
        M::And => -1,
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => {
            return insn.op1_kind() == OpKind::Immediate8 && shifts_by_nothing(1);
        }
        M::Shld | M::Shrd => {
            return insn.op_kind(2) == OpKind::Immediate8 && shifts_by_nothing(2);
        }
        _ => return false,
    };

    // Of two equal registers, only `or` and `and` give the same value back; `xor` and `sub` give 0.
    if insn.op1_kind() == OpKind::Register {
        let is_same = insn.op0_kind() == OpKind::Register && size != 4;
        return is_same
            && matches!(insn.mnemonic(), M::Or | M::And)
            && insn.op0_register() == insn.op1_register();
    }

    // What has 32 bits is extended by zeros.
    let is_whole = insn.op0_kind() == OpKind::Memory || size != 4;
    is_whole && constant(insn, 1) == Value::Const(neutral)
}

/// `or $-1, %rax`, which sets all bits.
pub(super) fn is_setting(insn: &Instruction) -> bool {
    insn.op0_register().size() == 8 && constant(insn, 1) == Value::Const(-1)
}

pub(super) fn is_zeroing(insn: &Instruction) -> bool {
    insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register()
        && insn.op0_register().size() >= 4
}

/// Whether it matters to an instruction that it belongs to a loop: to stores through pointers.
pub fn asks_for_loop(insn: &Instruction) -> bool {
    match insn.op0_kind() {
        OpKind::Memory => !is_direct(insn),
        _ => insn.is_string_instruction(),
    }
}

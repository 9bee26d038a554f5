//! The operands of a decoded instruction: their kinds, widths and registers.

use crate::state::reg;
use iced_x86::{Instruction, OpKind, Register};

/// The kinds of the first two operands; the function handles further ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// One register, alone or with implied operands.
    R,
    /// One memory operand.
    M,
    /// One immediate.
    I,
    /// A register from a register.
    RR,
    /// A register from memory.
    RM,
    /// Memory from a register.
    MR,
    /// A register from an immediate.
    RI,
    /// Memory from an immediate.
    MI,
    /// Anything else.
    Other,
}

impl Form {
    /// Whether any operand of the instruction is memory.
    pub(crate) fn has_memory(insn: &Instruction) -> bool {
        insn.op_kinds().any(|kind| kind == OpKind::Memory)
    }
}

/// The form of an instruction.
pub(crate) fn form(insn: &Instruction) -> Form {
    use OpKind::*;
    let kind = |number| (number < insn.op_count()).then(|| insn.op_kind(number));
    let immediate = |kind| {
        matches!(
            kind,
            Immediate8
                | Immediate16
                | Immediate32
                | Immediate64
                | Immediate8to16
                | Immediate8to32
                | Immediate8to64
                | Immediate32to64
        )
    };

    match (kind(0), kind(1)) {
        (Some(Register), None) => Form::R,
        (Some(Memory), None) => Form::M,
        (Some(kind), None) if immediate(kind) => Form::I,
        (Some(Register), Some(Register)) => Form::RR,
        (Some(Register), Some(Memory)) => Form::RM,
        (Some(Memory), Some(Register)) => Form::MR,
        (Some(Register), Some(kind)) if immediate(kind) => Form::RI,
        (Some(Memory), Some(kind)) if immediate(kind) => Form::MI,
        // Two operands in memory, implicit ones, and whatever else is rare.
        _ => Form::Other,
    }
}

/// Width of operand `number`, bits.
pub(crate) fn width(insn: &Instruction, number: u32) -> u32 {
    let bytes = match insn.op_kind(number) {
        OpKind::Register => insn.op_register(number).size(),
        OpKind::Memory => insn.memory_size().size(),
        _ => 0,
    };
    bytes as u32 * 8
}

/// The register with the base of the memory operand's segment: only fs and gs have one.
pub(crate) fn segment(insn: &Instruction) -> usize {
    match insn.memory_segment() {
        Register::FS => reg::FS,
        Register::GS => reg::GS,
        _ => reg::ZERO,
    }
}

/// The number of a register operand; 0 for registers that no operation uses.
pub(crate) fn register(register: Register) -> u8 {
    if matches!(
        register,
        Register::AH | Register::CH | Register::DH | Register::BH
    ) {
        return (register as u8 - Register::AH as u8) | reg::HIGH;
    }
    // iced numbers 8-bit registers differently than instructions encode them.
    register.full_register().number() as u8
}

/// The function for operands of 8, 16, 32 or 64 bits.
macro_rules! by_width {
    ($width:expr, $run:ident $(, $parameter:ty)*) => {
        match $width {
            8 => $run::<$($parameter,)* 8>,
            16 => $run::<$($parameter,)* 16>,
            32 => $run::<$($parameter,)* 32>,
            64 => $run::<$($parameter,)* 64>,
            _ => return None,
        }
    };
}
pub(crate) use by_width;

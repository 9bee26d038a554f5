//! How a function of xmm registers applies to ymm registers.

use crate::operands::width;
use iced_x86::{Instruction, OpKind};

/// What an instruction with ymm registers does, in terms of its function of xmm registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::isa) enum YmmForm {
    /// Both lanes alike. The upper lane's immediate is shifted right by this number of bits.
    Lanes(u32),
    /// The second operand of the upper lane follows the lower lane's in an xmm register.
    Widening,
    /// The lower halves of both lanes' results go to an xmm register.
    Narrowing,
    /// Both lanes have the same second operand, an xmm register.
    Shared,
}

/// The operands of a lane.
pub(in crate::isa) struct Operands {
    pub(in crate::isa) a: u128,
    pub(in crate::isa) b: u128,
    pub(in crate::isa) imm: u8,
}

impl YmmForm {
    /// Size of a second operand in memory, bytes; `source` is that with xmm registers.
    #[inline(always)]
    pub(in crate::isa) const fn size(self, source: usize) -> usize {
        match self {
            YmmForm::Lanes(_) | YmmForm::Narrowing => 32,
            YmmForm::Widening => 2 * source,
            YmmForm::Shared => 16,
        }
    }

    /// The operands of the lower and the upper lane.
    #[inline(always)]
    pub(in crate::isa) fn operands(
        self,
        a: [u128; 2],
        b: [u128; 2],
        imm: u8,
        source: usize,
    ) -> [Operands; 2] {
        let low = Operands {
            a: a[0],
            b: b[0],
            imm,
        };
        let (b, imm) = match self {
            YmmForm::Lanes(bits) => (b[1], imm >> bits),
            YmmForm::Narrowing => (b[1], imm),
            YmmForm::Widening => (b[0] >> (8 * source), imm),
            YmmForm::Shared => (b[0], imm),
        };
        [low, Operands { a: a[1], b, imm }]
    }

    /// The destination.
    #[inline(always)]
    pub(in crate::isa) const fn join(self, low: u128, high: u128) -> [u128; 2] {
        match self {
            YmmForm::Narrowing => [low | high << 64, 0],
            _ => [low, high],
        }
    }
}

/// Whether an instruction has a ymm register or 32 bytes of memory.
pub(in crate::isa) fn is_wide(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|number| match insn.op_kind(number) {
        OpKind::Register => insn.op_register(number).is_ymm(),
        OpKind::Memory => width(insn, number) == 256,
        _ => false,
    })
}

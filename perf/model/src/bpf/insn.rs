//! The encoding of instructions.
//!
//! Source: RFC 9669 and `include/uapi/linux/bpf.h`, Linux 7.2. [`super::vm`] executes instructions,
//! and [`super::check`] checks whether they are allowed.

/// Size of one instruction, bytes; `ld_imm64` takes two.
pub const INSN_SIZE: usize = 8;

/// Instruction classes: the lowest three bits of [`Insn::code`].
pub(crate) mod class {
    pub(crate) const LD: u8 = 0;
    pub(crate) const LDX: u8 = 1;
    pub(crate) const ST: u8 = 2;
    pub(crate) const STX: u8 = 3;
    pub(crate) const ALU: u8 = 4;
    pub(crate) const JMP: u8 = 5;
    pub(crate) const JMP32: u8 = 6;
    pub(crate) const ALU64: u8 = 7;
}

/// Operations of the arithmetic classes: the highest four bits.
pub(crate) mod alu {
    pub(crate) const ADD: u8 = 0x00;
    pub(crate) const SUB: u8 = 0x10;
    pub(crate) const MUL: u8 = 0x20;
    pub(crate) const DIV: u8 = 0x30;
    pub(crate) const OR: u8 = 0x40;
    pub(crate) const AND: u8 = 0x50;
    pub(crate) const LSH: u8 = 0x60;
    pub(crate) const RSH: u8 = 0x70;
    pub(crate) const NEG: u8 = 0x80;
    pub(crate) const MOD: u8 = 0x90;
    pub(crate) const XOR: u8 = 0xa0;
    pub(crate) const MOV: u8 = 0xb0;
    pub(crate) const ARSH: u8 = 0xc0;
    pub(crate) const END: u8 = 0xd0;
}

/// Operations of the jump classes: the highest four bits.
pub(crate) mod jmp {
    pub(crate) const JA: u8 = 0x00;
    pub(crate) const JEQ: u8 = 0x10;
    pub(crate) const JGT: u8 = 0x20;
    pub(crate) const JGE: u8 = 0x30;
    pub(crate) const JSET: u8 = 0x40;
    pub(crate) const JNE: u8 = 0x50;
    pub(crate) const JSGT: u8 = 0x60;
    pub(crate) const JSGE: u8 = 0x70;
    pub(crate) const CALL: u8 = 0x80;
    pub(crate) const EXIT: u8 = 0x90;
    pub(crate) const JLT: u8 = 0xa0;
    pub(crate) const JLE: u8 = 0xb0;
    pub(crate) const JSLT: u8 = 0xc0;
    pub(crate) const JSLE: u8 = 0xd0;
    pub(crate) const JCOND: u8 = 0xe0;
}

/// Modes of loads and stores: the highest three bits.
pub(crate) mod mode {
    pub(crate) const IMM: u8 = 0x00;
    pub(crate) const ABS: u8 = 0x20;
    pub(crate) const IND: u8 = 0x40;
    pub(crate) const MEM: u8 = 0x60;
    pub(crate) const MEMSX: u8 = 0x80;
    pub(crate) const ATOMIC: u8 = 0xc0;
}

/// The immediate of an atomic instruction.
pub(crate) mod atomic {
    pub(crate) const FETCH: i32 = 1;
    pub(crate) const ADD: i32 = 0x00;
    pub(crate) const OR: i32 = 0x40;
    pub(crate) const AND: i32 = 0x50;
    pub(crate) const XOR: i32 = 0xa0;
    pub(crate) const XCHG: i32 = 0xe1;
    pub(crate) const CMPXCHG: i32 = 0xf1;
    pub(crate) const LOAD_ACQ: i32 = 0x100;
    pub(crate) const STORE_REL: i32 = 0x110;
}

/// The source register of `ld_imm64`, which is the kind of its immediate.
pub(crate) mod pseudo {
    pub(crate) const MAP_FD: u8 = 1;
    pub(crate) const MAP_VALUE: u8 = 2;
    pub(crate) const FUNC: u8 = 4;
    pub(crate) const MAP_IDX: u8 = 5;
    pub(crate) const MAP_IDX_VALUE: u8 = 6;
    /// In a call: to a subprogram.
    pub(crate) const CALL: u8 = 1;
    /// In a call: to a kernel function.
    pub(crate) const KFUNC_CALL: u8 = 2;
}

/// Bit 3 of arithmetic and jumps: the operand is the source register, not the immediate.
pub(crate) const SRC_X: u8 = 0x08;
/// `ld_imm64`, first half.
pub(crate) const LD_IMM64: u8 = 0x18;
/// A call.
pub(crate) const CALL: u8 = class::JMP | jmp::CALL;
/// The return.
pub(crate) const EXIT: u8 = class::JMP | jmp::EXIT;
/// The frame pointer's register, read-only.
pub(crate) const R10: u8 = 10;

/// One instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Insn {
    /// Class, operation or mode, and size.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or the kind of the immediate.
    pub src: u8,
    /// Displacement of a jump in instructions, or of an access in bytes.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl Insn {
    /// The end of a function.
    pub const EXIT: Self = Self::new(EXIT, 0, 0, 0, 0);

    /// An instruction from its parts.
    pub const fn new(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Self {
        Self {
            code,
            dst,
            src,
            off,
            imm,
        }
    }

    /// The two slots of a load of 64 bits.
    pub const fn ld_imm64(dst: u8, value: i64) -> [Self; 2] {
        let upper = (value >> 32) as i32;
        [
            Self::new(LD_IMM64, dst, 0, 0, value as i32),
            Self::new(0, 0, 0, 0, upper),
        ]
    }

    /// Decodes eight bytes, little-endian.
    pub const fn decode(bytes: [u8; INSN_SIZE]) -> Self {
        let [code, regs, o0, o1, i0, i1, i2, i3] = bytes;
        Self {
            code,
            dst: regs & 0xf,
            src: regs >> 4,
            off: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    /// Encodes it in eight bytes. Register numbers are cut to four bits.
    pub const fn encode(self) -> [u8; INSN_SIZE] {
        let [o0, o1] = self.off.to_le_bytes();
        let [i0, i1, i2, i3] = self.imm.to_le_bytes();
        let regs = (self.dst & 0xf) | (self.src << 4);
        [self.code, regs, o0, o1, i0, i1, i2, i3]
    }

    /// The instruction class.
    pub(crate) const fn class(self) -> u8 {
        self.code & 7
    }

    /// The operation of arithmetic and jumps.
    pub(crate) const fn op(self) -> u8 {
        self.code & 0xf0
    }

    /// The mode of loads and stores.
    pub(crate) const fn mode(self) -> u8 {
        self.code & 0xe0
    }

    /// Whether the operand is the source register.
    pub(crate) const fn is_x(self) -> bool {
        self.code & SRC_X != 0
    }

    /// Bytes that a load or store moves.
    pub(crate) const fn access_size(self) -> usize {
        match self.code & 0x18 {
            0x00 => 4,
            0x08 => 2,
            0x10 => 1,
            _ => 8,
        }
    }

    /// Whether this is the first half of `ld_imm64`.
    pub(crate) const fn is_ld_imm64(self) -> bool {
        self.code == LD_IMM64
    }

    /// Whether this calls a subprogram.
    pub(crate) const fn is_subprogram_call(self) -> bool {
        self.code == CALL && self.src == pseudo::CALL
    }

    /// The displacement of a jump, in instructions; `None` if it is not a jump.
    pub(crate) const fn jump(self) -> Option<i64> {
        match self.class() {
            class::JMP32 if self.op() == jmp::JA => Some(self.imm as i64),
            class::JMP | class::JMP32 if !matches!(self.op(), jmp::CALL | jmp::EXIT) => {
                Some(self.off as i64)
            }
            _ => None,
        }
    }
}

//! The state of one thread: registers and flags. Not here: memory (`core`), instructions.

pub(crate) mod fpu;
mod vectors;

pub use vectors::Vectors;

use crate::flags::{self, Flags};
use fpu::Fpu;

/// Numbers of general registers, as instructions encode them, and of registers internal to the
/// machine.
#[allow(missing_docs, reason = "the names are the registers'")]
pub mod reg {
    pub const RAX: usize = 0;
    pub const RCX: usize = 1;
    pub const RDX: usize = 2;
    pub const RBX: usize = 3;
    pub const RSP: usize = 4;
    pub const RBP: usize = 5;
    pub const RSI: usize = 6;
    pub const RDI: usize = 7;
    pub const R11: usize = 11;
    /// Always 0: a missing base or index.
    pub const ZERO: usize = 16;
    /// The base of segment fs.
    pub const FS: usize = 17;
    /// The base of segment gs.
    pub const GS: usize = 18;
    /// An address computed by the first operation of an instruction for the second one.
    pub const ADDRESS: usize = 19;
    /// Added to the number of rax, rcx, rdx or rbx: bits 8 to 15 of the register.
    pub const HIGH: u8 = 0x40;
}
use reg::*;

/// MXCSR after reset: round to nearest, all exceptions masked.
pub const MXCSR_DEFAULT: u32 = 0x1f80;

/// The selectors of a 64-bit process on Linux, by segment number: es, cs, ss, ds, fs, gs.
const SELECTORS: [u16; 6] = [0, 0x33, 0x2b, 0, 0, 0];

/// Where a thread is, and what the function that runs keeps for its caller: the registers that belong
/// to the calling function (System V psABI, 3.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Preserved {
    /// The address of the next instruction.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// rbx, rbp, r12 to r15.
    pub saved: [u64; 6],
}

/// The state of one thread.
#[derive(Clone, Debug)]
pub struct State {
    /// By number: see [`reg`]. The rest is never used; a size of 32 needs no bounds checks.
    pub(crate) gpr: [u64; 32],
    /// The address of the next instruction; while a block runs, of the block.
    pub rip: u64,
    /// The arithmetic flags.
    pub(crate) flags: Flags,
    /// The other bits of rflags.
    pub(crate) other_flags: u64,
    /// Selectors of es, cs, ss, ds, fs and gs.
    pub(crate) segments: [u16; 6],
    /// The x87 and MMX registers.
    pub(crate) fpu: Fpu,
    /// The registers of SSE and AVX.
    pub vectors: Vectors,
    /// The control and status register of SSE and AVX.
    pub mxcsr: u32,
    /// Whether a string instruction does a single iteration and stays the next instruction until it
    /// is finished, as under the trap flag.
    pub single_iteration: bool,
}

impl Default for State {
    fn default() -> Self {
        State::new()
    }
}

impl State {
    /// All registers zero, rflags 0x202.
    pub fn new() -> State {
        State {
            gpr: [0; 32],
            rip: 0,
            flags: Flags::from_bits(0),
            other_flags: flags::FIXED | flags::IF,
            segments: SELECTORS,
            fpu: Fpu::default(),
            vectors: Vectors::default(),
            mxcsr: MXCSR_DEFAULT,
            single_iteration: false,
        }
    }

    /// A general register by its number in instructions: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8
    /// to r15; also [`reg::FS`] and [`reg::GS`].
    pub fn gpr(&self, number: usize) -> u64 {
        self.gpr[number & 31]
    }

    /// Sets a general register.
    pub fn set_gpr(&mut self, number: usize, value: u64) {
        debug_assert_ne!(number, ZERO);
        self.gpr[number & 31] = value;
    }

    /// rflags.
    pub fn rflags(&self) -> u64 {
        self.flags.bits() | self.other_flags
    }

    /// Sets rflags, except for bits that user mode cannot change.
    pub fn set_rflags(&mut self, bits: u64) {
        self.flags = Flags::from_bits(bits);
        let change = flags::USER & !flags::ARITHMETIC;
        self.other_flags = (self.other_flags & !change) | (bits & change);
    }

    /// Sets all bits of rflags.
    pub(crate) fn set_all_flags(&mut self, bits: u64) {
        self.flags = Flags::from_bits(bits);
        self.other_flags = bits & !flags::ARITHMETIC | flags::FIXED;
    }

    /// What a function keeps for its caller, with the next instruction at `rip`.
    #[inline(always)]
    pub fn preserved_at(&self, rip: u64) -> Preserved {
        let gpr = &self.gpr;
        Preserved {
            rip,
            rsp: gpr[RSP],
            saved: [gpr[RBX], gpr[RBP], gpr[12], gpr[13], gpr[14], gpr[15]],
        }
    }

    /// The low `W` bits of a register, zero-extended. With [`reg::HIGH`] in `number`, bits 8 to 15.
    #[inline(always)]
    pub(crate) fn get<const W: u32>(&self, number: u8) -> u64 {
        let value = self.gpr[(number & 31) as usize];
        match W {
            8 if number & HIGH != 0 => value >> 8 & 0xff,
            _ => value & mask::<W>(),
        }
    }

    /// Sets the low `W` bits of a register. 32 bits clear the upper half; fewer do not change the
    /// rest.
    #[inline(always)]
    pub(crate) fn set<const W: u32>(&mut self, number: u8, value: u64) {
        let to = &mut self.gpr[(number & 31) as usize];
        match W {
            64 => *to = value,
            32 => *to = value & 0xffff_ffff,
            8 if number & HIGH != 0 => *to = (*to & !0xff00) | (value & 0xff) << 8,
            _ => *to = (*to & !mask::<W>()) | (value & mask::<W>()),
        }
    }
}

/// The lowest `W` bits.
#[inline(always)]
pub(crate) const fn mask<const W: u32>() -> u64 {
    u64::MAX >> (64 - W)
}

//! The true frame layouts that the generator knows: the rows of units, and their evaluation.
//!
//! Deliberately shares nothing with the unwinders that are compared with it.

use std::ops::Range;
use unwind_sim_emulator::{AddressSpace, Core};

/// A general register by its hardware number.
pub type Gpr = u8;
/// The return register, and a scratch register.
pub const RAX: Gpr = 0;
/// A scratch register.
pub const RCX: Gpr = 1;
/// A scratch register; a handler's third argument.
pub const RDX: Gpr = 2;
/// The stack pointer.
pub const RSP: Gpr = 4;
/// The frame pointer.
pub const RBP: Gpr = 5;
/// A scratch register; a system call's second argument.
pub const RSI: Gpr = 6;
/// A scratch register; a system call's first argument.
pub const RDI: Gpr = 7;
/// The register in which gcc keeps the CFA while it realigns the stack.
pub const R10: Gpr = 10;

/// rbx, rbp, r12 to r15: the order of [`FrameLayout::saved`].
pub const SAVED: [Gpr; 6] = [3, RBP, 12, 13, 14, 15];
/// Index of rbp in [`SAVED`].
pub const RBP_SAVED: usize = 1;

/// The canonical frame address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cfa {
    /// register + offset.
    Offset(Gpr, i32),
    /// *(register + offset).
    Load(Gpr, i32),
}

/// Where a value of the caller is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slot {
    /// Unchanged.
    Same,
    /// Lost.
    Undefined,
    /// *(CFA + offset).
    At(i32),
    /// *(register + offset).
    Load(Gpr, i32),
    /// In another register.
    Register(Gpr),
    /// It is this address in the code, or a label before code is placed.
    Code(u64),
}

/// The layout of a frame at an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameLayout {
    /// The CFA.
    pub cfa: Cfa,
    /// The return address.
    pub ra: Slot,
    /// The callee-saved registers, in the order of [`SAVED`].
    pub saved: [Slot; 6],
}

impl FrameLayout {
    /// At a function's first instruction.
    pub const ENTRY: FrameLayout = FrameLayout {
        cfa: Cfa::Offset(RSP, 8),
        ra: Slot::At(-8),
        saved: [Slot::Same; 6],
    };

    /// In the restorer: rsp points to the ucontext, whose registers start at offset 40: r8 to r15,
    /// rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip (Linux `asm/sigcontext.h`).
    pub const RESTORER: FrameLayout = FrameLayout {
        cfa: Cfa::Load(RSP, 160),
        ra: Slot::Load(RSP, 168),
        saved: [
            Slot::Load(RSP, 128),
            Slot::Load(RSP, 120),
            Slot::Load(RSP, 72),
            Slot::Load(RSP, 80),
            Slot::Load(RSP, 88),
            Slot::Load(RSP, 96),
        ],
    };
}

/// The contents of an FDE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fde {
    /// The addresses of its code.
    pub range: Range<u64>,
    /// Whether it is marked as a signal frame.
    pub signal: bool,
    /// The rows with their start addresses, ascending; the first starts with the range.
    pub rows: Vec<(u64, FrameLayout)>,
}

/// All units, by ascending address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Table(pub Vec<Fde>);

impl Table {
    /// The unit and row at an address.
    pub fn find(&self, address: u64) -> Option<(&Fde, &FrameLayout)> {
        let after = self.0.partition_point(|unit| unit.range.start <= address);
        let unit = self.0.get(after.checked_sub(1)?)?;
        if address >= unit.range.end {
            return None;
        }
        let after = unit.rows.partition_point(|(start, _)| *start <= address);
        Some((unit, &unit.rows.get(after.checked_sub(1)?)?.1))
    }
}

/// The result of a row: the caller's CFA, pc and callee-saved registers. `None` if the row leaves a
/// value undefined, or reads it from unmapped memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallerValues {
    /// The CFA.
    pub cfa: Option<u64>,
    /// The return address.
    pub ra: Option<u64>,
    /// The callee-saved registers.
    pub saved: [Option<u64>; 6],
}

/// Evaluates `row` in this state.
pub fn evaluate(row: &FrameLayout, core: &Core) -> CallerValues {
    let gpr = |number: Gpr| core.state.gpr(number.into());
    let word = |base: u64, offset: i32| read(&core.memory, base.wrapping_add_signed(offset.into()));
    // The CFA first: most slots are relative to it.
    let cfa = match row.cfa {
        Cfa::Offset(base, offset) => Some(gpr(base).wrapping_add_signed(offset.into())),
        Cfa::Load(base, offset) => word(gpr(base), offset),
    };

    // Each kind of slot: in memory, in a register, unchanged, or not known.
    let value = |slot: Slot, own: Option<Gpr>| match slot {
        Slot::Same => own.map(gpr),
        Slot::Undefined => None,
        Slot::At(offset) => word(cfa?, offset),
        Slot::Load(base, offset) => word(gpr(base), offset),
        Slot::Register(other) => Some(gpr(other)),
        Slot::Code(address) => Some(address),
    };

    let mut saved = [None; 6];

    // A register that no row names is unchanged.
    for ((given, slot), own) in saved.iter_mut().zip(row.saved).zip(SAVED) {
        *given = value(slot, Some(own));
    }

    CallerValues {
        cfa,
        ra: value(row.ra, None),
        saved,
    }
}

fn read(memory: &AddressSpace, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

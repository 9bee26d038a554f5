//! Where a processor may differ from the machine by right: the one table for every comparison of
//! the two, be it of one instruction or of whole programs.
//!
//! The data are in `table`. A [`Difference`] names instructions, their form and bits, and the
//! manual that leaves them open or the processor on which they were measured. [`Case::forgive`]
//! gives the machine's result the processor's value in those bits, and in no others: what differs
//! after that is wrong.

mod open;
mod table;
#[cfg(test)]
mod tests;

pub use table::TABLE;

use crate::processor::{Generation, Processor, Vendor};
use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;

/// Carry, parity, auxiliary carry, zero, sign and overflow.
pub const CF: u64 = 1;
/// Parity.
pub const PF: u64 = 1 << 2;
/// Auxiliary carry.
pub const AF: u64 = 1 << 4;
/// Zero.
pub const ZF: u64 = 1 << 6;
/// Sign.
pub const SF: u64 = 1 << 7;
/// Overflow.
pub const OF: u64 = 1 << 11;
/// All of them.
pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

/// A way in which processors differ.
#[derive(Debug)]
pub struct Difference {
    /// What it is called in reports.
    pub name: &'static str,
    /// In which instructions.
    pub instructions: Instructions,
    /// In which form of them.
    pub form: Form,
    /// Which bits.
    pub bits: &'static [Bits],
    /// On which processors.
    pub on: Processors,
    /// Who says so.
    pub source: Source,
}

/// A set of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processors {
    /// All of them.
    Any,
    /// Those of a vendor.
    Of(Vendor),
    /// Those that are nearest to a generation.
    Like(Generation),
}

impl Processors {
    /// Is it one of them?
    pub fn has(self, processor: &Processor) -> bool {
        match self {
            Processors::Any => true,
            Processors::Of(vendor) => processor.vendor() == vendor,
            Processors::Like(generation) => processor.generation() == generation,
        }
    }

    /// Whose they are; `None`: any vendor's.
    pub fn vendor(self) -> Option<Vendor> {
        match self {
            Processors::Any => None,
            Processors::Of(vendor) => Some(vendor),
            Processors::Like(generation) => Some(generation.vendor()),
        }
    }
}

/// A set of instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instructions {
    /// These.
    Named(&'static [Mnemonic]),
    /// Those of the x87 unit, and those that save and restore it.
    X87,
    /// All with a memory operand.
    Memory,
}

/// A condition on an instruction's operands, or on how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// None.
    Any,
    /// It shifts or rotates by more than this.
    CountAbove(u64),
    /// Operands of 16 bits, shifted by more than this.
    SmallCountAbove(u64),
    /// The first operand is a register of 16 bits.
    Register16,
    /// The processor found that the source is 0, as ZF says.
    ZeroSource,
    /// It raised a fault.
    Faults,
    /// Its memory operands are several, or not of a size that is loaded at once; and it raised a
    /// fault.
    PartsFault,
    /// The environment of x87 is stored in words of 32 bits.
    Environment32,
    /// The environment of x87 is stored in words of 16 bits.
    Environment16,
}

/// Bits that differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bits {
    /// Of rflags.
    Flags(u64),
    /// The first operand.
    Destination,
    /// The address of the next instruction.
    Rip,
    /// Bytes of the x87 and SSE state, as FXSAVE64 stores it.
    Fx(&'static [Range<usize>]),
    /// ST(0) and ST(1) by one unit in the last place, and C1.
    LastPlace,
    /// Lanes of the first operand, by what two approximations of the same number may be apart.
    Approximation,
    /// Lanes of the first operand that are NaNs on both sides.
    Nan,
    /// Bytes of what the instruction stores.
    Stored(&'static [Range<usize>]),
    /// How it ends: as one of these.
    Ended(&'static [End]),
}

/// Who says that the processors differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The manuals leave the bits open: where in the SDM, and where in the APM.
    Open {
        /// Intel's manual.
        sdm: &'static str,
        /// AMD's manual.
        apm: &'static str,
    },
    /// Not seen yet: what makes us expect it, and what the manuals say of it. The first run on such
    /// a processor makes a measured entry of it, or removes it.
    Expected {
        /// Why.
        why: &'static str,
        /// The manuals.
        manuals: &'static str,
    },
    /// Seen on this processor; what the manuals say of it.
    Measured {
        /// Vendor, family and model.
        on: &'static str,
        /// The manuals.
        manuals: &'static str,
    },
}

/// How an instruction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Without an exception.
    Done,
    /// #UD.
    InvalidOpcode,
    /// #GP or #SS.
    GeneralProtection,
    /// #PF.
    PageFault,
    /// Another exception.
    Other,
}

/// An instruction that was executed on both sides.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The instruction.
    pub insn: &'a Instruction,
    /// What the processor is compared as.
    pub cpu: Processor,
    /// The general registers before.
    pub gpr: &'a [u64; 16],
    /// Does it access memory in several parts?
    pub in_parts: bool,
    /// How it ended on the processor.
    pub processor: End,
    /// How it ended in the machine.
    pub machine: End,
}

/// Registers after an instruction.
#[derive(Debug)]
pub struct View<'a> {
    /// General registers.
    pub gpr: &'a mut [u64; 16],
    /// The next instruction.
    pub rip: &'a mut u64,
    /// The flags.
    pub rflags: &'a mut u64,
    /// x87 and SSE, as FXSAVE64 stores them, if they are compared.
    pub fx: Option<&'a mut [u8; 512]>,
}

/// Entries of [`TABLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used(u64);

impl Used {
    /// Is it none?
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds them.
    pub fn add(&mut self, other: Used) {
        self.0 |= other.0;
    }

    /// Their places in [`TABLE`].
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..TABLE.len()).filter(move |number| self.0 >> number & 1 != 0)
    }
}

const RCX: usize = 1;

impl Case<'_> {
    /// The entries that are about it.
    fn entries(&self, rflags: u64) -> impl Iterator<Item = (Used, &'static Difference)> {
        let all = TABLE.iter().enumerate();
        all.filter(move |(_, entry)| {
            entry.on.has(&self.cpu)
                && entry.instructions.has(self.insn)
                && self.is_of(entry.form, rflags)
        })
        .map(|(number, entry)| (Used(1 << number), entry))
    }

    /// By how much a shift or rotation shifts.
    fn count(&self) -> u64 {
        let insn = self.insn;
        let most = if self.size() == 8 { 63 } else { 31 };
        let count = match insn
            .op_count()
            .checked_sub(1)
            .map(|last| insn.op_kind(last))
        {
            Some(OpKind::Register) => self.gpr[RCX],
            Some(OpKind::Immediate8) => insn.immediate8().into(),
            _ => 0,
        };
        count & most
    }

    /// Bytes of the first operand.
    fn size(&self) -> usize {
        match self.insn.op0_kind() {
            OpKind::Register => self.insn.op0_register().size(),
            _ => self.insn.memory_size().size(),
        }
    }

    fn is_of(&self, form: Form, rflags: u64) -> bool {
        let insn = self.insn;
        let faults = self.processor != End::Done || self.machine != End::Done;
        match form {
            Form::Any => true,
            Form::CountAbove(count) => self.count() > count,
            Form::SmallCountAbove(count) => self.size() == 2 && self.count() > count,
            Form::Register16 => insn.op0_kind() == OpKind::Register && self.size() == 2,
            Form::ZeroSource => rflags & ZF != 0,
            Form::Faults => faults,
            Form::PartsFault => self.in_parts && faults,
            Form::Environment32 => matches!(insn.memory_size().size(), 28 | 108),
            Form::Environment16 => matches!(insn.memory_size().size(), 14 | 94),
        }
    }

    /// The entries by which it may end differently on both sides, if there are any.
    pub fn may_end_differently(&self) -> Option<Used> {
        let allowed = |entry: &Difference| {
            entry.bits.iter().any(|bits| match bits {
                Bits::Ended(ends) => ends.contains(&self.processor) && ends.contains(&self.machine),
                _ => false,
            })
        };
        self.entries(0)
            .find(|(_, entry)| allowed(entry))
            .map(|(number, _)| number)
    }

    /// The flags that may differ, the processor's being `rflags`.
    pub fn flags(&self, rflags: u64) -> u64 {
        let bits = self.entries(rflags).flat_map(|(_, entry)| entry.bits);
        bits.fold(0, |all, bits| match bits {
            Bits::Flags(flags) => all | flags,
            _ => all,
        })
    }

    /// Gives the machine's registers the processor's values in all bits that may differ. Which
    /// entries changed something.
    pub fn forgive(&self, processor: &View<'_>, machine: &mut View<'_>) -> Used {
        let mut used = Used::default();
        for (number, entry) in self.entries(*processor.rflags) {
            for bits in entry.bits {
                if open::take(self, *bits, processor, machine) {
                    used.add(number);
                }
            }
        }
        used
    }

    /// The bytes of what it stores that may differ: ranges of each stored operand; and which
    /// entries say so.
    pub fn open_stores(&self, rflags: u64) -> (Used, Vec<Range<usize>>) {
        let mut used = Used::default();
        let mut ranges = Vec::new();
        for (number, entry) in self.entries(rflags) {
            for bits in entry.bits {
                let is_memory = self.insn.op0_kind() == OpKind::Memory;
                match bits {
                    Bits::Stored(open) => ranges.extend(open.iter().cloned()),
                    Bits::Destination if is_memory => ranges.push(ALL),
                    _ => continue,
                }
                used.add(number);
            }
        }
        (used, ranges)
    }
}

/// All of a stored operand.
pub(crate) const ALL: Range<usize> = 0..usize::MAX;

impl Instructions {
    /// Is the instruction one of them?
    pub fn has(&self, insn: &Instruction) -> bool {
        match self {
            Instructions::Named(named) => named.contains(&insn.mnemonic()),
            Instructions::X87 => {
                use CpuidFeature::{FPU, FPU287, FPU387, FXSR, XSAVE};
                let x87 = |f: &CpuidFeature| matches!(f, FPU | FPU287 | FPU387 | FXSR | XSAVE);
                insn.cpuid_features().iter().any(x87) || insn.mnemonic() == Mnemonic::Wait
            }
            Instructions::Memory => insn.memory_size().size() != 0 || insn.is_stack_instruction(),
        }
    }
}

impl Difference {
    /// Bits that it lists, of each instruction.
    pub fn count(&self) -> u32 {
        let bytes = |ranges: &[Range<usize>]| ranges.iter().map(|r| 8 * r.len() as u32).sum();
        let bits = self.bits.iter().map(|bits| match bits {
            Bits::Flags(flags) => flags.count_ones(),
            Bits::Destination | Bits::Rip => 64,
            Bits::Fx(ranges) => bytes(ranges),
            // All that is stored counts as one operand of 64 bits.
            Bits::Stored(ranges) if ranges.contains(&ALL) => 64,
            Bits::Stored(ranges) => bytes(ranges),
            Bits::LastPlace => 2 * 80 + 1,
            Bits::Approximation | Bits::Nan => 128,
            Bits::Ended(_) => 1,
        });
        bits.sum()
    }
}

/// The number of a general register operand.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

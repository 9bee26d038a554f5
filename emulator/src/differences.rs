//! Where a processor may legitimately differ from the machine: the one table for every comparison
//! of the two, whether of single instructions or of whole programs.
//!
//! The data is in `table`. A [`Difference`] names instructions, their form and bits, and the manual
//! that leaves them open or the processor on which they were measured. [`Case::forgive`] copies the
//! processor's value of those bits, and of no others, into the machine's result; whatever still
//! differs is an error.

mod open;
mod table;
#[cfg(test)]
mod tests;

pub use table::TABLE;

use crate::processor::{Generation, Processor, Vendor};
use iced_x86::{CpuidFeature, Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;

/// Carry.
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
/// All status flags.
pub const STATUS: u64 = CF | PF | AF | ZF | SF | OF;

/// A way in which processors may differ from the machine.
#[derive(Debug)]
pub struct Difference {
    /// The name in reports.
    pub name: &'static str,
    /// The instructions it applies to.
    pub instructions: Instructions,
    /// The form of the instructions it applies to.
    pub form: Form,
    /// The bits that may differ.
    pub bits: &'static [Bits],
    /// The processors it applies to.
    pub on: Processors,
    /// The source of the claim.
    pub source: Source,
}

/// A set of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Processors {
    /// All of them.
    Any,
    /// All processors of a vendor.
    Of(Vendor),
    /// Processors nearest to a generation.
    Like(Generation),
}

impl Processors {
    /// Whether the set contains a processor.
    pub fn has(self, processor: &Processor) -> bool {
        match self {
            Processors::Any => true,
            Processors::Of(vendor) => processor.vendor() == vendor,
            Processors::Like(generation) => processor.generation() == generation,
        }
    }

    /// The vendor of all processors in the set; `None` if there can be several.
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
    /// The listed mnemonics.
    Named(&'static [Mnemonic]),
    /// x87 instructions, and instructions that save and restore the x87 state.
    X87,
    /// All instructions with a memory operand.
    Memory,
}

/// A condition on an instruction's operands, or on how it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// No condition.
    Any,
    /// The instruction shifts or rotates by more than this count.
    CountAbove(u64),
    /// The operands are 16 bits wide, and shifted by more than this count.
    SmallCountAbove(u64),
    /// The first operand is a 16-bit register.
    Register16,
    /// The source is 0 according to the processor's ZF.
    ZeroSource,
    /// The instruction raised a fault.
    Faults,
    /// The instruction accesses memory in several parts, and raised a fault.
    PartsFault,
    /// The x87 environment is stored in 32-bit words.
    Environment32,
    /// The x87 environment is stored in 16-bit words.
    Environment16,
}

/// The bits that may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bits {
    /// These bits of rflags.
    Flags(u64),
    /// The first operand.
    Destination,
    /// The address of the next instruction.
    Rip,
    /// These bytes of the x87 and SSE state, as FXSAVE64 stores it.
    Fx(&'static [Range<usize>]),
    /// ST(0) and ST(1), by one unit in the last place, and C1.
    LastPlace,
    /// Lanes of the first operand, by as much as two approximations of the same number may differ.
    Approximation,
    /// Lanes of the first operand that are NaNs on both sides.
    Nan,
    /// What lies above the elements of a gather, in its result and its mask.
    AboveElements,
    /// The x87, SSE and AVX state.
    Components,
    /// These bytes of what the instruction stores.
    Stored(&'static [Range<usize>]),
    /// How the instruction ends: any of these.
    Ended(&'static [End]),
}

/// The source of a claim that processors differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The manuals leave the bits open: the places in the SDM and the APM.
    Open {
        /// Intel's manual.
        sdm: &'static str,
        /// AMD's manual.
        apm: &'static str,
    },
    /// Not observed yet: the reason to expect it, and what the manuals say. The first run on such a
    /// processor turns it into a measured entry or removes it.
    Expected {
        /// The reason.
        why: &'static str,
        /// What the manuals say.
        manuals: &'static str,
    },
    /// Observed on this processor.
    Measured {
        /// Vendor, family and model.
        on: &'static str,
        /// What the manuals say.
        manuals: &'static str,
    },
}

/// How an instruction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It ended without an exception.
    Done,
    /// #UD.
    InvalidOpcode,
    /// #GP or #SS.
    GeneralProtection,
    /// #PF.
    PageFault,
    /// Any other exception.
    Other,
}

/// An instruction that was executed by both the processor and the machine.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The instruction.
    pub insn: &'a Instruction,
    /// The processor whose differences apply.
    pub cpu: Processor,
    /// The general registers before the instruction.
    pub gpr: &'a [u64; 16],
    /// Whether the instruction accesses memory in several parts. A masked move always counts as
    /// one that does.
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
    /// The address of the next instruction.
    pub rip: &'a mut u64,
    /// rflags.
    pub rflags: &'a mut u64,
    /// The x87 and SSE state as FXSAVE64 stores it, if it is compared.
    pub fx: Option<&'a mut [u8; 512]>,
    /// The upper halves of YMM0 to YMM15, if they are compared.
    pub upper: Option<&'a mut [u128; 16]>,
}

/// A set of entries of [`TABLE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DifferenceSet(u64);

impl DifferenceSet {
    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds the entries of `other`.
    pub fn add(&mut self, other: DifferenceSet) {
        self.0 |= other.0;
    }

    /// The indexes of the entries in [`TABLE`].
    pub fn numbers(self) -> impl Iterator<Item = usize> {
        (0..TABLE.len()).filter(move |number| self.0 >> number & 1 != 0)
    }
}

const RCX: usize = 1;

impl Case<'_> {
    /// The entries that apply.
    fn entries(&self, rflags: u64) -> impl Iterator<Item = (DifferenceSet, &'static Difference)> {
        let all = TABLE.iter().enumerate();
        all.filter(move |(_, entry)| {
            entry.on.has(&self.cpu)
                && entry.instructions.has(self.insn)
                && self.is_of(entry.form, rflags)
        })
        .map(|(number, entry)| (DifferenceSet(1 << number), entry))
    }

    /// The shift or rotation count.
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

    /// Size of the first operand, bytes.
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
            Form::PartsFault => (self.in_parts || is_masked_move(insn)) && faults,
            Form::Environment32 => matches!(insn.memory_size().size(), 28 | 108),
            Form::Environment16 => matches!(insn.memory_size().size(), 14 | 94),
        }
    }

    /// The entries that allow it to end differently on both sides, if any.
    pub fn may_end_differently(&self) -> Option<DifferenceSet> {
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

    /// The flags that may differ; the processor's are `rflags`.
    pub fn flags(&self, rflags: u64) -> u64 {
        let bits = self.entries(rflags).flat_map(|(_, entry)| entry.bits);
        bits.fold(0, |all, bits| match bits {
            Bits::Flags(flags) => all | flags,
            _ => all,
        })
    }

    /// Copies the processor's values into the machine's registers in all bits that may differ.
    /// Returns the entries that changed something.
    pub fn forgive(&self, processor: &View<'_>, machine: &mut View<'_>) -> DifferenceSet {
        let mut used = DifferenceSet::default();
        for (number, entry) in self.entries(*processor.rflags) {
            for bits in entry.bits {
                if open::take(self, *bits, processor, machine) {
                    used.add(number);
                }
            }
        }
        used
    }

    /// The bytes of each stored operand that may differ, and the entries that say so.
    pub fn open_stores(&self, rflags: u64) -> (DifferenceSet, Vec<Range<usize>>) {
        let mut used = DifferenceSet::default();
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
    /// Whether the set contains an instruction.
    pub fn has(&self, insn: &Instruction) -> bool {
        match self {
            Instructions::Named(named) => named.contains(&insn.mnemonic()),
            Instructions::X87 => {
                use CpuidFeature::{FPU, FPU287, FPU387, FXSR, XSAVE};
                let x87 = |f: &CpuidFeature| matches!(f, FPU | FPU287 | FPU387 | FXSR | XSAVE);
                insn.cpuid_features().iter().any(x87) || insn.mnemonic() == Mnemonic::Wait
            }
            Instructions::Memory => {
                use CpuidFeature::{XSAVE, XSAVEC, XSAVEOPT};
                // iced does not know the size of an XSAVE area.
                let has_area = |f: &CpuidFeature| matches!(f, XSAVE | XSAVEC | XSAVEOPT);
                insn.memory_size().size() != 0
                    || insn.is_stack_instruction()
                    || insn.cpuid_features().iter().any(has_area)
            }
        }
    }
}

impl Difference {
    /// The number of listed bits, for each instruction.
    pub fn count(&self) -> u32 {
        let bytes = |ranges: &[Range<usize>]| ranges.iter().map(|r| 8 * r.len() as u32).sum();
        let bits = self.bits.iter().map(|bits| match bits {
            Bits::Flags(flags) => flags.count_ones(),
            Bits::Destination | Bits::Rip => 64,
            Bits::Fx(ranges) => bytes(ranges),
            // A whole stored operand counts as 64 bits.
            Bits::Stored(ranges) if ranges.contains(&ALL) => 64,
            Bits::Stored(ranges) => bytes(ranges),
            Bits::LastPlace => 2 * 80 + 1,
            Bits::Approximation | Bits::Nan => 128,
            // At least half of both registers where the elements fill half of one.
            Bits::AboveElements => 2 * 128,
            // An FXSAVE area and the upper halves of 16 registers.
            Bits::Components => 8 * (416 + 16 * 16),
            Bits::Ended(_) => 1,
        });
        bits.sum()
    }
}

/// Whether the elements of a move are accessed one by one, as its mask says.
fn is_masked_move(insn: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        insn.mnemonic(),
        Vmaskmovps | Vmaskmovpd | Vpmaskmovd | Vpmaskmovq | Maskmovq | Maskmovdqu | Vmaskmovdqu
    )
}

/// The number of a general register operand.
fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}

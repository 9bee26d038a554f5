//! What instructions read and write that have no rule of their own in [`super::exec`].

use arrayvec::ArrayVec;
use iced_x86::{
    Code, CodeSize, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use unwind_sim_unwind::regs::Reg;

/// What an instruction with this code reads and writes, whatever its operands are.
#[derive(Clone, Copy, Default)]
struct OpcodeUses {
    /// Whether this entry has been filled.
    known: bool,
    /// Bit n: operand n is written.
    written: u8,
    /// Bit n: operand n is read, or may be left alone.
    read: u8,
    /// Bit n: the general register with DWARF number n is written, though no operand names it.
    implied: u16,
    /// The same for registers that are read, or may be left alone.
    implied_reads: u16,
    /// Whether it writes memory that no operand with a known size says.
    is_special: bool,
}

/// Remembers what each instruction reads and writes: asking the decoder's library every time takes
/// longer than everything else.
pub struct Accesses {
    factory: InstructionInfoFactory,
    by_code: Vec<OpcodeUses>,
}

/// What one instruction reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InsnUses {
    /// Bit n: the general register with DWARF number n is written.
    pub regs: u16,
    /// Bit n: what the instruction writes may depend on that register, apart from addresses.
    pub reads: u16,
    /// Whether its memory operand is written.
    pub memory: bool,
    /// Whether its memory operand is read.
    pub loads: bool,
    /// Whether it writes memory that [`Accesses::places`] says, not an operand with a known size.
    pub is_special: bool,
}

/// Memory that an instruction writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WrittenMemory {
    /// The base register.
    pub base: Register,
    /// The index register.
    pub index: Register,
    /// The factor of the index.
    pub scale: u32,
    /// The number that is added, or the address of what lies at a distance from rip.
    pub displacement: u64,
    /// The segment.
    pub segment: Register,
    /// Size, bytes; `None` if it is not known.
    pub size: Option<u32>,
    /// Whether some of it may be left alone.
    pub is_partial: bool,
}

/// The maximum number of places in memory that one instruction writes.
const PLACES_MAX: usize = 8;

/// The number of registers that the decoder has names for, at most.
const NAMES_MAX: usize = 256;

/// For each name: the general register that it is a part of.
const GENERAL: [Option<Reg>; NAMES_MAX] = {
    let mut table = [None; NAMES_MAX];
    let mut n = 0;
    while n < 16 {
        let reg = Some(Reg::BY_NUMBER[n]);
        // The names of bytes are al, cl, dl, bl, ah, ch, dh, bh, spl and so on.
        table[Register::AL as usize + if n < 4 { n } else { n + 4 }] = reg;
        if n < 4 {
            table[Register::AH as usize + n] = reg;
        }
        table[Register::AX as usize + n] = reg;
        table[Register::EAX as usize + n] = reg;
        table[Register::RAX as usize + n] = reg;
        n += 1;
    }
    table
};

/// The general register that `register` is a part of.
#[inline]
pub fn general(register: Register) -> Option<Reg> {
    GENERAL[register as usize & (NAMES_MAX - 1)]
}

fn bit(register: Register) -> u16 {
    general(register).map_or(0, |reg| 1 << reg as u16)
}

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether what is there before matters: it is read, or may be left alone.
fn reads(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::Write | OpAccess::None | OpAccess::NoMemAccess
    )
}

/// Instructions that leave their first operand alone in some cases, which the decoder does not say
/// (Intel SDM, volume 2).
fn may_leave_alone(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Bsf | M::Bsr | M::Rdsspd | M::Rdsspq | M::Lar | M::Lsl
    )
}

/// Instructions that write memory which is not where their operand says.
fn writes_beside(insn: &Instruction) -> bool {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Clzero | M::Movdir64b | M::Enqcmd | M::Enqcmds => true,
        // The bit's number is added to the address.
        M::Bts | M::Btr | M::Btc => insn.op1_kind() == OpKind::Register,
        _ => false,
    }
}

/// The same instruction with other registers for its operands, so that those which it uses besides
/// can be told from them.
fn with_other_registers(insn: &Instruction) -> Instruction {
    let mut other = *insn;
    for operand in 0..insn.op_count().min(5) {
        let register = insn.op_register(operand);
        if insn.op_kind(operand) == OpKind::Register && register.is_gpr() {
            let first = match register.size() {
                1 => Register::R8L,
                2 => Register::R8W,
                4 => Register::R8D,
                _ => Register::R8,
            };
            other.set_op_register(operand, first + operand);
        }
    }
    if insn.memory_base().is_gpr() {
        other.set_memory_base(Register::R15);
    }
    if insn.memory_index().is_gpr() {
        other.set_memory_index(Register::R14);
    }
    other
}

/// The registers that [`with_other_registers`] puts in.
const OTHERS: u16 = 0xff00;

impl Accesses {
    /// Nothing is known yet.
    pub fn new() -> Accesses {
        Accesses {
            factory: InstructionInfoFactory::new(),
            by_code: vec![OpcodeUses::default(); Code::values().len()],
        }
    }

    /// What `insn` reads and writes.
    pub fn of(&mut self, insn: &Instruction) -> InsnUses {
        let index = insn.code() as usize;
        let known = self.by_code.get(index).copied().unwrap_or_default();
        // A repetition uses rcx as well, but has the code of the instruction without it.
        let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
        let uses = if known.known && !repeated {
            known
        } else {
            let asked = self.ask(insn);
            if !repeated && let Some(entry) = self.by_code.get_mut(index) {
                *entry = asked;
            }
            asked
        };

        let mut used = InsnUses {
            regs: uses.implied,
            reads: uses.implied_reads,
            is_special: uses.is_special || writes_beside(insn),
            ..InsnUses::default()
        };

        // No instruction has more than five operands in iced.
        for operand in 0..insn.op_count().min(5) {
            let is_read = uses.read & 1 << operand != 0;
            let is_written = uses.written & 1 << operand != 0;
            match insn.op_kind(operand) {
                OpKind::Register => {
                    let bit = bit(insn.op_register(operand));
                    used.regs |= if is_written { bit } else { 0 };
                    used.reads |= if is_read { bit } else { 0 };
                }
                kind if is_memory(kind) => {
                    used.memory |= is_written;
                    used.loads |= is_read;
                }
                _ => {}
            }
        }

        used
    }

    /// The memory that `insn` writes.
    pub fn places(&mut self, insn: &Instruction) -> ArrayVec<WrittenMemory, PLACES_MAX> {
        let mut places = ArrayVec::new();
        if insn.mnemonic() == Mnemonic::Clzero {
            // The line of the cache that has the byte at rax, whose size the processor says.
            let _ = places.try_push(WrittenMemory {
                base: Register::RAX,
                index: Register::None,
                scale: 1,
                displacement: 0,
                segment: Register::DS,
                size: None,
                is_partial: true,
            });
            return places;
        }

        let info = self.factory.info(insn);
        for used in info.used_memory().iter().filter(|u| writes(u.access())) {
            let size = u32::try_from(used.memory_size().size()).ok();
            let is_small = !matches!(used.address_size(), CodeSize::Code64 | CodeSize::Unknown);
            let _ = places.try_push(WrittenMemory {
                // Half of a register says nothing.
                base: if is_small { Register::EAX } else { used.base() },
                index: used.index(),
                scale: used.scale(),
                displacement: used.displacement(),
                segment: used.segment(),
                // A word at most (VIA PadLock Programming Guide, section 2.2, XSTORE).
                size: match insn.mnemonic() {
                    Mnemonic::Xstore if !insn.has_rep_prefix() => Some(8),
                    _ => size.filter(|size| *size != 0),
                },
                is_partial: used.access() != OpAccess::Write
                    && used.access() != OpAccess::ReadWrite
                    || insn.op_mask() != Register::None
                    || is_masked(insn.mnemonic()),
            });
        }

        places
    }

    fn ask(&mut self, insn: &Instruction) -> OpcodeUses {
        // Registers of operands are replaced, to tell them from those that are always used.
        let other = with_other_registers(insn);
        let info = self.factory.info(&other);
        let mut out = OpcodeUses {
            known: true,
            ..OpcodeUses::default()
        };

        for operand in 0..insn.op_count().min(5) {
            let access = info.op_access(operand);
            let is_first = operand == 0 && may_leave_alone(insn.mnemonic());
            out.written |= u8::from(writes(access)) << operand;
            out.read |= u8::from(reads(access) || is_first) << operand;
        }

        for used in info.used_registers() {
            let bit = bit(used.register()) & !OTHERS;
            out.implied |= if writes(used.access()) { bit } else { 0 };
            out.implied_reads |= if reads(used.access()) { bit } else { 0 };
        }

        let written = info.used_memory().iter().filter(|u| writes(u.access()));
        let operands = (0..insn.op_count().min(5)).filter(|&operand| {
            out.written & 1 << operand != 0 && insn.op_kind(operand) == OpKind::Memory
        });
        // What no operand shows as it is written is looked up one by one, by `places`.
        out.is_special = written.clone().count() != operands.count()
            || written.into_iter().any(|u| u.memory_size().size() == 0)
            || insn.is_vsib()
            || is_masked(insn.mnemonic());
        out.is_special &= info.used_memory().iter().any(|u| writes(u.access()));

        out
    }
}

fn is_memory(kind: OpKind) -> bool {
    !matches!(
        kind,
        OpKind::Register
            | OpKind::NearBranch16
            | OpKind::NearBranch32
            | OpKind::NearBranch64
            | OpKind::FarBranch16
            | OpKind::FarBranch32
            | OpKind::Immediate8
            | OpKind::Immediate8_2nd
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

/// Whether the instruction stores only elements that a vector register selects.
fn is_masked(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Maskmovq
            | M::Maskmovdqu
            | M::Vmaskmovdqu
            | M::Vmaskmovps
            | M::Vmaskmovpd
            | M::Vpmaskmovd
            | M::Vpmaskmovq
    )
}

impl Default for Accesses {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_names_is_that_of_the_decoder() {
        assert!(Register::values().len() <= NAMES_MAX);
        for register in Register::values() {
            let whole = register.full_register();
            let expected = whole
                .is_gpr64()
                .then(|| Reg::BY_NUMBER[whole.number() & 15]);
            assert_eq!(general(register), expected, "{register:?}");
        }
    }
}

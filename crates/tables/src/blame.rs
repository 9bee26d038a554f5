//! The cause of a wrong row, as the code around it shows.
//!
//! It groups contradictions that have something in common; it decides nothing. A row that is wrong in
//! a way that is not listed has the cause [`Cause::Other`].

use crate::file::File;
use crate::proof::access::general;
use crate::proof::claim::Subject;
use crate::proof::value::Value;
use crate::proof::verdict::Contradiction;
use gimli::{EndianSlice, LittleEndian, Operation};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base};

/// The maximum number of bytes of a function that are decoded to find the instruction before the
/// wrong row.
const BYTES_MAX: u64 = 1 << 16;
/// How many instructions behind a row that takes a register's rule back the register is restored.
const RESTORED_MAX: usize = 8;

/// The encoding of the expressions of rows.
const ENCODING: gimli::Encoding = gimli::Encoding {
    address_size: 8,
    format: gimli::Format::Dwarf32,
    version: 5,
};

/// What is wrong with a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The entry of a procedure linkage table is not what its row describes.
    Plt,
    /// A push, and the row is still the one before it.
    Push,
    /// rsp is lowered, and the row is still the one before it.
    Lowered,
    /// rsp is raised, and the row is still the one before it.
    Raised,
    /// The row is right only behind the instruction at its start.
    Early,
    /// The row starts where it should, with another distance than the code has made.
    Distance,
    /// The rule goes by a register that was restored or overwritten just before.
    BaseLost,
    /// The rule goes by a register that does not lead to the frame.
    Base,
    /// A callee-saved register is changed, and the row says that it is unchanged.
    Changed,
    /// A register is said to be in a slot while it still, or again, has the caller's value.
    NotSaved,
    /// The slot of a register holds something else.
    Slot,
    /// A jump leads here with a frame that the row does not describe.
    Way,
    /// The return address is not where the row says.
    ReturnAddress,
    /// No row covers the code, or the row there says nothing.
    NoRow,
    /// None of the others.
    Other,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 15] = [
        Cause::Plt,
        Cause::Push,
        Cause::Lowered,
        Cause::Raised,
        Cause::Early,
        Cause::Distance,
        Cause::BaseLost,
        Cause::Base,
        Cause::Changed,
        Cause::NotSaved,
        Cause::Slot,
        Cause::Way,
        Cause::ReturnAddress,
        Cause::NoRow,
        Cause::Other,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::Plt => "plt",
            Cause::Push => "push",
            Cause::Lowered => "lowered",
            Cause::Raised => "raised",
            Cause::Early => "early",
            Cause::Distance => "distance",
            Cause::BaseLost => "base-lost",
            Cause::Base => "base",
            Cause::Changed => "changed",
            Cause::NotSaved => "not-saved",
            Cause::Slot => "slot",
            Cause::Way => "way",
            Cause::ReturnAddress => "return-address",
            Cause::NoRow => "no-row",
            Cause::Other => "other",
        }
    }

    /// A short description for display.
    pub const fn description(self) -> &'static str {
        match self {
            Cause::Plt => "the row does not describe this entry of a procedure linkage table",
            Cause::Push => "a push has no row of its own",
            Cause::Lowered => "rsp is lowered without a row",
            Cause::Raised => "rsp is raised without a row",
            Cause::Early => "the row starts too early",
            Cause::Distance => "the row has another distance than the code",
            Cause::BaseLost => "the rule goes by a register that was just restored or overwritten",
            Cause::Base => "the rule goes by a register that does not lead to the frame",
            Cause::Changed => "a callee-saved register is changed without a row",
            Cause::NotSaved => "a register that has the caller's value is said to be in a slot",
            Cause::Slot => "the slot of a register holds something else",
            Cause::Way => "a jump leads here with a frame that the row does not describe",
            Cause::ReturnAddress => "the return address is not where the row says",
            Cause::NoRow => "the function reaches code that no row covers",
            Cause::Other => "the row is wrong in another way",
        }
    }
}

/// The code around a wrong row.
#[derive(Clone, Debug, Default)]
pub struct CodeContext {
    /// The instruction that was executed before it. `None` at the function's start, behind a jump,
    /// and if the code is not known.
    pub before: Option<Instruction>,
    /// The first instruction at which the row is wrong.
    pub at: Option<Instruction>,
    /// Whether a jump leads there on the way that was found.
    pub is_jump_target: bool,
}

impl CodeContext {
    /// The code around a row of the function that starts at `start` (svma).
    pub fn of(file: &File, start: u64, wrong: &Contradiction) -> CodeContext {
        let is_jump_target = wrong.path.last().is_some_and(|(_, to)| *to == wrong.pc);

        // Decoded from the function's start, since x86 code cannot be decoded backwards.
        let mut around = CodeContext {
            is_jump_target,
            ..CodeContext::default()
        };
        let distance = wrong.pc.wrapping_sub(start);
        if file.code_at(wrong.pc).is_none() || distance > BYTES_MAX {
            return around;
        }
        let mut decoder = Decoder::with_ip(64, file.bytes(start), start, DecoderOptions::NONE);
        while decoder.can_decode() && decoder.ip() < wrong.pc {
            around.before = Some(decoder.decode());
        }
        if decoder.ip() == wrong.pc && decoder.can_decode() {
            around.at = Some(decoder.decode())
        } else {
            // The row starts within an instruction.
            around.before = None
        }

        // Behind a jump, what stands before the row was not executed before it.
        if is_jump_target {
            around.before = None;
        }
        around
    }
}

/// The cause of a contradiction of the function that starts at `start` (svma).
pub fn cause(file: &File, start: u64, wrong: &Contradiction) -> Cause {
    cause_of(file, wrong, &CodeContext::of(file, start, wrong))
}

/// The cause of a contradiction with this code around it.
pub fn cause_of(file: &File, wrong: &Contradiction, around: &CodeContext) -> Cause {
    if wrong.subject == Subject::Row {
        return Cause::NoRow;
    }
    let section = file.code_at(wrong.pc).map_or("", |code| &code.name);
    if section.starts_with(".plt") || section == ".iplt" {
        return Cause::Plt;
    }
    let cause = match wrong.subject {
        Subject::Cfa | Subject::Sp => of_cfa(wrong, around),
        Subject::Register(reg) => of_register(file, wrong, reg, around),
        Subject::ReturnAddress => Cause::ReturnAddress,
        Subject::Row => Cause::NoRow,
    };
    if around.is_jump_target && !matches!(cause, Cause::Early | Cause::Changed) {
        Cause::Way
    } else {
        cause
    }
}

fn of_cfa(wrong: &Contradiction, around: &CodeContext) -> Cause {
    let before = around.before.as_ref();
    let base = match wrong.rule.cfa {
        rule::Value::Offset {
            base: Base::Reg(reg),
            ..
        } => Some(reg),
        _ => None,
    };

    // An instruction that moves rsp by a known number is what most such rows do not follow.
    let moved = before.and_then(moved);
    // How far the row's CFA is off, if both are addresses in the frame. The true one is 8 above the
    // return address.
    let off = match wrong.found {
        Value::Entry {
            reg: Reg::Rsp,
            offset,
        } => Some(i64::from(offset) - 8),
        _ => None,
    };
    let at = around.at.as_ref().and_then(self::moved);

    // Where the CFA goes by another register, it does not matter how rsp moved.
    if base != Some(Reg::Rsp) {
        return match base {
            Some(base) if before.is_some_and(|insn| writes(insn, base)) => Cause::BaseLost,
            // The register leads to the frame, and the distance is another one.
            Some(_) if off.is_some() => Cause::Distance,
            _ => Cause::Base,
        };
    }

    // The row covers the instruction before `pc` as well, and so does not follow what that one did.
    let is_late = wrong.row.start < wrong.pc;

    // If the error is just what the last instruction did, the row lacks that instruction.
    match moved {
        Some(moved) if is_late && off.is_none_or(|off| off == moved) => match moved {
            ..0 if before.is_some_and(is_push) => Cause::Push,
            ..0 => Cause::Lowered,
            _ => Cause::Raised,
        },
        _ if is_late && before.is_some_and(is_leave) => Cause::Raised,
        // Right only once the instruction at `pc` has been executed.
        _ if off.zip(at).is_some_and(|(off, at)| off + at == 0) => Cause::Early,
        _ if off.is_some() => Cause::Distance,
        _ => Cause::Other,
    }
}

fn of_register(file: &File, wrong: &Contradiction, reg: Reg, around: &CodeContext) -> Cause {
    let index = Reg::CALLEE_SAVED.iter().position(|&r| r == reg);
    let of = |rule: &rule::Rule| index.map(|index| rule.saved[index]);
    let Some(said) = of(&wrong.rule) else {
        return Cause::Other;
    };
    if matches!(said, rule::Value::Same | rule::Value::Unspecified) {
        let begins_here = wrong.row.start == wrong.pc;
        return if begins_here && is_restored_soon(file, wrong.pc, reg) {
            Cause::Early
        } else {
            Cause::Changed
        };
    }
    let base = base(file, wrong, said);
    let before = around.before.as_ref();
    if base.is_some_and(|base| base != Reg::Rsp && before.is_some_and(|insn| writes(insn, base))) {
        return Cause::BaseLost;
    }
    match wrong.right.as_ref().and_then(of) {
        Some(rule::Value::Same) => Cause::NotSaved,
        _ => Cause::Slot,
    }
}

/// Whether one of the next instructions from `pc` (svma) on loads `reg`, before anything else happens to it:
/// its rule was taken back too early.
fn is_restored_soon(file: &File, pc: u64, reg: Reg) -> bool {
    let options = DecoderOptions::NONE;
    let mut decoder = Decoder::with_ip(64, file.bytes(pc), pc, options);
    for _ in 0..RESTORED_MAX {
        if !decoder.can_decode() {
            return false;
        }
        let insn = decoder.decode();
        if writes(&insn, reg) {
            let is_load = insn.mnemonic() == Mnemonic::Mov && insn.op1_kind() == OpKind::Memory;
            return insn.mnemonic() == Mnemonic::Pop || is_load;
        }
        if insn.flow_control() != FlowControl::Next {
            return false;
        }
    }
    false
}

/// The register that a rule goes by.
fn base(file: &File, wrong: &Contradiction, value: rule::Value) -> Option<Reg> {
    match value {
        rule::Value::Offset { base, .. } | rule::Value::Load { base, .. } => match base {
            Base::Reg(reg) => Some(reg),
            Base::Cfa => match wrong.rule.cfa {
                rule::Value::Offset {
                    base: Base::Reg(reg),
                    ..
                } => Some(reg),
                cfa @ rule::Value::Expression(_) => base_of_expression(file, wrong, cfa),
                _ => None,
            },
        },
        expression => base_of_expression(file, wrong, expression),
    }
}

/// The first register that an expression names.
fn base_of_expression(file: &File, wrong: &Contradiction, value: rule::Value) -> Option<Reg> {
    let rule::Value::Expression(expression) = value else {
        return None;
    };
    let section = file.image().section(wrong.table.section()?)?;
    let start = usize::try_from(expression.start).ok()?;
    let end = start.checked_add(expression.len.into())?;
    let bytes: &[u8] = section.data.get(start..end)?;
    let mut rest = EndianSlice::new(bytes, LittleEndian);
    while !rest.is_empty() {
        if let Operation::RegisterOffset { register, .. } =
            Operation::parse(&mut rest, ENCODING).ok()?
        {
            return Reg::from_dwarf(register.0);
        }
    }
    None
}

/// How far an instruction that goes on behind itself moves rsp, if that is a number in it.
pub fn moved(insn: &Instruction) -> Option<i64> {
    let is_rsp = insn.op_count() > 0
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register() == Register::RSP;
    match insn.mnemonic() {
        Mnemonic::Add if is_rsp => immediate(insn),
        Mnemonic::Sub if is_rsp => immediate(insn).map(i64::wrapping_neg),
        Mnemonic::Lea
            if is_rsp
                && insn.memory_base() == Register::RSP
                && insn.memory_index() == Register::None =>
        {
            Some(insn.memory_displacement64().cast_signed())
        }
        _ if is_rsp || insn.is_call_near() || insn.is_call_near_indirect() => None,
        Mnemonic::Ret | Mnemonic::Leave | Mnemonic::Enter => None,
        _ if insn.is_stack_instruction() => Some(insn.stack_pointer_increment().into()),
        _ => None,
    }
}

fn immediate(insn: &Instruction) -> Option<i64> {
    let is_number = matches!(
        insn.op1_kind(),
        OpKind::Immediate8to64 | OpKind::Immediate32to64
    );
    is_number.then(|| insn.immediate(1).cast_signed())
}

fn is_push(insn: &Instruction) -> bool {
    insn.is_stack_instruction() && insn.stack_pointer_increment() < 0
}

fn is_leave(insn: &Instruction) -> bool {
    insn.mnemonic() == Mnemonic::Leave
}

/// Whether an instruction writes a general register, or a part of it.
pub fn writes(insn: &Instruction, reg: Reg) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(insn).used_registers();
    used.iter().any(|used| {
        let is_written = matches!(
            used.access(),
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        );
        is_written && general(used.register().full_register()) == Some(reg)
    })
}

/// Whether bytes that are no known instruction begin one of Intel's APX: with the prefix REX2, or with
/// EVEX and map 4 (Intel APX Architecture Specification, sections 3.1.1 and 3.1.2).
pub fn is_apx(bytes: &[u8]) -> bool {
    const PREFIXES: [u8; 10] = [0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e, 0x64, 0x65];
    let mut rest = bytes.iter().copied();
    match rest.by_ref().find(|byte| !PREFIXES.contains(byte)) {
        Some(0xd5) => true,
        Some(0x62) => rest.next().is_some_and(|byte| byte & 7 == 4),
        _ => false,
    }
}

/// The offset basis and the prime of FNV-1a, 64 bits.
const FNV: [u64; 2] = [0xcbf2_9ce4_8422_2325, 0x0000_0100_0000_01b3];
/// Numbers of this size and above may be addresses.
const ADDRESS_MIN: u64 = 1 << 12;

/// A hash of the instructions of a function, without addresses, which is the same where the code was
/// moved. It is stable: later versions compute the same one.
pub fn shape(file: &File, range: &std::ops::Range<u64>) -> u64 {
    let len = range.end.saturating_sub(range.start).min(BYTES_MAX);
    let bytes = file.bytes(range.start);
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
    let mut decoder = Decoder::with_ip(64, &bytes[..len], range.start, DecoderOptions::NONE);
    let mut hash = FNV[0];
    while decoder.can_decode() {
        shape_of(&decoder.decode(), &mut hash);
    }
    hash
}

/// The hash of these instructions, without addresses.
pub fn shape_of_all<'a>(insns: impl IntoIterator<Item = &'a Instruction>) -> u64 {
    let mut hash = FNV[0];
    for insn in insns {
        shape_of(insn, &mut hash);
    }
    hash
}

/// Adds an instruction to a hash: its name, its registers, and numbers that are no addresses.
fn shape_of(insn: &Instruction, hash: &mut u64) {
    // FNV-1a, byte by byte: it needs no key, so equal code has equal hashes in every run.
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            *hash = (*hash ^ u64::from(*byte)).wrapping_mul(FNV[1]);
        }
    };

    // The mnemonic has the size of operands, where the registers do not tell it.
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    formatter.format_mnemonic(insn, &mut text);
    add(text.as_bytes());

    // Numbers that may be addresses are left out: the same code has others elsewhere.
    let is_small = |number: u64| number.wrapping_add(ADDRESS_MIN) < 2 * ADDRESS_MIN;
    for operand in 0..insn.op_count() {
        add(b",");
        match insn.op_kind(operand) {
            OpKind::Register => {
                let register = insn.op_register(operand);
                add(formatter.format_register(register).as_bytes());
            }
            OpKind::Memory => {
                for register in [insn.memory_base(), insn.memory_index()] {
                    if register != Register::None {
                        add(formatter.format_register(register).as_bytes());
                    }
                }
                let displacement = insn.memory_displacement64();
                if !insn.is_ip_rel_memory_operand() && is_small(displacement) {
                    add(&displacement.to_le_bytes());
                }
            }
            // Where a branch leads depends on where the code is.
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {}
            _ => {
                let number = insn.try_immediate(operand).unwrap_or_default();
                if is_small(number) {
                    add(&number.to_le_bytes());
                }
            }
        }
    }
    add(b";");
}

#[cfg(test)]
mod tests;

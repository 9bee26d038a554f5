//! What the code decides where the tables cannot: the distance of a register from rsp, and whether
//! a callee-saved register has been written.
//!
//! Only straight-line code is followed. Nothing here is a proof that a row is right.

use crate::file::File;
use crate::proof::body::is_padding;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use std::collections::BTreeSet;
use std::ops::Range;
use unwind_sim_unwind::regs::Reg;

/// The maximum number of bytes of a function that are decoded.
const BYTES_MAX: u64 = 1 << 16;

/// The instructions of the file from `range.start` up to `range.end`.
fn instructions<'a>(file: &'a File, range: &Range<u64>) -> impl Iterator<Item = Instruction> + 'a {
    let len = range.end.saturating_sub(range.start).min(BYTES_MAX);
    let bytes = file.bytes(range.start);
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len());
    let bytes = &bytes[..len];
    let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

/// The distance of each general register from rsp, bytes, where it is known. Indexed by the
/// hardware's register number.
type Distances = [Option<i32>; 16];

/// What is known of the code of one function.
#[derive(Clone, Debug)]
pub(super) struct CodeScan {
    /// Before the instruction at this address (svma). By address.
    distances: Vec<(u64, Distances)>,
    /// The first instruction that writes each callee-saved register. 0 if the code is not known.
    first_writes: [u64; Reg::CALLEE_SAVED.len()],
    /// Padding behind what ends a way, to which no jump of the function leads (svma). By address.
    padding: Vec<Range<u64>>,
}

impl CodeScan {
    /// Decodes the function at `range` (svma).
    pub(super) fn of(file: &File, range: &Range<u64>) -> CodeScan {
        let mut code = CodeScan {
            distances: Vec::new(),
            first_writes: [u64::MAX; Reg::CALLEE_SAVED.len()],
            padding: padding(file, range),
        };

        // The factory keeps memory between instructions, so it is made once.
        let mut factory = InstructionInfoFactory::new();
        let mut known = [None; 16];
        let mut reached = range.start;
        for instruction in instructions(file, range) {
            // Where nothing is known, nothing has to be kept.
            if known.iter().any(Option::is_some) {
                code.distances.push((instruction.ip(), known));
            }

            // Up to its first write, a register still has the caller's value (see `compare.rs`).
            for (first, reg) in code.first_writes.iter_mut().zip(Reg::CALLEE_SAVED) {
                if *first == u64::MAX && writes(&mut factory, &instruction, number(reg)) {
                    *first = instruction.ip();
                }
            }

            // From instruction to instruction along the code, without jumps: see `after`.
            known = after(&instruction, known, &mut factory);
            reached = instruction.next_ip();
        }

        // Behind what cannot be decoded a write may be missed: a register counts as written from
        // the start.
        for first in &mut code.first_writes {
            if reached < range.end && *first == u64::MAX {
                *first = 0;
            }
        }
        code
    }

    /// `reg` - rsp before the instruction at `address`, bytes, on the path that falls through from
    /// the last instruction that sets `reg` from rsp. `None` if that path changes one of them in
    /// another way than by constants, or does not reach the address.
    pub(super) fn distance(&self, reg: Reg, address: u64) -> Option<i64> {
        if reg == Reg::Rsp {
            return Some(0);
        }
        let at = self
            .distances
            .binary_search_by_key(&address, |d| d.0)
            .ok()?;
        let (_, known) = self.distances.get(at)?;
        let distance = *known.get(number(reg)?)?;
        distance.map(i64::from)
    }

    /// The parts of `range` (svma) that are code, and not padding that nothing executes.
    pub(super) fn without_padding(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let mut at = range.start;
        for padding in &self.padding {
            if padding.start >= range.end {
                break;
            }
            if at < padding.start {
                out.push(at..padding.start);
            }
            at = at.max(padding.end);
        }
        if at < range.end {
            out.push(at..range.end);
        }
        out
    }

    /// Whether an instruction before `address` writes this register. True if the code is not all
    /// there.
    pub(super) fn is_written(&self, reg: Reg, address: u64) -> bool {
        let index = Reg::CALLEE_SAVED.iter().position(|r| *r == reg);
        let first = index.and_then(|i| self.first_writes.get(i));
        first.is_none_or(|&first| first < address)
    }
}

/// The padding of the function at `range` (svma) that nothing executes.
fn padding(file: &File, range: &Range<u64>) -> Vec<Range<u64>> {
    // All of them first: one that comes later may lead back to what looks like padding.
    let jumps = instructions(file, range).filter_map(|insn| {
        let is_near = insn.op0_kind() == OpKind::NearBranch64;
        is_near.then(|| insn.near_branch64())
    });
    let jumps: BTreeSet<u64> = jumps.collect();

    let mut out: Vec<Range<u64>> = Vec::new();
    let mut is_dead = false;
    for insn in instructions(file, range) {
        let (start, end) = (insn.ip(), insn.next_ip());
        // What a jump leads to is executed, and so is what follows it.
        is_dead &= !jumps.contains(&start) && is_padding(&insn);

        if is_dead {
            match out.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => out.push(start..end),
            }
            continue;
        }

        // Only behind what never goes on can there be padding that nothing executes.
        is_dead = matches!(
            insn.flow_control(),
            FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
        );
    }
    out
}

const RSP: usize = 4;
/// The registers that a callee keeps, by the hardware's number: rbx, rbp, r12 to r15.
const KEPT: [usize; 6] = [3, 5, 12, 13, 14, 15];

/// The hardware's number of a general register.
fn number(reg: Reg) -> Option<usize> {
    Some(match reg {
        Reg::Rax => 0,
        Reg::Rcx => 1,
        Reg::Rdx => 2,
        Reg::Rbx => 3,
        Reg::Rsp => RSP,
        Reg::Rbp => 5,
        Reg::Rsi => 6,
        Reg::Rdi => 7,
        Reg::R8 => 8,
        Reg::R9 => 9,
        Reg::R10 => 10,
        Reg::R11 => 11,
        Reg::R12 => 12,
        Reg::R13 => 13,
        Reg::R14 => 14,
        Reg::R15 => 15,
        _ => return None,
    })
}

/// The distances after the instruction, if they were `known` before.
fn after(
    instruction: &Instruction,
    mut known: Distances,
    factory: &mut InstructionInfoFactory,
) -> Distances {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch => {}
        // A callee returns with the same rsp and the registers that it keeps.
        FlowControl::Call | FlowControl::IndirectCall => {
            for (register, distance) in known.iter_mut().enumerate() {
                if !KEPT.contains(&register) {
                    *distance = None;
                }
            }
            return known;
        }
        // What follows is reached from elsewhere.
        _ => return [None; 16],
    }

    // Read before the registers that are written are forgotten: a copy's source may be one of them.
    let copy = copied(instruction, &known);
    let step = match copy {
        // `mov %rbp, %rsp`: rsp moves to where the other register is.
        Some((RSP, distance)) => Some(distance),
        _ => step(instruction),
    };

    // The registers are looked up before any is forgotten.
    let moves_rsp = writes(factory, instruction, Some(RSP));
    let written: Vec<usize> = (0..known.len())
        .filter(|&register| register != RSP && writes(factory, instruction, Some(register)))
        .collect();
    for register in written {
        known[register] = None;
    }

    // If rsp moves, all distances from it change by the same number.
    if moves_rsp {
        for distance in &mut known {
            *distance = distance.zip(step).and_then(|(d, step)| d.checked_sub(step));
        }
    }

    if let Some((register, distance)) = copy.filter(|(register, _)| *register != RSP) {
        known[register] = Some(distance);
    }
    known
}

/// The register that gets a constant distance from rsp, and the distance: `mov` or `lea` from rsp
/// or from a register whose distance is known.
fn copied(instruction: &Instruction, known: &Distances) -> Option<(usize, i32)> {
    let distance = |register: Register| match register {
        Register::RSP => Some(0),
        _ if register.is_gpr64() => *known.get(register.number())?,
        _ => None,
    };
    let to = instruction.op0_register();
    if !to.is_gpr64() || instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let distance = match instruction.mnemonic() {
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
            distance(instruction.op1_register())?
        }
        Mnemonic::Lea if instruction.memory_index() == Register::None => {
            let offset = instruction.memory_displacement64().cast_signed();
            let offset = i32::try_from(offset).ok()?;
            distance(instruction.memory_base())?.checked_add(offset)?
        }
        _ => return None,
    };
    Some((to.number(), distance))
}

/// What the instruction adds to rsp, bytes, if that is a constant.
fn step(instruction: &Instruction) -> Option<i32> {
    let first_is_rsp = instruction.op0_register() == Register::RSP;
    let has_immediate = instruction.op_count() == 2 && instruction.op1_kind() != OpKind::Register;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq if !first_is_rsp => {
            Some(instruction.stack_pointer_increment())
        }
        Mnemonic::Add if first_is_rsp && has_immediate => immediate(instruction),
        Mnemonic::Sub if first_is_rsp && has_immediate => immediate(instruction)?.checked_neg(),
        _ => None,
    }
}

fn immediate(instruction: &Instruction) -> Option<i32> {
    match instruction.op1_kind() {
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => {
            i32::try_from(instruction.immediate(1).cast_signed()).ok()
        }
        _ => None,
    }
}

/// Whether the instruction writes the general register with this number.
fn writes(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    number: Option<usize>,
) -> bool {
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        let is_read = matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
        );
        let register = used.register().full_register();
        !is_read && register.is_gpr64() && Some(register.number()) == number
    })
}

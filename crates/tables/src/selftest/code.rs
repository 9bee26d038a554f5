//! The instructions of functions, in order, as far as the arguments for equivalence need them.

use crate::file::File;
use crate::proof::claims::Claims;
use crate::proof::no_return;
use crate::proof::program::Program;
use hashbrown::{HashMap, HashSet};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use std::ops::Range;
use unwind_sim_unwind::regs::RegMask;

/// The maximum length of a function into which defects are put, bytes.
pub(super) const BYTES_MAX: u64 = 1 << 16;

/// A function's instructions, decoded in order from its first byte.
pub(super) struct FunctionCode {
    pub(super) insns: Vec<Instruction>,
    /// Whether jumps may lead to it that no instruction names: landing pads, jump tables.
    pub(super) has_hidden_jumps: bool,
    /// What its rows claim.
    pub(super) claims: Claims,
    /// The registers that a call in it gives back. Whom it calls is not asked: functions of its own
    /// convention keep the fewest.
    pub(super) preserved: RegMask,
    /// Where (svma) calls are whose callees never return, as their names say.
    pub(super) final_calls: HashSet<u64>,
}

impl FunctionCode {
    pub(super) fn read(program: &Program<'_>, range: &Range<u64>, has_pads: bool) -> FunctionCode {
        let mut insns = decode(program.file, range);
        // A jump table behind the code decodes as instructions that nothing executes.
        if let Some(table) = table_at_end(program.file, range, &insns) {
            // Zeros before the table are its alignment.
            insns.truncate(insns.partition_point(|insn| insn.ip() < table));
            let zeros = |insn: &Instruction| {
                let len = insn.next_ip().min(table) - insn.ip();
                let bytes = program.file.bytes(insn.ip()).iter().take(len as usize);
                bytes.copied().all(|byte| byte == 0)
            };
            while insns.last().is_some_and(zeros) {
                insns.pop();
            }
        }

        let (convention, _) = program.convention(range.start);
        let is_final = |insn: &&Instruction| {
            let is_call = insn.flow_control() == FlowControl::Call;
            let callee = target(insn).filter(|_| is_call);
            callee.is_some_and(|at| program.file.names_at(at).any(no_return::is_known))
        };

        let final_calls = insns.iter().filter(is_final);
        let indirect = |insn: &Instruction| insn.flow_control() == FlowControl::IndirectBranch;

        // A landing pad is a jump that no instruction shows.
        FunctionCode {
            has_hidden_jumps: has_pads || insns.iter().any(indirect),
            claims: program.claims(range.start),
            preserved: convention.preserves(),
            final_calls: final_calls.map(Instruction::ip).collect(),
            insns,
        }
    }

    /// Whether the instruction behind this one is not reached from it.
    pub(super) fn ends_way(&self, insn: &Instruction) -> bool {
        ends_way(insn) || self.final_calls.contains(&insn.ip())
    }

    /// The number of the first instruction behind which a jump may lead to any other: a function
    /// does nothing before it but what its first instructions say, one after the other.
    pub(super) fn first_branch(&self) -> usize {
        let mut insns = self.insns.iter();
        let next = |insn: &Instruction| insn.flow_control() == FlowControl::Next;
        insns
            .position(|insn| !next(insn))
            .unwrap_or(self.insns.len())
    }
}

fn decode(file: &File, range: &Range<u64>) -> Vec<Instruction> {
    let length = range.end.saturating_sub(range.start).min(BYTES_MAX);
    let length = usize::try_from(length).unwrap_or(0);
    let bytes = file.bytes(range.start);
    let bytes = &bytes[..bytes.len().min(length)];
    Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE)
        .into_iter()
        .collect()
}

/// Where (svma) the function of these instructions ends in a jump table, which a code generator without a
/// section for constants puts behind the code: the function takes its address, it leads back into the
/// function, and no instruction jumps behind it.
fn table_at_end(file: &File, range: &Range<u64>, insns: &[Instruction]) -> Option<u64> {
    let last_target = insns.iter().filter_map(target);
    let last_target = last_target.filter(|at| range.contains(at)).max();
    let taken = insns
        .iter()
        .filter(|insn| insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand())
        .map(Instruction::ip_rel_memory_address);
    let leads_back = |&table: &u64| {
        let entry = file.bytes(table).first_chunk().copied();
        let way = entry.map(|e| table.wrapping_add_signed(i32::from_le_bytes(e).into()));
        way.is_some_and(|to| (range.start..table).contains(&to))
    };
    taken
        .filter(|table| range.contains(table) && last_target.is_none_or(|last| last < *table))
        .filter(leads_back)
        .min()
}

/// Where an instruction jumps to, if it says so itself.
pub(super) fn target(insn: &Instruction) -> Option<u64> {
    let jumps = matches!(
        insn.flow_control(),
        FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::Call
            | FlowControl::XbeginXabortXend
    );
    (jumps && insn.op0_kind() == OpKind::NearBranch64).then(|| insn.near_branch64())
}

/// How often instructions jump to or call each address (svma).
pub(super) type Targets = HashMap<u64, u32>;

/// All addresses (svma) that instructions of the program jump to or call.
pub(super) fn targets(program: &Program<'_>) -> Targets {
    let mut targets = Targets::new();
    for function in &program.functions {
        let insns = decode(program.file, &function.range);
        for target in insns.iter().filter_map(target) {
            *targets.entry(target).or_default() += 1;
        }
    }
    targets
}

/// Whether the instruction behind this one is not reached from it.
pub(super) fn ends_way(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    ) || insn.mnemonic() == Mnemonic::Hlt
}

/// Whether an instruction only fills space between two functions or blocks.
pub(super) fn is_filler(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3)
        || insn.mnemonic() == Mnemonic::Xchg
            && insn.op0_kind() == OpKind::Register
            && insn.op1_kind() == OpKind::Register
            && insn.op0_register() == insn.op1_register()
}

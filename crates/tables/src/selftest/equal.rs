//! Whether changed rows are as right as those that they replace, by arguments that do not use the
//! proof.

use super::code::{FunctionCode, Targets, ends_way, is_filler};
use super::machine::Machine;
use super::unwritten::is_unwritten;
use crate::random::Random;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess};
use std::ops::Range;
use unwind_sim_unwind::cache::NewRow;
use unwind_sim_unwind::regs::{Reg, RegMask};
use unwind_sim_unwind::rule::{Rule, Value};

/// The number of stacks, each elsewhere and with another alignment, on which two rules must agree.
const STACKS: u64 = 8;

/// Why a defect is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Argument {
    /// No instruction starts where the rules differ, so no pc lies there.
    NoInstruction,
    /// The rules differ only at padding behind a jump, return, trap or call that never returns (as the
    /// callee's name says), to which no instruction of the program jumps.
    Padding,
    /// Executed on numbers, from a state for which the original row is right and of which all else
    /// is random, the instructions lead to states for which both rows are right. The way begins
    /// where ways meet: at the targets of jumps, and, if landing pads or a jump table may lead
    /// anywhere behind the function's first branch, at every instruction there but those behind a
    /// `pop` or `leave`, which belong to one way out.
    SameFrame,
    /// The rules differ only in the CFA's register. They agree at the row's first instruction (as
    /// in [`Argument::SameFrame`]), nothing jumps into the row from elsewhere, and no instruction
    /// in it writes one of the registers.
    SameRegister,
    /// The changed row says that a register is unchanged, and no instruction from which the row
    /// can be reached writes it.
    Unwritten,
}

impl Argument {
    /// All arguments.
    pub const ALL: [Argument; 5] = [
        Argument::NoInstruction,
        Argument::Padding,
        Argument::SameFrame,
        Argument::SameRegister,
        Argument::Unwritten,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Argument::NoInstruction => "no-instruction",
            Argument::Padding => "padding",
            Argument::SameFrame => "same-frame",
            Argument::SameRegister => "same-register",
            Argument::Unwritten => "unwritten",
        }
    }
}

/// The rule for `pc` in rows up to `end`.
pub(super) fn rule_at(rows: &[NewRow], end: u64, pc: u64) -> Option<&Rule> {
    let after = rows.partition_point(|row| row.start <= pc);
    let row = rows.get(after.checked_sub(1)?)?;
    (pc < end).then_some(&row.rule)
}

/// A function, with its right rows and with changed ones.
pub(super) struct MutatedFunction<'a> {
    pub(super) code: &'a FunctionCode,
    /// The function's addresses (svma).
    pub(super) range: Range<u64>,
    pub(super) right: &'a [NewRow],
    pub(super) changed: &'a [NewRow],
    /// Where the changed rows end (svma).
    pub(super) changed_end: u64,
    /// All addresses that the program's instructions jump to.
    pub(super) targets: &'a Targets,
}

impl MutatedFunction<'_> {
    /// Whether the rows differ at `pc` (svma).
    pub(super) fn differs_at(&self, pc: u64) -> bool {
        let right = rule_at(self.right, self.range.end, pc);
        rule_at(self.changed, self.changed_end, pc) != right
    }

    /// Why the changed rows are right, if that can be shown.
    pub(super) fn argument(&self, seed: u64) -> Option<Argument> {
        // Only instructions at which the rules differ can show a difference.
        let insns = self.code.insns.iter().enumerate();
        let mut touched: Vec<usize> = insns
            .filter(|(_, insn)| self.differs_at(insn.ip()))
            .map(|(index, _)| index)
            .collect();
        if touched.is_empty() {
            return Some(Argument::NoInstruction);
        }

        touched.retain(|&index| !self.is_padding(index));
        if touched.is_empty() {
            return Some(Argument::Padding);
        }

        let mut random = Random::new(seed);
        // On several random stacks: on one, a wrong rule might be right by accident.
        if (0..STACKS).all(|_| self.same_frame(&touched, &mut random)) {
            return Some(Argument::SameFrame);
        }

        if is_unwritten(self, &touched) {
            return Some(Argument::Unwritten);
        }

        let first = touched.get(..1)?;

        // A row that tells the CFA by another register is right as long as both are kept.
        let same = self.keeps_registers(&touched)
            && (0..STACKS).all(|_| self.same_frame(first, &mut random));
        same.then_some(Argument::SameRegister)
    }

    /// Whether instruction `index` is padding that nothing reaches.
    fn is_padding(&self, index: usize) -> bool {
        let insns = self.code.insns.get(..=index).unwrap_or(&[]);
        if !insns.last().is_some_and(is_filler) {
            return false;
        }
        for insn in insns.iter().rev() {
            if !is_filler(insn) {
                return self.code.ends_way(insn);
            }
            if self.targets.contains_key(&insn.ip()) || insn.ip() == self.range.start {
                return false;
            }
        }
        false
    }

    /// Whether both rules are right at the instructions `touched`, on one random stack.
    fn same_frame(&self, touched: &[usize], random: &mut Random) -> bool {
        let (Some(&first), Some(&last)) = (touched.first(), touched.last()) else {
            return true;
        };

        let mut info = InstructionInfoFactory::new();
        let branch = self.code.first_branch();

        // Nothing before the last place where ways meet matters.
        let begin = (0..=first)
            .rev()
            .find(|&i| self.is_meeting(i, branch))
            .unwrap_or(0);

        let mut machine: Option<Machine> = None;
        for index in begin..=last {
            let Some(insn) = self.code.insns.get(index) else {
                return false;
            };

            let right = rule_at(self.right, self.range.end, insn.ip());
            // Where ways meet, all that is known is what the right rule says.
            if self.is_meeting(index, branch) || machine.is_none() {
                machine = right.and_then(|rule| Machine::new(rule, random));
            }

            if touched.binary_search(&index).is_ok() {
                let changed = rule_at(self.changed, self.changed_end, insn.ip());
                let (Some(machine), Some(right), Some(changed)) = (&machine, right, changed) else {
                    return false;
                };
                if !machine.is_right(changed, right, &self.code.claims) {
                    return false;
                }
            }

            if let Some(machine) = &mut machine {
                machine.step(insn, self.code.preserved, &mut info);
            }
        }

        true
    }

    /// Whether other ways than from the instruction before may lead to instruction `index`.
    fn is_meeting(&self, index: usize, first_branch: usize) -> bool {
        let Some(insn) = self.code.insns.get(index) else {
            return true;
        };
        let before = index.checked_sub(1).and_then(|i| self.code.insns.get(i));
        self.targets.contains_key(&insn.ip())
            || before.is_none_or(ends_way)
            || self.code.has_hidden_jumps
                && index > first_branch
                && !before.is_some_and(|b| matches!(b.mnemonic(), Mnemonic::Pop | Mnemonic::Leave))
    }

    /// Whether the rules differ only in the CFA's register, and the instructions `touched`, a row,
    /// keep both registers and are reached only from its first.
    fn keeps_registers(&self, touched: &[usize]) -> bool {
        let whole = touched
            .windows(2)
            .all(|w| matches!(w, [a, b] if a + 1 == *b));
        let insns = touched
            .iter()
            .filter_map(|&index| self.code.insns.get(index));
        let entered = |insn: &Instruction| self.targets.contains_key(&insn.ip());
        if !whole || self.code.has_hidden_jumps || insns.clone().skip(1).any(entered) {
            return false;
        }

        let mut info = InstructionInfoFactory::new();
        let mut kept = insns.map(|insn| {
            let right = rule_at(self.right, self.range.end, insn.ip())?;
            let changed = rule_at(self.changed, self.changed_end, insn.ip())?;
            let same = Rule {
                cfa: right.cfa,
                ..*changed
            };
            if same != *right {
                return None;
            }
            let registers = [base(right.cfa)?, base(changed.cfa)?];
            Some(!ends_way(insn) && !writes(insn, registers, self.code.preserved, &mut info))
        });

        // The last instruction may do what it likes: the row ends behind it.
        let count = touched.len().saturating_sub(1);
        kept.by_ref().take(count).all(|kept| kept == Some(true))
    }
}

fn base(value: Value) -> Option<Reg> {
    match value {
        Value::Offset { .. } => value.base_reg(),
        _ => None,
    }
}

/// Whether an instruction writes one of the registers. A call gives rsp and those `preserved` back.
pub(super) fn writes(
    insn: &Instruction,
    registers: [Reg; 2],
    preserved: RegMask,
    info: &mut InstructionInfoFactory,
) -> bool {
    use iced_x86::FlowControl as F;
    if matches!(insn.flow_control(), F::Call | F::IndirectCall) {
        let is_kept = |reg: &Reg| *reg == Reg::Rsp || preserved.contains(*reg);
        return !registers.iter().all(is_kept);
    }
    let used = info.info(insn).used_registers();
    used.iter().any(|used| {
        let read = matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
        let whole = used.register().full_register();
        let register = whole
            .is_gpr64()
            .then(|| Reg::BY_NUMBER[whole.number() & 15]);
        !read && register.is_some_and(|register| registers.contains(&register))
    })
}

//! String instructions: how often they are executed, in what direction, and what that makes of rsi, rdi
//! and rcx.

use super::other::is_repeated;
use crate::proof::state::{Direction, State};
use crate::proof::value::Value;
use iced_x86::{Instruction, Mnemonic, OpKind};
use unwind_sim_unwind::regs::Reg;

/// The maximum number of words that are copied or stored one by one.
const WORDS_MAX: i32 = 64;

/// A string instruction of which is known how often it is executed, and in what direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StringRun {
    /// The size of what it works on at once, bytes.
    size: i32,
    /// How far it moves rsi and rdi, bytes.
    pub(super) all: i32,
}

impl StringRun {
    /// What is known of `insn`; `None` if it may be executed more or less often, or in the other direction,
    /// or goes by other registers than rsi, rdi and rcx.
    pub(super) fn of(insn: &Instruction, state: &State) -> Option<StringRun> {
        let uses = |kind| insn.op_kinds().any(|k| k == kind);
        if !uses(OpKind::MemoryESRDI) && !uses(OpKind::MemorySegRSI) {
            return None;
        }
        let size = i32::try_from(insn.memory_size().size()).ok()?;
        let step = match state.direction {
            Direction::Up => size,
            Direction::Down => -size,
            Direction::Unknown => return None,
        };
        let count = match state.reg(Reg::Rcx) {
            _ if !is_repeated(insn) => 1,
            // The others may end earlier.
            Value::Const(count @ 0..) if StringRun::copies(insn) || StringRun::stores(insn) => {
                count
            }
            _ => return None,
        };
        let all = step.checked_mul(count)?;
        Some(StringRun { size, all })
    }

    /// Whether it copies memory.
    pub(super) fn copies(insn: &Instruction) -> bool {
        insn.op0_kind() == OpKind::MemoryESRDI && insn.op1_kind() == OpKind::MemorySegRSI
            || is(
                insn,
                [
                    Mnemonic::Movsb,
                    Mnemonic::Movsw,
                    Mnemonic::Movsd,
                    Mnemonic::Movsq,
                ],
            )
    }

    /// Whether it stores rax, or a part of it.
    fn stores(insn: &Instruction) -> bool {
        is(
            insn,
            [
                Mnemonic::Stosb,
                Mnemonic::Stosw,
                Mnemonic::Stosd,
                Mnemonic::Stosq,
            ],
        )
    }

    /// Where its bytes begin if it begins at the stack address `at`, and how many they are.
    pub(super) fn extent(self, at: Value) -> Option<(Value, u32)> {
        let low = if self.all < 0 {
            i64::from(self.all) + i64::from(self.size)
        } else {
            0
        };
        let low = at.plus(low);
        (at.is_stack() && low.is_stack()).then_some((low, self.all.unsigned_abs()))
    }

    /// Whether it works on whole words, and on few.
    pub(super) fn is_by_words(self) -> bool {
        self.size == 8 && self.all.abs() <= WORDS_MAX * 8
    }

    /// How far from where it begins each word is, bytes.
    pub(super) fn steps(self) -> impl Iterator<Item = i64> {
        let step = i64::from(self.size * self.all.signum());
        let count = i64::from(self.all / self.size).abs();
        (0..count).map(move |n| n * step)
    }

    /// Changes the registers that it goes by from what they were before.
    pub(super) fn advance(self, insn: &Instruction, before: [Value; 2], state: &mut State) {
        let kinds = [OpKind::MemorySegRSI, OpKind::MemoryESRDI];
        for ((reg, kind), before) in [Reg::Rsi, Reg::Rdi].into_iter().zip(kinds).zip(before) {
            if insn.op_kinds().any(|k| k == kind) {
                state.set(reg, before.plus(self.all.into()));
            }
        }
        if is_repeated(insn) {
            state.set(Reg::Rcx, Value::Const(0));
        }
    }
}

fn is(insn: &Instruction, mnemonics: [Mnemonic; 4]) -> bool {
    mnemonics.contains(&insn.mnemonic())
}

//! Shows a claim that is wrong only on a way that may not exist: that way, and where it parts from others.

use super::rows::Rows;
use super::{Part, Walker};
use crate::file::File;
use crate::proof::claim::Subject;
use crate::proof::exec::GuessedStore;
use crate::proof::value::Value;
use crate::proof::verdict::{Fork, Guess};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base};

/// The maximum number of instructions of a way that are looked at.
const WAY_MAX: usize = 1 << 16;

impl Walker<'_, '_> {
    /// Finds for each guess what would overwrite the slot, and where its way parts from others.
    pub(super) fn explain_guesses(&mut self) {
        let Some(entry) = self.parts.first().map(|part| part.body.range.start) else {
            return;
        };
        let (file, stores) = (self.program.file, &self.machine.guessed_stores);
        for part in &mut self.parts {
            let mut guesses = std::mem::take(&mut part.verdict.guesses);
            for guess in &mut guesses {
                explain(file, entry, guess, slot(part, guess), stores);
            }
            part.verdict.guesses = guesses;
        }
    }
}

/// The slot (an offset from rsp at entry, bytes) that the row names for the guess's claim, if it is in the
/// frame at a known distance.
fn slot(part: &Part<'_>, guess: &Guess) -> Option<i32> {
    let claim = guess.claim.as_ref()?;
    let of_table = |rows: &&Rows<'_>| rows.table.kind() == claim.table;
    let rows = &part.rows.iter().find(of_table)?.rows;
    let rule = rows.iter().find(|row| row.start == claim.row)?.rule;
    let value = match claim.subject {
        Subject::ReturnAddress => rule.ra,
        Subject::Register(reg) => {
            rule.saved[Reg::CALLEE_SAVED.iter().position(|&saved| saved == reg)?]
        }
        Subject::Cfa | Subject::Sp | Subject::Row => return None,
    };
    match value {
        rule::Value::Load {
            base: Base::Cfa,
            offset,
            ..
        } => offset.checked_add(8),
        _ => None,
    }
}

fn explain(file: &File, entry: u64, guess: &mut Guess, slot: Option<i32>, stores: &[GuessedStore]) {
    let is_overwritten = matches!(&guess.claim, Some(claim) if claim.found == Value::Guessed);
    let mut last = None;
    for (insn, fork) in way(file, entry, guess) {
        match fork {
            // The address of an indirect jump, and what traps, is what was guessed.
            Some(fork)
                if is_overwritten || insn.flow_control() != FlowControl::ConditionalBranch =>
            {
                last = Some(fork);
            }
            _ => {}
        }
        if is_overwritten && stores.iter().any(|store| store.may_be(insn.ip(), slot)) {
            (guess.store, guess.fork) = (Some(insn.ip()), last);
        }
    }
    if !is_overwritten {
        guess.fork = last;
    }
}

/// The instructions on the guess's way from `entry` (svma), each with the fork that it is. Nothing if they do
/// not lead there one after the other.
fn way(file: &File, entry: u64, guess: &Guess) -> Vec<(Instruction, Option<Fork>)> {
    let mut way = Vec::new();
    let mut at = entry;
    for &(from, to) in &guess.path {
        let Some(insn) = straight(file, at, from, &mut way) else {
            return Vec::new();
        };
        way.push((insn, jumped(&insn, to)));
        at = to;
    }
    match straight(file, at, guess.pc, &mut way) {
        Some(_) => way,
        None => Vec::new(),
    }
}

/// Adds the instructions from `at` up to the one at `end` (svma), which is returned.
fn straight(
    file: &File,
    at: u64,
    end: u64,
    way: &mut Vec<(Instruction, Option<Fork>)>,
) -> Option<Instruction> {
    let decoder = Decoder::with_ip(64, file.bytes(at), at, DecoderOptions::NONE);
    for insn in decoder {
        if insn.ip() == end {
            return Some(insn);
        }
        if insn.ip() > end || insn.is_invalid() || way.len() >= WAY_MAX {
            return None;
        }
        let fork = (insn.flow_control() == FlowControl::ConditionalBranch).then(|| Fork {
            at: insn.ip(),
            to: insn.next_ip(),
            other: Some(insn.near_branch_target()),
        });
        way.push((insn, fork));
    }
    None
}

/// The fork that `insn` is on a way that it continues at `to`.
fn jumped(insn: &Instruction, to: u64) -> Option<Fork> {
    let other = match insn.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::Call | FlowControl::IndirectCall => {
            return None;
        }
        FlowControl::IndirectBranch => None,
        // A conditional jump, or what may trap.
        _ => Some(insn.next_ip()),
    };
    let at = insn.ip();
    Some(Fork { at, to, other })
}

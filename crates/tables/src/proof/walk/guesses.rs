//! Claims that are wrong only on a way that may not exist: that way, and where it parts from others.

use super::rows::{Rows, path};
use super::{FunctionWalk, Jump, Walker};
use crate::file::File;
use crate::proof::claim::Subject;
use crate::proof::exec::GuessedStore;
use crate::proof::value::Value;
use crate::proof::verdict::{Fork, GUESSES_MAX, Guess, GuessedClaim};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{self, Base};

/// The maximum number of instructions of a way that are looked at.
const WAY_MAX: usize = 1 << 16;

/// What was found in a part: the first of each register on each way.
#[derive(Default)]
pub(super) struct Guesses(Vec<GuessSite>);

/// A claim where it was found to be wrong.
struct GuessSite {
    /// `None` if the frame does not fit the row at all.
    claim: Option<GuessedClaim>,
    pc: u64,
    trail: Option<u32>,
    /// The instruction behind the trail that may trap, and the landing pad.
    trap: Option<(u64, u64)>,
}

impl Guesses {
    /// A claim that is wrong at `pc` (svma).
    pub(super) fn add(&mut self, claim: GuessedClaim, pc: u64, trail: Option<u32>) {
        let is_same = |seen: &GuessSite| {
            let same_claim =
                |c: &GuessedClaim| (c.table, c.subject) == (claim.table, claim.subject);
            seen.trail == trail
                && seen.trap.is_none()
                && seen.claim.as_ref().is_some_and(same_claim)
        };
        if self.0.len() < GUESSES_MAX && !self.0.iter().any(is_same) {
            self.0.push(GuessSite {
                claim: Some(claim),
                pc,
                trail,
                trap: None,
            });
        }
    }

    /// The instruction at `from` may trap, but the frame does not fit at `pad` (svma).
    pub(super) fn add_trap(&mut self, from: u64, pad: u64, trail: Option<u32>) {
        if self.0.len() < GUESSES_MAX {
            self.0.push(GuessSite {
                claim: None,
                pc: pad,
                trail,
                trap: Some((from, pad)),
            });
        }
    }
}

impl Walker<'_, '_> {
    /// Finds for each guess what would overwrite the slot, and where its way parts from others.
    pub(super) fn explain_guesses(&mut self) {
        let Some(entry) = self.parts.first().map(|part| part.body.range.start) else {
            return;
        };
        let (file, stores) = (self.program.file, &self.machine.guessed_stores);
        for part in &mut self.parts {
            for seen in std::mem::take(&mut part.guesses).0 {
                let slot = seen.claim.as_ref().and_then(|claim| slot(part, claim));
                let guess = explain(file, entry, seen.of(&self.jumps), slot, stores);
                part.verdict.guess(guess);
            }
        }
    }
}

impl GuessSite {
    fn of(self, jumps: &[Jump]) -> Guess {
        let mut path = path(jumps, self.trail);
        path.extend(self.trap);
        Guess {
            claim: self.claim,
            pc: self.pc,
            path,
            store: None,
            fork: None,
        }
    }
}

/// The slot (an offset from rsp at entry, bytes) that the row names for the claim, if it is in the
/// frame at a known distance.
fn slot(part: &FunctionWalk<'_>, claim: &GuessedClaim) -> Option<i32> {
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

fn explain(
    file: &File,
    entry: u64,
    mut guess: Guess,
    slot: Option<i32>,
    stores: &[GuessedStore],
) -> Guess {
    let is_overwritten = matches!(&guess.claim, Some(claim) if claim.found == Value::Guessed);
    let mut last = None;
    for (insn, fork) in way(file, entry, &guess) {
        // The address of an indirect jump, and what traps, is what was guessed.
        let is_condition = insn.flow_control() == FlowControl::ConditionalBranch;
        if fork.is_some() && (is_overwritten || !is_condition) {
            last = fork;
        }
        if is_overwritten && stores.iter().any(|store| store.may_be(insn.ip(), slot)) {
            (guess.store, guess.fork) = (Some(insn.ip()), last);
        }
    }
    if !is_overwritten {
        guess.fork = last;
    }
    guess
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

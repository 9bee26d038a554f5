//! Rows that say that there is no caller, in functions that return to one.
//!
//! That a function has no caller cannot be told from its code. But if it returns to the address that was
//! on top of the stack when it was entered, it had one at each instruction, on whatever way.

use super::rows::{Rows, path};
use super::{FunctionWalk, Walker};
use crate::proof::claim::Subject;
use crate::proof::derive;
use crate::proof::program::Entry;
use crate::proof::returning;
use crate::proof::state::State;
use crate::proof::value::Value;
use crate::proof::verdict::Contradiction;
use iced_x86::{FlowControl, Instruction, OpKind};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, RuleKind};

/// Such a row at an instruction at which the return address is still where it was at entry.
pub(super) struct OutermostRow {
    /// The number of the row.
    row: usize,
    pc: u64,
    sp: Value,
    right: Option<Rule>,
    trail: Option<u32>,
}

impl OutermostRow {
    /// Row number `row` at `pc` (svma). `None` if the return address is not there, as on another stack.
    pub(super) fn new(
        row: usize,
        pc: u64,
        state: &State,
        trail: Option<u32>,
    ) -> Option<OutermostRow> {
        let sp = state.reg(Reg::Rsp);
        let is_there = sp.is_stack() && state.load(Value::frame(0), 8) == Value::ReturnAddress;
        (is_there && !state.is_dead && !state.is_guessed).then(|| OutermostRow {
            row,
            pc,
            sp,
            right: derive::rule(state),
            trail,
        })
    }
}

/// The maximum number of returns of a function that are kept.
const RETURNS_MAX: usize = 16;

/// A return to the address that the function was entered with.
pub(super) struct ReturnSite {
    /// Where it is (svma).
    pc: u64,
    trail: Option<u32>,
    has_called: bool,
    /// The function (svma) that it jumps to at its end, which returns for it.
    through: Option<u64>,
}

impl Walker<'_, '_> {
    /// The function returns at `pc` (svma) to the address that it was entered with, or jumps to one that
    /// does.
    pub(super) fn returns_to_caller(
        &mut self,
        pc: u64,
        through: Option<u64>,
        state: &State,
        trail: Option<u32>,
    ) {
        if state.is_dead || state.is_guessed || self.returns_at.len() >= RETURNS_MAX {
            return;
        }
        self.returns_at.push(ReturnSite {
            pc,
            trail,
            has_called: state.has_called,
            through,
        });
    }

    /// Contradicts the rows that say that there is no caller, if there is one: if it is sure, or if other rows
    /// of the table, at the entry and at a return, have one. The stubs of a procedure linkage table always
    /// have one.
    pub(super) fn report_outermost(&mut self) {
        let has_any = |rows: &Rows<'_>| !rows.outermost.is_empty();
        if !self.parts.iter().any(|part| part.rows.iter().any(has_any)) {
            return;
        }

        // The first part is the function itself.
        let program = self.program;
        let unit = &program.functions[self.parts[0].function];
        let entry = unit.range.start;
        let returns = std::mem::take(&mut self.returns_at);

        let is_sure = match unit.entry {
            Entry::Plt => true,
            Entry::Call if !program.is_start(entry) => {
                returns.iter().any(|way| self.surely_had_caller(way))
            }
            _ => return,
        };

        // Each table is asked by itself: one of them may be right.
        for part in 0..self.parts.len() {
            for number in 0..self.parts[part].rows.len() {
                let table = self.parts[part].rows[number].number;
                let returns = returns.iter().filter(|way| {
                    let through = way.through;
                    through.is_none_or(|target| program.surely_returns(target))
                });
                let mut ends = returns.map(|way| way.pc);
                // A first function of a thread whose author says so behind its first instructions has no
                // caller at its end either.
                if is_sure
                    || self.has_caller_at(table, entry)
                        && ends.any(|pc| self.has_caller_at(table, pc))
                {
                    self.contradict_outermost(part, number);
                }
            }
        }
    }

    /// Whether it is known that the function had a caller to return to. A call on the way, or what it jumps
    /// to at its end, may never return, as in the first function of a thread; then something has to call
    /// the function.
    fn surely_had_caller(&mut self, way: &ReturnSite) -> bool {
        let program = self.program;
        let entry = program.functions[self.parts[0].function].range.start;
        let is_called = program.references().has_call(entry)
            || program.file.names_at(entry).any(|name| name == "main");
        if is_called {
            return true;
        }

        let through = way.through;
        if let Some(target) = through.filter(|&target| !program.surely_returns(target)) {
            self.wait_for(vec![target]);
            return false;
        }
        !way.has_called || self.all_return(entry, way.pc, way.trail)
    }

    /// What is not known of these functions (svma) yet may be known in the next round.
    fn wait_for(&mut self, callees: Vec<u64>) {
        if self.awaited.is_empty() {
            self.awaited = callees;
        }
    }

    /// Whether the row of table `number` at `pc` (svma) says where a caller is.
    fn has_caller_at(&mut self, number: usize, pc: u64) -> bool {
        let Some(part) = self.part_at(pc) else {
            return false;
        };
        let mut all = self.parts[part].rows.iter_mut();
        let rows = all.find(|rows| rows.number == number);
        rows.is_some_and(|rows| {
            let row = rows.find(pc).map(|row| rows.rows[row].rule.kind);
            row == Some(RuleKind::Call)
        })
    }

    fn contradict_outermost(&mut self, part: usize, number: usize) {
        let FunctionWalk { rows, verdict, .. } = &mut self.parts[part];
        let rows = &mut rows[number];
        let table = rows.table.kind();

        for seen in std::mem::take(&mut rows.outermost) {
            // The mark is that of a contradicted row.
            let row = rows.rows[seen.row];
            rows.marks[seen.row] |= 1;
            if verdict.contradicts(table, &row, Subject::ReturnAddress) {
                continue;
            }

            verdict.contradictions.push(Contradiction {
                table,
                row: row.start..row.end,
                row_offset: row.offset,
                pc: seen.pc,
                rule: *row.rule,
                subject: Subject::ReturnAddress,
                found: Value::Unknown,
                sp: seen.sp,
                right: seen.right,
                path: path(&self.jumps, seen.trail),
                fits: None,
            });
        }
    }

    /// The name of another file's function that `insn`, a call, goes to.
    fn called_name(&self, insn: &Instruction) -> Option<&str> {
        let file = self.program.file;

        if insn.is_ip_rel_memory_operand() {
            file.import(insn.ip_rel_memory_address())
        } else {
            self.imported(insn)
        }
    }

    /// Whether all functions surely return that are called on the way from `entry` to `pc` (svma).
    fn all_return(&mut self, entry: u64, pc: u64, trail: Option<u32>) -> bool {
        // The way is given by its jumps; the code between two of them is decoded again.
        let program = self.program;
        let way = path(&self.jumps, trail);
        // Between two jumps of the way, one instruction follows the other.
        let starts = [entry].into_iter().chain(way.iter().map(|jump| jump.1));
        let ends = way.iter().map(|jump| jump.0).chain([pc]);

        let mut callees = Vec::new();
        for (first, last) in starts.zip(ends) {
            let Some(part) = self.part_at(first) else {
                return false;
            };

            let mut at = first;
            while at < last {
                let body = &mut self.parts[part].body;
                let insn = body.offset(at).and_then(|o| body.insn(program.file, o));
                let Some(insn) = insn else {
                    return false;
                };

                // Only calls can keep the way from going on.
                match insn.flow_control() {
                    FlowControl::Call | FlowControl::IndirectCall => {
                        match self.called_name(&insn) {
                            Some(name) if returning::is_known(name) => {}
                            None if insn.op0_kind() == OpKind::NearBranch64 => {
                                callees.push(insn.near_branch64());
                            }
                            _ => return false,
                        }
                    }
                    _ => {}
                }
                at = insn.next_ip();
            }
        }

        if callees.iter().all(|&target| program.surely_returns(target)) {
            return true;
        }

        // Asked once more when it is known whether they return.
        self.wait_for(callees);
        false
    }
}

//! Defects: one wrong row, or range, of a function.

use super::code::FunctionCode;
use super::draw::{below, one};
use crate::random::Random;
use std::ops::Range;
use unwind_sim_unwind::cache::NewRow;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, RuleKind, Value};

/// A kind of defect.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The CFA's offset is another.
    CfaOffset,
    /// The CFA is based on another register.
    CfaRegister,
    /// A row is missing: the one before it goes on.
    MissingRow,
    /// A row begins one instruction too early.
    RowEarly,
    /// A row begins one instruction too late.
    RowLate,
    /// A callee-saved register's slot is another.
    WrongSlot,
    /// A saved register is said to be unchanged.
    DroppedSave,
    /// A row keeps a slot that the row before has and it has not.
    DroppedRestore,
    /// The rows are those of another function.
    SwappedFde,
    /// The FDE ends too early.
    ShortenedRange,
}

impl Kind {
    /// All kinds, in the order in which defects are drawn.
    pub const ALL: [Kind; 10] = [
        Kind::CfaOffset,
        Kind::CfaRegister,
        Kind::MissingRow,
        Kind::RowEarly,
        Kind::RowLate,
        Kind::WrongSlot,
        Kind::DroppedSave,
        Kind::DroppedRestore,
        Kind::SwappedFde,
        Kind::ShortenedRange,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::CfaOffset => "cfa-offset",
            Kind::CfaRegister => "cfa-register",
            Kind::MissingRow => "missing-row",
            Kind::RowEarly => "row-early",
            Kind::RowLate => "row-late",
            Kind::WrongSlot => "wrong-slot",
            Kind::DroppedSave => "dropped-save",
            Kind::DroppedRestore => "dropped-restore",
            Kind::SwappedFde => "swapped-fde",
            Kind::ShortenedRange => "shortened-range",
        }
    }
}

/// A function's rows with a defect.
pub(super) struct Defect {
    /// The start (svma) of the row.
    pub(super) row: u64,
    /// The rows of the function, with the defect.
    pub(super) rows: Vec<NewRow>,
    /// Where they end (svma).
    pub(super) end: u64,
}

/// A function as defects are put into it.
pub(super) struct MutationTarget<'a> {
    pub(super) range: Range<u64>,
    pub(super) rows: &'a [NewRow],
    pub(super) code: &'a FunctionCode,
    /// The rows and the start (svma) of another function.
    pub(super) other: (&'a [NewRow], u64),
}

impl MutationTarget<'_> {
    /// A defect of this kind; `None` if the row drawn has no place for it.
    pub(super) fn defect(&self, kind: Kind, random: &mut Random) -> Option<Defect> {
        match kind {
            Kind::CfaOffset => self.in_row(random, |row, random| {
                // Small errors, by words or within one, and some that are far off.
                let by = *one(random, &[8, -8, 16, -16, 24, -24, 1, 4, 64, 4096])?;
                if let Value::Offset { offset, .. } = &mut row.rule.cfa {
                    *offset = offset.checked_add(by)?;
                    return Some(());
                }
                None
            }),
            Kind::CfaRegister => self.in_row(random, |row, random| {
                // rsp and rbp are the usual bases, so they are drawn more often.
                let to = *one(
                    random,
                    &[Reg::Rsp, Reg::Rbp, Reg::Rsp, Reg::Rbp, Reg::Rbx, Reg::R10],
                )?;
                match &mut row.rule.cfa {
                    Value::Offset {
                        base: Base::Reg(reg),
                        ..
                    } if *reg != to => {
                        *reg = to;
                        Some(())
                    }
                    _ => None,
                }
            }),
            Kind::WrongSlot => self.in_row(random, |row, random| {
                let by = *one(random, &[8, -8, 16, -16])?;
                let slot = one_slot(row, random)?;
                if let Value::Load { offset, .. } = slot {
                    *offset = offset.checked_add(by)?;
                }
                Some(())
            }),
            Kind::DroppedSave => self.in_row(random, |row, random| {
                *one_slot(row, random)? = Value::Unspecified;
                Some(())
            }),
            Kind::MissingRow => {
                // Not the first row, without which the function would begin with none.
                let index = self.later_row(random)?;
                let mut rows = self.rows.to_vec();
                let row = rows.remove(index).start;
                Some(self.with(row, rows))
            }
            Kind::RowEarly => self.moved(random, |code, start| {
                let insns = code.insns.iter();
                insns
                    .map(|insn| insn.ip())
                    .take_while(|&at| at < start)
                    .last()
            }),
            Kind::RowLate => self.moved(random, |code, start| {
                let mut insns = code.insns.iter().map(|insn| insn.ip());
                insns.find(|&at| at > start)
            }),
            Kind::DroppedRestore => self.dropped_restore(random),
            Kind::SwappedFde => self.swapped(),
            Kind::ShortenedRange => {
                // The range ends at the start of an instruction.
                let end = one(random, self.code.insns.get(1..)?)?.ip();
                let rows = self.rows.iter().filter(|row| row.start < end);
                Some(Defect {
                    row: end,
                    rows: rows.copied().collect(),
                    end,
                })
            }
        }
    }

    /// Whether the wrong row claims something that is wrong: a register whose rule is left out is
    /// unchanged only if the function has to keep it.
    pub(super) fn is_claimed(&self, kind: Kind, defect: &Defect) -> bool {
        if kind != Kind::DroppedSave {
            return true;
        }
        let right = self.rows.iter().find(|row| row.start == defect.row);
        let wrong = defect.rows.iter().find(|row| row.start == defect.row);
        let Some((right, wrong)) = right.zip(wrong) else {
            return true;
        };
        let dropped = (0..6).filter(|&n| right.rule.saved[n] != wrong.rule.saved[n]);
        dropped
            .into_iter()
            .all(|n| self.code.claims.has(n, wrong.rule.saved[n]))
    }

    fn with(&self, row: u64, rows: Vec<NewRow>) -> Defect {
        Defect {
            row,
            rows,
            end: self.range.end,
        }
    }

    /// A random row but the first.
    fn later_row(&self, random: &mut Random) -> Option<usize> {
        let count = self.rows.len().checked_sub(1).filter(|&count| count > 0)?;
        Some(below(random, count) + 1)
    }

    /// Changes one row that describes a call.
    fn in_row(
        &self,
        random: &mut Random,
        change: impl FnOnce(&mut NewRow, &mut Random) -> Option<()>,
    ) -> Option<Defect> {
        let mut rows = self.rows.to_vec();
        let index = below(random, rows.len());
        let row = rows.get_mut(index)?;
        if row.rule.kind != RuleKind::Call {
            return None;
        }
        change(row, random)?;
        Some(self.with(row.start, rows))
    }

    /// Moves the start of one row, unless it then covers another.
    fn moved(
        &self,
        random: &mut Random,
        to: impl FnOnce(&FunctionCode, u64) -> Option<u64>,
    ) -> Option<Defect> {
        let index = self.later_row(random)?;
        let mut rows = self.rows.to_vec();
        let start = to(self.code, rows.get(index)?.start)?;
        let before = rows.get(index - 1)?.start;
        let after = rows.get(index + 1).map_or(self.range.end, |row| row.start);
        if start <= before || start >= after {
            return None;
        }
        rows.get_mut(index)?.start = start;
        Some(self.with(start, rows))
    }

    fn dropped_restore(&self, random: &mut Random) -> Option<Defect> {
        let index = self.later_row(random)?;
        let mut rows = self.rows.to_vec();
        let before = rows.get(index - 1)?.rule;
        let row = rows.get_mut(index)?;
        if before.kind != RuleKind::Call || row.rule.kind != RuleKind::Call {
            return None;
        }
        let dropped: Vec<usize> = (0..6)
            .filter(|&i| is_slot(before.saved[i]) && is_unchanged(row.rule.saved[i]))
            .collect();
        let reg = *one(random, &dropped)?;
        row.rule.saved[reg] = before.saved[reg];
        let start = row.start;
        Some(self.with(start, rows))
    }

    /// The rows of another function, if they say something else here.
    fn swapped(&self) -> Option<Defect> {
        let (other, start) = self.other;
        let moved = other.iter().map(|row| NewRow {
            start: row.start.wrapping_sub(start).wrapping_add(self.range.start),
            ..*row
        });
        let rows: Vec<NewRow> = moved
            .filter(|row| self.range.contains(&row.start))
            .collect();
        let key = |row: &NewRow| (row.start, row.rule);
        let same = rows.iter().map(key).eq(self.rows.iter().map(key));
        (!same).then(|| self.with(self.range.start, rows))
    }
}

/// A random register of the row that has a slot.
fn one_slot<'a>(row: &'a mut NewRow, random: &mut Random) -> Option<&'a mut Value> {
    let slots: Vec<usize> = (0..6).filter(|&i| is_slot(row.rule.saved[i])).collect();
    let reg = *one(random, &slots)?;
    row.rule.saved.get_mut(reg)
}

fn is_slot(value: Value) -> bool {
    matches!(value, Value::Load { .. })
}

fn is_unchanged(value: Value) -> bool {
    matches!(value, Value::Same | Value::Unspecified)
}

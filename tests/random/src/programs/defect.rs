//! Defects of tables such as real tools have produced, injected into a program's table.

use super::row::{Cfa, Fde, FrameLayout, Gpr, RBP, RSP, Slot, Table};
use crate::random::Random;
use std::collections::HashSet;

/// Kinds of defects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum DefectKind {
    /// The offset of the CFA is wrong.
    CfaOffset,
    /// The base register of the CFA is wrong.
    CfaRegister,
    /// The slot of a register is wrong.
    Slot,
    /// A saved register is described as unchanged.
    Unsaved,
    /// The slots of two registers are swapped.
    Exchanged,
    /// The slot of the return address is wrong.
    ReturnAddress,
    /// A row starts one instruction early.
    Early,
    /// A row starts one instruction late.
    Late,
    /// A row is missing; the previous one continues.
    MissingRow,
    /// The last row is missing.
    MissingEpilogue,
    /// After an early return, the state of its epilogue continues.
    NotRestored,
    /// After an early return, the state of the function's entry is restored.
    WronglyRestored,
    /// The FDE ends early.
    Short,
    /// The FDE starts late.
    LateStart,
    /// The FDE is missing.
    MissingUnit,
    /// The signal frame is not marked.
    NotSignal,
    /// An ordinary function is marked as a signal frame.
    Signal,
    /// All rules except the CFA are those of the function's entry.
    OnlyCfa,
}

impl DefectKind {
    /// All kinds.
    pub const ALL: [DefectKind; 18] = [
        DefectKind::CfaOffset,
        DefectKind::CfaRegister,
        DefectKind::Slot,
        DefectKind::Unsaved,
        DefectKind::Exchanged,
        DefectKind::ReturnAddress,
        DefectKind::Early,
        DefectKind::Late,
        DefectKind::MissingRow,
        DefectKind::MissingEpilogue,
        DefectKind::NotRestored,
        DefectKind::WronglyRestored,
        DefectKind::Short,
        DefectKind::LateStart,
        DefectKind::MissingUnit,
        DefectKind::NotSignal,
        DefectKind::Signal,
        DefectKind::OnlyCfa,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            DefectKind::CfaOffset => "cfa-offset",
            DefectKind::CfaRegister => "cfa-register",
            DefectKind::Slot => "slot",
            DefectKind::Unsaved => "unsaved",
            DefectKind::Exchanged => "exchanged",
            DefectKind::ReturnAddress => "return-address",
            DefectKind::Early => "early-row",
            DefectKind::Late => "late-row",
            DefectKind::MissingRow => "missing-row",
            DefectKind::MissingEpilogue => "missing-epilogue",
            DefectKind::NotRestored => "not-restored",
            DefectKind::WronglyRestored => "wrongly-restored",
            DefectKind::Short => "short-fde",
            DefectKind::LateStart => "late-fde",
            DefectKind::MissingUnit => "missing-fde",
            DefectKind::NotSignal => "not-signal",
            DefectKind::Signal => "signal",
            DefectKind::OnlyCfa => "only-cfa",
        }
    }
}

/// Tries to make a defect that is executed, before taking any defect.
const TRIES: usize = 12;

/// Injects one defect into a table; returns its kind and the new table. `boundaries` are the
/// instructions' addresses, `executed` those that were executed. `None` if no kind that was tried
/// fits.
pub(super) fn inject(
    table: &Table,
    boundaries: &[u64],
    executed: &HashSet<u64>,
    rng: &mut Random,
) -> Option<(DefectKind, Table)> {
    let mut any = None;
    for _ in 0..TRIES {
        let kind = rng.pick(&DefectKind::ALL);
        let mut other = table.clone();
        let at = rng.below(table.0.len());
        if at == 0 {
            // The root has no caller, so nothing in it can be wrong.
            continue;
        }

        // A kind may not fit this unit, or change nothing in it.
        if apply(kind, &mut other, at, boundaries, rng).is_none() || other == *table {
            continue;
        }
        if !moves_cfa(kind, table, &other) && !rng.chance(1, 8) {
            // The registers may well still hold the caller's values.
            continue;
        }

        let is_met = executed.iter().any(|&address| {
            let at = |table: &Table| table.find(address).map(|(u, r)| (u.signal, *r));
            at(table) != at(&other)
        });
        if is_met {
            return Some((kind, other));
        }
        // Better than none: a defect that is never met must not be found, which is tested, too.
        any = any.or(Some((kind, other)));
    }
    any
}

/// For a defect of whole rows: whether it changes a CFA somewhere. True for other kinds.
fn moves_cfa(kind: DefectKind, table: &Table, other: &Table) -> bool {
    let of_rows = matches!(
        kind,
        DefectKind::Early
            | DefectKind::Late
            | DefectKind::MissingRow
            | DefectKind::MissingEpilogue
            | DefectKind::NotRestored
            | DefectKind::WronglyRestored
    );
    let starts = table.0.iter().chain(&other.0).flat_map(|unit| &unit.rows);
    let cfa = |table: &Table, at| table.find(at).map(|(_, row)| row.cfa);
    let moves = |at| match (cfa(table, at), cfa(other, at)) {
        // Another base register with the same offset gives the same CFA (`mov %rsp, %rbp`), and a
        // scratch register that held the CFA still holds it.
        (Some(Cfa::Offset(a, old)), Some(Cfa::Offset(b, new))) => {
            old != new && (a == b || [a, b].iter().all(|base| matches!(*base, RSP | RBP)))
        }
        (Some(Cfa::Load(..)), Some(Cfa::Load(..))) => false,
        (old, new) => old.is_some() != new.is_some(),
    };
    !of_rows || starts.map(|(at, _)| *at).any(moves)
}

/// The first instruction after an address.
fn next(boundaries: &[u64], address: u64) -> Option<u64> {
    let at = boundaries.partition_point(|&b| b <= address);
    boundaries.get(at).copied()
}

fn previous(boundaries: &[u64], address: u64) -> Option<u64> {
    let at = boundaries.partition_point(|&b| b < address);
    boundaries.get(at.checked_sub(1)?).copied()
}

fn apply(
    kind: DefectKind,
    table: &mut Table,
    at: usize,
    boundaries: &[u64],
    rng: &mut Random,
) -> Option<()> {
    let unit = &mut table.0[at];
    let count = unit.rows.len();
    let one = rng.below(count);

    match kind {
        DefectKind::CfaOffset => {
            let by = rng.pick(&[-16, -8, 8, 16, 24]);
            let old = unit.rows[one].1.cfa;
            let (Cfa::Offset(_, offset) | Cfa::Load(_, offset)) = &mut unit.rows[one].1.cfa;
            *offset += by;
            let new = unit.rows[one].1.cfa;
            // Sometimes the rows that follow with the same definition are wrong, too.
            if rng.chance(1, 2) {
                let follow = unit.rows[one + 1..].iter_mut();
                follow
                    .take_while(|(_, row)| row.cfa == old)
                    .for_each(|(_, row)| row.cfa = new);
            }
            // The offset must not become negative.
            match new {
                Cfa::Offset(_, offset) if offset < 0 => None,
                _ => Some(()),
            }
        }
        DefectKind::CfaRegister => {
            let (Cfa::Offset(base, _) | Cfa::Load(base, _)) = &mut unit.rows[one].1.cfa;

            // Any of these but the right one.
            let others: Vec<Gpr> = [RSP, RBP, 3, 12]
                .into_iter()
                .filter(|r| r != base)
                .collect();
            *base = if *base == RSP && rng.chance(2, 3) {
                RBP
            } else {
                rng.pick(&others)
            };

            Some(())
        }
        DefectKind::Slot | DefectKind::Unsaved | DefectKind::Exchanged | DefectKind::OnlyCfa => {
            registers(kind, unit, rng)
        }
        // A rule that names no slot has no offset to be wrong.
        DefectKind::ReturnAddress => {
            let by = rng.pick(&[-16, -8, 8]);
            match &mut unit.rows[one].1.ra {
                Slot::At(offset) | Slot::Load(_, offset) => *offset += by,
                _ => return None,
            }
            Some(())
        }
        DefectKind::Early | DefectKind::Late => {
            // The first row begins with its unit and cannot move.
            let later = one.max(1);
            let start = unit.rows.get(later)?.0;
            let moved = match kind {
                DefectKind::Early => previous(boundaries, start)?,
                _ => next(boundaries, start)?,
            };
            let before = unit.rows[later - 1].0;
            let after = unit.rows.get(later + 1).map_or(unit.range.end, |r| r.0);
            if !(before < moved && moved < after) {
                return None;
            }
            unit.rows[later].0 = moved;
            Some(())
        }
        // The first row stays, since every unit has one.
        DefectKind::MissingRow => {
            unit.rows.get(one.max(1))?;
            unit.rows.remove(one.max(1));
            Some(())
        }
        // The last row of a function is that of its last epilogue.
        DefectKind::MissingEpilogue => {
            unit.rows.get(1)?;
            unit.rows.pop();
            Some(())
        }
        DefectKind::NotRestored | DefectKind::WronglyRestored => {
            // A row that occurs again after others.
            let comes_again = |index: &usize| {
                let (_, row) = unit.rows[*index];
                unit.rows[..*index].iter().any(|(_, other)| *other == row)
            };
            let again: Vec<usize> = (1..count).filter(comes_again).collect();
            let index = *again.get(rng.below(again.len()))?;
            unit.rows[index].1 = match kind {
                DefectKind::NotRestored => unit.rows[index - 1].1,
                _ => unit.rows[0].1,
            };
            Some(())
        }
        DefectKind::Short => {
            let inside = boundaries.iter().filter(|b| unit.range.contains(b)).count();

            // By whole instructions, and never all of them.
            let cut = 1 + rng.below(inside.checked_sub(1)?.min(4));
            let end = unit.range.end;
            unit.range.end = (0..cut).try_fold(end, |at, _| previous(boundaries, at))?;
            let end = unit.range.end;
            unit.rows.retain(|(start, _)| *start < end);
            (unit.range.start < end).then_some(())
        }
        DefectKind::LateStart => {
            // The row that is valid there becomes the first one.
            let start = next(boundaries, unit.range.start)?;
            let (_, row) = unit.rows.iter().rfind(|(at, _)| *at <= start).copied()?;
            unit.rows.retain(|(at, _)| *at > start);
            unit.rows.insert(0, (start, row));
            unit.range.start = start;
            (start < unit.range.end).then_some(())
        }
        DefectKind::MissingUnit => {
            table.0.remove(at);
            Some(())
        }
        DefectKind::NotSignal => {
            // Few units are signal frames, so the first of them is taken.
            let unit = table.0.iter_mut().find(|unit| unit.signal)?;
            unit.signal = false;
            Some(())
        }
        DefectKind::Signal => {
            if unit.signal {
                return None;
            }
            unit.signal = true;
            Some(())
        }
    }
}

/// Injects a defect in the registers' rules.
fn registers(kind: DefectKind, unit: &mut Fde, rng: &mut Random) -> Option<()> {
    let is_saved = |row: &FrameLayout, index: usize| !matches!(row.saved[index], Slot::Same);
    let all: Vec<usize> = (0..6)
        .filter(|&index| unit.rows.iter().any(|(_, row)| is_saved(row, index)))
        .collect();
    let index = *all.get(rng.below(all.len()))?;
    let rows = unit.rows.iter_mut().map(|(_, row)| row);
    let by = rng.pick(&[-8, 8, 16]);
    match kind {
        DefectKind::Slot => rows.for_each(|row| match &mut row.saved[index] {
            Slot::At(offset) | Slot::Load(_, offset) => *offset += by,
            Slot::Register(keeper) => *keeper = RBP,
            Slot::Same | Slot::Undefined | Slot::Code(_) => {}
        }),
        DefectKind::Unsaved => rows.for_each(|row| row.saved[index] = Slot::Same),
        DefectKind::Exchanged => {
            let other = *all.iter().find(|&&other| other != index)?;
            let both = rows.filter(|row| is_saved(row, index) && is_saved(row, other));
            both.for_each(|row| row.saved.swap(index, other));
        }
        _ => rows.for_each(|row| row.saved = [Slot::Same; 6]),
    }
    Some(())
}

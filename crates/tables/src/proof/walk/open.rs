//! Opens the code of functions, with their rows, so that it can be followed.

use super::beyond::MissingRows;
use super::guesses::Guesses;
use super::rows::Rows;
use super::{FunctionWalk, Walker};
use crate::proof::args_size::args_sizes;
use crate::proof::body::Bits;
use crate::proof::functions::agrees;
use crate::proof::lsda::call_sites;
use crate::proof::program::{Entry, Program, Unit};
use crate::proof::verdict::{Doubt, FunctionVerdict};

/// The maximum number of functions that are followed together: a function and its cold parts.
pub(super) const PARTS_MAX: usize = 32;

impl<'p> Walker<'p, '_> {
    /// The part that contains `address`, opened if it is a function's.
    pub(super) fn part_at(&self, address: u64) -> Option<usize> {
        self.parts
            .iter()
            .position(|p| p.body.range.contains(&address))
    }

    pub(super) fn open(&mut self, index: usize) -> Option<usize> {
        if self.parts.len() >= PARTS_MAX {
            return None;
        }

        let program = self.program;
        let unit = &program.functions[index];

        // Bodies are large, so their memory is used again.
        let mut body = self.spare.pop().unwrap_or_default();
        if !body.read(program.file, unit.range.clone()) {
            return None;
        }

        let mut verdict = FunctionVerdict::default();
        let sites = match unit.lsda {
            None => Vec::new(),
            Some(lsda) => match call_sites(program.file, lsda, unit.range.start) {
                Some(sites) => sites,
                None => {
                    verdict.doubt(Doubt::LandingPads, unit.range.start);
                    Vec::new()
                }
            },
        };

        // A row that cannot be read leaves a doubt, and the others are judged.
        if let Some(at) = unreadable(program, unit) {
            verdict.doubt(Doubt::Unreadable, at);
        }

        let table = program.tables.get(unit.table);
        // Another FDE has the rest of the range, which does no harm if its rows say the same.
        if unit.own_end > unit.range.end && !table.is_some_and(|table| agrees(table, unit)) {
            verdict.doubt(Doubt::Overlap, unit.range.end);
        }

        // Only landing pads need to know how many bytes of arguments there are.
        let args = match table.filter(|_| !sites.is_empty()) {
            Some(table) => args_sizes(table, unit.range.start, unit.offset),
            None => Vec::new(),
        };

        let (convention, _) = program.convention(unit.range.start);
        let claims = program.claims(unit.range.start);

        // Rows of all tables are judged at once, since the code is the same.
        let tables = program.tables.iter().enumerate();
        let rows = tables.filter_map(|numbered| Rows::new(numbered, &unit.range, claims));
        let rows: Vec<Rows<'_>> = rows.collect();

        self.parts.push(FunctionWalk {
            below_sp: Bits::new(body.len()),
            function: index,
            is_listed: true,
            is_signal: unit.entry == Entry::Signal,
            missing: MissingRows::of(program, &rows, unit),
            guesses: Guesses::default(),
            convention,
            rows,
            sites,
            args,
            body,
            verdict,
        });
        Some(self.parts.len() - 1)
    }
}

/// The first address (svma) of a function for which the table that defines it has an FDE, but no
/// readable row.
fn unreadable(program: &Program<'_>, unit: &Unit) -> Option<u64> {
    let table = program.tables.get(unit.table)?;
    let mut end = unit.range.start;
    for row in table.rows_in(&(unit.range.start..unit.own_end)) {
        if row.start > end {
            break;
        }
        end = row.end;
    }
    (end < unit.own_end).then_some(end)
}

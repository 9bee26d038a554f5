//! The bytes that made a row.

use super::program::{CfaProgram, Common, Step};
use super::read::Table;
use crate::image::Image;
use crate::reason::Reason;
use crate::row::{RowSource, TableKind};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use gimli::constants::DW_CFA_nop;

/// The instructions that made a row: those from the advance to its first address up to the next advance. The
/// first row of an FDE is made by the CIE, whose instructions come first. Without the padding behind them.
/// `None` if the image has no such row.
pub(crate) fn row_bytes(image: &Image, source: &RowSource) -> Option<Vec<u8>> {
    let table = Table::of(image, source.table)?;
    instructions(table, source).ok().flatten()
}

/// The addresses (svma) that the FDE at `offset` of `.eh_frame` covers.
pub(crate) fn unit_range(image: &Image, offset: u64) -> Option<Range<u64>> {
    let table = Table::of(image, TableKind::EhFrame)?;
    let entry = table.fde_entry(usize::try_from(offset).ok()?).ok()?;
    let cie = table.cie(table.cie_of(&entry).ok()?).ok()?;
    Some(table.fde(entry, &cie).ok()?.range)
}

fn instructions(table: Table<'_>, source: &RowSource) -> Result<Option<Vec<u8>>, Reason> {
    let unit = usize::try_from(source.unit_offset).unwrap_or(usize::MAX);
    let entry = table.fde_entry(unit)?;
    let cie = table.cie(table.cie_of(&entry)?)?;
    let fde = table.fde(entry, &cie)?;
    let common = Arc::new(Common::new(table, cie)?);
    let shared = common.cie.program.clone();

    let mut bytes = Vec::new();
    if source.row_offset == source.unit_offset {
        let mut program = CfaProgram::new(table, Arc::clone(&common));
        let (range, _) = until_advance(&mut program, shared.start)?;
        bytes.extend_from_slice(table.data.get(range).unwrap_or_default());
    }

    let mut program = CfaProgram::new(table, common);
    program.begin(&fde);
    let (mut row, mut at) = (source.unit_offset, fde.program.start);
    loop {
        let (range, next) = until_advance(&mut program, at)?;
        if row == source.row_offset {
            bytes.extend_from_slice(table.data.get(range).unwrap_or_default());
            return Ok(Some(bytes));
        }
        let Some(next) = next else {
            return Ok(None);
        };
        (row, at) = (next as u64, next);
    }
}

/// Runs a program up to its next advance, of which it executes the advance, too. Returns the range of what was
/// executed from `start` on before it, and where it is.
fn until_advance(
    program: &mut CfaProgram<'_>,
    start: usize,
) -> Result<(Range<usize>, Option<usize>), Reason> {
    let mut end = program.offset();
    while let Some(&opcode) = program.input.slice().first() {
        let at = program.offset();
        match program.any_step(opcode)? {
            // An advance by zero starts no row.
            Step::Advance(to) if to > program.start => {
                program.start = to;
                return Ok((start..end, Some(at)));
            }
            Step::Same if opcode == DW_CFA_nop.0 => {}
            Step::Same | Step::Advance(_) => end = program.offset(),
        }
    }
    Ok((start..end, None))
}

//! The FDEs of `.eh_frame` and `.debug_frame` as entries of a section: what readers reach, and whether
//! the addresses are those of code.
//!
//! Sources: LSB 5.0 Core, "Exception Frames" (a length of 0 ends the table); DWARF 5, section 7.24.

use super::{Finding, Findings, Flaw, is_live};
use crate::file::File;
use crate::table::{Function, Table};
use gimli::{BaseAddresses, EhFrame, EhFrameOffset, LittleEndian, UnwindSection as _};
use hashbrown::HashMap;
use std::ops::Range;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;

/// The length that says that a length of 8 bytes follows.
const WIDE: u32 = u32::MAX;
/// The bits of `DW_EH_PE_*` that say what an address is relative to.
const RELATIVE_TO: u8 = 0x70;
/// The number of FDEs whose addresses are read as if references to CIEs were wide.
const WIDE_SAMPLE: usize = 16;

pub(super) fn check(file: &File, table: &Table, out: &mut Findings) {
    let kind = table.kind();
    if !matches!(kind, TableKind::EhFrame | TableKind::DebugFrame) {
        return;
    }
    let mut live: Vec<&Function> = table.functions().iter().collect();
    live.retain(|f| is_live(file, f));
    if live.is_empty() {
        return check_use(file, table, out);
    }
    if kind == TableKind::EhFrame {
        check_terminators(table, &live, out);
        check_absolute(file, table, &live, out);
    }
}

/// Checks that no FDE goes on behind the code that it begins in. Other code is there then, or none.
pub(super) fn check_ends(file: &File, table: &Table, out: &mut Findings) {
    if !matches!(
        table.kind(),
        TableKind::EhFrame | TableKind::DebugFrame | TableKind::Sframe
    ) {
        return;
    }
    for function in table.functions().iter().filter(|f| is_live(file, f)) {
        let Range { start, end } = function.range;
        let Some(code) = file.code_at(start).filter(|code| end > code.range.end) else {
            continue;
        };
        let behind = code.range.end..end;
        out.add(Finding {
            code: Some(behind),
            functions: 1,
            ..finding(table, Flaw::FdeOverrun, function.offset, &[])
        });
    }
}

fn finding(table: &Table, flaw: Flaw, offset: u64, lost: &[&Function]) -> Finding {
    Finding {
        section: table.kind().section().map_or("", SectionKind::as_str),
        offset,
        flaw,
        code: lost.first().map(|f| f.range.clone()),
        functions: lost.len() as u64,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The entries' offsets, and the length of their fields of length and of reference to a CIE, bytes;
/// the latter is 0 for a terminator. Ends where no length can be read.
fn entries(section: &[u8]) -> impl Iterator<Item = (usize, usize)> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let at = next?;
        let length = word(section, at)?;
        let (end, head) = match length {
            0 => (at.checked_add(4), 0),
            WIDE => {
                let bytes = section.get(at + 4..)?.first_chunk()?;
                let length = usize::try_from(u64::from_le_bytes(*bytes)).ok();
                (length.and_then(|l| l.checked_add(at + 12)), 16)
            }
            length => (at.checked_add(4 + length as usize), 8),
        };
        next = end;
        Some((at, head))
    })
}

/// The first terminator that has FDEs with code behind it.
fn check_terminators(table: &Table, live: &[&Function], out: &mut Findings) {
    let mut terminators = entries(table.section()).filter(|e| e.1 == 0);
    let Some((at, _)) = terminators.next() else {
        return;
    };
    let mut behind: Vec<&Function> = live.to_vec();
    behind.retain(|f| f.offset > at as u64);
    if !behind.is_empty() {
        behind.sort_by_key(|f| f.offset);
        out.add(finding(table, Flaw::Terminator, at as u64, &behind));
    }
}

/// FDEs whose address is absolute, where the loader does not adjust it.
fn check_absolute(file: &File, table: &Table, live: &[&Function], out: &mut Findings) {
    if file.is_fixed() || file.is_relocatable() {
        return;
    }
    let section = table.section();
    let frame = EhFrame::new(section, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(table.address());
    // Whether the FDEs of a CIE have absolute addresses.
    let mut absolute: HashMap<usize, bool> = HashMap::new();
    let mut fixed: Vec<&Function> = Vec::new();
    let heads: HashMap<usize, usize> = entries(section).collect();

    for function in live {
        let Some((at, head)) = usize::try_from(function.offset)
            .ok()
            .and_then(|at| Some((at, *heads.get(&at)?)))
        else {
            continue;
        };

        let field = at + head;
        // Four bytes also behind a length of 64 bits (Linux Standard Base 5.0, .eh_frame).
        let Some(reference) = field.checked_sub(4) else {
            continue;
        };
        let Some(cie) = word(section, reference)
            .and_then(|back| reference.checked_sub(back as usize))
            .filter(|&cie| cie != reference)
        else {
            continue;
        };

        let is_absolute = *absolute.entry(cie).or_insert_with(|| {
            // Without an encoding in the CIE, an address is absolute (LSB 5.0 Core, augmentation
            // `R`).
            let cie = frame.cie_from_offset(&bases, EhFrameOffset(cie));
            let encoding = cie.ok().map(|cie| cie.fde_address_encoding());
            encoding.is_some_and(|e| e.is_none_or(|e| e.0 & RELATIVE_TO == 0))
        });

        // The loader adjusts a field that has a relocation.
        let place = table.address().wrapping_add(field as u64);
        let is_relocated = file
            .pointers()
            .binary_search_by_key(&place, |p| p.0)
            .is_ok();
        if is_absolute && !is_relocated {
            fixed.push(function);
        }
    }

    if let Some(first) = fixed.first() {
        out.add(finding(table, Flaw::AbsoluteFde, first.offset, &fixed));
    }
}

/// A table none of whose FDEs has code: whether it should have.
fn check_use(file: &File, table: &Table, out: &mut Findings) {
    let mut misplaced = table.functions().iter();
    let Some(first) = misplaced.find(|f| !is_dead(file, table, f)) else {
        return;
    };
    if file.code().is_empty() {
        return;
    }
    let mut all = table.functions().iter().take(WIDE_SAMPLE);
    let flaw = if all.all(|f| is_code_if_wide(file, table, f)) {
        Flaw::WideCieReference
    } else {
        Flaw::NoCode
    };
    out.add(Finding {
        code: None,
        functions: table.functions().len() as u64,
        ..finding(table, flaw, first.offset, &[])
    });
}

/// Whether the FDE would have code if its reference to a CIE were 8 bytes wide: Free Pascal 3.2.2
/// writes so, behind lengths of 4 bytes.
fn is_code_if_wide(file: &File, table: &Table, function: &Function) -> bool {
    let read = || {
        let at = usize::try_from(function.offset).ok()?;
        let section = table.section();
        let double = |at: usize| Some(u64::from_le_bytes(*section.get(at..)?.first_chunk()?));
        Some((word(section, at)?, double(at + 12)?, double(at + 20)?))
    };
    let Some((length, start, size)) = read() else {
        return false;
    };
    let code = file.code_at(start).map(|code| code.range.end);
    let end = start.checked_add(size);
    length != WIDE && size > 0 && code.zip(end).is_some_and(|(code, end)| end <= code)
}

/// Whether an FDE is of a function that the linker discarded: it has the address 0, or one of the last
/// two, or, in an object, no relocation and so an address in its own table.
pub(crate) fn is_dead(file: &File, table: &Table, function: &Function) -> bool {
    let start = function.range.start;
    if function.range.is_empty() {
        return true;
    }
    if file.code_at(start).is_some() {
        return false;
    }
    let own = table.address()..=table.address().saturating_add(table.section().len() as u64);
    let is_in_itself = table.kind() == TableKind::EhFrame && own.contains(&start);
    start == 0 || start >= u64::MAX - 1 || file.is_relocatable() && is_in_itself
}

//! The order of SFrame's FDEs, and the relocations of `.sframe` in relocatable objects.
//!
//! Sources: the SFrame specification of binutils 2.46 (`SFRAME_F_FDE_SORTED`); `libsframe`'s and Linux'
//! searches, which are binary where that flag is set.

use super::{Finding, Findings, Flaw};
use crate::file::File;
use crate::table::Table;
use std::ops::Range;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe;

const SECTION: &str = SectionKind::Sframe.as_str();
/// The maximum number of tables behind one another.
const TABLES_MAX: usize = 1 << 16;
/// Where a header has the number of FDEs, bytes.
const NUM_FDES: Range<usize> = 8..12;
/// The alignment of the section in objects, bytes.
const ALIGN: u64 = 8;

pub(super) fn check(file: &File, table: &Table, out: &mut Findings) {
    if table.kind() != TableKind::Sframe {
        return;
    }

    // What cannot be read at all is a problem of the table.
    let Ok(read) = sframe::Table::parse(table.section(), table.address()) else {
        return;
    };

    let finding = |flaw, offset, code: Option<Range<u64>>, functions| Finding {
        section: SECTION,
        offset,
        flaw,
        code,
        functions,
    };
    let range = |fde: &sframe::Fde| fde.start..fde.start.saturating_add(fde.size.into());

    if file.is_relocatable() {
        return check_relocations(file, table.section(), &finding, out);
    }

    for fde in uncounted(table) {
        let code = Some(range(&fde)).filter(|code| file.code_at(code.start).is_some());
        out.add(finding(Flaw::SframeUncounted, fde.offset, code, 1));
    }

    let fdes: Vec<sframe::Fde> = read.fdes().filter_map(Result::ok).collect();
    for second in doubles(file, &read, &fdes) {
        let code = Some(range(&second));
        out.add(finding(Flaw::SframeDouble, second.offset, code, 1));
    }

    // Without the flag, readers go through all FDEs, and order does not matter.
    if !read.header().has(sframe::FLAG_FDE_SORTED) {
        return;
    }

    let is_lost = |fde: &&sframe::Fde| {
        let is_code = fde.size > 0 && file.code_at(fde.start).is_some();
        is_code && !matches!(read.find(fde.start, None), Ok(Some(_)))
    };
    let lost: Vec<&sframe::Fde> = fdes.iter().filter(is_lost).collect();

    let backwards = fdes.windows(2).find(|two| two[1].start < two[0].start);
    if let Some([_, second]) = backwards {
        let count = lost.len() as u64;
        out.add(finding(Flaw::SframeUnsorted, second.offset, None, count));
    }
    for fde in lost {
        out.add(finding(Flaw::SframeHidden, fde.offset, Some(range(fde)), 1));
    }
}

/// The FDEs that begin at the address of one before them, and do not say the same. Equal ones, as of code
/// that a linker folded, are one.
fn doubles(file: &File, read: &sframe::Table<'_>, fdes: &[sframe::Fde]) -> Vec<sframe::Fde> {
    let is_code = |fde: &&sframe::Fde| fde.size > 0 && file.code_at(fde.start).is_some();
    let mut sorted: Vec<&sframe::Fde> = fdes.iter().filter(is_code).collect();
    sorted.sort_by_key(|fde| (fde.start, fde.index));

    let rows = |fde: sframe::Fde| {
        let rows = read.rows(&fde);
        rows.map(|row| row.map(|row| (row.start, row.rule)))
    };
    let has_same_rows = |a: &sframe::Fde, b: &sframe::Fde| {
        let key = |fde: &sframe::Fde| {
            let kind = (fde.fre_type, fde.rep_size, fde.flex, fde.signal);
            (fde.fres, fde.num_fres, kind)
        };
        key(a) == key(b) || rows(*a).eq(rows(*b))
    };
    let differ = |two: &&[&sframe::Fde]| {
        let [first, second] = two else {
            return false;
        };
        first.start == second.start && (first.size != second.size || !has_same_rows(first, second))
    };
    let pairs = sorted.windows(2).filter(differ);
    pairs.map(|two| *two[1]).collect()
}

/// The FDEs for which there is room before the rows, and which the header does not count. All known
/// producers leave no room.
fn uncounted(table: &Table) -> Vec<sframe::Fde> {
    let Ok(read) = sframe::Table::parse(table.section(), table.address()) else {
        return Vec::new();
    };
    let header = read.header();
    let room = header.fres.saturating_sub(header.fdes) / header.version.fde_len();
    let count = room.min(u32::MAX.into()) as u32;
    if count <= header.num_fdes {
        return Vec::new();
    }
    let mut whole = table.section().to_vec();
    if let Some(word) = whole.get_mut(NUM_FDES).and_then(|w| w.first_chunk_mut()) {
        *word = count.to_le_bytes();
    }
    let read = sframe::Table::parse(&whole, table.address());
    let fdes = read.iter().flat_map(sframe::Table::fdes);
    fdes.skip(header.num_fdes as usize)
        .filter_map(Result::ok)
        .collect()
}

/// Each FDE has one relocation, that of its address, and the section has no others.
fn check_relocations(
    file: &File,
    bytes: &[u8],
    finding: &impl Fn(Flaw, u64, Option<Range<u64>>, u64) -> Finding,
    out: &mut Findings,
) {
    let relocations = &file.facts().sframe_relocations;
    let fields = fields(bytes);
    for &(place, _) in relocations {
        if fields.binary_search(&place).is_err() {
            out.add(finding(Flaw::SframeMisplaced, place, None, 0));
        }
    }
    for field in fields {
        if relocations.binary_search_by_key(&field, |r| r.0).is_err() {
            out.add(finding(Flaw::SframeUnrelocated, field, None, 1));
        }
    }
}

/// The offsets of the addresses of all FDEs, in order: also of tables behind the first, which a linker
/// may have put there.
fn fields(bytes: &[u8]) -> Vec<u64> {
    let mut out = Vec::new();
    let mut base = 0;
    for _ in 0..TABLES_MAX {
        let rest = usize::try_from(base).ok().and_then(|at| bytes.get(at..));
        let Some(Ok(table)) = rest.map(|rest| sframe::Table::parse(rest, base)) else {
            break;
        };
        let fdes = table.fdes().filter_map(Result::ok);
        out.extend(fdes.map(|fde| base + fde.offset));
        let end = table.header().fdes_end().max(table.header().fres_end());
        base = (base + end).next_multiple_of(ALIGN);
    }
    out.sort_unstable();
    out
}

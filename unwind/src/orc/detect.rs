//! Detects the layout of a table: from its `.orc_header`, otherwise from how its entries decode in
//! each layout.
//!
//! Entries of one layout are often valid in another, but then they mean unlikely things. Only
//! layouts in which every entry is valid are considered. Among these, the one with the most
//! ordinary entries wins: calls with the CFA a few words above rsp or rbp, as in most code.

use super::entry::{Entry, EntryType};
use super::layout::{Encoding, Layout, OrcReg};
use super::read::Table;
use crate::image::{Image, Section, SectionKind};

/// The encoding of `image`'s table as used by kernels since 5.12. The entries do not show which
/// meaning SP_INDIRECT has ([`Encoding::from_kernel_version`] does). `None` if the entries fit no
/// layout.
pub fn detect(image: &Image, table: &Table<'_>) -> Option<Encoding> {
    let header = image.section(SectionKind::OrcHeader);
    let known = header.and_then(|h| Layout::from_hash(&h.data));
    known
        .or_else(|| by_entries(table))
        .map(Encoding::since_5_12)
}

/// The layout that fits the entries best; the older one in a tie. Tied layouts decode a table
/// without distinctive entries identically.
pub fn by_entries(table: &Table<'_>) -> Option<Layout> {
    let mut best = None;
    for layout in Layout::ALL {
        let Some(score) = score(table, layout) else {
            continue;
        };
        if best.is_none_or(|(most, _)| score > most) {
            best = Some((score, layout));
        }
    }
    best.map(|(_, layout)| layout)
}

/// The layout that the table has, if it is surely not `told`: that of its `.orc_header`, or the one
/// that fits the entries best, if some are not valid in `told` or less than half as many are
/// ordinary. Rows would be wrong without a word: registers of 6.4, for example, are others in 7.1.
pub fn other_than(table: &Table<'_>, header: Option<&Section>, told: Layout) -> Option<Layout> {
    if let Some(known) = header.and_then(|h| Layout::from_hash(&h.data)) {
        return (known != told).then_some(known);
    }
    let best = by_entries(table)?;
    let ordinary = score(table, best)?;
    let fits = score(table, told).is_some_and(|mine| mine.saturating_mul(2) >= ordinary);
    (!fits).then_some(best)
}

/// The number of ordinary entries in `layout`; `None` if any entry is invalid.
fn score(table: &Table<'_>, layout: Layout) -> Option<usize> {
    let mut ordinary = 0;
    for index in 0..table.len() {
        let entry = Entry::decode(table.bytes(index)?, layout).ok()?;
        ordinary += usize::from(is_valid(&entry, layout)? && is_ordinary(&entry));
    }
    Some(ordinary)
}

/// Whether objtool could write this entry. `None`: invalid; false: valid, but not distinctive.
fn is_valid(entry: &Entry, layout: Layout) -> Option<bool> {
    if matches!(entry.kind, EntryType::Undefined | EntryType::EndOfStack) {
        // An entry without a rule has no registers.
        let bare = entry.sp_reg == OrcReg::Undefined;
        return (bare || layout <= Layout::V6_3).then_some(false);
    }
    let bp = matches!(
        entry.bp_reg,
        OrcReg::Undefined | OrcReg::PrevSp | OrcReg::Bp
    );
    let sp = !matches!(entry.sp_reg, OrcReg::Undefined | OrcReg::PrevSp);
    (bp && sp).then_some(true)
}

fn is_ordinary(entry: &Entry) -> bool {
    let aligned = entry.sp_offset % 8 == 0 && entry.sp_offset > 0;
    let bp = match entry.bp_reg {
        OrcReg::PrevSp => entry.bp_offset <= -16,
        _ => entry.bp_offset == 0,
    };
    let base = matches!(entry.sp_reg, OrcReg::Sp | OrcReg::Bp);
    let call = entry.kind == EntryType::Call && !entry.signal;
    let regs = entry.kind == EntryType::Regs && entry.signal && entry.sp_reg == OrcReg::Sp;
    call && base && aligned && bp || regs && bp
}

#[cfg(test)]
mod tests;

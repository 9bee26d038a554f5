//! Which layout a table has: by its `.orc_header`, else by what its entries say under each.
//!
//! Entries of one layout are often valid under another, but then they say strange things. Valid
//! comes first; among the layouts under which every entry is valid the one wins under which most
//! entries are what most code is: calls, with the CFA a few words above rsp or rbp.

use super::entry::{Entry, EntryType};
use super::layout::{Encoding, Layout, OrcReg};
use super::read::Table;
use crate::image::{Image, SectionKind};

/// The encoding of `image`'s table, as kernels since 5.12 use it: an entry does not show which
/// meaning SP_INDIRECT has ([`Encoding::from_kernel_version`] knows). `None` if the entries fit no
/// layout.
pub fn detect(image: &Image, table: &Table<'_>) -> Option<Encoding> {
    let header = image.section(SectionKind::OrcHeader);
    let known = header.and_then(|h| Layout::from_hash(&h.data));
    known
        .or_else(|| by_entries(table))
        .map(Encoding::since_5_12)
}

/// The layout that the entries fit best; the older of two that they fit alike. A table without a
/// telling entry means the same under both.
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

/// How many entries say ordinary things under `layout`; `None` if one is not valid.
fn score(table: &Table<'_>, layout: Layout) -> Option<usize> {
    let mut ordinary = 0;
    for index in 0..table.len() {
        let entry = Entry::decode(table.bytes(index)?, layout).ok()?;
        ordinary += usize::from(is_valid(&entry, layout)? && is_ordinary(&entry));
    }
    Some(ordinary)
}

/// What objtool never writes. `None`: not valid; false: valid, but tells nothing.
fn is_valid(entry: &Entry, layout: Layout) -> Option<bool> {
    if matches!(entry.kind, EntryType::Undefined | EntryType::EndOfStack) {
        // An entry of no rule has no registers.
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

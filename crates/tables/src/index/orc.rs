//! ORC's addresses and its lookup table, as a linked kernel searches them.
//!
//! Linux `arch/x86/kernel/unwind_orc.c`: `__orc_find` is a binary search, so `sorttable` sorts the
//! tables of `vmlinux` after linking; `unwind_init` fills `orc_lookup`, one word for each 256 bytes of
//! code and one more, and gives up on ORC if it is too small. The tables of modules are sorted when they are
//! loaded.

use super::{Finding, Findings, Flaw};
use crate::file::File;
use std::ops::Range;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::orc::{ENTRY_LEN, LOOKUP_BLOCK_SIZE};

/// The size of a word of both tables, bytes.
const WORD: u64 = 4;
const LOOKUP: &str = ".orc_lookup";

pub(super) fn check(file: &File, out: &mut Findings) {
    let image = file.image();
    let section = |kind| image.section(kind);
    let (Some(entries), Some(ips)) = (
        section(SectionKind::OrcUnwind),
        section(SectionKind::OrcUnwindIp),
    ) else {
        return;
    };
    let finding = |flaw, section, offset, functions| Finding {
        section,
        offset,
        flaw,
        code: None,
        functions,
    };

    let name = SectionKind::OrcUnwindIp.as_str();
    let words = ips.data.as_chunks::<{ WORD as usize }>();
    let count = words.0.len();
    let is_whole = words.1.is_empty() && entries.data.len() % ENTRY_LEN == 0;

    if !is_whole || count != entries.data.len() / ENTRY_LEN {
        let fewer = count.min(entries.data.len() / ENTRY_LEN) as u64;
        return out.add(finding(Flaw::OrcCount, name, fewer * WORD, 0));
    }

    // A module's tables are sorted when it is loaded (`unwind_module_init`).
    if file.is_relocatable() {
        return;
    }

    let starts: Vec<u64> = (0..)
        .zip(words.0)
        .map(|(number, word)| {
            // `orc_ip`: an address is stored as its distance from the slot it is in.
            let slot = ips.address.wrapping_add(WORD * number);
            slot.wrapping_add_signed(i32::from_le_bytes(*word).into())
        })
        .collect();

    let backwards = |two: &[u64]| two[1] < two[0];
    if let Some(at) = starts.windows(2).position(backwards) {
        let all = starts.windows(2).filter(|two| backwards(two)).count();
        let offset = WORD * (at as u64 + 1);
        return out.add(finding(Flaw::OrcUnsorted, name, offset, all as u64));
    }

    check_lookup(file, &starts, &finding, out);
}

fn check_lookup(
    file: &File,
    starts: &[u64],
    finding: &impl Fn(Flaw, &'static str, u64, u64) -> Finding,
    out: &mut Findings,
) {
    let (Some(lookup), Some(text)) = (file.section_range(LOOKUP), text(file)) else {
        return;
    };

    let blocks = (text.end - text.start).div_ceil(LOOKUP_BLOCK_SIZE);
    let words = (lookup.end - lookup.start) / WORD;
    if words < blocks + 1 {
        return out.add(finding(Flaw::OrcLookup, LOOKUP, words * WORD, 0));
    }

    // Zeros, or nothing in the file: the kernel fills it when it starts.
    let bytes = file.bytes(lookup.start);
    let stored = bytes.as_chunks::<{ WORD as usize }>().0.iter();
    let stored = stored.take(usize::try_from(blocks).unwrap_or(usize::MAX));
    if stored.clone().all(|word| *word == [0; WORD as usize]) {
        return;
    }

    for (block, word) in (0..).zip(stored) {
        let start = text.start + block * LOOKUP_BLOCK_SIZE;
        // As `unwind_init` fills it: the last entry at or before the start of the block.
        let after = starts.partition_point(|&ip| ip <= start);
        let last = after.saturating_sub(1) as u64;
        // Entries with the same address are as good as each other.
        let told = usize::try_from(u32::from_le_bytes(*word)).unwrap_or(usize::MAX);
        let fits = starts.get(told) == starts.get(usize::try_from(last).unwrap_or(0));
        if !fits {
            return out.add(finding(Flaw::OrcLookup, LOOKUP, block * WORD, 0));
        }
    }
}

/// The code that the lookup table is for: from `_stext` to `_etext`, or `.text`.
fn text(file: &File) -> Option<Range<u64>> {
    let symbols = file.image().symbols();
    let named = |name| symbols.iter().find(|s| s.name == name).map(|s| s.address);
    let section = file.section_range(".text");
    let start = named("_stext").or(section.as_ref().map(|s| s.start))?;
    let end = named("_etext").or(section.as_ref().map(|s| s.end))?;
    (start < end).then_some(start..end)
}

//! `.eh_frame_hdr`, as libgcc (`unwind-dw2-fde-dip.c`), the unwinders that perf uses, and ld.so's
//! `_dl_find_object` read it: by the program header, with a binary search for the last entry at or
//! before an address. Format: LSB 5.0 Core, "Exception Frame Header".

use super::{Finding, Findings, Flaw, is_live};
use crate::file::File;
use crate::table::{Function, Table};
use std::ops::Range;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;

const SECTION: &str = ".eh_frame_hdr";
/// `DW_EH_PE_omit`
const OMIT: u8 = 0xff;
/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`: the only form of a table that is searched.
const SEARCHED: u8 = 0x3b;
/// The bytes of version and encodings.
const ENCODINGS: usize = 4;
/// The size of an entry, bytes.
const ENTRY: u64 = 8;

/// An entry of the search table.
#[derive(Clone, Copy)]
struct SearchEntry {
    /// The first address (svma) of the function.
    start: u64,
    /// Offset of the FDE in `.eh_frame`, bytes.
    fde: u64,
}

pub(super) fn check(file: &File, table: &Table, out: &mut Findings) {
    if table.kind() != TableKind::EhFrame {
        return;
    }
    let Some(section) = file.image().section(SectionKind::EhFrameHdr) else {
        return;
    };

    let mut live = table.functions().iter().filter(|f| is_live(file, f));
    let live: Vec<&Function> = live.by_ref().collect();
    let flaw = |flaw, offset| Finding {
        section: SECTION,
        offset,
        flaw,
        code: live.first().map(|f| f.range.clone()),
        functions: live.len() as u64,
    };

    check_segment(file, &flaw, out);
    // Version, then the encodings of the pointer, of the count and of the table (LSB 5.0 Core).
    let bytes: &[u8] = &section.data;
    let (Some(&[version, to_table, counted, searched]), false) =
        (bytes.first_chunk::<ENCODINGS>(), live.is_empty())
    else {
        if !live.is_empty() {
            out.add(flaw(Flaw::HdrUnreadable, 0));
        }
        return;
    };

    let address = section.address;
    let mut reader = Reader {
        bytes,
        at: ENCODINGS,
        address,
    };
    let pointer = reader.pointer(to_table);

    let (true, Some(pointer)) = (version == 1, pointer) else {
        return out.add(flaw(Flaw::HdrUnreadable, 0));
    };

    if to_table != OMIT && pointer != table.address() {
        out.add(flaw(Flaw::HdrPointer, ENCODINGS as u64));
    }

    // libgcc searches only a table of `DW_EH_PE_datarel | DW_EH_PE_sdata4`; other encodings are
    // legal.
    if counted == OMIT || searched != SEARCHED {
        return out.add(flaw(Flaw::HdrNoTable, 2));
    }
    let Some(count) = reader.pointer(counted) else {
        return out.add(flaw(Flaw::HdrUnreadable, reader.at as u64));
    };

    let first = reader.at as u64;
    // libgcc goes through the section if the table is not aligned.
    if address.wrapping_add(first) % 4 != 0 {
        return out.add(flaw(Flaw::HdrNoTable, first));
    }

    let pairs = pairs(&bytes[reader.at..], address, table.address());
    if count > pairs.len() as u64 {
        out.add(flaw(Flaw::HdrCut, first + ENTRY * pairs.len() as u64));
    }
    // What the header does not count is not searched, what it counts in excess does not exist.
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let pairs = &pairs[..count.min(pairs.len())];
    check_entries(table, pairs, first, out);

    let index = Index::new(table, pairs);
    if let Some(at) = pairs.windows(2).position(|two| two[1].start < two[0].start) {
        // A binary search of an unsorted table loses only some functions.
        let lost = live.iter().filter(|f| index.lost(f).is_some());
        out.add(Finding {
            section: SECTION,
            offset: first + ENTRY * (at as u64 + 1),
            flaw: Flaw::HdrUnsorted,
            code: None,
            functions: lost.count() as u64,
        });
    }

    // Each is searched for as an unwinder would.
    for function in live {
        let Some((flaw, at)) = index.lost(function) else {
            continue;
        };
        out.add(Finding {
            section: match flaw {
                Flaw::HdrMissing => TableKind::EhFrame.section().map_or("", SectionKind::as_str),
                _ => SECTION,
            },
            offset: match flaw {
                Flaw::HdrMissing => function.offset,
                _ => first + ENTRY * at as u64,
            },
            flaw,
            code: Some(function.range.clone()),
            functions: 1,
        });
    }
}

/// Checks that the program header and the section agree.
fn check_segment(file: &File, flaw: &impl Fn(Flaw, u64) -> Finding, out: &mut Findings) {
    let facts = file.facts();
    let (Some(section), true) = (&facts.eh_frame_hdr_section, facts.is_loaded) else {
        return;
    };
    match &facts.eh_frame_hdr {
        None => out.add(flaw(Flaw::HdrNoSegment, 0)),
        // Linkers pad the section, but not what the program header covers, or the other way round.
        Some(segment) if segment.start != section.start => out.add(flaw(Flaw::HdrSegment, 0)),
        Some(_) => {}
    }
}

/// Checks that each entry leads to an FDE that starts at its address.
fn check_entries(table: &Table, pairs: &[SearchEntry], first: u64, out: &mut Findings) {
    let starts = by_offset(table);
    for (number, pair) in (0..).zip(pairs) {
        let found = starts.binary_search_by_key(&pair.fde, |f| f.0);
        let fits = found.is_ok_and(|i| starts[i].1.start == pair.start);
        if !fits {
            out.add(Finding {
                section: SECTION,
                offset: first + ENTRY * number,
                flaw: Flaw::HdrEntry,
                code: None,
                functions: 0,
            });
        }
    }
}

/// The offsets of all FDEs, in order, and their addresses (svma).
fn by_offset(table: &Table) -> Vec<(u64, Range<u64>)> {
    let functions = table.functions().iter();
    let mut all: Vec<_> = functions.map(|f| (f.offset, f.range.clone())).collect();
    all.sort_unstable_by_key(|f| f.0);
    all
}

/// The search table, and what it leads to.
struct Index<'a> {
    pairs: &'a [SearchEntry],
    ranges: Vec<(u64, Range<u64>)>,
    /// The offsets of the FDEs that entries lead to, in order.
    listed: Vec<u64>,
}

impl<'a> Index<'a> {
    fn new(table: &Table, pairs: &'a [SearchEntry]) -> Index<'a> {
        let mut listed: Vec<u64> = pairs.iter().map(|pair| pair.fde).collect();
        listed.sort_unstable();
        Index {
            pairs,
            ranges: by_offset(table),
            listed,
        }
    }

    /// The number of the entry at which a search for `address` (svma) ends. The steps are libgcc's
    /// (`_Unwind_IteratePhdrCallback`), because in a table that is not sorted they matter.
    fn search(&self, address: u64) -> Option<usize> {
        let start = |at: usize| self.pairs[at].start;
        let last = self.pairs.len().checked_sub(1)?;
        if address < start(0) {
            return None;
        }
        if address >= start(last) {
            return Some(last);
        }
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = low.midpoint(high);
            if address < start(middle) {
                high = middle;
            } else if address >= start(middle + 1) {
                low = middle + 1;
            } else {
                return Some(middle);
            }
        }
        None
    }

    /// Whether a search for `address` ends at an FDE that has it; if not, at which entry it ends.
    fn finds(&self, address: u64) -> Result<(), usize> {
        let at = self.search(address).ok_or(0_usize)?;
        let offset = self.pairs[at].fde;
        let found = self.ranges.binary_search_by_key(&offset, |f| f.0);
        if found.is_ok_and(|i| self.ranges[i].1.contains(&address)) {
            Ok(())
        } else {
            Err(at)
        }
    }

    /// How the code of `function` is lost to a search, and the entry at which it ends.
    fn lost(&self, function: &Function) -> Option<(Flaw, usize)> {
        let Range { start, end } = function.range;
        // Where the answer can change: at its ends, and where other entries start inside it.
        let first = self.pairs.partition_point(|pair| pair.start <= start);
        let inside = self.pairs[first..].iter().map(|pair| pair.start);
        let inside = inside.take_while(|&at| at < end);
        let mut probes = [start, end - 1].into_iter().chain(inside);
        let at = probes.find_map(|address| self.finds(address).err())?;
        let is_listed = self.listed.binary_search(&function.offset).is_ok();
        let flaw = if is_listed {
            Flaw::HdrHidden
        } else {
            Flaw::HdrMissing
        };
        Some((flaw, at))
    }
}

/// The entries in `bytes`.
fn pairs(bytes: &[u8], hdr: u64, eh_frame: u64) -> Vec<SearchEntry> {
    let word = |bytes: [u8; 4]| hdr.wrapping_add_signed(i32::from_le_bytes(bytes).into());
    let pair = |&[a, b, c, d, e, f, g, h]: &[u8; ENTRY as usize]| SearchEntry {
        start: word([a, b, c, d]),
        fde: word([e, f, g, h]).wrapping_sub(eh_frame),
    };
    bytes.as_chunks().0.iter().map(pair).collect()
}

/// Reads encoded values.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The section's address (svma).
    address: u64,
}

impl Reader<'_> {
    /// A value in `encoding` (DWARF extensions of LSB 5.0 Core); 0 if it is left out, `None` if the
    /// encoding is not known, or the section ends.
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        if encoding == OMIT {
            return Some(0);
        }

        // `DW_EH_PE_pcrel` counts from the field itself.
        let at = self.address.wrapping_add(self.at as u64);
        let rest = self.bytes.get(self.at..)?;
        // The lower four bits: `absptr`, `udata8`, `sdata8`, then `udata2`, `udata4`, `sdata2`,
        // `sdata4`.
        let (value, size) = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => (u64::from_le_bytes(*rest.first_chunk()?), 8),
            0x02 => (u16::from_le_bytes(*rest.first_chunk()?).into(), 2),
            0x03 => (u32::from_le_bytes(*rest.first_chunk()?).into(), 4),
            0x0a => {
                let value = i16::from_le_bytes(*rest.first_chunk()?);
                (i64::from(value).cast_unsigned(), 2)
            }
            0x0b => {
                let value = i32::from_le_bytes(*rest.first_chunk()?);
                (i64::from(value).cast_unsigned(), 4)
            }
            _ => return None,
        };

        self.at += size;
        // The upper ones: absolute, `pcrel`, `datarel`, which is relative to the header (LSB 5.0
        // Core).
        match encoding & 0xf0 {
            0x00 => Some(value),
            0x10 => Some(value.wrapping_add(at)),
            0x30 => Some(value.wrapping_add(self.address)),
            _ => None,
        }
    }
}

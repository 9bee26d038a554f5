//! Unwind tables that a program registered with libgcc or LLVM's libunwind: `__register_frame`,
//! `__register_frame_info`.
//!
//! LLVM's compilers (numba, Julia, PostgreSQL) and others register an `.eh_frame` for the code that they
//! generate; the start files of static programs register that of the program. libgcc keeps what is
//! registered in objects, and these in lists (up to GCC 12) or in a B-tree (since GCC 13). libunwind has
//! an array with an entry for each FDE. None of them has an exported symbol. So they are found by what
//! they are: each word of a library's data may point to one, and is taken if all that lies behind it is
//! as it must be, down to the CIEs, the FDEs and the terminator of the table.
//!
//! Sources: GCC `libgcc/unwind-dw2-fde.h` (`struct object`), `unwind-dw2-fde.c` (`struct fde_vector`),
//! `unwind-dw2-btree.h` (`struct btree_node`); LLVM `libunwind/src/UnwindCursor.hpp` (`DwarfFDECache`);
//! LSB Core 10.6 (`.eh_frame`).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::row::TableKind;

/// Maximum size of a table, bytes.
const TABLE_SIZE_MAX: u64 = 64 << 20;
/// Maximum size of all tables together, bytes.
const ALL_SIZE_MAX: u64 = 128 << 20;
/// Maximum number of objects, and of nodes of trees.
const OBJECTS_MAX: usize = 1 << 16;
/// Maximum number of tables in an array of them (`__register_frame_table`).
const ARRAY_MAX: u64 = 1 << 12;
/// Maximum depth of a B-tree; with 15 children a node, one of 8 levels holds more than `OBJECTS_MAX`.
const DEPTH_MAX: u32 = 8;

/// `struct object` without its last member that some systems have: `pc_begin`, `tbase`, `dbase`, the
/// table, flags, `next`.
const OBJECT_SIZE: u64 = 48;
/// Bits of an object's flags: the table was sorted, and there is an array of tables.
const SORTED: u64 = 1;
const FROM_ARRAY: u64 = 2;
/// `struct btree_node`: a lock, the number of entries, the type, and up to 240 bytes of entries.
const NODE_HEAD: usize = 16;
const NODE_SIZE: u64 = 256;
const INNER: u32 = 0;
const LEAF: u32 = 1;
const INNER_ENTRIES_MAX: u32 = 15;
const LEAF_ENTRIES_MAX: u32 = 10;

/// Maximum number of bytes of tables and arrays that are read while all words are tried.
const BYTES_TRIED_MAX: u64 = 256 << 20;

/// Returns up to that many bytes of memory from an address on.
pub type Read<'r, 'm> = dyn Fn(u64, u64) -> &'m [u8] + 'r;

/// The registered tables, by address. `data` is where the lists may start: data of the files that may
/// have libgcc or libunwind in them.
pub fn tables<'m>(data: &[Range<u64>], read: &Read<'_, 'm>) -> Vec<Section> {
    find(data, read, BYTES_TRIED_MAX)
}

/// Like [`tables`]; `tried_max` is how many bytes of tables and arrays are read for it.
fn find<'m>(data: &[Range<u64>], read: &Read<'_, 'm>, tried_max: u64) -> Vec<Section> {
    let mut search = Search {
        read,
        known: BTreeMap::new(),
        left: tried_max.into(),
        size: 0,
        ranges: BTreeMap::new(),
        objects: HashSet::new(),
        entries: HashSet::new(),
        nodes: HashSet::new(),
        begins: BTreeSet::new(),
    };

    for range in data {
        let bytes = read(range.start, range.end.saturating_sub(range.start));
        for word in bytes.as_chunks::<8>().0 {
            // All that libgcc registers holds pointers, and so lies at a multiple of 8.
            let head = u64::from_le_bytes(*word);
            // What is at a place may be read as more than one of them. A table is one in any case.
            if head != 0 && head.is_multiple_of(8) {
                search.list(head);
                search.tree(head, 0);
                search.entries(head);
            }
        }
    }

    let begins = search.begins.iter();
    // By their starts: a table may have been found more than once.
    let found: BTreeMap<u64, Range<u64>> = begins
        .filter_map(|begin| search.known.get(begin).cloned())
        .map(|range| (range.start, range))
        .collect();

    found
        .into_values()
        .map(|range| section(range, read))
        .collect()
}

fn section(range: Range<u64>, read: &Read<'_, '_>) -> Section {
    Section {
        kind: SectionKind::EhFrame,
        address: range.start,
        data: Bytes::from_vec(read(range.start, range.end - range.start).to_vec()),
    }
}

struct Search<'r, 'm> {
    read: &'r Read<'r, 'm>,
    /// The tables by the address that was registered.
    known: BTreeMap<u64, Range<u64>>,
    /// How many bytes may still be tried.
    left: Cell<u64>,
    /// The size of all known tables.
    size: u64,
    /// The code of each FDE of a known table, by the table's start.
    ranges: BTreeMap<u64, HashSet<Range<u64>>>,
    /// Objects, entries of arrays, and nodes that were taken.
    objects: HashSet<u64>,
    entries: HashSet<u64>,
    nodes: HashSet<u64>,
    /// Where the registered tables start.
    begins: BTreeSet<u64>,
}

impl Search<'_, '_> {
    fn words<const N: usize>(&self, address: u64) -> Option<[u64; N]> {
        let bytes = (self.read)(address, 8 * N as u64).as_chunks::<8>().0;
        let words: &[[u8; 8]; N] = bytes.try_into().ok()?;
        Some(words.map(u64::from_le_bytes))
    }

    /// Takes the objects of a list, if there is one.
    fn list(&mut self, head: u64) {
        let mut at = head;
        while at != 0 && self.objects.len() < OBJECTS_MAX && !self.objects.contains(&at) {
            let Some((begins, next)) = self.object(at) else {
                return;
            };
            self.objects.insert(at);
            self.begins.extend(begins);
            at = next;
        }
    }

    /// Where the tables of the object at `at` start, and its `next`. `None` if there is no object.
    fn object(&mut self, at: u64) -> Option<(Vec<u64>, u64)> {
        let [_, _, _, table, flags, next]: [u64; OBJECT_SIZE as usize / 8] = self.words(at)?;
        // The flags are 32 bits in a word that was zero. Eight of them are the pointers' encoding, which
        // is omitted until the table was looked at.
        let encoding = (flags >> 3) as u8;
        let is_encoding = matches!(encoding & 0x0f, 0..=4 | 9..=12) && encoding & 0x70 <= 0x50;
        let has_flags = flags >> 32 == 0 && (is_encoding || encoding == u8::MAX);
        if table == 0 || !has_flags {
            return None;
        }
        let first = match flags & SORTED {
            // `struct fde_vector` starts with what was registered.
            SORTED => self.words::<1>(table)?[0],
            _ => table,
        };
        let begins = match flags & FROM_ARRAY {
            FROM_ARRAY => self.array(first)?,
            _ => vec![first],
        };
        begins
            .iter()
            .all(|&begin| self.table(begin).is_some())
            .then_some((begins, next))
    }

    /// The addresses in an array that ends with 0.
    fn array(&self, at: u64) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        for n in 0..ARRAY_MAX {
            self.spend(8)?;
            match self.words::<1>(at.checked_add(8 * n)?)? {
                [0] => return (!out.is_empty()).then_some(out),
                [begin] => out.push(begin),
            }
        }
        None
    }

    /// Takes the objects of a B-tree's node and of those below it. Returns whether there is one.
    fn tree(&mut self, at: u64, depth: u32) -> bool {
        // What only looks like a node may lead anywhere.
        if depth > DEPTH_MAX || self.nodes.len() >= OBJECTS_MAX {
            return false;
        }
        let node = (self.read)(at, NODE_SIZE);
        if node.len() as u64 != NODE_SIZE || self.nodes.contains(&at) {
            return false;
        }
        let half = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|n| node[at + n]));
        let (count, kind) = (half(8), half(12));
        let words = node[NODE_HEAD..].as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_le_bytes(*word)).collect();
        // A separator and a child; or base, size and object (`unwind-dw2-btree.h`).
        let (entry, most) = match kind {
            INNER => (2, INNER_ENTRIES_MAX),
            LEAF => (3, LEAF_ENTRIES_MAX),
            _ => return false,
        };
        if count == 0 || count > most {
            return false;
        }

        // Keys rise; in a leaf the ranges do not overlap either.
        let entries: Vec<&[u64]> = words.chunks_exact(entry).take(count as usize).collect();
        let end = |entry: &[u64]| match kind {
            LEAF => entry[0].checked_add(entry[1]),
            _ => entry[0].checked_add(1).or(Some(u64::MAX)),
        };
        let rises = |pair: &[&[u64]]| end(pair[0]).is_some_and(|end| end <= pair[1][0]);
        if !entries.windows(2).all(rises) {
            return false;
        }
        match kind {
            LEAF => {
                let found = entries.iter().map(|entry| self.object(entry[2]));
                let Some(found) = found.collect::<Option<Vec<_>>>() else {
                    return false;
                };
                let begins = found.into_iter().flat_map(|(begins, _)| begins);
                self.begins.extend(begins);
                self.nodes.insert(at);
                true
            }
            _ => {
                self.nodes.insert(at);
                // The node itself is known by now, so that a circle ends.
                let mut children = entries.iter();
                children.all(|entry| entry[1] != at && self.tree(entry[1], depth + 1))
            }
        }
    }

    /// The addresses of the `.eh_frame` that was registered as `begin`, with its terminator. `None` if
    /// there is none.
    fn table(&mut self, begin: u64) -> Option<Range<u64>> {
        if let Some(known) = self.known.get(&begin) {
            return Some(known.clone());
        }
        let found = self.read_table(begin)?;
        self.size += found.end - found.start;
        self.known.insert(begin, found.clone());
        Some(found)
    }

    /// Counts bytes that are tried. `None` if there were too many: the core is not what it seems.
    fn spend(&self, bytes: u64) -> Option<()> {
        self.left.set(self.left.get().checked_sub(bytes)?);
        Some(())
    }

    /// Takes the FDEs of libunwind's array: a group, the code, and the FDE of each.
    fn entries(&mut self, head: u64) {
        const SIZE: u64 = 32;
        let mut at = head;
        while self.entries.len() < OBJECTS_MAX && !self.entries.contains(&at) {
            let Some([_, start, end, fde]) = self.words(at) else {
                return;
            };
            let begin = (start < end).then(|| self.cie_of(fde)).flatten();
            let Some(begin) = begin.filter(|&begin| self.describes(begin, &(start..end))) else {
                return;
            };
            self.entries.insert(at);
            self.begins.insert(begin);
            let Some(next) = at.checked_add(SIZE) else {
                return;
            };
            at = next;
        }
    }

    /// The address of the CIE of the FDE at `fde`.
    fn cie_of(&self, fde: u64) -> Option<u64> {
        let head = (self.read)(fde, 8);
        let back = half(head, 4).filter(|&back| back != 0 && half(head, 0) != Some(0))?;
        fde.checked_add(4)?.checked_sub(u64::from(back))
    }

    /// Whether the table at `begin` has an FDE of exactly this code.
    fn describes(&mut self, begin: u64, code: &Range<u64>) -> bool {
        let Some(table) = self.table(begin) else {
            return false;
        };
        let ranges = self.ranges.entry(table.start).or_insert_with(|| {
            let image = Image::new(ImageParts {
                sections: vec![section(table, self.read)],
                ..ImageParts::default()
            });
            let units = dwarf::units(&image, TableKind::EhFrame).filter_map(Result::ok);
            units.map(|unit| unit.range).collect()
        });
        ranges.contains(code)
    }

    fn read_table(&self, begin: u64) -> Option<Range<u64>> {
        let left = ALL_SIZE_MAX.saturating_sub(self.size);
        let bytes = (self.read)(begin, TABLE_SIZE_MAX.min(left));
        let (mut at, mut has_fde) = (0, false);
        let mut cies = BTreeSet::new();
        while let Some(record) = record(bytes, at)? {
            self.spend(record.len() as u64 + 4)?;
            let place = begin.checked_add(at as u64 + 4)?;
            let cie = match half(record, 0)? {
                0 => place - 4,
                // The distance from the pointer back to its CIE.
                back => {
                    has_fde = true;
                    place.checked_sub(u64::from(back))?
                }
            };
            if !cies.contains(&cie) {
                self.is_cie(cie).then(|| cies.insert(cie))?;
            }
            at += 4 + record.len();
        }

        // A linker joins equal CIEs. That of the start files' first objects lies before the label that
        // they register.
        let start = cies.first().copied().filter(|_| has_fde)?.min(begin);
        let before = (self.read)(start, begin - start);
        let mut reached = 0;
        while reached < before.len() {
            reached += 4 + record(before, reached)??.len();
        }
        let is_one = reached as u64 == begin - start;
        is_one.then(|| start..begin.saturating_add(at as u64 + 4))
    }

    /// Whether there is a record at `address` that has the ID of a CIE, its version and an augmentation.
    fn is_cie(&self, address: u64) -> bool {
        const HEAD: u64 = 24;
        let bytes = (self.read)(address, HEAD);
        let (Some(1..), Some(0)) = (half(bytes, 0), half(bytes, 4)) else {
            return false;
        };
        let (Some(version), Some(text)) = (bytes.get(8), bytes.get(9..)) else {
            return false;
        };
        let end = text.iter().position(|&byte| byte == 0);
        matches!(version, 1 | 3 | 4)
            && end.is_some_and(|end| text[..end].iter().all(u8::is_ascii_alphabetic))
    }
}

/// The number in four bytes.
fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

/// The record at `at` behind its length, or `Some(None)` for a terminator. `None` if it is not there, or
/// longer than 4 GiB, which nobody writes.
fn record(bytes: &[u8], at: usize) -> Option<Option<&[u8]>> {
    match half(bytes, at)? {
        0 => Some(None),
        length => {
            let start = at + 4;
            let end = start.checked_add(length as usize)?;
            Some(Some(bytes.get(start..end)?))
        }
    }
}

#[cfg(test)]
mod tests;

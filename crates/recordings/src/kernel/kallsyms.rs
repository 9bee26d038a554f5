//! kallsyms: finds and unpacks the symbol table in a kernel's `.rodata`, without knowing its
//! address.
//!
//! Source: Linux `scripts/kallsyms.c` (`write_src`) and `kernel/kallsyms.c`, 4.14 to 6.12; a 7.2
//! image. The parts are aligned to 8 bytes, or to 4 in 7.2:
//!
//! ```text
//! token_table  256 NUL-terminated strings: what each byte of a packed name stands for
//! token_index  256 u16: offset of each token in token_table
//! names        for each symbol: length (two bytes if over 127, since 6.1), packed name;
//!              the first letter of the unpacked name is the symbol's type
//! markers      offset of every 256th name; u32, before 5.0 as wide as a pointer
//! num_syms     directly before names; as wide as the alignment of the parts
//! values       `addresses` (u64), or `offsets` (u32) followed by `relative_base`
//! ```
//!
//! `names`, `markers`, `token_table` and `token_index` are in this order; since 6.2,
//! `seqs_of_names` is somewhere between or after them. The values are before num_syms or, since
//! 6.4, after token_index. What an offset means depends on the configuration
//! (`CONFIG_KALLSYMS_ABSOLUTE_PERCPU`, removed in 6.15). Both are found by trial: the form and
//! position are right if addresses are sorted and code symbols are in the text.

mod values;

use super::symbols::KernelSymbols;
use std::ops::Range;
use values::Values;

/// Minimum alignment of all parts, bytes.
const ALIGN_MIN: usize = 4;
/// Minimum number of symbols: gives at least two markers, and every kernel has more.
const SYMBOLS_MIN: usize = 257;
/// Maximum length of a name, bytes (`KSYM_NAME_LEN` is 512 since 6.1).
const NAME_LEN_MAX: usize = 1024;
/// Maximum length of all names together, bytes; real kernels have 4 MiB.
const NAME_BYTES_MAX: usize = 256 << 20;
/// Maximum length of a token, bytes; well above that of two names.
const TOKEN_LEN_MAX: usize = 512;
/// Number of names examined before the search is given up. Enough to find a table of 7 million
/// symbols.
const STEPS_MAX: u64 = 1 << 25;
/// Maximum number of token tables tried.
const TABLES_MAX: usize = 64;

/// An unpacked kallsyms table.
#[derive(Debug)]
pub(super) struct Found {
    /// Its symbols, in table order.
    pub(super) symbols: KernelSymbols,
    /// The form of its addresses.
    pub(super) form: Form,
}

/// How a kallsyms table stores addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `kallsyms_addresses`
    Addresses,
    /// Negative: relative to the base; otherwise absolute: `CONFIG_KALLSYMS_ABSOLUTE_PERCPU`.
    AbsolutePercpu,
    /// All relative to the base.
    BaseRelative,
    /// Each relative to its own location; there is no base.
    PlaceRelative,
}

impl Form {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Form::Addresses => "addresses",
            Form::AbsolutePercpu => "offsets, absolute per-CPU",
            Form::BaseRelative => "offsets from a base",
            Form::PlaceRelative => "offsets from their places",
        }
    }
}

/// Finds the table in `bytes`, which are loaded at `address`. `text` are the ranges of code.
pub(super) fn find(bytes: &[u8], address: u64, text: &[Range<u64>]) -> Option<Found> {
    // Alignment refers to addresses.
    let skip = (address.wrapping_neg() % 8) as usize;
    let bytes = bytes.get(skip..)?;
    let address = address.wrapping_add(skip as u64);
    let mut steps = STEPS_MAX;

    // The table is among the data. Code, if it is known, is searched last.
    let end = address.saturating_add(bytes.len() as u64);
    let offset = |at: u64| (at.clamp(address, end) - address) as usize;
    let code = text.iter().map(|r| offset(r.start)..offset(r.end));
    let mut code: Vec<_> = code.collect();
    code.sort_by_key(|range| range.start);

    // The data is what lies between the ranges of code.
    let (mut data, mut start) = (Vec::new(), 0);
    for range in &mut code {
        let from = range.start.max(start);
        data.push(start..from);
        *range = from..range.end.max(from);
        start = range.end;
    }
    data.push(start..bytes.len());

    data.into_iter()
        .chain(code)
        .flat_map(|range| token_indices(bytes, range))
        .filter_map(|index| Tokens::before(bytes, index))
        .take(TABLES_MAX)
        .find_map(|tokens| tokens.table(bytes, address, text, &mut steps))
}

/// Offsets in `range` of 256 ascending u16, the first of them 0.
fn token_indices(bytes: &[u8], range: Range<usize>) -> impl Iterator<Item = usize> {
    let first = range.start / ALIGN_MIN;
    let (words, _) = bytes.as_chunks::<ALIGN_MIN>();
    let last = words.len().min(range.end.div_ceil(ALIGN_MIN) + 1);
    let words = words.get(first..last).unwrap_or_default();
    let halves = |word: [u8; 4]| {
        [
            u16::from_le_bytes([word[0], word[1]]),
            u16::from_le_bytes([word[2], word[3]]),
        ]
    };
    let starts = words.windows(2).enumerate().filter(move |(_, pair)| {
        let ([a, b], [c, d]) = (halves(pair[0]), halves(pair[1]));
        a == 0 && a < b && b < c && c < d
    });
    let places = starts.map(move |(i, _)| (first + i) * ALIGN_MIN);
    places.filter(|at| read_index(bytes, *at).is_some())
}

fn read_index(bytes: &[u8], at: usize) -> Option<[u16; 256]> {
    let (pairs, _) = bytes.get(at..at + 512)?.as_chunks::<2>();
    let mut index = [0; 256];
    for (slot, pair) in index.iter_mut().zip(pairs) {
        *slot = u16::from_le_bytes(*pair);
    }
    let near = |w: &[u16]| w[0] < w[1] && usize::from(w[1] - w[0]) <= TOKEN_LEN_MAX;
    index.windows(2).all(near).then_some(index)
}

/// The tokens, and the locations of token table and index.
struct Tokens<'a> {
    list: [&'a [u8]; 256],
    table_start: usize,
    index_start: usize,
}

impl<'a> Tokens<'a> {
    /// The token table directly before the index at `index_start`.
    fn before(bytes: &'a [u8], index_start: usize) -> Option<Tokens<'a>> {
        let index = read_index(bytes, index_start)?;
        // The index has the place of each token in the table, in order.
        let last = usize::from(index[255]);

        let nearest = index_start.checked_sub(last + 1)? & !(ALIGN_MIN - 1);
        let farthest = nearest.saturating_sub(TOKEN_LEN_MAX);
        let mut starts = (farthest..=nearest).rev().step_by(ALIGN_MIN);

        starts.find_map(|table_start| {
            let table = bytes.get(table_start..index_start)?;
            let mut list = [&table[..0]; 256];

            for (i, slot) in list.iter_mut().enumerate() {
                let rest = &table[usize::from(index[i])..];
                let end = rest.iter().position(|b| *b == 0)?;
                let next = index
                    .get(i + 1)
                    .map(|n| usize::from(*n) - usize::from(index[i]));
                // A token ends with a zero, and the next one follows.
                if next.is_some_and(|next| next != end + 1) {
                    return None;
                }
                // Nothing but padding is between the last token and the index.
                if next.is_none() && (rest[end..].len() > 8 || rest[end..].iter().any(|b| *b != 0))
                {
                    return None;
                }
                *slot = &rest[..end];
            }

            Some(Tokens {
                list,
                table_start,
                index_start,
            })
        })
    }

    /// The kallsyms table that uses these tokens.
    fn table(
        &self,
        bytes: &[u8],
        address: u64,
        text: &[Range<u64>],
        steps: &mut u64,
    ) -> Option<Found> {
        let names = self.names(bytes, steps)?;
        let plain = self.unpack(bytes, &names)?;
        let values = Values {
            bytes,
            address,
            count: names.count,
            plain: &plain,
            text,
        };
        let (form, addresses) = values.find(names.start - names.align, self.index_start + 512)?;
        let symbols = KernelSymbols::with_types(plain.names, &plain.ends, &addresses)?;
        Some(Found { symbols, form })
    }

    /// The names: before the token table, after their count, and followed by matching markers.
    fn names(&self, bytes: &[u8], steps: &mut u64) -> Option<Names> {
        // An eight-byte count gives fewer false positives.
        self.names_aligned::<8>(bytes, steps)
            .or_else(|| self.names_aligned::<ALIGN_MIN>(bytes, steps))
    }

    fn names_aligned<const ALIGN: usize>(&self, bytes: &[u8], steps: &mut u64) -> Option<Names> {
        let (words, _) = bytes.get(..self.table_start)?.as_chunks::<ALIGN>();
        for (i, word) in words.iter().enumerate().rev() {
            let start = (i + 1) * ALIGN;
            let room = (self.table_start - start) / 2;
            let (low, high) = word.split_at(ALIGN_MIN);
            let count = low.first_chunk().map_or(0, |b| u32::from_le_bytes(*b)) as usize;
            let is_number = high.iter().all(|b| *b == 0);
            if !is_number || !(SYMBOLS_MIN..=room).contains(&count) {
                continue;
            }
            if let Some(names) = self.names_at(bytes, start, count, ALIGN, steps) {
                return Some(names);
            }
            if *steps == 0 {
                return None;
            }
        }
        None
    }

    fn names_at(
        &self,
        bytes: &[u8],
        start: usize,
        count: usize,
        align: usize,
        steps: &mut u64,
    ) -> Option<Names> {
        let area = &bytes[start..self.table_start];
        let mut markers = Vec::new();
        let mut at = 0;

        for number in 0..count {
            *steps = steps.checked_sub(1)?;
            // `kallsyms_markers` has the offset of every 256th name (`scripts/kallsyms.c`).
            if number % 256 == 0 {
                markers.push(u32::try_from(at).ok()?);
            }
            let (skip, len) = length(area, at)?;
            let first = *area.get(at + skip)?;
            // The first letter of a name is the symbol's type, as nm(1) prints it.
            let kind = *self.list[usize::from(first)].first()?;
            if len == 0 || !(kind.is_ascii_alphabetic() || matches!(kind, b'?' | b'-')) {
                return None;
            }
            at += skip + len;
        }

        let rest = area.get(at.next_multiple_of(align)..)?;
        // Markers have 4 or 8 bytes, depending on the kernel's version.
        let (narrow, _) = rest.as_chunks::<4>();
        let (wide, _) = rest.as_chunks::<8>();
        let narrow = narrow.iter().map(|m| u64::from(u32::from_le_bytes(*m)));
        let wide = wide.iter().map(|m| u64::from_le_bytes(*m));
        let wanted = || markers.iter().map(|m| u64::from(*m));

        let len = markers.len();
        let fit = narrow.take(len).eq(wanted()) || wide.take(len).eq(wanted());
        fit.then_some(Names {
            start,
            count,
            align,
        })
    }

    /// All names, each with its type as the first letter.
    fn unpack(&self, bytes: &[u8], names: &Names) -> Option<Plain> {
        let area = &bytes[names.start..self.table_start];
        let tokens = self.list.map(short);

        // Bytes that a copied token may need.
        let longest = self.list.iter().fold(16, |max, token| max.max(token.len()));
        // Most names are 10 to 30 letters long.
        let mut out = vec![0; names.count * 24];
        let mut ends = Vec::with_capacity(names.count);
        let (mut at, mut end) = (0, 0);

        for _ in 0..names.count {
            let (skip, len) = length(area, at)?;
            let start = end;
            for byte in area.get(at + skip..at + skip + len)? {
                if out.len() - end < longest {
                    out.resize(out.len() + out.len() / 2 + longest, 0);
                }
                let token = self.list[usize::from(*byte)];
                match &tokens[usize::from(*byte)] {
                    Some(short) => out[end..end + short.len()].copy_from_slice(short),
                    None => out[end..end + token.len()].copy_from_slice(token),
                }
                end += token.len();
                // A damaged table could unpack to any size.
                if end - start > NAME_LEN_MAX || end > NAME_BYTES_MAX {
                    return None;
                }
            }
            ends.push(end);
            at += skip + len;
        }

        out.truncate(end);
        Some(Plain {
            names: String::from_utf8(out)
                .ok()
                .filter(|names| names.is_ascii())?,
            ends,
        })
    }
}

/// A token of at most 16 bytes, as nearly all are. A copy of a fixed length needs no call.
fn short(token: &[u8]) -> Option<[u8; 16]> {
    let mut bytes = [0; 16];
    bytes.get_mut(..token.len())?.copy_from_slice(token);
    Some(bytes)
}

/// Size of the length field of the name at `at`, bytes, and the length.
fn length(area: &[u8], at: usize) -> Option<(usize, usize)> {
    let low = usize::from(*area.get(at)?);
    if low & 0x80 == 0 {
        return Some((1, low));
    }
    let high = usize::from(*area.get(at + 1)?);
    Some((2, low & 0x7f | high << 7))
}

/// Start, number and alignment of the packed names.
struct Names {
    start: usize,
    count: usize,
    align: usize,
}

/// The unpacked names, concatenated.
struct Plain {
    names: String,
    ends: Vec<usize>,
}

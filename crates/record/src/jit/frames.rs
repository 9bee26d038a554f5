//! Entries of `.eh_frame` format in a program's memory.

use std::ops::Range;
use unwind_sim_emulator::AddressSpace;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::row::TableKind;

/// The maximum size of a registered section, bytes.
pub(super) const SECTION_MAX: u64 = 64 << 20;
/// The maximum number of bytes of code that a table's image keeps, for listings.
const TEXT_MAX: u64 = 1 << 20;
/// The maximum number of sections in a list.
const LIST_MAX: u64 = 4096;

/// Unwind entries, and the addresses at which they are meant.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    pub(super) kind: SectionKind,
    /// The address of the first byte.
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
    /// The only FDE that counts, as an offset.
    pub(super) only: Option<u64>,
    /// The base of data-relative pointers.
    pub(super) data: Option<u64>,
    pub(super) symbols: Vec<Symbol>,
}

impl Frames {
    /// An `.eh_frame` section.
    pub(super) fn eh_frame(address: u64, bytes: Vec<u8>) -> Frames {
        Frames {
            kind: SectionKind::EhFrame,
            address,
            bytes,
            only: None,
            data: None,
            symbols: Vec::new(),
        }
    }

    fn section(&self) -> Section {
        Section {
            kind: self.kind,
            address: self.address,
            data: Bytes::from_vec(self.bytes.clone()),
        }
    }

    fn parts(&self) -> ImageParts {
        let got = self.data.map(|address| Section {
            kind: SectionKind::Got,
            address,
            data: Bytes::from_vec(Vec::new()),
        });
        ImageParts {
            sections: [Some(self.section()), got].into_iter().flatten().collect(),
            ..ImageParts::default()
        }
    }

    /// The code that the entries describe, sorted, without overlaps. `None` if there is none.
    pub(super) fn code(&self) -> Option<Vec<Range<u64>>> {
        let image = Image::new(self.parts());
        let table = match self.kind {
            SectionKind::DebugFrame => TableKind::DebugFrame,
            _ => TableKind::EhFrame,
        };
        let units = dwarf::units(&image, table).filter_map(Result::ok);
        let units = units.filter(|u| self.only.is_none_or(|only| only == u.offset));
        let mut code: Vec<Range<u64>> = units.map(|u| u.range).collect();
        code.retain(|range| !range.is_empty());
        code.sort_by_key(|range| (range.start, range.end));
        code.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        (!code.is_empty()).then_some(code)
    }

    /// An image of this code, with its bytes as they are now.
    pub(super) fn image(self, code: &[Range<u64>], memory: &AddressSpace) -> Image {
        let mut parts = self.parts();
        let mut left = TEXT_MAX;
        for range in code {
            let size = (range.end - range.start).min(left);
            left -= size;
            let mut bytes = vec![0; size as usize];
            if memory.read(range.start, &mut bytes).is_ok() {
                parts.sections.push(Section {
                    kind: SectionKind::Text,
                    address: range.start,
                    data: Bytes::from_vec(bytes),
                });
            }
        }
        let first = code.first().map_or(0, |range| range.start);
        Image::new(ImageParts {
            name: format!("[jit {first:#x}]"),
            text: code.to_vec(),
            symbols: self.symbols,
            ..parts
        })
    }
}

/// The header of an entry: where its CIE pointer is, that pointer (0 for a CIE), and where the
/// entry ends.
fn entry(memory: &AddressSpace, at: u64) -> Option<(u64, u32, u64)> {
    let word = |at: u64| {
        let mut word = [0; 4];
        memory.read(at, &mut word).ok()?;
        Some(u32::from_le_bytes(word))
    };
    let (start, length) = match word(at)? {
        0 => return None,
        u32::MAX => (
            at.checked_add(12)?,
            memory.read_u64(at.checked_add(4)?).ok()?,
        ),
        length => (at.checked_add(4)?, length.into()),
    };
    let end = start.checked_add(length)?;
    Some((start, word(start)?, end))
}

/// The entries at `begin`: all up to a length of zero or to the end of what can be read, or one FDE
/// if `single` (LSB 5.0 Core, "Exception Frames"). `data` is the base of data-relative pointers.
pub(super) fn read(
    memory: &AddressSpace,
    begin: u64,
    single: bool,
    data: Option<u64>,
) -> Option<Frames> {
    let (mut first, mut end) = (begin, begin);
    while let Some((start, pointer, next)) = entry(memory, end) {
        // What is not a table may look like one for long.
        if next.checked_sub(begin)? > SECTION_MAX {
            return None;
        }
        if single && pointer == 0 {
            // LLVM's libunwind refuses a CIE.
            return None;
        }
        if pointer != 0 {
            // The CIE may be before the first entry.
            first = first.min(start.checked_sub(pointer.into())?);
        }
        end = next;
        if single {
            break;
        }
    }

    let size = end.checked_sub(first).filter(|size| *size <= SECTION_MAX)?;
    let mut bytes = vec![0; size as usize];
    memory.read(first, &mut bytes).ok()?;
    Some(Frames {
        only: single.then_some(begin - first),
        data,
        ..Frames::eh_frame(first, bytes)
    })
}

/// The pointers in a list that ends with zero.
pub(super) fn list(memory: &AddressSpace, begin: u64) -> Vec<u64> {
    let words = (0..LIST_MAX).map(|i| memory.read_u64(begin.wrapping_add(i * 8)));
    let words = words.map_while(Result::ok);
    words.take_while(|&word| word != 0).collect()
}

//! Who made the code at an address: the unit of debug information that holds it.
//!
//! Source: DWARF 5, section 3.1.1 (`DW_AT_producer`, `DW_AT_name` of compilation units).

use super::FinderOptions;
use super::candidates::in_tree;
use super::debug::unpacked;
use crate::mapped::map_file;
use gimli::{AttributeValue, DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::read::elf::{ElfFile64, SectionHeader};
use object::{Endianness, Object as _};
use std::borrow::Cow;
use std::ops::Range;
use unwind_sim_unwind::image::Owner;

/// The maximum number of units looked at.
const UNITS_MAX: usize = 1 << 20;
/// The maximum number of their ranges that are kept.
const RANGES_MAX: usize = 1 << 22;
/// The maximum length of a producer or a name, bytes.
const TEXT_LEN_MAX: usize = 4096;

type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// What a unit says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Producer {
    /// The compiler or assembler, often with its options: `DW_AT_producer`.
    pub text: String,
    /// The source file: `DW_AT_name`.
    pub source: String,
}

/// The producer of the code at `svma`. `file` are the bytes of an ELF file; if it has no debug
/// information, that of its separate debug file, found by `build_id`. `None` if there is neither.
pub fn producer(
    file: &[u8],
    svma: u64,
    build_id: &[u8],
    options: &FinderOptions,
) -> Option<Producer> {
    if has_debug_info(file) {
        return in_file(file, svma);
    }
    let debug = debug_file(build_id, options)?;
    in_file((*debug).as_ref(), svma)
}

/// The separate debug file with this build id.
fn debug_file(build_id: &[u8], options: &FinderOptions) -> Option<Owner> {
    let dirs = options.debug_dirs.iter();
    let mut paths = dirs.filter_map(|dir| in_tree(dir, build_id, ".debug"));
    paths.find_map(|path| {
        let debug = map_file(&path).ok()?;
        let elf: ElfFile64<'_> = ElfFile64::parse((*debug).as_ref()).ok()?;
        let is_its = elf.build_id().ok().flatten() == Some(build_id);
        is_its.then_some(debug)
    })
}

fn has_debug_info(file: &[u8]) -> bool {
    let elf = ElfFile64::<Endianness>::parse(file).ok();
    elf.is_some_and(|elf| elf.section_by_name(".debug_info").is_some())
}

fn in_file(file: &[u8], svma: u64) -> Option<Producer> {
    let mut found = None;
    units(file, &mut |range, unit| {
        let is_it = range.contains(&svma);
        if is_it {
            found = unit();
        }
        !is_it
    });
    found
}

/// The producers of all code of a file, for many questions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Producers {
    /// The ranges of units (svma), by start, each with the index of its producer.
    ranges: Vec<(Range<u64>, usize)>,
    all: Vec<Producer>,
}

impl Producers {
    /// Those of an ELF file; see [`producer`].
    pub fn read(file: &[u8], build_id: &[u8], options: &FinderOptions) -> Producers {
        let mut producers = Producers::default();
        if has_debug_info(file) {
            producers.add(file);
        } else if let Some(debug) = debug_file(build_id, options) {
            producers.add((*debug).as_ref());
        }
        producers.ranges.sort_by_key(|(range, _)| range.start);
        producers
    }

    fn add(&mut self, file: &[u8]) {
        units(file, &mut |range, unit| {
            if let Some(made) = unit().filter(|_| self.ranges.len() < RANGES_MAX) {
                // The ranges of a unit follow each other.
                if self.all.last() != Some(&made) {
                    self.all.push(made);
                }
                self.ranges.push((range, self.all.len() - 1));
            }
            true
        });
    }

    /// The producer of the code at `svma`.
    pub fn at(&self, svma: u64) -> Option<&Producer> {
        let after = self
            .ranges
            .partition_point(|(range, _)| range.start <= svma);
        let (range, unit) = self.ranges.get(after.checked_sub(1)?)?;
        self.all.get(*unit).filter(|_| range.contains(&svma))
    }
}

/// Makes the producer of a unit.
type Maker<'m> = &'m dyn Fn() -> Option<Producer>;

/// Gives `each` the ranges of a file's units, each with what makes its producer, until it returns
/// false.
fn units(file: &[u8], each: &mut dyn FnMut(Range<u64>, Maker<'_>) -> bool) {
    let Ok(elf) = ElfFile64::<Endianness>::parse(file) else {
        return;
    };

    let load = |id: SectionId| -> Result<Cow<'_, [u8]>, gimli::Error> {
        // Only what units need: their names, ranges, and the header of their line program.
        let wanted = matches!(
            id,
            SectionId::DebugInfo
                | SectionId::DebugAbbrev
                | SectionId::DebugStr
                | SectionId::DebugLineStr
                | SectionId::DebugStrOffsets
                | SectionId::DebugAddr
                | SectionId::DebugRanges
                | SectionId::DebugRngLists
                | SectionId::DebugLine
        );
        let bytes = wanted.then(|| section(&elf, id.name())).flatten();
        Ok(bytes.unwrap_or_default())
    };

    let Ok(sections) = DwarfSections::load(load) else {
        return;
    };

    let dwarf = sections.borrow(|bytes| EndianSlice::new(bytes, LittleEndian));
    let mut headers = dwarf.units();
    // A damaged file may have any number of them.
    for _ in 0..UNITS_MAX {
        let Ok(Some(header)) = headers.next() else {
            return;
        };
        // A damaged unit says nothing of the others.
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else {
            continue;
        };
        while let Ok(Some(range)) = ranges.next() {
            if !each(range.begin..range.end, &|| of_unit(&dwarf, &unit)) {
                return;
            }
        }
    }
}

fn of_unit(dwarf: &gimli::Dwarf<Slice<'_>>, unit: &gimli::Unit<Slice<'_>>) -> Option<Producer> {
    let mut entries = unit.entries();
    entries.next_dfs().ok()?;
    let root = entries.current()?;
    let text = |name| {
        let value: AttributeValue<Slice<'_>> = root.attr_value(name)?;
        let bytes = dwarf.attr_string(unit, value).ok()?;
        let bytes = &bytes.slice()[..bytes.len().min(TEXT_LEN_MAX)];
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    Some(Producer {
        text: text(gimli::DW_AT_producer)?,
        source: text(gimli::DW_AT_name).unwrap_or_default(),
    })
}

/// The bytes of a section, unpacked.
fn section<'d>(elf: &ElfFile64<'d>, name: &str) -> Option<Cow<'d, [u8]>> {
    let (endian, data) = (elf.endian(), elf.data());
    let table = elf.elf_section_table();
    let (_, section) = table.section_by_name(endian, name.as_bytes())?;
    let packed = section.compression(endian, data).ok()?;
    let Some((header, offset, size)) = packed else {
        return section.data(endian, data).ok().map(Cow::Borrowed);
    };
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    unpacked(header, endian, data.get(start..end)?).map(Cow::Owned)
}

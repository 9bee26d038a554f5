//! What the debugging information says of conventions (DWARF 5, 3.1.1 and 3.3): who compiled a unit
//! (`DW_AT_producer`), and how a function is called (`DW_AT_calling_convention`).

use crate::convention::{Convention, Evidence, Span, spans::SPANS_MAX};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use gimli::{
    AttributeValue, DebugAddrBase, DebugRngListsBase, DebugStrOffsetsBase, DwAt, DwLang, Dwarf,
    EndianSlice, LittleEndian, SectionId, UnitHeader, constants as dw,
};
use hashbrown::HashMap;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Unit<'a> = gimli::Unit<Slice<'a>>;

/// The maximum number of compilation units that are read.
const UNITS_MAX: usize = 1 << 18;
/// How many bytes of abbreviations and entries are read at most.
const WORK_MAX: usize = 1 << 30;

/// `DW_LANG_Zig`, which only Zig's own code generator says; with LLVM, Zig says C99.
const DW_LANG_ZIG: DwLang = DwLang(0x27);

/// The code whose producer or calling convention the debugging information names.
#[derive(Default)]
pub(super) struct ConventionSpans {
    /// By compilation unit, System V's included.
    pub(super) units: Vec<Span>,
    /// By function, from units whose functions may differ.
    pub(super) functions: Vec<Span>,
}

/// Reads what the debugging information says. What of it is damaged says nothing.
pub(super) fn read(sections: &Sections<'_>) -> ConventionSpans {
    let mut found = ConventionSpans::default();
    let load = |id: SectionId| -> Result<Slice<'_>, gimli::Error> { Ok(sections.get(id)) };
    let Ok(dwarf) = Dwarf::load(load) else {
        return found;
    };
    let mut reader = Reader {
        dwarf: &dwarf,
        abbreviations: sections.get(SectionId::DebugAbbrev).slice(),
        shapes: HashMap::new(),
        work: 0,
    };
    let mut units = dwarf.units();
    let mut count = 0;
    while let Ok(Some(header)) = units.next() {
        count += 1;
        if count > UNITS_MAX || reader.work > WORK_MAX || found.units.len() > SPANS_MAX {
            break;
        }
        let _ = reader.unit(header, &mut found);
    }
    found
}

/// What the abbreviations of a unit can say.
#[derive(Clone, Copy, Default)]
struct Shape {
    /// Functions have `DW_AT_calling_convention`.
    has_conventions: bool,
    /// The number of bytes.
    length: usize,
}

struct Reader<'d, 'a> {
    dwarf: &'d Dwarf<Slice<'a>>,
    abbreviations: &'a [u8],
    /// By offset in `.debug_abbrev`: units can share one table.
    shapes: HashMap<usize, Shape>,
    work: usize,
}

impl<'a> Reader<'_, 'a> {
    /// Reads one unit; `None` if it says nothing, or is damaged.
    fn unit(&mut self, header: UnitHeader<Slice<'a>>, found: &mut ConventionSpans) -> Option<()> {
        let shape = self.shape(header.debug_abbrev_offset().0)?;
        // Units can share one long abbreviation table, so each use of it counts.
        self.work += shape.length;
        let abbreviations = self.dwarf.abbreviations(&header).ok()?;

        // Filled in by hand: gimli's own constructor also parses the unit's line program.
        let length = header.length_including_self();
        let mut unit = Unit {
            name: None,
            comp_dir: None,
            low_pc: 0,
            str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(
                header.encoding(),
                self.dwarf.file_type,
            ),
            addr_base: DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase(0),
            rnglists_base: DebugRngListsBase::default_for_encoding_and_file(
                header.encoding(),
                self.dwarf.file_type,
            ),
            line_program: None,
            dwo_id: None,
            header,
            abbreviations,
        };

        // The bases come first: ranges and strings are indexes relative to them.
        let root = self.root(&mut unit)?;
        let convention = root.convention()?;
        let ranges = self.dwarf.unit_ranges(&unit).ok()?;
        add(&mut found.units, ranges, convention, Evidence::Producer);

        // Reading all entries takes time, so only where functions differ from their unit.
        let by_function = shape.has_conventions || convention == Convention::Zig;
        if by_function {
            self.work += length;
            self.functions(&unit, convention, found);
        }

        Some(())
    }

    /// The attributes of the unit itself, some of which tell how to read others.
    fn root(&self, unit: &mut Unit<'a>) -> Option<Root<'a>> {
        let mut low_pc = None;
        let (mut producer, mut language) = (None, None);
        {
            let mut entries = unit.header.entries(&unit.abbreviations);
            entries.next_dfs().ok()?;
            for attribute in entries.current()?.attrs() {
                match (attribute.name(), attribute.value()) {
                    (dw::DW_AT_producer, value) => producer = Some(value),
                    (dw::DW_AT_language, AttributeValue::Language(value)) => {
                        language = Some(value);
                    }
                    (dw::DW_AT_low_pc, value) => low_pc = Some(value),
                    (dw::DW_AT_str_offsets_base, AttributeValue::DebugStrOffsetsBase(base)) => {
                        unit.str_offsets_base = base
                    }
                    (
                        // Before DWARF 5, GCC and Clang had the `GNU` ones for split DWARF.
                        dw::DW_AT_addr_base | dw::DW_AT_GNU_addr_base,
                        AttributeValue::DebugAddrBase(base),
                    ) => unit.addr_base = base,
                    (
                        dw::DW_AT_rnglists_base | dw::DW_AT_GNU_ranges_base,
                        AttributeValue::DebugRngListsBase(base),
                    ) => unit.rnglists_base = base,
                    _ => {}
                }
            }
        }

        // Only now: the address may be an index into the table at `addr_base`.
        if let Some(value) = low_pc {
            unit.low_pc = self.dwarf.attr_address(unit, value).ok()?.unwrap_or(0);
        }

        let producer = self.dwarf.attr_string(unit, producer?).ok()?;

        Some(Root {
            producer: producer.slice(),
            language,
        })
    }

    /// What is said of the functions of a unit of `convention`.
    fn functions(&self, unit: &Unit<'a>, convention: Convention, found: &mut ConventionSpans) {
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != dw::DW_TAG_subprogram || found.functions.len() > SPANS_MAX {
                continue;
            }
            let has = |name: DwAt| entry.attr_value(name);
            let said = match has(dw::DW_AT_calling_convention) {
                Some(AttributeValue::CallingConvention(value)) => by_number(value.0),
                _ => None,
            };
            // Zig exports functions with C's convention only.
            let is_exported = has(dw::DW_AT_external) == Some(AttributeValue::Flag(true));
            let said = said.or_else(|| {
                (convention == Convention::Zig && is_exported).then_some(Convention::SystemV)
            });
            if let Some(said) = said
                && let Ok(ranges) = self.dwarf.die_ranges(unit, entry)
            {
                add(&mut found.functions, ranges, said, Evidence::Function);
            }
        }
    }

    /// What the abbreviations at `offset` can say.
    fn shape(&mut self, offset: usize) -> Option<Shape> {
        if let Some(shape) = self.shapes.get(&offset) {
            return Some(*shape);
        }
        let shape = shape(self.abbreviations.get(offset..)?)?;
        self.shapes.insert(offset, shape);
        Some(shape)
    }
}

/// The compilers' conventions by the number in `DW_AT_calling_convention` (LLVM 19,
/// `llvm/BinaryFormat/Dwarf.def`).
fn by_number(number: u8) -> Option<Convention> {
    Some(match number {
        0xc1 => Convention::Ms,
        0xc2 => Convention::SystemV,
        0xc9 => Convention::PreserveMost,
        0xca => Convention::PreserveAll,
        0xcb => Convention::Regcall,
        0xcd => Convention::PreserveNone,
        _ => return None,
    })
}

/// What a unit says of itself.
struct Root<'a> {
    producer: &'a [u8],
    language: Option<DwLang>,
}

impl Root<'_> {
    /// The convention of its code; `None` if that depends on who wrote it: an assembler is no
    /// compiler.
    fn convention(&self) -> Option<Convention> {
        if self.language == Some(dw::DW_LANG_Mips_Assembler) || self.producer.starts_with(b"GNU AS")
        {
            return None;
        }
        Some(match self.producer {
            producer if producer.starts_with(b"Go cmd/compile") => Convention::Go,
            producer if producer.starts_with(b"The Glorious Glasgow Haskell") => Convention::Ghc,
            producer if producer.starts_with(b"zig ") && self.language == Some(DW_LANG_ZIG) => {
                Convention::Zig
            }
            producer if producer.starts_with(b"ocamlopt") => Convention::Ocaml,
            _ => Convention::SystemV,
        })
    }
}

fn add(
    out: &mut Vec<Span>,
    mut ranges: gimli::RangeIter<Slice<'_>>,
    convention: Convention,
    evidence: Evidence,
) {
    while let Ok(Some(range)) = ranges.next() {
        // Linkers put 0 or 1 where they dropped the code.
        if range.begin > 1 && range.begin < range.end && out.len() < SPANS_MAX {
            out.push(Span {
                range: range.begin..range.end,
                convention,
                evidence,
            });
        }
    }
}

/// Reads a list of abbreviations up to its end (DWARF 5, 7.5.3).
fn shape(mut bytes: &[u8]) -> Option<Shape> {
    let whole = bytes.len();
    let mut shape = Shape::default();
    loop {
        if uleb(&mut bytes)? == 0 {
            shape.length = whole - bytes.len();
            return Some(shape);
        }
        let tag = uleb(&mut bytes)?;
        let (_children, rest) = bytes.split_first()?;
        bytes = rest;
        loop {
            let (name, form) = (uleb(&mut bytes)?, uleb(&mut bytes)?);
            if form == u64::from(dw::DW_FORM_implicit_const.0) {
                uleb(&mut bytes)?;
            }
            if (name, form) == (0, 0) {
                break;
            }
            shape.has_conventions |= tag == u64::from(dw::DW_TAG_subprogram.0)
                && name == u64::from(dw::DW_AT_calling_convention.0);
        }
    }
}

fn uleb(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The sections that are needed.
pub(super) const NEEDED: [SectionId; 8] = [
    SectionId::DebugInfo,
    SectionId::DebugAbbrev,
    SectionId::DebugStr,
    SectionId::DebugLineStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugAddr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
];

/// Sections of the debugging information, unpacked.
pub(super) struct Sections<'a>(pub(super) Vec<(SectionId, Cow<'a, [u8]>)>);

impl Sections<'_> {
    fn get(&self, id: SectionId) -> Slice<'_> {
        let found = self.0.iter().find(|section| section.0 == id);
        let bytes = found.map_or(&[][..], |section| &section.1[..]);
        EndianSlice::new(bytes, LittleEndian)
    }
}

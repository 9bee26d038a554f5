//! Object files as `clang -target bpf -c` writes them: programs, maps, license.
//!
//! Each function outside `.text` is a program, and its section says what it is for; functions in
//! `.text` are subprograms, which are appended to the programs that call them. Maps come from
//! `maps` (a structure per symbol) and `.maps` (BTF), and one from each section of global data.
//! Source of the conventions: libbpf 1.x, `Documentation/bpf/llvm_reloc.rst` (Linux 7.2).
//!
//! Not here: relocations against a kernel's types (CO-RE), kernel symbols and Kconfig values,
//! arrays of programs that are filled at first, static linking of several objects; each is refused
//! by name. Nothing is allocated by a stated length: what a file makes us allocate is at most a
//! multiple of its size.

mod btf;
mod elf;
mod link;
mod maps;

use super::error::{ObjectError, ObjectErrorKind as Kind};
use super::insn::Insn;
use unwind_sim_perf_data::btf::{Btf, BtfError};

/// Instructions of one program with its subprograms; the kernel's limit (`BPF_COMPLEXITY_LIMIT`).
pub const INSNS_MAX: usize = 1_000_000;
/// The most instructions of an object, per byte: each program has its own copy of subprograms.
const TOTAL_INSNS_PER_BYTE: usize = 4;
/// The most maps of an object.
const MAPS_MAX: usize = 512;
/// The most programs of an object.
const PROGRAMS_MAX: usize = 4096;

/// The contents of an object file.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Object {
    /// The programs, in the order of their sections and addresses.
    pub programs: Vec<ProgramDef>,
    /// The maps; instructions name them by position.
    pub maps: Vec<MapDef>,
    /// The text of section `license`; empty if there is none.
    pub license: String,
}

/// A program with the subprograms that it needs appended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramDef {
    /// Name of its function.
    pub name: String,
    /// Its section, which is its type, such as `perf_event`.
    pub section: String,
    /// Byte offset of its first instruction in the file.
    pub offset: u64,
    /// The instructions; maps are named by their position in [`Object::maps`].
    pub insns: Vec<Insn>,
    /// The functions with their starts, the program's own first.
    pub functions: Vec<Function>,
}

/// A function within a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its first instruction.
    pub start: usize,
}

/// A map as an object defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDef {
    /// Its name; for global data, that of the section.
    pub name: String,
    /// `BPF_MAP_TYPE_*`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most entries.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// For global data, the initial value; shorter than `value_size` if the rest is zero.
    pub initial: Vec<u8>,
    /// For a map of maps, the slots with the maps that are in them at first.
    pub inner: Vec<(u32, usize)>,
}

/// One section.
#[derive(Clone, Copy)]
struct Section<'a> {
    index: usize,
    name: &'a str,
    bytes: &'a [u8],
    /// Bytes in memory; more than those in the file for `.bss`.
    size: u64,
    /// The offset of `bytes` in the file.
    offset: u64,
    is_code: bool,
}

impl Section<'_> {
    /// An error at offset `at` of the section.
    fn error(&self, kind: Kind, at: u64) -> ObjectError {
        ObjectError::new(kind, self.offset.saturating_add(at), self.name)
    }
}

/// One symbol.
#[derive(Clone, Copy)]
struct Symbol<'a> {
    /// Of a section's symbol: the section's name.
    name: &'a str,
    /// Number of its section; 0 if it is not defined here.
    section: usize,
    value: u64,
    size: u64,
    is_function: bool,
    is_object: bool,
}

/// One relocation of a section of code, or of definitions of maps.
#[derive(Clone, Copy)]
struct Relocation {
    /// Number of the section that it changes.
    section: usize,
    /// Number of the instruction, or of the word of 8 bytes, in that section.
    insn: u64,
    symbol: usize,
    kind: u32,
    /// Its offset in the file.
    offset: u64,
}

/// The parts of an ELF file that an object is made from.
struct Elf<'a> {
    sections: Vec<Section<'a>>,
    symbols: Vec<Symbol<'a>>,
    /// Sorted by section and instruction.
    relocations: Vec<Relocation>,
}

impl<'a> Elf<'a> {
    /// The first section of that name.
    fn section_named(&self, name: &str) -> Option<Section<'a>> {
        self.sections.iter().find(|s| s.name == name).copied()
    }

    /// The relocation of an instruction of a section.
    fn relocation(&self, section: usize, insn: u64) -> Option<&Relocation> {
        let place = (section, insn);
        let found = self
            .relocations
            .binary_search_by_key(&place, |relocation| (relocation.section, relocation.insn));
        found.ok().map(|index| &self.relocations[index])
    }

    /// The symbol that a relocation names.
    fn symbol_of(&self, relocation: &Relocation) -> Result<&Symbol<'a>, ObjectError> {
        self.symbols.get(relocation.symbol).ok_or_else(|| {
            let part = self.sections.get(relocation.section);
            let kind = Kind::Symbol(relocation.symbol as u64);
            ObjectError::new(kind, relocation.offset, part.map_or("", |part| part.name))
        })
    }
}

/// The little-endian word at `at` of a section.
fn word(section: &Section<'_>, at: u64) -> Result<u32, ObjectError> {
    usize::try_from(at)
        .ok()
        .and_then(|at| unwind_sim_perf_data::le::u32_at(section.bytes, at))
        .ok_or_else(|| {
            let have = (section.bytes.len() as u64).saturating_sub(at);
            section.error(Kind::Short { need: 4, have }, at)
        })
}

/// The section `.BTF`.
struct Types<'a> {
    section: Section<'a>,
    btf: Btf<&'a [u8]>,
}

impl Types<'_> {
    /// An error of the reader of types, with its offset in the file.
    fn at(&self, error: BtfError) -> ObjectError {
        self.error(Kind::Btf(error.kind), error.offset)
    }

    /// An error at offset `at` of the section.
    fn error(&self, kind: Kind, at: u64) -> ObjectError {
        self.section.error(kind, at)
    }
}

/// The maps of an object, and which symbols mean them.
struct Maps {
    definitions: Vec<MapDef>,
    /// For each map of a `maps` or `.maps` section: section, offset of the symbol, map.
    places: Vec<(usize, u64, usize)>,
    /// For each section of global data: section, map.
    data: Vec<(usize, usize)>,
}

/// The meaning of a symbol in `ld_imm64`.
enum Meaning {
    /// A map.
    Map(usize),
    /// The value of the only entry of a map.
    Value(usize),
}

impl Object {
    /// Reads an object file.
    ///
    /// # Errors
    /// If it is malformed, or needs something that is not supported.
    pub fn parse(bytes: &[u8]) -> Result<Self, ObjectError> {
        let elf = Elf::parse(bytes)?;
        let types = elf.section_named(".BTF").map(Types::parse).transpose()?;
        if let Some(ext) = elf.section_named(".BTF.ext") {
            btf::refuse_core(ext)?;
        }
        let maps = Maps::collect(&elf, types.as_ref())?;
        let programs = link::programs(&elf, &maps)?;
        let license = elf.section_named("license").map(|section| {
            let text = unwind_sim_perf_data::le::until_nul(section.bytes);
            String::from_utf8_lossy(text).into_owned()
        });
        Ok(Self {
            programs,
            maps: maps.definitions,
            license: license.unwrap_or_default(),
        })
    }
}

/// Fails if there are more than `limit` of something.
fn at_most(count: usize, limit: usize, offset: u64, part: &str) -> Result<(), ObjectError> {
    if count <= limit {
        return Ok(());
    }
    let (count, limit) = (count as u64, limit as u64);
    Err(ObjectError::new(
        Kind::TooMany { count, limit },
        offset,
        part,
    ))
}

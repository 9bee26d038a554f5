//! Object files as `clang -target bpf -c` writes them: programs, maps, license.
//!
//! Each function outside `.text` is a program, and its section says what it is for; functions in
//! `.text` are subprograms, which are appended to the programs that call them. Maps come from
//! `maps` (a structure per symbol) and `.maps` (BTF), and one from each section of global data.
//! Source of the conventions: libbpf 1.x, `Documentation/bpf/llvm_reloc.rst` (Linux 7.2).
//!
//! Not here: relocations against a kernel's types (CO-RE), kernel symbols and Kconfig values,
//! arrays of programs that are filled at first, static linking of several objects; each is refused by name. Nothing is
//! allocated by a stated length: what a file makes us allocate is at most a multiple of its size.

mod btf;
mod elf;
mod link;
mod maps;

use super::error::{ObjectError, ObjectErrorKind as Kind};
use super::insn::Insn;

/// Instructions of one program with its subprograms; the kernel's limit (`BPF_COMPLEXITY_LIMIT`).
pub const INSNS_MAX: usize = 1_000_000;
/// All instructions that an object may become: each program has subprograms of its own.
const TOTAL_INSNS_PER_BYTE: usize = 4;
/// Maps of an object.
const MAPS_MAX: usize = 512;
/// Programs of an object.
const PROGRAMS_MAX: usize = 4096;

/// What an object file holds.
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
    /// Its section: what it is for, such as `perf_event`.
    pub section: String,
    /// Byte offset of its first instruction in the file.
    pub offset: u64,
    /// The instructions; maps are named by their position in [`Object::maps`].
    pub insns: Vec<Insn>,
    /// Where each function begins, the program's own first.
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
    /// How many entries it may have.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// What its only value holds at first, for global data; shorter than `value_size` where the
    /// rest is zero.
    pub initial: Vec<u8>,
    /// Of a map of maps: slots, and which map is in each at first.
    pub inner: Vec<(u32, usize)>,
}

impl Object {
    /// Reads an object file.
    ///
    /// # Errors
    /// If it is malformed, or needs what is not supported.
    pub fn parse(bytes: &[u8]) -> Result<Self, ObjectError> {
        let elf = elf::Elf::parse(bytes)?;
        let types = elf
            .section_named(".BTF")
            .map(btf::Types::parse)
            .transpose()?;
        if let Some(ext) = elf.section_named(".BTF.ext") {
            btf::refuse_core(ext)?;
        }
        let maps = maps::Maps::collect(&elf, types.as_ref())?;
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

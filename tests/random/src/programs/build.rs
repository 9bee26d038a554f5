//! A program with its addresses: code, data, and the correct table.

use super::code::{self, Code};
use super::numbers::numbers;
use super::row::Table;
use super::{asm::PlacedChunk, cfi, elf, program::RandomProgram};

/// A program that can be written to a file.
#[derive(Debug)]
pub(super) struct BuiltProgram {
    pub(super) code: Code,
    seed: u64,
    /// Whether some frames may be unknown.
    pub(super) is_doubtful: bool,
    /// The correct table.
    pub(super) table: Table,
    /// The addresses of all instructions, ascending.
    pub(super) boundaries: Vec<u64>,
}

impl BuiltProgram {
    pub(super) fn new(program: &RandomProgram) -> Result<BuiltProgram, iced_x86::IcedError> {
        let code = code::lower(program)?;
        let chunks = &code.layout.chunks;
        let mut units: Vec<_> = chunks.iter().filter_map(PlacedChunk::unit).collect();
        units.sort_by_key(|unit| unit.range.start);
        let insns = chunks.iter().flat_map(|chunk| &chunk.insns);
        let mut boundaries: Vec<u64> = insns.map(|(insn, _)| insn.ip()).collect();
        boundaries.sort_unstable();
        Ok(BuiltProgram {
            code,
            seed: program.seed,
            is_doubtful: program.is_doubtful(),
            table: Table(units),
            boundaries,
        })
    }

    /// The ELF file with the given table.
    pub(super) fn file(&self, table: &Table) -> Result<Vec<u8>, gimli::write::Error> {
        let mut rng = numbers(self.seed, 2);
        let tables = cfi::encode(table, elf::EH_FRAME, elf::EH_FRAME_HDR, &mut rng)?;
        let Code {
            layout,
            data,
            entry,
        } = &self.code;
        Ok(elf::write(layout, data, *entry, &tables))
    }

    /// A readable form of an address: function and offset.
    pub(super) fn place(&self, address: u64) -> String {
        let mut chunks = self.code.layout.chunks.iter();
        let chunk = chunks.find(|chunk| chunk.range.contains(&address));
        chunk.map_or(format!("{address:#x}"), |chunk| {
            format!("{}+{:#x}", chunk.name, address - chunk.range.start)
        })
    }
}

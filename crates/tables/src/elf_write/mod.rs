//! Adds sections to an ELF file, or replaces them: [`Editor`]; or writes a new file: [`NewFile`].
//!
//! What is in an edited file keeps its place, in the file and in memory. New sections go into a new
//! read-only `PT_LOAD` segment at the end, after the highest address. Its program header needs room
//! in the program header table, and there is none between that table and what follows it; so the
//! whole table moves to the start of the new segment, and `PT_PHDR` says where it is. The old table
//! stays as dead bytes, as do the contents of a replaced section. `PT_NOTE` or `PT_GNU_STACK` is not
//! reused for this, since programs may need them.
//!
//! The new segment keeps the distance between addresses and file offsets that the first segment has,
//! if that leaves a hole in the file of at most [`HOLE_MAX`] bytes. Then `AT_PHDR` is right under
//! Linux before 5.18, too, which computes it from the first segment, and in static programs that
//! compute it from the ELF header (glibc's `_dl_relocate_static_pie`).
//!
//! Sources: System V gABI, chapters 4 and 5; Linux `fs/binfmt_elf.c`; glibc `elf/rtld.c`,
//! `elf/dl-load.c`.

mod headers;
mod new_file;

pub use headers::ElfWriteError;
pub use new_file::{NewFile, NewFileError, NewFileSection, NewFileSymbol};

use crate::write::sframe::SHT_GNU_SFRAME;
use crate::write::{NewSection, aligned};
use headers::{Program, Section, phdr, shdr};
use std::ops::Range;

const PT_LOAD: u32 = 1;
const PT_PHDR: u32 = 6;
const PF_R: u32 = 4;
const SHT_STRTAB: u32 = 3;
const SHT_NOBITS: u32 = 8;
const SHF_ALLOC: u64 = 2;
/// The page size of x86-64, bytes.
const PAGE: u64 = 0x1000;
/// Where new sections start in their segment is a multiple of this, bytes.
const ALIGN: u64 = 64;
/// The maximum number of program headers that new sections add: the segment's, and two for tables.
const PROGRAMS_ADDED_MAX: usize = 3;
/// The maximum number of bytes left empty in the file, so that the new segment keeps the distance
/// between addresses and offsets. They stand for zeroed memory (`.bss`), which has none.
pub const HOLE_MAX: u64 = 1 << 20;

/// An ELF file to add sections to.
#[derive(Clone, Debug)]
pub struct Editor<'a> {
    name: &'a str,
    data: &'a [u8],
    programs: Vec<Program>,
    sections: Vec<Section>,
    /// The section name string table, and its index; `None` if there is none yet.
    names: Vec<u8>,
    names_index: Option<usize>,
    /// The bytes of the file to keep: all, or all before the section headers at its end.
    kept: u64,
    /// Where the new segment starts: offset in the file, and address (svma).
    segment: (u64, u64),
}

impl<'a> Editor<'a> {
    /// Opens the file in `data`, which errors call `name`.
    ///
    /// # Errors
    /// If it is not a 64-bit little-endian ELF file with segments, is damaged, or has bytes after
    /// its last section, which a program that finds them from the file's end would not find again.
    pub fn open(name: &'a str, data: &'a [u8]) -> Result<Editor<'a>, ElfWriteError> {
        let parts = headers::read(name, data)?;
        let mut editor = Editor {
            name,
            data,
            programs: parts.programs,
            sections: parts.sections,
            names: parts.names,
            names_index: parts.names_index,
            kept: parts.kept,
            segment: (0, 0),
        };
        editor.segment = editor.place()?;
        Ok(editor)
    }

    /// Where the new segment goes: offset in the file, and address (svma).
    fn place(&self) -> Result<(u64, u64), ElfWriteError> {
        let no_room = || ElfWriteError::NoRoom {
            name: self.name.to_owned(),
        };

        // The kernel maps a program by its `PT_LOAD` segments.
        let loads = || self.programs.iter().filter(|p| p.kind == PT_LOAD);
        let first = loads().min_by_key(|p| p.address);
        let first = first.ok_or_else(|| ElfWriteError::NoSegments {
            name: self.name.to_owned(),
        })?;

        // Behind the highest address of all, so that nothing in memory has to move.
        let end = loads().map(|p| p.address.checked_add(p.memory_size));
        let end = end.collect::<Option<Vec<_>>>().ok_or_else(no_room)?;
        let end = end.into_iter().max().unwrap_or(0);
        let end = end.checked_next_multiple_of(PAGE).ok_or_else(no_room)?;

        // In the file, the segment goes behind everything that is kept.
        let offset = self
            .kept
            .checked_next_multiple_of(PAGE)
            .ok_or_else(no_room)?;

        // Kept if possible, for those that compute `AT_PHDR` (see above).
        let distance = first.address.wrapping_sub(first.offset);
        let wanted = end.wrapping_sub(distance).max(offset);
        let is_aligned = distance % PAGE == 0;
        if is_aligned && end >= distance && wanted - offset <= HOLE_MAX {
            let address = wanted.checked_add(distance).ok_or_else(no_room)?;
            return Ok((wanted, address));
        }

        Ok((offset, end))
    }

    /// The number of program headers after adding the most that can be added.
    fn programs_max(&self) -> usize {
        self.programs.len() + PROGRAMS_ADDED_MAX
    }

    /// The address (svma) at which new sections start.
    pub fn room(&self) -> u64 {
        let table = (self.programs_max() * phdr::LEN) as u64;
        aligned(self.segment.1.saturating_add(table), ALIGN)
    }

    /// The addresses (svma) of the section `name` that [`Editor::replace`] can write over: it is
    /// mapped from the file, and `program` finds it.
    pub fn reusable(&self, name: &str, program: u32) -> Option<Range<u64>> {
        let (_, section) = self.section(name)?;
        let found = self.programs.iter().find(|p| p.kind == program)?;
        let end = section.address.checked_add(section.size)?;
        let offset_end = section.offset.checked_add(section.size)?;
        let loaded = self.programs.iter().any(|p| {
            p.kind == PT_LOAD
                && p.address <= section.address
                && p.offset <= section.offset
                && section.address - p.address == section.offset - p.offset
                && p.offset
                    .checked_add(p.file_size)
                    .is_some_and(|e| offset_end <= e)
        });
        let fits = loaded
            && section.flags & SHF_ALLOC != 0
            && section.kind != SHT_NOBITS
            && found.address == section.address
            && offset_end <= self.data.len() as u64;
        fits.then_some(section.address..end)
    }

    /// The section that a new one called `name` replaces: the one that readers take.
    fn section(&self, name: &str) -> Option<(usize, &Section)> {
        let mut all = self.sections.iter().enumerate();
        all.find(|(_, section)| {
            let by_type = name == ".sframe" && section.kind == SHT_GNU_SFRAME;
            by_type || self.name_of(section) == name.as_bytes()
        })
    }

    fn name_of(&self, section: &Section) -> &[u8] {
        let rest = self.names.get(section.name as usize..);
        let rest = rest.unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == 0);
        rest.get(..end.unwrap_or(0)).unwrap_or_default()
    }

    /// The file with the contents of `new` over those of the old section of that name, where
    /// [`Editor::reusable`] says that they fit. Bytes left over become zeros.
    ///
    /// # Errors
    /// If it does not fit.
    pub fn replace(&self, new: &NewSection) -> Result<Vec<u8>, ElfWriteError> {
        let no_room = || ElfWriteError::NoRoom {
            name: self.name.to_owned(),
        };

        // A section without a program header is not replaced in this way: it is not loaded.
        let program = new.program.ok_or_else(no_room)?;
        let range = self.reusable(new.name, program).ok_or_else(no_room)?;
        let (index, old) = self.section(new.name).ok_or_else(no_room)?;
        // The contents were made for one address: offsets in them count from there.
        if range.start != new.address || new.end() > range.end {
            return Err(no_room());
        }

        // What the new contents leave over of the old ones must not be read as a part of them.
        let mut out = self.data.to_vec();
        let mut contents = new.bytes.clone();
        contents.resize(old.size as usize, 0);
        put(&mut out, old.offset, &contents);

        // Flags and address stay, as the section stays where it is.
        let mut section = old.clone();
        section.size = new.bytes.len() as u64;
        section.kind = new.kind;
        section.align = new.align;

        // Nothing moves, so that only the section's own headers change.
        let table = headers::section_table(self.data);
        put(
            &mut out,
            table + (index * shdr::LEN) as u64,
            &section.bytes(),
        );

        let table = headers::program_table(self.data);

        // Its size is in its program header as well, by which loaded programs find it.
        for (index, found) in self.programs.iter().enumerate() {
            if found.kind == program {
                let size = new.bytes.len() as u64;
                let found = Program {
                    file_size: size,
                    memory_size: size,
                    ..found.clone()
                };
                put(&mut out, table + (index * phdr::LEN) as u64, &found.bytes());
            }
        }

        Ok(out)
    }

    /// The file with these sections added. A section whose name the file has already gets that one's
    /// section header; its old contents become dead bytes. The sections' addresses increase, and
    /// start at [`Editor::room`] or above.
    ///
    /// # Errors
    /// If they do not fit.
    pub fn add(&self, new: &[NewSection]) -> Result<Vec<u8>, ElfWriteError> {
        let no_room = || ElfWriteError::NoRoom {
            name: self.name.to_owned(),
        };
        let (offset, address) = self.segment;

        // The segment maps addresses to offsets in the file one to one.
        let at = |a: u64| offset.checked_add(a.checked_sub(address)?);

        let end = new.last().map_or(self.room(), NewSection::end);
        let room = new.first().map_or(self.room(), |first| first.address);

        // Below this address is the program header table.
        if room < self.room() {
            return Err(no_room());
        }

        // The old section header table is left out if it was at the end.
        let mut out = self
            .data
            .get(..self.kept as usize)
            .unwrap_or(self.data)
            .to_vec();

        let programs = self.new_programs(new, end)?;

        // The table of program headers comes first in the segment.
        resize(&mut out, offset, no_room)?;
        for program in &programs {
            out.extend(program.bytes());
        }
        for section in new {
            let start = at(section.address).ok_or_else(no_room)?;
            resize(&mut out, start, no_room)?;
            out.extend_from_slice(&section.bytes);
        }

        // All sections are in their places, so headers can say where.
        let (mut sections, names) = self.new_sections(new);
        // Without a table of names, the one to be added comes last.
        let names_index = self.names_index.unwrap_or(sections.len() - 1);
        let names_at = out.len() as u64;
        out.extend_from_slice(&names);
        // The old names stay behind as dead bytes.
        if let Some(own) = sections.get_mut(names_index) {
            own.offset = names_at;
            own.size = names.len() as u64;
        }

        if sections.len() >= headers::SECTIONS_MAX {
            return Err(ElfWriteError::TooManyHeaders {
                name: self.name.to_owned(),
            });
        }

        // gABI, "Data Representation": structures in the file have their natural alignment.
        let table = aligned(out.len() as u64, 8);
        resize(&mut out, table, no_room)?;
        for section in &sections {
            out.extend(section.bytes());
        }

        // Only the file header is changed in place; everything else is new or as it was.
        headers::patch(
            &mut out,
            offset,
            programs.len(),
            table,
            sections.len(),
            names_index,
        );

        Ok(out)
    }

    /// The program headers of the new file; the new segment ends at the address `end`.
    fn new_programs(&self, new: &[NewSection], end: u64) -> Result<Vec<Program>, ElfWriteError> {
        let (offset, address) = self.segment;

        // All old segments stay, in their order.
        let mut out = self.programs.clone();

        // Behind the last loadable one.
        let last = out.iter().rposition(|p| p.kind == PT_LOAD);
        let load = Program {
            kind: PT_LOAD,
            flags: PF_R,
            offset,
            address,
            physical: address,
            file_size: end - address,
            memory_size: end - address,
            align: PAGE,
        };
        // gABI: loadable segments stand in ascending order of their addresses.
        out.insert(last.map_or(out.len(), |at| at + 1), load);

        for section in new {
            let Some(kind) = section.program else {
                continue;
            };
            let size = section.bytes.len() as u64;
            let program = Program {
                kind,
                flags: PF_R,
                offset: offset + (section.address - address),
                address: section.address,
                physical: section.address,
                file_size: size,
                memory_size: size,
                align: section.align,
            };

            // A program header of this kind that is there already leads to the old section.
            match out.iter_mut().find(|p| p.kind == kind) {
                Some(old) => *old = program,
                None => out.push(program),
            }
        }

        // The count has 16 bits in the header, and the table has a limited room.
        let size = (out.len() * phdr::LEN) as u64;
        if out.len() > self.programs_max() || out.len() >= headers::PROGRAMS_MAX {
            return Err(ElfWriteError::TooManyHeaders {
                name: self.name.to_owned(),
            });
        }

        // The table that it describes is now at the start of the new segment.
        for program in out.iter_mut().filter(|p| p.kind == PT_PHDR) {
            program.offset = offset;
            program.address = address;
            program.physical = address;
            program.file_size = size;
            program.memory_size = size;
        }

        Ok(out)
    }

    /// The section headers of the new file, and the names in them. There is at least one.
    fn new_sections(&self, new: &[NewSection]) -> (Vec<Section>, Vec<u8>) {
        let (offset, address) = self.segment;
        let (mut sections, mut names) = (self.sections.clone(), self.names.clone());

        // A section that is there already keeps its index, since others refer to it.
        for added in new {
            let old = self
                .section(added.name)
                .map(|(index, old)| (index, old.name));
            let name = old.map_or_else(|| push_name(&mut names, added.name), |old| old.1);
            let section = Section {
                name,
                kind: added.kind,
                flags: SHF_ALLOC,
                address: added.address,
                offset: offset + (added.address - address),
                size: added.bytes.len() as u64,
                link: 0,
                info: 0,
                align: added.align,
                entry_size: added.entry_size,
            };

            match old.and_then(|(index, _)| sections.get_mut(index)) {
                Some(place) => *place = section,
                None => sections.push(section),
            }
        }

        // New sections need names, and this file has had none.
        if self.names_index.is_none() {
            let name = push_name(&mut names, ".shstrtab");
            sections.push(Section {
                name,
                kind: SHT_STRTAB,
                align: 1,
                ..Section::default()
            });
        }

        (sections, names)
    }
}

/// Appends a name and returns its offset.
fn push_name(names: &mut Vec<u8>, name: &str) -> u32 {
    let at = u32::try_from(names.len()).unwrap_or(0);
    names.extend_from_slice(name.as_bytes());
    names.push(0);
    at
}

/// Overwrites bytes at `offset`, as far as they are there.
fn put(out: &mut [u8], offset: u64, bytes: &[u8]) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let target = out.get_mut(start..).unwrap_or_default();
    for (to, from) in target.iter_mut().zip(bytes) {
        *to = *from;
    }
}

/// Appends zeros up to the length `len`.
fn resize(
    out: &mut Vec<u8>,
    len: u64,
    error: impl FnOnce() -> ElfWriteError,
) -> Result<(), ElfWriteError> {
    let len = usize::try_from(len).ok().filter(|len| *len >= out.len());
    out.resize(len.ok_or_else(error)?, 0);
    Ok(())
}

#[cfg(test)]
mod tests;

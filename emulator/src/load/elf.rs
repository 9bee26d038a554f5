//! An ELF file: its program headers, and how they are mapped. They are read with goblin, which gives
//! them with their flags; the other packages read ELF with object.

use super::Mapping;
use super::error::{ElfFile, LoadError, LoadErrorKind};
use crate::address_space::{Access, AddressSpace, Content, PAGE_SIZE, Permissions};
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EM_X86_64, ET_DYN, ET_EXEC};
use goblin::elf::program_header::{PF_X, PT_GNU_STACK, PT_INTERP, PT_LOAD, PT_PHDR};
use goblin::elf::{Elf, ProgramHeader};
use std::ops::Range;

/// Size of an `Elf64_Ehdr`.
const FILE_HEADER: u64 = 64;
/// Size of an `Elf64_Phdr`.
pub(super) const PROGRAM_HEADER: u64 = 56;
/// Linux refuses more than 64 KiB of program headers.
const PROGRAM_HEADERS_MAX: u64 = 65536 / PROGRAM_HEADER;
/// Linux `PATH_MAX`.
const PATH_MAX: u64 = 4096;

/// The headers of a program or an interpreter.
pub(super) struct Executable {
    pub(super) which: ElfFile,
    pub(super) is_dyn: bool,
    /// The entry point in the file (svma).
    pub(super) entry: u64,
    /// The address of the program headers in memory (svma): `AT_PHDR`.
    pub(super) headers_at: u64,
    pub(super) header_count: u64,
    pub(super) interpreter: Option<Vec<u8>>,
    pub(super) executable_stack: bool,
    loads: Vec<ProgramHeader>,
}

impl Executable {
    pub(super) fn error(&self, what: LoadErrorKind, section: &'static str) -> LoadError {
        LoadError {
            which: self.which,
            what,
            section,
            offset: 0,
        }
    }

    /// Reads and checks the headers.
    pub(super) fn parse(which: ElfFile, file: &Content) -> Result<Executable, LoadError> {
        let error = |what, section, offset| LoadError {
            which,
            what,
            section,
            offset,
        };

        // The header may be cut off; goblin then refuses it.
        let start = file.part(0..file.size().min(FILE_HEADER));
        let header = Elf::parse_header(&start.unwrap_or_default())
            .map_err(|_| error(LoadErrorKind::NotElf, "file header", 0))?;

        // EI_CLASS is ELFCLASS64 and EI_DATA is ELFDATA2LSB.
        let is_64 = header.e_ident[4] == 2 && header.e_ident[5] == 1;
        if !is_64 || header.e_machine != EM_X86_64 {
            return Err(error(LoadErrorKind::NotX86_64, "file header", 4));
        }

        if header.e_type != ET_EXEC && header.e_type != ET_DYN {
            let what = LoadErrorKind::Type(header.e_type);
            return Err(error(what, "file header", 16));
        }

        let (offset, count) = (header.e_phoff, u64::from(header.e_phnum));
        let bad = || error(LoadErrorKind::ProgramHeaders, "program headers", offset);
        let end = offset.checked_add(count * PROGRAM_HEADER).ok_or_else(bad)?;

        // `load_elf_phdrs` (fs/binfmt_elf.c) refuses another entry size and larger tables, too.
        if count > PROGRAM_HEADERS_MAX || u64::from(header.e_phentsize) != PROGRAM_HEADER {
            return Err(bad());
        }

        let context = Ctx::new(Container::Big, Endian::Little);
        let table = file.part(offset..end).ok_or_else(bad)?;
        let headers =
            ProgramHeader::parse(&table, 0, count as usize, context).map_err(|_| bad())?;

        let mut program = Executable {
            which,
            is_dyn: header.e_type == ET_DYN,
            entry: header.e_entry,
            headers_at: 0,
            header_count: count,
            interpreter: None,
            // Without PT_GNU_STACK, an x86-64 program gets a stack that is not executable.
            executable_stack: false,
            loads: Vec::new(),
        };

        for p in headers {
            program.take(p, file)?;
        }

        if program.loads.iter().all(|p| p.p_memsz == 0) {
            return Err(error(
                LoadErrorKind::NothingToLoad,
                "program headers",
                offset,
            ));
        }

        // Without PT_PHDR, AT_PHDR is where a segment loads the table.
        if program.headers_at == 0 {
            program.headers_at = program.address_of(offset).unwrap_or(0);
        }

        Ok(program)
    }

    fn take(&mut self, p: ProgramHeader, file: &Content) -> Result<(), LoadError> {
        let error = |this: &Self, what, section| LoadError {
            offset: p.p_offset,
            ..this.error(what, section)
        };

        match p.p_type {
            PT_LOAD => {
                let end = p.p_vaddr.checked_add(p.p_memsz);
                let end = end.and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
                let file_end = p.p_offset.checked_add(p.p_filesz);
                if end.is_none() || file_end.is_none() || p.p_filesz > p.p_memsz {
                    return Err(error(self, LoadErrorKind::Segment, "PT_LOAD"));
                }

                // Whole pages are mapped, so address and offset must agree below the page size
                // (gABI, PT_LOAD).
                if p.p_filesz != 0 && p.p_vaddr % PAGE_SIZE != p.p_offset % PAGE_SIZE {
                    return Err(error(self, LoadErrorKind::Misaligned, "PT_LOAD"));
                }

                self.loads.push(p);
            }
            PT_INTERP if self.which == ElfFile::Program => {
                let bad = || error(self, LoadErrorKind::InterpreterPath, "PT_INTERP");
                let end = p.p_offset.checked_add(p.p_filesz);

                // `load_elf_binary` has the same bounds, and wants the NUL.
                let end = end.filter(|_| (2..=PATH_MAX).contains(&p.p_filesz));
                let path = end.and_then(|end| file.part(p.p_offset..end));
                let path = path.ok_or_else(bad)?;
                let path = path.strip_suffix(b"\0").ok_or_else(bad)?;
                self.interpreter = Some(path.to_vec());
            }
            PT_GNU_STACK => self.executable_stack = p.p_flags & PF_X != 0,
            PT_PHDR => self.headers_at = p.p_vaddr,
            _ => {}
        }

        Ok(())
    }

    /// The address (svma) at which an offset of the file is mapped.
    fn address_of(&self, offset: u64) -> Option<u64> {
        let holds = |p: &&ProgramHeader| p.p_offset <= offset && offset - p.p_offset < p.p_filesz;
        let p = self.loads.iter().find(holds)?;
        Some(p.p_vaddr.wrapping_add(offset - p.p_offset))
    }

    /// The pages from the first to the last segment (svma).
    fn span(&self) -> Range<u64> {
        let pages = self.loads.iter().filter(|p| p.p_memsz != 0);
        let start = pages.clone().map(|p| p.p_vaddr & !(PAGE_SIZE - 1)).min();
        let end = pages
            .map(|p| (p.p_vaddr + p.p_memsz).next_multiple_of(PAGE_SIZE))
            .max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// The end of the last segment (svma), in whole pages.
    pub(super) fn end(&self) -> u64 {
        self.span().end
    }

    /// The largest alignment of a segment, at least a page.
    fn align(&self) -> u64 {
        let aligns = self.loads.iter().map(|p| p.p_align);
        let powers = aligns.filter(|align| align.is_power_of_two());
        powers.max().unwrap_or(0).max(PAGE_SIZE)
    }

    /// The bias that moves the first page to `base`, or below it if segments are aligned to more
    /// than a page.
    pub(super) fn bias_at(&self, base: u64) -> u64 {
        (base & !(self.align() - 1)).wrapping_sub(self.span().start)
    }

    /// The bias for the highest free range below `top`.
    pub(super) fn place(&self, space: &AddressSpace, top: u64) -> Result<u64, LoadError> {
        let span = self.span();
        let size = span.end - span.start;
        let none = || self.error(LoadErrorKind::NoRoom(size), "program headers");
        // Room for aligning the start.
        let room = size
            .checked_add(self.align() - PAGE_SIZE)
            .ok_or_else(none)?;
        let start = space.find_free(room, top).ok_or_else(none)?;
        let aligned = start
            .checked_next_multiple_of(self.align())
            .ok_or_else(none)?;
        Ok(aligned.wrapping_sub(span.start))
    }

    /// Maps all segments: the pages of the file, then zeros up to `p_memsz`.
    pub(super) fn map(
        &self,
        space: &mut AddressSpace,
        file: &Content,
        bias: u64,
        mappings: &mut Vec<Mapping>,
    ) -> Result<(), LoadError> {
        let span = self.span();
        let span = span.start.wrapping_add(bias)..span.end.wrapping_add(bias);
        // Mapping replaces what is there, so an overlap would go unnoticed.
        if let Some((used, _)) = space
            .areas()
            .find(|(r, _)| r.start < span.end && span.start < r.end)
        {
            return Err(self.error(LoadErrorKind::Overlap(used.start), "PT_LOAD"));
        }

        for p in self.loads.iter().filter(|p| p.p_memsz != 0) {
            let failed = |what| LoadError {
                offset: p.p_offset,
                ..self.error(what, "PT_LOAD")
            };

            let permissions = Permissions::from_elf(p.p_flags);
            let address = p.p_vaddr.wrapping_add(bias);

            // Whole pages, as `elf_map` does (fs/binfmt_elf.c): bytes of the file around the
            // segment come along.
            let start = address & !(PAGE_SIZE - 1);
            let file_end = address.wrapping_add(p.p_filesz);
            let file_pages_end = file_end.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
            let end = address.wrapping_add(p.p_memsz).wrapping_add(PAGE_SIZE - 1);
            let end = end & !(PAGE_SIZE - 1);

            let mut zeros_from = start;
            if p.p_filesz != 0 {
                let file_offset = p.p_offset & !(PAGE_SIZE - 1);
                let range = start..file_pages_end;
                space
                    .map_file(range.clone(), permissions, file.clone(), file_offset)
                    .map_err(|error| failed(LoadErrorKind::Map(error)))?;
                mappings.push(Mapping {
                    which: self.which,
                    range,
                    file_offset,
                    is_file: true,
                    permissions,
                });
                zeros_from = file_pages_end;
                // The program expects zeros after its bytes, not what follows in the file.
                if p.p_memsz > p.p_filesz && permissions.allow(Access::Write) {
                    let tail = file_pages_end.wrapping_sub(file_end) as usize;
                    space
                        .poke(file_end, &[0; PAGE_SIZE as usize][..tail])
                        .map_err(|fault| failed(LoadErrorKind::Fault(fault)))?;
                }
            }

            // What memory has beyond the pages of the file.
            if zeros_from < end {
                let range = zeros_from..end;
                space
                    .map(range.clone(), permissions)
                    .map_err(|error| failed(LoadErrorKind::Map(error)))?;
                mappings.push(Mapping {
                    which: self.which,
                    range,
                    file_offset: 0,
                    is_file: false,
                    permissions,
                });
            }
        }
        Ok(())
    }
}

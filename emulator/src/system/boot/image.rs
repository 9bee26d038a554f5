//! An unpacked kernel: its segments, by physical address.

use super::error::{BootError, BootErrorKind};
use super::{HIGH, part};
use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EM_X86_64, ET_EXEC};
use goblin::elf::program_header::PT_LOAD;
use goblin::elf::{Elf, ProgramHeader};
use std::ops::Range;

/// Size of an `Elf64_Phdr`.
const PROGRAM_HEADER: u64 = 56;
/// Maximum number of program headers; a kernel has five.
const PROGRAM_HEADERS_MAX: u64 = 1024;
/// Offset of `p_type` and of the physical address in an `Elf64_Phdr`.
const P_OFFSET: u64 = 8;
const P_PADDR: u64 = 24;

/// The headers of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Image {
    /// The first instruction, a physical address.
    pub(super) entry: u64,
    /// From the first segment's start to the last one's end, physical addresses.
    pub(super) range: Range<u64>,
    /// Offset of the program headers in the file, bytes.
    headers: u64,
    /// The segments with memory: index of the program header, and the header.
    loads: Vec<(usize, ProgramHeader)>,
}

impl Image {
    /// Reads and checks the headers.
    pub(super) fn parse(file: &[u8]) -> Result<Image, BootError> {
        let header =
            Elf::parse_header(file).map_err(|_| BootErrorKind::NotElf.at("ELF file header", 0))?;
        // EI_CLASS is ELFCLASS64 and EI_DATA is ELFDATA2LSB.
        let is_64 = header.e_ident[4] == 2 && header.e_ident[5] == 1;
        if !is_64 || header.e_machine != EM_X86_64 {
            return Err(BootErrorKind::NotX86_64.at("ELF file header", 4));
        }
        if header.e_type != ET_EXEC {
            return Err(BootErrorKind::Type(header.e_type).at("ELF file header", 16));
        }

        let headers = header.e_phoff;
        let count = u64::from(header.e_phnum);
        let bad = || BootErrorKind::ProgramHeaders.at("program headers", headers);
        if count > PROGRAM_HEADERS_MAX || u64::from(header.e_phentsize) != PROGRAM_HEADER {
            return Err(bad());
        }
        let end = headers.checked_add(count * PROGRAM_HEADER);
        if end.is_none_or(|end| end > file.len() as u64) {
            return Err(bad());
        }
        let context = Ctx::new(Container::Big, Endian::Little);
        let all = ProgramHeader::parse(file, headers as usize, count as usize, context);
        let all = all.map_err(|_| bad())?;

        let loads = all.into_iter().enumerate();
        let loads: Vec<_> = loads
            .filter(|(_, load)| load.p_type == PT_LOAD && load.p_memsz != 0)
            .collect();
        let mut image = Image {
            entry: header.e_entry,
            range: 0..0,
            headers,
            loads,
        };

        let ranges = image.loads.iter();
        let ranges = ranges.map(|(index, load)| image.addresses(*index, load));
        let ranges: Vec<_> = ranges.collect::<Result<_, _>>()?;
        let start = ranges.iter().map(|range| range.start).min();
        let end = ranges.iter().map(|range| range.end).max();
        let (Some(start), Some(end)) = (start, end) else {
            return Err(BootErrorKind::NothingToLoad.at("program headers", headers));
        };
        image.range = start..end;

        if !ranges.iter().any(|range| range.contains(&image.entry)) {
            return Err(BootErrorKind::Entry(image.entry).at("ELF file header", 24));
        }
        Ok(image)
    }

    /// The physical addresses of a segment.
    fn addresses(&self, index: usize, load: &ProgramHeader) -> Result<Range<u64>, BootError> {
        let bad = BootErrorKind::Segment(index).at("program header", self.offset(index, P_OFFSET));
        let start = load.p_paddr;
        let end = start.checked_add(load.p_memsz).ok_or(bad)?;
        if load.p_filesz > load.p_memsz {
            return Err(bad);
        }
        if start < HIGH {
            let what = BootErrorKind::SegmentTooLow { index, start };
            return Err(what.at("program header", self.offset(index, P_PADDR)));
        }
        Ok(start..end)
    }

    /// The offset of a field of a program header in the file.
    fn offset(&self, index: usize, field: u64) -> u64 {
        // Neither overflows: the program headers are in the file.
        self.headers + index as u64 * PROGRAM_HEADER + field
    }

    /// Copies the segments to memory; what is not in the file is zero.
    pub(super) fn place(&self, file: &[u8], ram: &mut [u8]) -> Result<(), BootError> {
        let memory = ram.len() as u64;
        for (index, load) in &self.loads {
            let index = *index;
            let content = usize::try_from(load.p_offset).ok().and_then(|start| {
                let end = start.checked_add(usize::try_from(load.p_filesz).ok()?)?;
                file.get(start..end)
            });
            let Some(content) = content else {
                let offset = self.offset(index, P_OFFSET);
                return Err(BootErrorKind::Segment(index).at("program header", offset));
            };

            let Some(target) = part(ram, load.p_paddr, load.p_memsz) else {
                let what = BootErrorKind::SegmentOutside {
                    index,
                    end: load.p_paddr + load.p_memsz,
                    memory,
                };
                return Err(what.at("program header", self.offset(index, P_PADDR)));
            };
            let (start, rest) = target.split_at_mut(content.len());
            start.copy_from_slice(content);
            rest.fill(0);
        }
        Ok(())
    }
}

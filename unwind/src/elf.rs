//! Reads ELF files into an [`Image`]: unwind sections, executable ranges, symbols, build id.
//!
//! Only symbol names and the build id are copied; sections are ranges of the owner's bytes.
//! Problems in optional parts (a bad symbol table, bad section headers next to good segments) are
//! listed in [`Elf::problems`]; all other problems are errors. Sources: System V gABI and the
//! x86-64 psABI; `PT_GNU_EH_FRAME` and `.eh_frame_hdr` from LSB 5.0; `SHT_GNU_SFRAME` and
//! `PT_GNU_SFRAME` from binutils 2.46 `include/elf/common.h`.
//!
//! Compressed sections are returned as they are ([`Elf::compressed`]); the feature `unpack` unpacks
//! them. Out of scope: finding files, parsing the tables, relocatable objects and core files.

mod conventions;
mod entry;
mod error;
mod notes;
mod plt;
mod producers;
mod sections;
mod symbols;
#[cfg(test)]
mod tests;
#[cfg(feature = "unpack")]
pub mod unpack;

pub use error::{ElfError, ElfErrorKind};
pub use symbols::symbol_rank;

use crate::image::{Bytes, Image, ImageParts, Owner, SectionKind};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;
use object::endian::LittleEndian as LE;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{ReadRef, elf};

/// The smallest page size of x86-64, bytes.
const PAGE: u64 = 0x1000;

/// Options for [`read`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadOptions {
    /// Read symbols, from `.symtab` or otherwise `.dynsym`.
    pub symbols: bool,
    /// Make names such as `write@plt` for the entries of the procedure linkage table.
    pub plt: bool,
    /// Read in the debugging information, too, what compilers say of the conventions of their code.
    pub producers: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            symbols: true,
            plt: true,
            producers: false,
        }
    }
}

/// A `PT_LOAD` program header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Address (svma).
    pub address: u64,
    /// Size in the file, bytes.
    pub file_size: u64,
    /// Size in memory, bytes.
    pub memory_size: u64,
    /// Alignment, bytes.
    pub align: u64,
    /// `PF_X`, `PF_W` and `PF_R` (1, 2, 4).
    pub flags: u32,
}

impl Segment {
    /// Whether it is executable (`PF_X`).
    pub const fn is_executable(&self) -> bool {
        self.flags & 1 != 0
    }

    /// Its addresses (svma); empty if they would wrap around.
    pub fn range(&self) -> Range<u64> {
        self.address
            ..self
                .address
                .checked_add(self.memory_size)
                .unwrap_or(self.address)
    }
}

/// The compression of a section (gABI, `ch_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// `ELFCOMPRESS_ZLIB`
    Zlib,
    /// `ELFCOMPRESS_ZSTD`
    Zstd,
}

/// A section that must be decompressed before it can become part of an image.
#[derive(Clone, Debug)]
pub struct Compressed {
    /// The kind of section.
    pub kind: SectionKind,
    /// Address (svma); 0 for debug sections.
    pub address: u64,
    /// The compression method.
    pub compression: Compression,
    /// Uncompressed size according to the header, bytes. No more is unpacked.
    pub size: u64,
    /// Offset of the compressed bytes in the file.
    pub offset: u64,
    /// The compressed bytes.
    pub data: Bytes,
}

/// The link to a separate debug file (`.gnu_debuglink`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DebugLink {
    /// File name without a directory.
    pub name: String,
    /// CRC-32 (as in zlib) of the whole debug file.
    pub crc: u32,
}

/// The contents of an ELF file.
#[derive(Clone, Debug, Default)]
pub struct Elf {
    /// The parts of the image.
    pub parts: ImageParts,
    /// `PT_LOAD` program headers, in file order.
    pub segments: Vec<Segment>,
    /// Sections that must be decompressed.
    pub compressed: Vec<Compressed>,
    /// The link to a separate debug file.
    pub debug_link: Option<DebugLink>,
    /// `.gnu_debugdata`: a small debug file, compressed with xz.
    pub debug_data: Option<Bytes>,
    /// Whether there is a `.symtab`. If not, symbols come from `.dynsym`.
    pub has_symtab: bool,
    /// Unwind tables whose section has no bytes. They are not in the image: binutils 2.45 writes an
    /// empty `.sframe` into `Scrt1.o`, and V8 an empty `.eh_frame` for generated code.
    pub empty: Vec<SectionKind>,
    /// Optional parts that could not be read.
    pub problems: Vec<ElfError>,
}

impl Elf {
    /// The bias (avma - svma) of a mapping of `length` bytes at `address` that starts at
    /// `file_offset` in the file.
    ///
    /// A loader maps whole pages, so the mapping may start before and end after the segment's
    /// bytes, and two segments may share a page of the file: `executable` selects one of them.
    /// `None` if no segment lies in that part of the file.
    pub fn bias(
        &self,
        address: u64,
        length: u64,
        file_offset: u64,
        executable: bool,
    ) -> Option<u64> {
        // All numbers come from a file or from a recording, so none may overflow.
        let end = file_offset.checked_add(length)?;

        let first = |s: &Segment| s.offset & !(PAGE - 1);
        let shared = |s: &&Segment| {
            let last = s.offset.checked_add(s.file_size);
            s.file_size != 0 && first(s) < end && last.is_some_and(|last| file_offset < last)
        };

        // A mapping starts where its segment does, or was cut out of the middle of one.
        let fit = |s: &&Segment| {
            let begins = first(s) == file_offset & !(PAGE - 1);
            (
                s.is_executable() == executable,
                begins,
                first(s) <= file_offset,
            )
        };

        let segment = self.segments.iter().filter(shared).max_by_key(fit)?;

        // Wrapping, because a damaged segment can have any address.
        let svma = segment
            .address
            .wrapping_sub(segment.offset)
            .wrapping_add(file_offset);

        Some(address.wrapping_sub(svma))
    }

    /// Whether an executable segment has all pages of a mapping of `length` bytes at `file_offset`
    /// in the file. If not, it was another file that was mapped.
    ///
    /// The first segment of a shared object or PIE is first mapped with the size of all of them, to
    /// reserve their addresses, and then unmapped behind its end (Linux `fs/binfmt_elf.c`,
    /// `elf_load`, and ld.so's `_dl_map_segments`); recorders see only the first of the two.
    pub fn has_room_for(&self, length: u64, file_offset: u64) -> bool {
        let end = file_offset.checked_add(length);
        let ends = self.segments.iter().map(|s| s.range().end).max();
        let is_reserved = self.segments.first().is_some_and(|s| {
            let start = s.address & !(PAGE - 1);
            let all = ends.and_then(|end| end.checked_next_multiple_of(PAGE)?.checked_sub(start));
            s.is_executable() && s.offset & !(PAGE - 1) == file_offset && all == Some(length)
        });
        if is_reserved {
            return true;
        }
        self.segments.iter().any(|s| {
            let last = s.offset.checked_add(s.file_size.max(s.memory_size));
            let last = last.and_then(|last| last.checked_next_multiple_of(PAGE));
            s.is_executable() && s.offset & !(PAGE - 1) <= file_offset && end <= last
        })
    }

    /// Whether the mapping of `length` bytes at `file_offset` in the file covers exactly the pages
    /// of an executable segment.
    pub fn is_code(&self, length: u64, file_offset: u64) -> bool {
        let end = file_offset.checked_add(length);
        self.segments.iter().any(|s| {
            let last = s.offset.checked_add(s.file_size);
            let last = last.and_then(|last| last.checked_next_multiple_of(PAGE));
            s.is_executable() && s.offset & !(PAGE - 1) == file_offset && last == end
        })
    }

    /// Converts the parts to an image.
    pub fn into_image(self) -> Image {
        Image::new(self.parts)
    }
}

/// Reads the image in an ELF file, without its compressed sections.
///
/// # Errors
/// See [`read`].
pub fn image_from_elf(name: &str, owner: Owner, options: &ReadOptions) -> Result<Image, ElfError> {
    read(name, owner, options).map(Elf::into_image)
}

/// Reads an x86-64 executable, shared object or debug file.
///
/// The rows of every function, here of this program's own file:
///
/// ```
/// # #[cfg(all(target_os = "linux", target_arch = "x86_64"))] {
/// use std::sync::Arc;
/// use unwind_sim_unwind::elf::{self, ReadOptions};
/// use unwind_sim_unwind::row::TableKind;
/// use unwind_sim_unwind::{Cache, dwarf};
///
/// let bytes = std::fs::read("/proc/self/exe").expect("this program's file");
/// let file = elf::read("example", Arc::new(bytes), &ReadOptions::default());
/// let image = file.expect("an ELF file").into_image();
///
/// let (mut cache, mut rows) = (Cache::new(), 0);
/// for fde in dwarf::units(&image, TableKind::EhFrame) {
///     // Both give the reason if an FDE is damaged; the others are still read.
///     let Ok(fde) = fde else { continue };
///     let unit = dwarf::compile_unit(&image, TableKind::EhFrame, fde.offset, &mut cache);
///     let Ok(unit) = unit else { continue };
///
///     for row in cache.unit_rows(unit) {
///         let (source, rule) = (cache.source(row), cache.rule(row));
///         // Such as `0x1139..0x113a: call cfa=rsp+8 ra=*(cfa-8)`.
///         let line = format!("{:#x}..{:#x}: {rule}", source.start, source.end);
///         assert!(fde.range.contains(&source.start), "{line}");
///         rows += 1;
///     }
/// }
/// assert!(rows > 100, "{rows}");
/// # }
/// ```
///
/// One address at a time, and for any table, they are found by [`find_row`](crate::step::find_row).
///
/// # Errors
/// If the file is of another kind, or neither program headers nor section headers can be read.
pub fn read(name: &str, owner: Owner, options: &ReadOptions) -> Result<Elf, ElfError> {
    let data: &[u8] = (*owner).as_ref();
    let header = file_header(data)?;

    let mut out = Elf::default();
    out.parts.name = name.into();

    // What cannot be read is only noted: with one of the two tables, the file is still an image.
    let programs = header.program_headers(LE, data).unwrap_or_else(|_| {
        let offset = header.e_phoff(LE);
        out.problems
            .push(error::cut(data, "program headers", offset));
        &[]
    });
    let table = header.sections(LE, data).unwrap_or_else(|_| {
        let offset = header.e_shoff(LE);
        out.problems
            .push(error::cut(data, "section headers", offset));
        Default::default()
    });

    if programs.is_empty() && table.is_empty() {
        let nothing = ElfError::new(ElfErrorKind::NoHeaders, "file header", 0);
        return Err(out.problems.first().copied().unwrap_or(nothing));
    }

    // Without section names, the file is still read.
    let names = header
        .section_strings_index(LE, data)
        .and_then(|index| table.section(index)?.data(LE, data));
    let file = File {
        owner: &owner,
        data,
        programs,
        table,
        names: names.unwrap_or_default(),
    };

    // Segments first: sections supply the text only if these gave none.
    file.read_segments(&mut out);
    sections::read(&file, &mut out);
    entry::read(&file, header, &mut out);
    notes::read_build_id(&file, &mut out);
    if options.symbols {
        symbols::read(&file, &mut out);
    }
    if options.plt {
        plt::read(&file, &mut out);
    }
    conventions::read(&file, options.producers, &mut out);

    Ok(out)
}

/// Checks that this is an ELF file of a kind that contains an image.
fn file_header(data: &[u8]) -> Result<&elf::FileHeader64<LE>, ElfError> {
    let error = |kind, offset| ElfError::new(kind, "file header", offset);
    if data.get(..4) != Some(&elf::ELFMAG) {
        return Err(error(ElfErrorKind::NotElf, 0));
    }

    // EI_CLASS and EI_DATA (gABI, chapter 4) are bytes, readable in any byte order.
    match data.get(4) {
        Some(2) => {}
        Some(&class) => return Err(error(ElfErrorKind::Class(class), 4)),
        None => return Err(error::cut(data, "file header", 4)),
    }
    if data.get(5) == Some(&2) {
        return Err(error(ElfErrorKind::BigEndian, 5));
    }

    let header: &elf::FileHeader64<LE> = data
        .read_at(0)
        .map_err(|()| error::cut(data, "file header", 0))?;
    // The machine comes before the type: a core or an object of another processor is first of all
    // that.
    let machine = header.e_machine(LE);
    if machine != elf::EM_X86_64 {
        return Err(error(ElfErrorKind::Machine(machine.0), 18));
    }

    match header.e_type(LE) {
        elf::ET_EXEC | elf::ET_DYN => Ok(header),
        elf::ET_REL => Err(error(ElfErrorKind::Relocatable, 16)),
        elf::ET_CORE => Err(error(ElfErrorKind::Core, 16)),
        other => Err(error(ElfErrorKind::Type(other.0), 16)),
    }
}

/// An open file, passed to the readers of its parts.
struct File<'a> {
    owner: &'a Owner,
    data: &'a [u8],
    programs: &'a [elf::ProgramHeader64<LE>],
    table: object::read::elf::SectionTable<'a, elf::FileHeader64<LE>>,
    /// The names of the sections.
    names: &'a [u8],
}

/// The string at `offset`, if it ends within `len_max` bytes. The limit bounds the time spent on
/// hostile tables whose strings have no end.
fn string(strings: &[u8], offset: u32, len_max: usize) -> Option<&[u8]> {
    let rest = strings.get(offset as usize..)?;
    let rest = &rest[..rest.len().min(len_max.saturating_add(1))];
    let end = rest.iter().position(|&byte| byte == 0)?;
    Some(&rest[..end])
}

impl<'a> File<'a> {
    /// The name of a section, if it is short enough to be of interest.
    fn name(&self, section: &elf::SectionHeader64<LE>) -> &'a [u8] {
        const LEN_MAX: usize = 32;
        string(self.names, section.sh_name(LE), LEN_MAX).unwrap_or_default()
    }

    /// `size` bytes of the file at `offset`.
    fn bytes(&self, offset: u64, size: u64, part: &'static str) -> Result<Bytes, ElfError> {
        let start = usize::try_from(offset).ok();
        let end = offset
            .checked_add(size)
            .and_then(|end| usize::try_from(end).ok());
        start
            .zip(end)
            .and_then(|(start, end)| Bytes::new(self.owner.clone(), start..end))
            .ok_or_else(|| error::cut(self.data, part, offset))
    }

    /// The file offset of `address` (svma), and the bytes from there to the end of its segment.
    fn at_address(&self, address: u64) -> Option<(u64, &'a [u8])> {
        let loads = self
            .programs
            .iter()
            .filter(|p| p.p_type(LE) == elf::PT_LOAD);
        loads.into_iter().find_map(|p| {
            let skip = address.checked_sub(p.p_vaddr(LE))?;
            let left = p.p_filesz(LE).checked_sub(skip).filter(|&left| left != 0)?;
            let offset = p.p_offset(LE).checked_add(skip)?;
            let start = usize::try_from(offset).ok()?;
            let rest = self.data.get(start..)?;
            let size = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
            Some((offset, &rest[..size]))
        })
    }

    fn read_segments(&self, out: &mut Elf) {
        for p in self
            .programs
            .iter()
            .filter(|p| p.p_type(LE) == elf::PT_LOAD)
        {
            let segment = Segment {
                offset: p.p_offset(LE),
                address: p.p_vaddr(LE),
                file_size: p.p_filesz(LE),
                memory_size: p.p_memsz(LE),
                align: p.p_align(LE),
                flags: p.p_flags(LE).0,
            };
            if segment.is_executable() && !segment.range().is_empty() {
                out.parts.text.push(segment.range());
            }
            out.segments.push(segment);
        }
    }
}

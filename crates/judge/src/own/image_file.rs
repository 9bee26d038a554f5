//! Writes an image as an ELF file: its unwind tables, the known code, and its symbols, at their
//! addresses. An unwinder that reads files gets this file if the original is not available.
//!
//! It has no relocations, dynamic linking or debug information, and cannot be run.

use object::elf::{
    EM_X86_64, ET_DYN, PF_R, PF_X, PT_GNU_EH_FRAME, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS,
    SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, STB_GLOBAL, STT_FUNC, SectionType,
};
use std::collections::HashMap;
use std::path::PathBuf;
use unwind_sim_recordings::leftovers::TemporaryFolder;
use unwind_sim_unwind::image::{Image, ImageId, SectionKind};
use unwind_sim_unwind::unwinder::Stack;

/// The sizes of a file header, a program header, a section header and a symbol, in bytes (System V
/// gABI, ELF64).
const FILE_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;
/// Offsets of segments are equal to their addresses modulo this many bytes.
const PAGE: u64 = 0x1000;
/// The maximum size of the file in bytes, so that a damaged table cannot fill the disk.
const BYTES_MAX: usize = 1 << 30;

/// The images that the process requested. Each is written once.
#[derive(Default)]
pub(super) struct ImageFiles {
    /// Deleted with its files when the process ends.
    folder: Option<TemporaryFolder>,
    paths: HashMap<ImageId, PathBuf>,
}

impl ImageFiles {
    /// The path of the image with this index in the stack's mappings, or why there is none.
    pub(super) fn path(&mut self, stack: &Stack<'_>, index: usize) -> Result<String, String> {
        let mappings = stack.space.mappings();
        let count = mappings.len();
        let mapping = mappings
            .get(index)
            .ok_or_else(|| format!("there is no image {index}, only {count}"))?;
        let image = mapping
            .image
            .as_ref()
            .ok_or_else(|| format!("`{}` is neither recorded nor available", mapping.name))?;
        if let Some(path) = self.paths.get(&image.id()) {
            return Ok(path.display().to_string());
        }
        let path = self.write(image);
        let path = path.map_err(|e| format!("cannot write `{}`: {e}", mapping.name))?;
        let shown = path.display().to_string();
        self.paths.insert(image.id(), path);
        Ok(shown)
    }

    fn write(&mut self, image: &Image) -> std::io::Result<PathBuf> {
        let folder = match &mut self.folder {
            Some(folder) => folder,
            none => none.insert(TemporaryFolder::new("unwind-sim-images-")?),
        };
        let path = folder.path().join(format!("{}.elf", self.paths.len()));
        let bytes = elf_file(image);
        let bytes = bytes.ok_or_else(|| std::io::Error::other("its tables are too large"))?;
        std::fs::write(&path, bytes)?;
        Ok(path)
    }
}

/// The maximum number of sections. The file header has 16 bits for their number, and some values
/// are reserved.
const PARTS_MAX: usize = 0x8000;

struct Part<'a> {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    /// The size in memory; `bytes` is empty if the content is not known.
    size: u64,
    bytes: &'a [u8],
    /// The offset in the file, set by the layout.
    offset: u64,
    /// `sh_link`, `sh_info` and `sh_entsize`.
    link: (u32, u32, u64),
}

impl<'a> Part<'a> {
    /// A part that is only in the file.
    fn new(name: &'static str, kind: SectionType, bytes: &'a [u8]) -> Part<'a> {
        Part {
            name,
            kind: kind.0,
            flags: 0,
            address: 0,
            size: bytes.len() as u64,
            bytes,
            offset: 0,
            link: (0, 0, 0),
        }
    }

    fn at(self, address: u64, flags: u64) -> Part<'a> {
        Part {
            address,
            flags,
            ..self
        }
    }

    fn is_loaded(&self) -> bool {
        self.flags & SHF_ALLOC.0 != 0
    }

    fn is_code(&self) -> bool {
        self.flags & SHF_EXECINSTR.0 != 0
    }
}

/// The bytes of the file; `None` if there would be more than [`BYTES_MAX`].
fn elf_file(image: &Image) -> Option<Vec<u8>> {
    let mut parts = loaded(image);
    let code = parts.iter().position(Part::is_code).map_or(0, |i| i + 1) as u16;
    let (symbols, strings) = symbols(image, code);
    if let Some(frames) = image.section(SectionKind::DebugFrame) {
        parts.push(Part::new(".debug_frame", SHT_PROGBITS, &frames.data));
    }
    parts.push(Part::new(".strtab", SHT_STRTAB, &strings));
    parts.push(Part {
        link: (parts.len() as u32, 1, SYMBOL as u64),
        ..Part::new(".symtab", SHT_SYMTAB, &symbols)
    });
    let mut names = vec![0];
    let mut name_offsets = Vec::new();
    for name in parts.iter().map(|part| part.name).chain([".shstrtab"]) {
        name_offsets.push(names.len() as u32);
        names.extend(name.bytes());
        names.push(0);
    }
    parts.push(Part::new(".shstrtab", SHT_STRTAB, &names));
    let total: usize = parts.iter().map(|part| part.bytes.len()).sum();
    (total <= BYTES_MAX && parts.len() <= PARTS_MAX).then(|| lay_out(parts, &name_offsets))
}

/// The parts that have an address, in the order of addresses.
fn loaded(image: &Image) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let alloc = SHF_ALLOC.0;
    let code = alloc | SHF_EXECINSTR.0;
    for section in image.sections() {
        let flags = match section.kind {
            // `.debug_frame` is not loaded, so it has no address.
            SectionKind::DebugFrame => continue,
            SectionKind::Text => code,
            kind if kind.has_contents() => alloc,
            _ => continue,
        };
        let part = Part::new(section.kind.as_str(), SHT_PROGBITS, &section.data);
        parts.push(part.at(section.address, flags));
    }

    // Code whose bytes the recording lacks has a section all the same: its addresses are known.
    for range in image.text() {
        let known = |part: &Part<'_>| {
            part.is_code()
                && part.address < range.end
                && range.start < part.address.saturating_add(part.size)
        };
        if !parts.iter().any(known) {
            let part = Part::new(".text", SHT_NOBITS, &[]).at(range.start, code);
            parts.push(Part {
                size: range.end.saturating_sub(range.start),
                ..part
            });
        }
    }

    parts.sort_by_key(|part| part.address);
    parts
}

/// The contents of `.symtab` and `.strtab`.
fn symbols(image: &Image, section: u16) -> (Vec<u8>, Vec<u8>) {
    let (mut table, mut strings) = (vec![0; SYMBOL], vec![0]);
    for symbol in image.symbols() {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([STB_GLOBAL.0 << 4 | STT_FUNC.0, 0]);
        table.extend(section.to_le_bytes());
        table.extend(symbol.address.to_le_bytes());
        table.extend(symbol.size.to_le_bytes());
        strings.extend(symbol.name.bytes());
        strings.push(0);
    }
    (table, strings)
}

fn lay_out(mut parts: Vec<Part<'_>>, names: &[u32]) -> Vec<u8> {
    let segments = program_header_count(&parts);
    let mut at = (FILE_HEADER + segments * PROGRAM_HEADER) as u64;

    // gABI, "Program Loading": `p_vaddr` and `p_offset` are equal modulo the page size.
    for part in &mut parts {
        at += match part.is_loaded() {
            true => part.address.wrapping_sub(at) % PAGE,
            false => at.wrapping_neg() % 8,
        };
        part.offset = at;
        at += part.bytes.len() as u64;
    }

    let sections_at = at.next_multiple_of(8);

    // gABI, "ELF Header": `e_ident` of a 64-bit little-endian file, then the header's fields in
    // order.
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(ET_DYN.0.to_le_bytes());
    file.extend(EM_X86_64.0.to_le_bytes());
    file.extend(1u32.to_le_bytes());
    for word in [0, FILE_HEADER as u64, sections_at] {
        file.extend(word.to_le_bytes());
    }
    file.extend([0; 4]);

    // The last section has the names of all (`e_shstrndx`).
    let sections = parts.len() as u16 + 1;
    for half in [
        FILE_HEADER as u16,
        PROGRAM_HEADER as u16,
        segments as u16,
        SECTION_HEADER as u16,
        sections,
        sections - 1,
    ] {
        file.extend(half.to_le_bytes());
    }

    program_headers(&parts, &mut file);
    for part in &parts {
        file.resize(part.offset as usize, 0);
        file.extend(part.bytes);
    }

    // The first section header is all zeros (gABI, `SHN_UNDEF`).
    file.resize(sections_at as usize + SECTION_HEADER, 0);

    for (part, name) in parts.iter().zip(names) {
        let (link, info, entry) = part.link;
        file.extend(name.to_le_bytes());
        file.extend(part.kind.to_le_bytes());
        for word in [part.flags, part.address, part.offset, part.size] {
            file.extend(word.to_le_bytes());
        }
        file.extend(link.to_le_bytes());
        file.extend(info.to_le_bytes());

        // `sh_addralign`: the addresses are given, whatever alignment they have.
        file.extend(1u64.to_le_bytes());
        file.extend(entry.to_le_bytes());
    }

    file
}

fn program_header_count(parts: &[Part<'_>]) -> usize {
    let loaded = parts.iter().filter(|part| part.is_loaded());
    loaded.map(|part| 1 + usize::from(is_header(part))).sum()
}

fn is_header(part: &Part<'_>) -> bool {
    part.name == SectionKind::EhFrameHdr.as_str()
}

fn program_headers(parts: &[Part<'_>], file: &mut Vec<u8>) {
    let mut add = |kind: u32, flags: u32, part: &Part<'_>, align: u64| {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        let length = part.bytes.len() as u64;
        for word in [
            part.offset,
            part.address,
            part.address,
            length,
            part.size,
            align,
        ] {
            file.extend(word.to_le_bytes());
        }
    };
    for part in parts.iter().filter(|part| part.is_loaded()) {
        let flags = PF_R.0 | if part.is_code() { PF_X.0 } else { 0 };
        add(PT_LOAD.0, flags, part, PAGE);
        if is_header(part) {
            add(PT_GNU_EH_FRAME.0, PF_R.0, part, 4);
        }
    }
}

#[cfg(test)]
mod tests;

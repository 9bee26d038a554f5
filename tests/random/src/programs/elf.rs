//! A small static ELF executable: code, data, unwind table, symbols. The table comes last, so that
//! changing it moves nothing.

use super::asm::{COLD, HOT, Layout};
use super::cfi::Sections;
use super::code::{DATA, OWN_STACK, OWN_STACK_SIZE};

/// Address of `.eh_frame_hdr`.
pub(super) const EH_FRAME_HDR: u64 = 0x50_0000;
/// Address of `.eh_frame`.
pub(super) const EH_FRAME: u64 = 0x50_1000;
const PAGE: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PT_GNU_STACK: u32 = 0x6474_e551;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_X86_64_UNWIND: u32 = 0x7000_0001;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;

/// A section of the file.
struct ElfSection<'a> {
    name: &'a str,
    kind: u32,
    flags: u32,
    address: u64,
    bytes: Vec<u8>,
    /// Size in memory; larger than `bytes` for zeros.
    size: u64,
    offset: usize,
    /// For symbols: the section of their names, and the index of the first global one.
    link: [u32; 2],
}

impl<'a> ElfSection<'a> {
    fn new(name: &'a str, kind: u32, flags: u32, address: u64, bytes: Vec<u8>) -> ElfSection<'a> {
        ElfSection {
            name,
            kind,
            flags,
            address,
            size: bytes.len() as u64,
            bytes,
            offset: 0,
            link: [0; 2],
        }
    }
}

/// Builds the file.
pub(super) fn write(layout: &Layout, data: &[u64], entry: u64, tables: Sections) -> Vec<u8> {
    let data_bytes: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (symbols, strings) = symbols(layout);

    let mut parts = vec![
        ElfSection::new(".text", SHT_PROGBITS, PF_R | PF_X, HOT, layout.hot.clone()),
        ElfSection::new(
            ".text.unlikely",
            SHT_PROGBITS,
            PF_R | PF_X,
            COLD,
            layout.cold.clone(),
        ),
        ElfSection::new(".data", SHT_PROGBITS, PF_R | PF_W, DATA, data_bytes),
        ElfSection::new(
            ".stack",
            SHT_PROGBITS,
            PF_R | PF_W,
            OWN_STACK - OWN_STACK_SIZE,
            Vec::new(),
        ),
        ElfSection::new(
            ".eh_frame_hdr",
            SHT_PROGBITS,
            PF_R,
            EH_FRAME_HDR,
            tables.eh_frame_hdr,
        ),
        ElfSection::new(
            ".eh_frame",
            SHT_X86_64_UNWIND,
            PF_R,
            EH_FRAME,
            tables.eh_frame,
        ),
        ElfSection::new(".symtab", SHT_SYMTAB, 0, 0, symbols),
        ElfSection::new(".strtab", SHT_STRTAB, 0, 0, strings),
    ];

    // No cold section if nothing is in it.
    parts.retain(|part| !(part.address == COLD && part.bytes.is_empty()));
    for part in &mut parts {
        if part.name == ".stack" {
            part.size = OWN_STACK_SIZE;
        }
    }

    // Numbers of sections count from 1, and the table of strings is the last so far.
    let strings = parts.len() as u32;
    // `sh_link` is the table of strings, and `sh_info` the first symbol that is not local (gABI).
    if let Some(part) = parts.iter_mut().find(|part| part.kind == SHT_SYMTAB) {
        part.link = [strings, 1];
    }

    // The first name is empty: section 0 has none.
    let mut names = vec![0];
    let mut name_offsets = Vec::new();
    for name in parts.iter().map(|part| part.name).chain([".shstrtab"]) {
        name_offsets.push(names.len() as u32);
        names.extend(name.bytes());
        names.push(0);
    }
    parts.push(ElfSection::new(".shstrtab", SHT_STRTAB, 0, 0, names));

    let mut at = PAGE;
    for part in &mut parts {
        // `mmap` wants address and offset in the file to be equal modulo the size of a page.
        at = at.next_multiple_of(PAGE);
        part.offset = at;
        at += part.bytes.len();
    }

    // Section headers are at the end, and need an alignment of 8.
    let sections_at = at.next_multiple_of(8);
    let mut file = vec![0; sections_at];
    for part in &parts {
        file[part.offset..part.offset + part.bytes.len()].copy_from_slice(&part.bytes);
    }

    file.extend(section_headers(&parts, &name_offsets));
    let segments = program_headers(&parts);
    // A program header has 56 bytes (gABI).
    let count = (segments.len() / 56) as u16;
    let header = file_header(entry, sections_at as u64, count, parts.len() as u16 + 1);
    file[..header.len()].copy_from_slice(&header);
    file[header.len()..header.len() + segments.len()].copy_from_slice(&segments);
    file
}

fn file_header(entry: u64, sections_at: u64, segments: u16, sections: u16) -> Vec<u8> {
    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // ET_EXEC, EM_X86_64, version.
    out.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [entry, 64, sections_at] {
        out.extend(word.to_le_bytes());
    }
    out.extend([0; 4]);
    for half in [64, 56, segments, 64, sections, sections - 1] {
        out.extend(half.to_le_bytes());
    }
    out
}

fn program_headers(parts: &[ElfSection<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut add = |kind: u32, flags: u32, words: [u64; 6]| {
        out.extend(kind.to_le_bytes());
        out.extend(flags.to_le_bytes());
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
    };
    for part in parts.iter().filter(|part| part.address != 0) {
        let size = part.bytes.len() as u64;
        let words = |align| {
            let offset = part.offset as u64;
            [offset, part.address, part.address, size, part.size, align]
        };
        add(PT_LOAD, part.flags, words(PAGE as u64));
        if part.address == EH_FRAME_HDR {
            add(PT_GNU_EH_FRAME, PF_R, words(4));
        }
    }
    add(PT_GNU_STACK, PF_R | PF_W, [0, 0, 0, 0, 0, 16]);
    out
}

fn section_headers(parts: &[ElfSection<'_>], names: &[u32]) -> Vec<u8> {
    // Section 0 is empty.
    let mut out = vec![0; 64];
    for (part, name) in parts.iter().zip(names) {
        // SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR.
        let flags = u64::from(part.flags & PF_W != 0)
            | u64::from(part.address != 0) << 1
            | u64::from(part.flags & PF_X != 0) << 2;
        let zeros = part.bytes.is_empty();
        const SHT_NOBITS: u32 = 8;
        let kind = if zeros { SHT_NOBITS } else { part.kind };
        let entry = if part.kind == SHT_SYMTAB { 24 } else { 0 };
        let size = if zeros {
            part.size
        } else {
            part.bytes.len() as u64
        };

        out.extend(name.to_le_bytes());
        out.extend(kind.to_le_bytes());
        for word in [flags, part.address, part.offset as u64, size] {
            out.extend(word.to_le_bytes());
        }
        for word in part.link {
            out.extend(word.to_le_bytes());
        }
        // `sh_addralign`, then `sh_entsize`.
        out.extend(8_u64.to_le_bytes());
        out.extend(u64::to_le_bytes(entry));
    }

    out
}

fn symbols(layout: &Layout) -> (Vec<u8>, Vec<u8>) {
    let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
    for chunk in &layout.chunks {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // STB_GLOBAL, STT_FUNC; in the section of its address.
        symbols.extend([0x12, 0]);
        symbols.extend(if chunk.range.start < COLD { 1_u16 } else { 2 }.to_le_bytes());
        symbols.extend(chunk.range.start.to_le_bytes());
        symbols.extend((chunk.range.end - chunk.range.start).to_le_bytes());
        strings.extend(chunk.name.bytes());
        strings.push(0);
    }
    (symbols, strings)
}

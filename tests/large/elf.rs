//! Makes ELF files that are large in one respect: symbols and FDEs, names, expressions, compressed
//! sections.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The address of the first function.
pub(crate) const TEXT: u64 = 0x0010_0000;
/// Bytes of a function: `push %rbp; mov %rsp,%rbp; pop %rbp; ret`, and padding.
pub(crate) const FUNCTION: u64 = 16;
const CODE: [u8; 16] = [
    0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90,
];
/// `def_cfa_offset 16, offset rbp, def_cfa_register rbp, def_cfa rsp 8, restore rbp`, after the instructions above.
const ROWS: [u8; 13] = [
    0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x41, 0x0c, 7, 8, 0xc6,
];
const PAGE: u64 = 4096;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHF_ALLOC: u64 = 2;
const SHF_EXECINSTR: u64 = 4;
/// `SHF_COMPRESSED`: the section starts with a header that names the format and the size.
pub(crate) const SHF_COMPRESSED: u64 = 1 << 11;

/// A section to write.
#[derive(Clone)]
pub(crate) struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    address: u64,
    entry: u64,
    /// The index of the section that this one refers to.
    link: u32,
    bytes: Vec<u8>,
}

impl Section {
    /// One that is not loaded.
    pub(crate) fn debug(name: &'static str, flags: u64, bytes: Vec<u8>) -> Section {
        Section {
            name,
            kind: SHT_PROGBITS,
            flags,
            address: 0,
            entry: 0,
            link: 0,
            bytes,
        }
    }
}

/// A program of `functions` functions, each with a symbol and an FDE.
pub(crate) fn functions(functions: u64) -> Vec<Section> {
    let name = |number: u64| format!("f{number}");
    let mut all = symbols((0..functions).map(|number| (name(number), number)));
    all.splice(1..1, frames(functions, |_| ROWS.to_vec()));
    // The names' section is behind the table of symbols, which is behind two others now.
    all[3].link = 5;
    all
}

/// A program with these symbols, each of a function with its number.
pub(crate) fn symbols(names: impl Iterator<Item = (String, u64)>) -> Vec<Section> {
    // Symbol 0 and name 0 are empty (gABI).
    let (mut table, mut strings) = (vec![0; 24], vec![0]);
    let mut functions = 0;
    for (name, number) in names {
        table.extend(
            u32::try_from(strings.len())
                .expect("strings of 4 GB")
                .to_le_bytes(),
        );
        // STB_GLOBAL, STT_FUNC, in the first section.
        table.extend([0x12, 0, 1, 0]);
        table.extend((TEXT + number * FUNCTION).to_le_bytes());
        table.extend(FUNCTION.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
        functions = functions.max(number + 1);
    }

    let symtab = Section {
        kind: SHT_SYMTAB,
        entry: 24,
        // `sh_link` of a symbol table is the section of its names: the null section is 0, code 1,
        // this one 2.
        link: 3,
        ..Section::debug(".symtab", 0, table)
    };
    let strtab = Section {
        kind: SHT_STRTAB,
        ..Section::debug(".strtab", 0, strings)
    };

    [text(functions), vec![symtab, strtab]].concat()
}

/// A program of `functions` functions, without symbols.
pub(crate) fn text(functions: u64) -> Vec<Section> {
    vec![Section {
        flags: SHF_ALLOC | SHF_EXECINSTR,
        address: TEXT,
        ..Section::debug(".text", 0, CODE.repeat(functions as usize))
    }]
}

/// `.eh_frame` and its index for `functions` functions; `rows` are the instructions of each.
pub(crate) fn frames(functions: u64, rows: impl Fn(u64) -> Vec<u8>) -> [Section; 2] {
    let address = (TEXT + functions * FUNCTION).next_multiple_of(PAGE) + PAGE;
    // Version 1, "zR", factors 1 and -8, rip; sdata4 relative to the place; CFA rsp+8, rip at CFA-8.
    let mut cie = vec![
        0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1,
    ];
    cie.resize(cie.len().next_multiple_of(4), 0);
    let mut frame = (cie.len() as u32).to_le_bytes().to_vec();
    frame.extend(cie);

    let mut index = Vec::new();
    for number in 0..functions {
        let at = frame.len() as u64;
        let start = TEXT + number * FUNCTION;

        // An FDE: the distance back to the CIE, the function's start relative to its field, its
        // size, and no augmentation data.
        let mut body = (at as u32 + 4).to_le_bytes().to_vec();
        body.extend((start.wrapping_sub(address + at + 8) as u32).to_le_bytes());
        body.extend((FUNCTION as u32).to_le_bytes());
        body.push(0);
        body.extend(rows(number));
        body.resize(body.len().next_multiple_of(4), 0);
        frame.extend((body.len() as u32).to_le_bytes());
        frame.extend(body);
        index.push((start, address + at));
    }

    // A length of 0 ends the section.
    frame.extend([0; 4]);

    let header_address = address + (frame.len() as u64).next_multiple_of(PAGE);
    // Version 1; the section relative to the place, a count, a table relative to this section.
    let mut header = vec![1, 0x1b, 0x03, 0x3b];
    header.extend((address.wrapping_sub(header_address + 4) as u32).to_le_bytes());
    header.extend((functions as u32).to_le_bytes());

    // Ascending, since readers search it by halves.
    for (start, entry) in index {
        header.extend((start.wrapping_sub(header_address) as u32).to_le_bytes());
        header.extend((entry.wrapping_sub(header_address) as u32).to_le_bytes());
    }
    [
        (".eh_frame", address, frame),
        (".eh_frame_hdr", header_address, header),
    ]
    .map(|(name, address, bytes)| Section {
        flags: SHF_ALLOC,
        address,
        ..Section::debug(name, 0, bytes)
    })
}

/// Writes an executable with these sections, of which those with an address are loaded.
pub(crate) fn write(path: &Path, sections: Vec<Section>) -> io::Result<()> {
    let mut names = vec![0];
    let loaded: Vec<&Section> = sections.iter().filter(|s| s.address != 0).collect();

    // An ELF header of 64 bytes, and a program header of 56 for each loaded section (elf(5)).
    let first = (64 + 56 * (loaded.len() as u64 + 1)).next_multiple_of(PAGE);
    let mut at = first;

    // The first section header is empty (elf(5)).
    let (mut headers, mut programs) = (vec![0; 64], Vec::new());

    for section in &sections {
        let len = section.bytes.len() as u64;
        headers.extend((names.len() as u32).to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        for word in [section.flags, section.address, at, len] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        // One more than the last local symbol.
        headers.extend(u32::from(section.kind == SHT_SYMTAB).to_le_bytes());
        headers.extend(8u64.to_le_bytes());
        headers.extend(section.entry.to_le_bytes());
        names.extend(section.name.as_bytes());
        names.push(0);
        if section.address != 0 {
            let flags = if section.flags & SHF_EXECINSTR != 0 {
                5u32
            } else {
                4
            };
            let is_index = section.name == ".eh_frame_hdr";

            // PT_LOAD, and for the table of `.eh_frame` its own header, by which unwinders find it.
            for kind in [Some(1u32), is_index.then_some(PT_GNU_EH_FRAME)]
                .into_iter()
                .flatten()
            {
                programs.extend(kind.to_le_bytes());
                programs.extend(flags.to_le_bytes());
                for word in [at, section.address, section.address, len, len, PAGE] {
                    programs.extend(word.to_le_bytes());
                }
            }
        }

        // Each section has its own pages, so that its offset and its address are congruent.
        at += len.next_multiple_of(PAGE);
    }

    let names_name = names.len() as u32;
    names.extend(b".shstrtab\0");
    headers.extend(names_name.to_le_bytes());
    headers.extend(SHT_STRTAB.to_le_bytes());
    for word in [0, 0, at, names.len() as u64, 0, 1, 0] {
        headers.extend(word.to_le_bytes());
    }

    let mut out = BufWriter::new(File::create(path)?);

    // Type 2 is an executable, machine 62 is x86-64.
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let section_headers = at + (names.len() as u64).next_multiple_of(8);
    for word in [TEXT, 64, section_headers] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0u32.to_le_bytes());
    let count = sections.len() as u16 + 2;

    // Sizes and counts of the headers; the last is the index of the names of sections.
    for half in [64, 56, (programs.len() / 56) as u16, 64, count, count - 1] {
        header.extend(half.to_le_bytes());
    }
    header.extend(programs);
    header.resize(first as usize, 0);
    out.write_all(&header)?;
    for section in &sections {
        out.write_all(&section.bytes)?;
        let len = section.bytes.len() as u64;
        out.write_all(&vec![0; (len.next_multiple_of(PAGE) - len) as usize])?;
    }

    // Section headers are aligned to 8 bytes.
    names.resize(names.len().next_multiple_of(8), 0);
    out.write_all(&names)?;
    out.write_all(&headers)?;
    out.flush()
}

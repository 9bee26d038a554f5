//! Builds files from a few sections and program headers.

use super::*;
use alloc::string::String;

/// A section: header and bytes.
#[derive(Clone)]
pub(super) struct Sec {
    pub(super) name: &'static str,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) link: u32,
    pub(super) data: Vec<u8>,
}

pub(super) const PROGBITS: u32 = 1;
pub(super) const SYMTAB: u32 = 2;
pub(super) const STRTAB: u32 = 3;
pub(super) const RELA: u32 = 4;
pub(super) const NOBITS: u32 = 8;
pub(super) const DYNSYM: u32 = 11;
/// `SHF_ALLOC`
pub(super) const ALLOC: u64 = 2;
/// `SHF_EXECINSTR`
pub(super) const EXEC: u64 = 4;

pub(super) fn sec(name: &'static str, kind: u32, flags: u64, address: u64, data: &[u8]) -> Sec {
    Sec {
        name,
        kind,
        flags,
        address,
        link: 0,
        data: data.to_vec(),
    }
}

/// A program header that covers one of the sections: type, flags, index of the section.
pub(super) type Program = (u32, u32, usize);

/// The bytes of the file. Section `i` of the slice has number `i` + 1.
pub(super) fn file(sections: &[Sec], programs: &[Program]) -> Vec<u8> {
    let mut out = vec![0u8; 64 + 56 * programs.len()];
    let mut names = vec![0];
    let mut headers: Vec<[u64; 10]> = vec![[0; 10]];

    for s in sections {
        out.resize(out.len().next_multiple_of(16), 0);
        let entry = match s.kind {
            SYMTAB | DYNSYM | RELA => 24,
            _ => 0,
        };

        headers.push([
            names.len() as u64,
            s.kind.into(),
            s.flags,
            s.address,
            out.len() as u64,
            s.data.len() as u64,
            s.link.into(),
            0,
            1,
            entry,
        ]);

        names.extend(s.name.bytes().chain([0]));
        out.extend(&s.data);
    }

    // A segment is the section of that number: same address, place and size.
    for (i, &(kind, flags, section)) in programs.iter().enumerate() {
        let [_, _, _, address, offset, size, ..] = headers[section + 1];
        let at = 64 + 56 * i;
        let words = [offset, address, address, size, size, 1];
        let words = words.iter().flat_map(|w| w.to_le_bytes());
        let head = [kind.to_le_bytes(), flags.to_le_bytes()].concat();
        let header: Vec<u8> = head.into_iter().chain(words).collect();
        out[at..at + 56].copy_from_slice(&header);
    }

    let (start, len) = (out.len() as u64, names.len() as u64);
    // The last section has the names of sections.
    headers.push([0, STRTAB.into(), 0, 0, start, len, 0, 0, 1, 0]);
    out.extend(&names);

    let table = out.len() as u64;
    for header in &headers {
        for (i, word) in header.iter().enumerate() {
            // `sh_name`, `sh_type`, `sh_link` and `sh_info` have 32 bits, the others 64.
            let len = if matches!(i, 0 | 1 | 6 | 7) { 4 } else { 8 };
            out.extend(&word.to_le_bytes()[..len]);
        }
    }

    // `e_phoff` is 0 without program headers.
    let count = headers.len() as u16;
    let phoff = if programs.is_empty() { 0u64 } else { 64 };

    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0]);
    put(32, &phoff.to_le_bytes());
    put(40, &table.to_le_bytes());
    put(52, &[64, 0, 56, 0, programs.len() as u8, 0, 64, 0]);
    put(
        60,
        &[count.to_le_bytes(), (count - 1).to_le_bytes()].concat(),
    );

    out
}

pub(super) fn elf_of(sections: &[Sec], programs: &[Program]) -> Elf {
    super::parse(file(sections, programs)).expect("an ELF file")
}

/// A symbol: offset of its name, type and binding, section, address.
pub(super) fn symbol(name: u32, info: u8, section: u16, address: u64) -> [u8; 24] {
    let mut symbol = [0; 24];
    symbol[..4].copy_from_slice(&name.to_le_bytes());
    symbol[4] = info;
    symbol[6..8].copy_from_slice(&section.to_le_bytes());
    symbol[8..16].copy_from_slice(&address.to_le_bytes());
    symbol[16] = 4;
    symbol
}

/// The addresses and names of the symbols found.
pub(super) fn symbols(elf: &Elf) -> Vec<(u64, String)> {
    let symbols = elf.parts.symbols.iter();
    symbols.map(|s| (s.address, s.name.clone())).collect()
}

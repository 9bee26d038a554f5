//! ELF files that tests put together, so that they need no compiler and no linker.
//!
//! The file is laid out as it is in memory: what is at address A is at offset A, below [`SIZE`].

use std::sync::Arc;
use unwind_sim_tables::file::File;

/// The length of the part of the file that is mapped, bytes.
pub(crate) const SIZE: usize = 0x4000;

/// `ET_REL`, `ET_EXEC`, `ET_DYN`
pub(crate) const REL: u16 = 1;
pub(crate) const EXEC: u16 = 2;
pub(crate) const DYN: u16 = 3;

/// `SHT_PROGBITS`, `SHT_RELA`, `SHT_NOBITS`
pub(crate) const PROGBITS: u32 = 1;
pub(crate) const RELA: u32 = 4;
pub(crate) const NOBITS: u32 = 8;

/// `SHF_ALLOC`, and with `SHF_EXECINSTR`
pub(crate) const ALLOC: u64 = 2;
pub(crate) const CODE: u64 = 6;

/// `PT_LOAD`, `PT_GNU_EH_FRAME`
pub(crate) const LOAD: u32 = 1;
pub(crate) const EH_FRAME_HDR: u32 = 0x6474_e550;

/// A section.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) name: &'static str,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    /// Where it is in memory, and in the file.
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    /// The number of the section that it is about (`sh_info`), from 1.
    pub(crate) info: u32,
    /// The number of the section of its symbols (`sh_link`), from 1.
    pub(crate) link: u32,
}

/// A program header: type, flags, address and size.
pub(crate) type Program = (u32, u32, u64, u64);

/// A file.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) kind: u16,
    pub(crate) sections: Vec<Section>,
    pub(crate) programs: Vec<Program>,
    /// Whether it has section headers.
    pub(crate) has_section_headers: bool,
}

/// A section with these bytes.
pub(crate) fn section(
    name: &'static str,
    (kind, flags): (u32, u64),
    address: u64,
    bytes: Vec<u8>,
) -> Section {
    Section {
        name,
        kind,
        flags,
        address,
        bytes,
        info: 0,
        link: 0,
    }
}

impl Made {
    /// The section with this name.
    pub(crate) fn get(&mut self, name: &str) -> &mut Section {
        let mut sections = self.sections.iter_mut();
        sections.find(|s| s.name == name).expect("a section")
    }

    /// The bytes of the file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; SIZE];
        let mut names = vec![0];
        let mut headers = vec![[0; 10]];

        for section in &self.sections {
            let start = section.address as usize;
            if section.kind != NOBITS {
                out[start..start + section.bytes.len()].copy_from_slice(&section.bytes);
            }
            let entry = if section.kind == RELA { 24 } else { 0 };
            // In an object, no section has an address yet.
            let address = if self.kind == REL { 0 } else { section.address };
            headers.push([
                names.len() as u64,
                section.kind.into(),
                section.flags,
                if section.flags & ALLOC == 0 {
                    0
                } else {
                    address
                },
                section.address,
                section.bytes.len() as u64,
                section.link.into(),
                section.info.into(),
                16,
                entry,
            ]);
            names.extend(section.name.bytes().chain([0]));
        }

        // The section of names is the last one: that is where `e_shstrndx` leads.
        let name = names.len() as u64;
        names.extend(b".shstrtab\0");
        headers.push([name, 3, 0, 0, SIZE as u64, names.len() as u64, 0, 0, 1, 0]);

        out.extend(names);
        out.resize(out.len().next_multiple_of(8), 0);
        let table = out.len() as u64;

        for [name, kind, rest @ ..] in &headers {
            out.extend((*name as u32).to_le_bytes());
            out.extend((*kind as u32).to_le_bytes());
            let [flags, address, offset, size, link, info, align, entry] = *rest;
            for word in [flags, address, offset, size] {
                out.extend(word.to_le_bytes());
            }
            out.extend((link as u32).to_le_bytes());
            out.extend((info as u32).to_le_bytes());
            out.extend(align.to_le_bytes());
            out.extend(entry.to_le_bytes());
        }

        self.write_header(&mut out, table, headers.len());
        out
    }

    fn write_header(&self, out: &mut [u8], table: u64, sections: usize) {
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);

        // An ELF file of 64 bits, little endian, for x86-64 (62); its program headers stand behind
        // this header, which has 64 bytes.
        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &self.kind.to_le_bytes());
        put(18, &62_u16.to_le_bytes());
        put(20, &1_u32.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(52, &64_u16.to_le_bytes());
        put(54, &56_u16.to_le_bytes());
        put(56, &(self.programs.len() as u16).to_le_bytes());

        if self.has_section_headers {
            put(40, &table.to_le_bytes());
            put(58, &64_u16.to_le_bytes());
            put(60, &(sections as u16).to_le_bytes());
            put(62, &(sections as u16 - 1).to_le_bytes());
        }

        for (number, &(kind, flags, address, size)) in self.programs.iter().enumerate() {
            let at = 64 + 56 * number;
            put(at, &kind.to_le_bytes());
            put(at + 4, &flags.to_le_bytes());
            let align = if kind == LOAD { 0x1000 } else { 4 };
            let words = [address, address, address, size, size, align];
            for (number, word) in words.iter().enumerate() {
                put(at + 8 + 8 * number, &word.to_le_bytes());
            }
        }
    }

    /// The open file.
    pub(crate) fn open(&self) -> File {
        File::read("made", Arc::new(self.bytes())).expect("an ELF file")
    }
}

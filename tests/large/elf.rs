//! Makes ELF files that are large in one respect: symbols and FDEs, names, expressions, compressed
//! sections.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use unwind_sim_tables::elf_write::{NewFile, NewFileSection, NewFileSymbol};

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
/// `SHF_COMPRESSED`: the section starts with a header that names the format and the size.
pub(crate) const SHF_COMPRESSED: u64 = 1 << 11;

/// A section to write.
#[derive(Clone)]
pub(crate) struct Section {
    name: &'static str,
    flags: u64,
    address: u64,
    bytes: Vec<u8>,
}

impl Section {
    /// One that is not loaded.
    pub(crate) fn debug(name: &'static str, flags: u64, bytes: Vec<u8>) -> Section {
        Section {
            name,
            flags,
            address: 0,
            bytes,
        }
    }
}

/// A program: sections, and functions by name and number.
#[derive(Clone, Default)]
pub(crate) struct Program {
    pub(crate) sections: Vec<Section>,
    symbols: Vec<(String, u64)>,
}

/// A program of `functions` functions, each with a symbol and an FDE.
pub(crate) fn functions(functions: u64) -> Program {
    let mut all = symbols((0..functions).map(|number| (format!("f{number}"), number)));
    all.sections.extend(frames(functions, |_| ROWS.to_vec()));
    all
}

/// A program with these symbols, each of a function with its number.
pub(crate) fn symbols(names: impl Iterator<Item = (String, u64)>) -> Program {
    let symbols: Vec<(String, u64)> = names.collect();
    let functions = symbols.iter().map(|(_, number)| number + 1).max();
    Program {
        symbols,
        ..text(functions.unwrap_or(0))
    }
}

/// A program of `functions` functions, without symbols.
pub(crate) fn text(functions: u64) -> Program {
    let code = Section {
        flags: NewFileSection::CODE,
        address: TEXT,
        ..Section::debug(".text", 0, CODE.repeat(functions as usize))
    };
    Program {
        sections: vec![code],
        symbols: Vec::new(),
    }
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
        flags: NewFileSection::READ_ONLY,
        address,
        ..Section::debug(name, 0, bytes)
    })
}

/// Writes an executable, of whose sections those with an address are loaded.
pub(crate) fn write(path: &Path, program: &Program) -> io::Result<()> {
    let sections = program.sections.iter();
    let sections = sections.map(|section| {
        NewFileSection::new(section.name, &section.bytes).at(section.address, section.flags)
    });
    let symbols = program.symbols.iter().map(|(name, number)| NewFileSymbol {
        name,
        address: TEXT + number * FUNCTION,
        size: FUNCTION,
        section: Some(0),
    });
    let file = NewFile {
        entry: Some(TEXT),
        sections: sections.collect(),
        symbols: symbols.collect(),
    };

    let bytes = file.bytes(u64::MAX).map_err(io::Error::other)?;
    File::create(path)?.write_all(&bytes)
}

//! Makes ELF cores with many mappings.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const PAGE: u64 = 4096;
/// The address of the first mapping; there is a page between any two.
const FIRST: u64 = 0x1000_0000;
const NT_PRSTATUS: u32 = 1;
const NT_FILE: u32 = 0x4649_4c45;
/// Program headers from which on their number is in the first section header (`PN_XNUM`).
const MANY: u64 = 0xffff;

fn note(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [5, body.len() as u32, kind] {
        out.extend(word.to_le_bytes());
    }
    out.extend(b"CORE\0\0\0\0");
    out.extend(body);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// A core of one thread with `mappings` mappings, each of the file `image`. The first one holds the
/// stack.
pub(crate) fn write(path: &Path, mappings: u64, image: &Path) -> io::Result<()> {
    let address = |number: u64| FIRST + number * 2 * PAGE;
    // struct elf_prstatus: pid at 32, registers at 112; rip is the 17th, rsp the 20th.
    let mut status = vec![0; 336];
    status[32] = 1;
    let rip = address(1) + 8;
    status[112 + 16 * 8..][..8].copy_from_slice(&rip.to_le_bytes());
    status[112 + 19 * 8..][..8].copy_from_slice(&address(0).to_le_bytes());

    // NT_FILE: the number of mappings and the unit of the offsets, which is a byte here; start, end
    // and offset of each; then all names.
    let mut files: Vec<u8> = [mappings, 1]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    for number in 0..mappings {
        for word in [address(number), address(number) + PAGE, number * PAGE] {
            files.extend(word.to_le_bytes());
        }
    }
    for number in 0..mappings {
        // Each is of its own file, so that each is looked for.
        files.extend(format!("{}.{number}\0", image.display()).bytes());
    }
    let notes = [note(NT_PRSTATUS, &status), note(NT_FILE, &files)].concat();

    let count = mappings + 1;
    let notes_at = 64 + 56 * count;
    let stack_at = (notes_at + notes.len() as u64).next_multiple_of(PAGE);

    // A count that does not fit into `e_phnum` is in `sh_info` of the first section (elf(5),
    // PN_XNUM).
    let is_many = count >= MANY;
    let sections_at = stack_at + PAGE;

    // A core of little-endian x86-64, with program headers right behind this header.
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x04\0\x3e\0\x01\0\0\0".to_vec();
    for word in [0, 64, if is_many { sections_at } else { 0 }] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0u32.to_le_bytes());
    for half in [64, 56, count.min(MANY) as u16, 64, u16::from(is_many), 0] {
        header.extend(half.to_le_bytes());
    }

    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&header)?;

    // A header has the kind, PF_R and PF_X, and then six words.
    let mut program = |kind: u32, words: [u64; 6]| -> io::Result<()> {
        out.write_all(&kind.to_le_bytes())?;
        out.write_all(&5u32.to_le_bytes())?;
        words
            .iter()
            .try_for_each(|word| out.write_all(&word.to_le_bytes()))
    };

    // 4 is PT_NOTE and 1 is PT_LOAD. Only the stack has bytes in the file.
    program(4, [notes_at, 0, 0, notes.len() as u64, 0, 4])?;
    for number in 0..mappings {
        let held = if number == 0 { PAGE } else { 0 };
        program(1, [stack_at, address(number), 0, held, PAGE, PAGE])?;
    }

    out.write_all(&notes)?;
    out.write_all(&vec![0; (stack_at - notes_at) as usize - notes.len()])?;
    // A stack of return addresses into every mapping, as far as it goes.
    for slot in 0..PAGE / 8 {
        out.write_all(&(address(slot % mappings) + 16).to_le_bytes())?;
    }

    let mut section = [0; 64];
    section[44..48].copy_from_slice(&(count as u32).to_le_bytes());
    out.write_all(&section)?;
    out.flush()
}

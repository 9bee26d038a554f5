//! `__bug_table` of kernel modules: the size of its entries is that of the kernel that they are for.

use crate::made::{ALLOC, CODE, Made, PROGBITS, REL, RELA, section};
use unwind_sim_tables::kernel::SpecialSections;

const TABLE: u64 = 0x1000;
/// `ud2; nop`
const BUG: [u8; 3] = [0x0f, 0x0b, 0x90];
/// `BUGFLAG_WARNING`, and `BUGFLAG_TAINT(9)` with it
const FLAGS: [u16; 4] = [0x901, 0, 1, 0x905];

/// A module with entries of `len` bytes that begin with an address and have `flags` at an offset. What
/// is between them are the file's name, the line and the format, whose relocations are left out.
fn module(len: u64, flags: u64) -> Made {
    let mut table = Vec::new();
    let mut relocations = Vec::new();
    for (number, value) in (0..).zip(FLAGS) {
        // R_X86_64_PC32 of the first symbol, which is that of `.text`.
        for word in [table.len() as u64, 1 << 32 | 2, number * BUG.len() as u64] {
            relocations.extend(word.to_le_bytes());
        }

        let mut entry = vec![0; len as usize];
        // A line, where there is one: odd, so that it is no warning's flags by accident only.
        if len > 8 {
            let line = flags as usize - 2;
            entry[line..line + 2].copy_from_slice(&301_u16.to_le_bytes());
        }
        entry[flags as usize..][..2].copy_from_slice(&value.to_le_bytes());
        table.extend(entry);
    }

    let mut symbols = vec![0; 24];
    symbols.extend([0, 0, 0, 0, 3, 0, 2, 0]);
    symbols.extend([0; 16]);
    let mut rela = section(".rela__bug_table", (RELA, 0), 0x1800, relocations);
    (rela.info, rela.link) = (1, 4);
    let mut symtab = section(".symtab", (2, 0), 0x1a00, symbols);
    (symtab.info, symtab.link) = (2, 5);

    Made {
        kind: REL,
        sections: vec![
            section("__bug_table", (PROGBITS, ALLOC), TABLE, table),
            section(".text", (PROGBITS, CODE), 0x2000, BUG.repeat(FLAGS.len())),
            rela,
            symtab,
            section(".strtab", (3, 0), 0x1b00, vec![0]),
        ],
        programs: Vec::new(),
        has_section_headers: true,
    }
}

/// The numbers of the entries that are warnings.
fn warnings(made: &Made) -> Vec<u64> {
    let file = made.open();
    let text = file.section_range(".text").expect(".text").start;
    let edges = SpecialSections::read(&file);
    let at = edges.warnings.keys();
    at.map(|at| (at - text) / BUG.len() as u64).collect()
}

#[test]
fn the_size_of_an_entry_is_derived() {
    // With file and line; since Linux 6.19 also with a format; with none of these.
    for (len, flags) in [(12, 10), (16, 14), (8, 4)] {
        assert_eq!(warnings(&module(len, flags)), [0, 2, 3], "{len} bytes");
    }
}

#[test]
fn entries_of_no_known_size_are_no_warnings() {
    assert_eq!(warnings(&module(20, 18)), []);
}

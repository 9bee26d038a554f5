//! Files without section headers: what they are read by is in their program headers.

use super::{CIE, EH_FRAME, FUNCTION, TEXT, counts, fde, hdr};
use crate::made::{ALLOC, CODE, DYN, EH_FRAME_HDR, LOAD, Made, PROGBITS, section};
use unwind_sim_tables::check::{Options, Report, check};
use unwind_sim_tables::proof::program::Entry;

/// The size of an entry of a procedure linkage table, bytes.
const STUB: u64 = 16;
/// `_GLOBAL_OFFSET_TABLE_`
const GOT: u64 = 0x3000;
const PLT: u64 = TEXT + 0x100;

/// `jmp *slot(%rip)` or `push slot(%rip)` at `at` (svma).
fn through(opcode: [u8; 2], at: u64, slot: u64) -> Vec<u8> {
    let distance = slot.wrapping_sub(at + 6) as u32;
    [&opcode[..], &distance.to_le_bytes()].concat()
}

/// GNU ld's lazy table with an entry for one function.
fn lazy() -> Vec<u8> {
    let mut out = through([0xff, 0x35], PLT, GOT + 8);
    out.extend(through([0xff, 0x25], PLT + 6, GOT + 16));
    out.extend([0x0f, 0x1f, 0x40, 0]);
    let stub = PLT + STUB;
    out.extend(through([0xff, 0x25], stub, GOT + 24));
    // `push $0; jmp PLT`
    out.extend([0x68, 0, 0, 0, 0, 0xe9]);
    out.extend((PLT.wrapping_sub(stub + STUB) as u32).to_le_bytes());
    out
}

/// The rows of such a table: two words lie on the stack when it is entered, one of them pushed by a stub.
const LAZY_ROWS: [u8; 21] = [
    0x0e, 16, 0x46, 0x0e, 24, 0x4a, 0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24,
    0x22, 0, 0,
];

/// An FDE at `at` (svma), with other instructions than those of [`FUNCTION`].
fn fde_with(at: u64, start: u64, size: u32, rows: &[u8]) -> Vec<u8> {
    let mut out = fde(at, start, size);
    out.truncate(17);
    out.extend(rows);
    out.resize(out.len().next_multiple_of(4), 0);
    let length = out.len() as u32 - 4;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

/// A library with a function and a procedure linkage table, and other bytes behind its `.eh_frame`.
fn library(plt: Vec<u8>, rows: &[u8]) -> Made {
    let size = plt.len() as u32;
    let mut table = CIE.to_vec();
    table.extend(fde(EH_FRAME + 24, TEXT, FUNCTION.len() as u32));
    table.extend(fde_with(EH_FRAME + 48, PLT, size, rows));
    table.extend([0; 4]);
    // Exception tables, mostly.
    table.extend([0xff; 64]);

    let hdr = hdr(&[(TEXT, 0), (PLT, 1)]);
    let hdr_size = hdr.len() as u64;
    Made {
        kind: DYN,
        sections: vec![
            section(".eh_frame", (PROGBITS, ALLOC), EH_FRAME, table),
            section(".eh_frame_hdr", (PROGBITS, ALLOC), 0x1800, hdr),
            section(".text", (PROGBITS, CODE), TEXT, FUNCTION.to_vec()),
            section(".plt", (PROGBITS, CODE), PLT, plt),
        ],
        programs: vec![
            (LOAD, 4, 0, 0x2000),
            (LOAD, 5, 0x2000, 0x1000),
            (LOAD, 6, GOT, 0x1000),
            (EH_FRAME_HDR, 4, 0x1800, hdr_size),
        ],
        has_section_headers: false,
    }
}

fn report(made: &Made) -> Report {
    check(&made.open(), &Options::default())
}

#[test]
fn a_lazy_linkage_table_is_known_by_its_bytes() {
    let made = library(lazy(), &LAZY_ROWS);
    let found = report(&made);
    assert_eq!(counts(&found), [2, 2, 0, 0]);
    assert_eq!(found.functions[1].entry, Entry::Plt);
    // The same bytes without a writable table of addresses are a function like any other.
    let mut made = library(lazy(), &LAZY_ROWS);
    made.programs[2].1 = 4;
    assert_ne!(report(&made).functions[1].entry, Entry::Plt);
}

#[test]
fn stubs_that_only_jump_are_known_by_their_bytes() {
    // Those of `.plt.sec` with IBT, and those of `.plt.got` without.
    let mut long = Vec::new();
    let mut short = Vec::new();

    for number in 0..3 {
        let at = PLT + STUB * number + 4;
        long.extend([0xf3, 0x0f, 0x1e, 0xfa]);
        long.extend(through([0xff, 0x25], at, GOT + 8 * number));
        long.extend([0x66, 0x0f, 0x1f, 0x44, 0, 0]);
        let at = PLT + STUB / 2 * number;
        short.extend(through([0xff, 0x25], at, GOT + 8 * number));
        short.extend([0x66, 0x90]);
    }

    for stubs in [long, short] {
        let found = report(&library(stubs, &[0; 3]));
        assert_eq!(counts(&found), [2, 2, 0, 0]);
        assert_eq!(found.functions[1].entry, Entry::Plt);
    }
    // A function that ends in such a jump is none.
    let mut code = through([0xff, 0x25], PLT, GOT);
    let found = report(&library(code.clone(), &[0; 3]));
    assert_eq!(found.functions[1].entry, Entry::Call);
    code.splice(..0, [0x31, 0xc0]);
    let found = report(&library(code, &[0; 3]));
    assert_eq!(found.functions[1].entry, Entry::Call);
}

#[test]
fn what_is_behind_the_terminator_is_not_read() {
    let found = report(&library(lazy(), &LAZY_ROWS));
    assert_eq!(found.problems, [""; 0]);
    assert_eq!(found.index, []);
}

/// Relocations and names come from the dynamic section.
#[test]
fn the_dynamic_section_has_relocations_and_names() {
    let mut made = library(lazy(), &LAZY_ROWS);
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect();
    // R_X86_64_JUMP_SLOT of the first symbol, `R_X86_64_RELATIVE`, and a packed relocation of two words.
    let jump_slot = words(&[GOT + 24, 1 << 32 | 7, 0]);
    let relative = words(&[GOT + 0x100, 8, TEXT]);
    let packed = words(&[GOT + 0x108, 0b101]);

    let mut symbols: Vec<u8> = vec![0; 24];
    symbols.extend([1, 0, 0, 0, 0x12, 0, 0, 0]);
    symbols.extend([0; 16]);
    let strings = b"\0abort\0".to_vec();
    let places = [0x1900, 0x1940, 0x1980, 0x19c0, 0x1a00];

    let dynamic = words(&[
        // DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_RELR, DT_RELRSZ, DT_SYMTAB, DT_STRTAB
        23, places[0], 2, 24, 7, places[1], 8, 24, 36, places[2], 35, 16, 6, places[3], 5,
        places[4], // DT_STRSZ, DT_NULL
        10, 7, 0, 0,
    ]);
    made.programs.push((2, 6, 0x1b00, 16 * 10));

    let pointers = words(&[TEXT + 1, 0, TEXT + 2]);
    for (address, bytes) in [
        (places[0], jump_slot),
        (places[1], relative),
        (places[2], packed),
        (places[3], symbols),
        (places[4], strings),
        (0x1b00, dynamic),
        (GOT + 0x108, pointers),
    ] {
        made.sections
            .push(section("", (PROGBITS, ALLOC), address, bytes));
    }

    let file = made.open();
    assert_eq!(file.import(GOT + 24), Some("abort"));
    let pointers = [
        (GOT + 0x100, TEXT),
        (GOT + 0x108, TEXT + 1),
        (GOT + 0x118, TEXT + 2),
    ];
    assert_eq!(file.pointers(), pointers);
}

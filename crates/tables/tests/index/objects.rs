//! `.sframe`: the order of its FDEs, and its relocations in objects.

use super::{FUNCTION, STEP, TEXT, found, start, text};
use crate::made::{ALLOC, CODE, DYN, LOAD, Made, PROGBITS, REL, RELA, section};
use unwind_sim_tables::check::{Options, check};
use unwind_sim_tables::index::Flaw;

const NAME: &str = ".sframe";
const SFRAME: u64 = 0x1000;
/// The lengths of the header and of an FDE of version 2, bytes.
const HEADER: u64 = 28;
const FDE: u64 = 20;

/// `SFRAME_F_FDE_SORTED`, `SFRAME_F_FDE_FUNC_START_PCREL`
const SORTED: u8 = 1;
const PCREL: u8 = 4;

/// A section of version 2 with an FDE of one row for each function: its start (svma) and size.
fn sframe(flags: u8, functions: &[(u64, u32)]) -> Vec<u8> {
    let count = functions.len() as u32;
    let mut out = vec![0xe2, 0xde, 2, flags, 3, 0, 0xf8, 0];
    for word in [count, count, 3 * count, 0, FDE as u32 * count] {
        out.extend(word.to_le_bytes());
    }
    for (number, &(start, size)) in (0..).zip(functions) {
        let place = SFRAME + out.len() as u64;
        let distance = start.wrapping_sub(place) as u32;
        for word in [distance, size, 3 * number, 1, 0] {
            out.extend(word.to_le_bytes());
        }
    }
    for _ in functions {
        // At 0, the CFA is rsp + 8.
        out.extend([0, 3, 8]);
    }
    out
}

fn linked(flags: u8, functions: &[(u64, u32)]) -> Made {
    Made {
        kind: DYN,
        sections: vec![
            section(NAME, (PROGBITS, ALLOC), SFRAME, sframe(flags, functions)),
            section(".text", (PROGBITS, CODE), TEXT, text()),
        ],
        programs: vec![(LOAD, 4, 0, 0x2000), (LOAD, 5, 0x2000, 0x1000)],
        has_section_headers: true,
    }
}

#[test]
fn fdes_that_are_said_to_be_sorted_are() {
    let size = FUNCTION.len() as u32;
    let right = [(start(0), size), (start(1), size), (start(2), size)];
    assert_eq!(found(&linked(SORTED | PCREL, &right)), []);
    let wrong = [right[1], right[0], right[2]];
    // A search for the third and the second ends where it should.
    let flaws = [
        (Flaw::SframeHidden, NAME, HEADER),
        (Flaw::SframeUnsorted, NAME, HEADER + FDE),
    ];
    assert_eq!(found(&linked(SORTED | PCREL, &wrong)), flaws);
    // Without the flag, readers go through them.
    assert_eq!(found(&linked(PCREL, &wrong)), []);
}

#[test]
fn an_fde_that_the_header_does_not_count_is_lost() {
    let size = FUNCTION.len() as u32;
    let mut made = linked(SORTED | PCREL, &[(start(0), size), (start(1), size)]);
    made.sections[0].bytes[8] -= 1;
    let flaw = (Flaw::SframeUncounted, NAME, HEADER + FDE);
    assert_eq!(found(&made), [flaw]);
    let report = check(&made.open(), &Options::default());
    assert_eq!(
        report.index[0].code,
        Some(start(1)..start(1) + FUNCTION.len() as u64)
    );
}

#[test]
fn an_empty_fde_that_a_search_finds_instead_hides_the_function() {
    let size = FUNCTION.len() as u32;
    let hidden = [(start(0), size), (start(1), size), (start(1), 0)];
    let flaw = (Flaw::SframeHidden, NAME, HEADER + FDE);
    assert_eq!(found(&linked(SORTED | PCREL, &hidden)), [flaw]);
    let found_first = [(start(0), size), (start(1), 0), (start(1), size)];
    assert_eq!(found(&linked(SORTED | PCREL, &found_first)), []);
}

#[test]
fn two_fdes_of_one_function_say_the_same() {
    let size = FUNCTION.len() as u32;
    let equal = [(start(0), size), (start(0), size), (start(1), size)];
    let shorter = [(start(0), size), (start(0), size - 1), (start(1), size)];

    for flags in [PCREL, SORTED | PCREL] {
        assert_eq!(found(&linked(flags, &equal)), []);

        let flaw = (Flaw::SframeDouble, NAME, HEADER + FDE);
        assert_eq!(found(&linked(flags, &shorter)), [flaw]);
    }
}

/// An object with relocations at these offsets of `.sframe`.
fn object(places: &[u64]) -> Made {
    let size = FUNCTION.len() as u32;
    let mut table = sframe(PCREL, &[(SFRAME, size), (SFRAME, size)]);
    for number in 0..2 {
        let at = (HEADER + FDE * number) as usize;
        table[at..at + 4].fill(0);
    }

    let mut relocations = Vec::new();
    for (number, &place) in (0..).zip(places) {
        // R_X86_64_PC32 of the first symbol, which is that of `.text`.
        for word in [place, 1 << 32 | 2, STEP * number] {
            relocations.extend(word.to_le_bytes());
        }
    }

    let mut symbols = vec![0; 24];
    symbols.extend([0, 0, 0, 0, 3, 0, 2, 0]);
    symbols.extend([0; 16]);
    let mut rela = section(".rela.sframe", (RELA, 0), 0x1800, relocations);
    (rela.info, rela.link) = (1, 4);
    let mut symtab = section(".symtab", (2, 0), 0x1a00, symbols);
    (symtab.info, symtab.link) = (2, 5);

    Made {
        kind: REL,
        sections: vec![
            section(NAME, (PROGBITS, ALLOC), SFRAME, table),
            section(".text", (PROGBITS, CODE), TEXT, text()),
            rela,
            symtab,
            section(".strtab", (3, 0), 0x1b00, vec![0]),
        ],
        programs: Vec::new(),
        has_section_headers: true,
    }
}

#[test]
fn each_fde_of_an_object_has_a_relocation_and_there_are_no_others() {
    let (first, second) = (HEADER, HEADER + FDE);
    assert_eq!(found(&object(&[first, second])), []);
    // What GNU ld 2.44 -r does: a relocation lies in the rows.
    let rows = HEADER + 2 * FDE;
    let flaws = [
        (Flaw::SframeUnrelocated, NAME, second),
        (Flaw::SframeMisplaced, NAME, rows),
    ];
    assert_eq!(found(&object(&[first, rows])), flaws);
    let flaw = (Flaw::SframeUnrelocated, NAME, first);
    assert_eq!(found(&object(&[second])), [flaw]);
}

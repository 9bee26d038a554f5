//! FDEs without code: of discarded functions, in files of debug information, in data.

use super::{EH_FRAME, FUNCTION, TEXT, counts, eh_frame, start, text, three};
use crate::made::{ALLOC, CODE, DYN, EXEC, LOAD, Made, NOBITS, PROGBITS, REL, section};
use unwind_sim_tables::check::{Hole, Options, Report, check};
use unwind_sim_tables::proof::verdict::Doubt;

/// A `.debug_frame` with an FDE for each of these, of these instructions.
fn debug_frame(functions: &[(u64, &[u8])]) -> Vec<u8> {
    let mut out = vec![20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16];
    out.extend([0x0c, 7, 8, 0x90, 1]);
    out.resize(24, 0);
    for &(start, rows) in functions {
        out.extend((4 + 8 + 8 + rows.len() as u32).to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend((FUNCTION.len() as u64).to_le_bytes());
        out.extend(rows);
    }
    out
}

/// The instructions of an FDE of [`FUNCTION`], and others that are as long.
const RIGHT: &[u8] = &[0x41, 0x0e, 16, 0x41, 0x0e, 8, 0, 0];
const OTHER: &[u8] = &[0x41, 0x0e, 24, 0x41, 0x0e, 8, 0, 0];

/// A program whose first segment is its header, not executable, and its code.
fn program(table: Vec<u8>) -> Made {
    Made {
        kind: DYN,
        sections: vec![
            section(".debug_frame", (PROGBITS, 0), 0x1000, table),
            section(".text", (PROGBITS, CODE), TEXT, text()),
        ],
        programs: vec![(LOAD, 4, 0, 0x1000), (LOAD, 5, 0x2000, 0x1000)],
        has_section_headers: true,
    }
}

fn report(made: &Made) -> Report {
    check(&made.open(), &Options::default())
}

#[test]
fn an_fde_at_an_address_that_linkers_give_to_discarded_functions_is_not_judged() {
    for tombstone in [0, u64::MAX, u64::MAX - 1] {
        let made = program(debug_frame(&[(start(0), RIGHT), (tombstone, OTHER)]));
        let report = report(&made);
        assert_eq!(counts(&report), [1, 1, 0, 0], "{tombstone:#x}");
        assert_eq!(report.index, []);
    }
}

#[test]
fn code_at_address_0_is_judged() {
    let mut made = program(debug_frame(&[(0x100, OTHER), (start(0), RIGHT)]));
    made.programs[0].1 = 5;
    made.kind = EXEC;
    let mut code = section(".text.0", (PROGBITS, CODE), 0x100, text());
    code.address = 0x100;
    made.sections.push(code.clone());
    assert_eq!(counts(&report(&made)), [2, 1, 1, 0]);
    // At 0 itself lies the header of this file; as code it decodes, and has a wrong row.
    let mut bytes = made.bytes();
    let number = made.sections.len();
    let table = u64::from_le_bytes(*bytes[40..].first_chunk().expect("e_shoff")) as usize;
    let at = table + 64 * number + 16;
    bytes[at..at + 8].fill(0);
    let fde = 0x1000 + 24 + 8;
    bytes[fde..fde + 8].fill(0);
    let file = unwind_sim_tables::file::File::read("at 0", std::sync::Arc::new(bytes));
    let report = check(&file.expect("an ELF file"), &Options::default());
    assert_eq!(report.totals().all.functions, 2);
}

#[test]
fn an_fde_in_data_is_not_judged_and_is_named() {
    let mut made = program(debug_frame(&[(start(0), RIGHT), (0x1800, OTHER)]));
    made.sections
        .push(section(".rodata", (PROGBITS, ALLOC), 0x1800, text()));
    let report = report(&made);
    assert_eq!(counts(&report), [2, 1, 0, 1]);
    let doubts = &report.functions[0].verdict.doubts;
    assert_eq!(doubts.first().map(|d| d.0), Some(Doubt::NoCode));
    let holes: Vec<Hole> = report.gaps.iter().map(|g| g.hole).collect();
    assert!(holes.contains(&Hole::NoCode));
}

#[test]
fn equal_fdes_of_the_same_code_are_one() {
    let twice = program(debug_frame(&[(start(0), RIGHT), (start(0), RIGHT)]));
    assert_eq!(counts(&report(&twice)), [1, 1, 0, 0]);
    // Two that differ are two.
    let differ = program(debug_frame(&[(start(0), RIGHT), (start(0), OTHER)]));
    let report = report(&differ);
    assert_eq!(report.totals().all.functions, 2);
    assert_ne!(counts(&report), [2, 2, 0, 0]);
}

/// `lld -r` leaves R_X86_64_NONE at the FDEs of a discarded section: the word stays as it is.
#[test]
fn an_fde_of_an_object_without_a_relocation_is_not_judged() {
    let mut table = eh_frame(&three()[..1]);
    table[24 + 8..24 + 12].fill(0);
    let made = Made {
        kind: REL,
        sections: vec![
            section(".eh_frame", (PROGBITS, ALLOC), EH_FRAME, table),
            section(".text", (PROGBITS, CODE), TEXT, text()),
        ],
        programs: Vec::new(),
        has_section_headers: true,
    };
    let report = report(&made);
    assert_eq!(counts(&report), [0, 0, 0, 0]);
    assert_eq!(report.index, []);
}

/// `objcopy --only-keep-debug` and `eu-strip -f`: sections without bytes; the latter leaves the sizes in
/// program headers, so that other bytes of the file lie where code was.
#[test]
fn nothing_is_judged_in_a_file_of_debug_information() {
    let mut made = program(debug_frame(&[(start(0), OTHER)]));
    made.get(".text").kind = NOBITS;
    let mut index = section(".eh_frame", (NOBITS, ALLOC), EH_FRAME + 0x400, vec![0; 64]);
    index.address = 0x1400;
    made.sections.push(index);
    let file = made.open();
    assert!(file.is_debug_file());
    assert_eq!(file.absent_tables(), [".eh_frame"]);
    assert!(file.bytes(TEXT).is_empty());
    let report = report(&made);
    assert_eq!(counts(&report), [0, 0, 0, 0]);
    let said = report.problems.join("\n");
    assert!(said.contains("a debug file"), "{said}");
    assert!(said.contains("NOBITS"), "{said}");
    assert!(said.ends_with(".eh_frame"), "{said}");
    // The same with its code is judged.
    made.get(".text").kind = PROGBITS;
    assert_eq!(counts(&self::report(&made)), [1, 0, 1, 0]);
}

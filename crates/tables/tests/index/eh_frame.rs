//! `.eh_frame_hdr` and the entries of `.eh_frame`.

use super::{
    CIE, CIE_ENCODING, EH_FRAME, STEP, TEXT, eh_frame, entries, fde, found, hdr, library, offset,
    start, three,
};
use crate::made::{EXEC, Made, PROGBITS, RELA, section};
use unwind_sim_tables::check::{Options, check};
use unwind_sim_tables::index::Flaw;
use unwind_sim_tables::table::Table;
use unwind_sim_unwind::row::TableKind;

const HDR_NAME: &str = ".eh_frame_hdr";
const EH_FRAME_NAME: &str = ".eh_frame";

/// The library with another search table.
fn with(entries: &[(u64, usize)]) -> Made {
    library(eh_frame(&three()), hdr(entries))
}

#[test]
fn a_right_index_has_no_flaw_and_its_functions_are_proven() {
    let made = with(&entries());
    assert_eq!(found(&made), []);
    let totals = check(&made.open(), &Options::default()).totals();
    assert_eq!((totals.all.functions, totals.proven.functions), (3, 3));
}

#[test]
fn entries_that_are_not_sorted_are_one_finding_and_one_for_each_function_that_is_lost() {
    let mut swapped = entries();
    swapped.swap(0, 1);
    let made = with(&swapped);
    // A search for the first function ends before the first entry, one for the second at the first
    // function's entry. The third is found.
    let right = [
        (Flaw::HdrHidden, HDR_NAME, 12),
        (Flaw::HdrUnsorted, HDR_NAME, 12 + 8),
        (Flaw::HdrHidden, HDR_NAME, 12 + 8),
    ];
    assert_eq!(found(&made), right);
    let report = check(&made.open(), &Options::default());
    assert_eq!(report.index[1].functions, 2);
    assert_eq!(report.index[0].code, Some(start(0)..start(0) + 3));
}

#[test]
fn a_function_without_an_entry_is_named_by_its_fde() {
    let mut fewer = entries();
    fewer.remove(1);
    assert_eq!(
        found(&with(&fewer)),
        [(Flaw::HdrMissing, EH_FRAME_NAME, offset(1))]
    );
    // An empty table loses all.
    let flaws = found(&with(&[])).into_iter().map(|f| f.0);
    assert_eq!(flaws.collect::<Vec<_>>(), [Flaw::HdrMissing; 3]);
}

#[test]
fn an_empty_fde_that_a_search_finds_instead_hides_the_function() {
    let functions = [&[(start(1), 0)][..], &three()[..]].concat();
    let listed = [(start(0), 1), (start(1), 2), (start(1), 0), (start(2), 3)];
    let made = library(eh_frame(&functions), hdr(&listed));
    assert_eq!(found(&made), [(Flaw::HdrHidden, HDR_NAME, 12 + 2 * 8)]);
    // The other way round, the search ends at the right one: it takes the last of equals.
    let listed = [(start(0), 1), (start(1), 0), (start(1), 2), (start(2), 3)];
    let made = library(eh_frame(&functions), hdr(&listed));
    assert_eq!(found(&made), []);
    // lld keeps only the empty one.
    let listed = [(start(0), 1), (start(1), 0), (start(2), 3)];
    let made = library(eh_frame(&functions), hdr(&listed));
    assert_eq!(found(&made), [(Flaw::HdrMissing, EH_FRAME_NAME, offset(2))]);
}

#[test]
fn an_entry_inside_a_function_hides_what_is_behind_it() {
    let functions = [&three()[..], &[(start(1) + 1, 1)][..]].concat();
    let mut listed = entries();
    listed.insert(2, (start(1) + 1, 3));
    let made = library(eh_frame(&functions), hdr(&listed));
    assert_eq!(found(&made), [(Flaw::HdrHidden, HDR_NAME, 12 + 2 * 8)]);
}

#[test]
fn an_entry_must_lead_to_an_fde_that_starts_where_it_says() {
    let mut listed = entries();
    listed[1].0 += 1;
    let flaws = found(&with(&listed));
    assert_eq!(flaws[0], (Flaw::HdrHidden, HDR_NAME, 12));
    assert_eq!(flaws[1], (Flaw::HdrEntry, HDR_NAME, 12 + 8));
}

#[test]
fn a_header_without_a_table_is_one_finding() {
    let mut made = with(&entries());
    made.get(HDR_NAME).bytes[2..4].copy_from_slice(&[0xff, 0xff]);
    assert_eq!(found(&made), [(Flaw::HdrNoTable, HDR_NAME, 2)]);
    // In another form, nobody searches it either.
    let mut made = with(&entries());
    made.get(HDR_NAME).bytes[3] = 0x3c;
    assert_eq!(found(&made), [(Flaw::HdrNoTable, HDR_NAME, 2)]);
}

#[test]
fn a_header_of_another_version_and_one_that_is_cut_are_unreadable() {
    let mut made = with(&entries());
    made.get(HDR_NAME).bytes[0] = 2;
    assert_eq!(found(&made), [(Flaw::HdrUnreadable, HDR_NAME, 0)]);
    let mut made = with(&entries());
    made.get(HDR_NAME).bytes.truncate(10);
    assert_eq!(found(&made), [(Flaw::HdrUnreadable, HDR_NAME, 8)]);
}

#[test]
fn a_count_that_is_larger_than_the_table_is_found_at_its_end() {
    let mut made = with(&entries());
    made.get(HDR_NAME).bytes[8] = 4;
    assert_eq!(found(&made), [(Flaw::HdrCut, HDR_NAME, 12 + 3 * 8)]);
}

#[test]
fn the_pointer_leads_to_the_section() {
    let mut made = with(&entries());
    made.get(HDR_NAME).bytes[4] ^= 8;
    assert_eq!(found(&made), [(Flaw::HdrPointer, HDR_NAME, 4)]);
}

#[test]
fn the_program_header_leads_to_the_section() {
    let mut made = with(&entries());
    made.programs[2].2 += 4;
    assert_eq!(found(&made), [(Flaw::HdrSegment, HDR_NAME, 0)]);
    let mut made = with(&entries());
    made.programs.pop();
    assert_eq!(found(&made), [(Flaw::HdrNoSegment, HDR_NAME, 0)]);
}

#[test]
fn a_terminator_with_fdes_behind_it_is_found_with_what_is_lost() {
    let mut table = eh_frame(&three()[..1]);
    for (start, size) in &three()[1..] {
        table.extend(fde(EH_FRAME + table.len() as u64, *start, *size));
    }
    table.extend([0; 4]);
    let mut made = library(table, Vec::new());
    made.sections.remove(1);
    made.programs.pop();
    assert_eq!(found(&made), [(Flaw::Terminator, EH_FRAME_NAME, offset(1))]);
    let report = check(&made.open(), &Options::default());
    assert_eq!(report.index[0].functions, 2);
}

/// FDEs with addresses of 8 bytes that are not relative to anything.
fn absolute() -> Vec<u8> {
    let mut out = CIE.to_vec();
    out[CIE_ENCODING] = 0;
    for (start, size) in three() {
        let at = out.len() as u32;
        out.extend(28_u32.to_le_bytes());
        out.extend((at + 4).to_le_bytes());
        out.extend(start.to_le_bytes());
        out.extend(u64::from(size).to_le_bytes());
        out.push(0);
        out.extend([0x41, 0x0e, 16, 0x41, 0x0e, 8, 0]);
    }
    out.extend([0; 4]);
    out
}

/// The same FDEs with lengths of 64 bits, behind which the reference to the CIE still has 32.
#[test]
fn absolute_addresses_are_found_in_fdes_of_the_64_bit_form() {
    let mut table = CIE.to_vec();
    table[CIE_ENCODING] = 0;
    for (start, size) in three() {
        let reference = table.len() as u32 + 12;
        table.extend(u32::MAX.to_le_bytes());
        table.extend(28_u64.to_le_bytes());
        table.extend(reference.to_le_bytes());
        table.extend(start.to_le_bytes());
        table.extend(u64::from(size).to_le_bytes());
        table.extend([0, 0x41, 0x0e, 16, 0x41, 0x0e, 8, 0]);
    }
    table.extend([0; 4]);

    let mut made = library(table, Vec::new());
    made.sections.remove(1);
    made.programs.pop();
    assert_eq!(found(&made), [(Flaw::AbsoluteFde, EH_FRAME_NAME, 24)]);
    let report = check(&made.open(), &Options::default());
    assert_eq!(report.index[0].functions, 3);
}

#[test]
fn absolute_addresses_need_relocations_where_a_file_is_loaded_anywhere() {
    let mut made = library(absolute(), Vec::new());
    made.sections.remove(1);
    made.programs.pop();
    assert_eq!(found(&made), [(Flaw::AbsoluteFde, EH_FRAME_NAME, 24)]);
    let mut fixed = made.clone();
    fixed.kind = EXEC;
    assert_eq!(found(&fixed), []);
    // The loader adds the bias to the words that R_X86_64_RELATIVE names.
    let mut relocations = Vec::new();
    for (number, (start, _)) in (0..).zip(three()) {
        let place = EH_FRAME + 24 + 32 * number + 8;
        for word in [place, 8, start] {
            relocations.extend(word.to_le_bytes());
        }
    }
    made.sections
        .push(section(".rela.dyn", (RELA, 2), 0x1c00, relocations));
    assert_eq!(found(&made), []);
}

#[test]
fn a_table_for_other_addresses_is_of_no_use() {
    let elsewhere: Vec<(u64, u32)> = three().iter().map(|f| (f.0 + 0x800, f.1)).collect();
    let made = library(eh_frame(&elsewhere), hdr(&[]));
    assert_eq!(found(&made), [(Flaw::NoCode, EH_FRAME_NAME, offset(0))]);
    let report = check(&made.open(), &Options::default());
    let totals = report.totals();
    assert_eq!((totals.all.functions, totals.unproven.functions), (3, 3));
}

/// Free Pascal 3.2.2 writes references of 8 bytes to CIEs behind lengths of 4 bytes.
#[test]
fn wide_references_behind_narrow_lengths_are_named() {
    let mut table = vec![20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16];
    table.extend([0x0c, 7, 8, 0x90, 1]);
    table.resize(24, 0);
    for (start, size) in three() {
        table.extend(28_u32.to_le_bytes());
        table.extend([0; 8]);
        table.extend(start.to_le_bytes());
        table.extend(u64::from(size).to_le_bytes());
        table.extend([0; 4]);
    }
    let made = Made {
        sections: vec![
            section(".debug_frame", (PROGBITS, 0), 0x1000, table),
            library(Vec::new(), Vec::new()).sections.remove(2),
        ],
        ..library(Vec::new(), Vec::new())
    };
    assert_eq!(found(&made), [(Flaw::WideCieReference, ".debug_frame", 24)]);
    // What passes for lengths is not counted as code.
    let totals = check(&made.open(), &Options::default()).totals();
    assert_eq!((totals.all.functions, totals.all.bytes), (3, 0));
}

#[test]
fn an_fde_that_goes_on_behind_its_section_is_named() {
    let mut functions = three();
    functions[2].1 = STEP as u32 + 8;
    let made = library(eh_frame(&functions), hdr(&entries()));
    assert_eq!(found(&made), [(Flaw::FdeOverrun, EH_FRAME_NAME, offset(2))]);
    let report = check(&made.open(), &Options::default());
    let end = TEXT + 3 * STEP;
    assert_eq!(report.index[0].code, Some(end..end + 8));
}

/// A search ends at the next FDE, also behind its end: an FDE that is too long has no rows there.
#[test]
fn an_fde_that_is_too_long_does_not_hide_the_next() {
    let mut functions = three();
    functions[0].1 = 2 * STEP as u32;
    let made = library(eh_frame(&functions), hdr(&entries()));
    let report = check(&made.open(), &Options::default());
    let second = report.functions.iter().find(|f| f.range.start == start(1));
    let second = &second.expect("it is checked").verdict;
    assert_eq!(second.contradictions, []);
    assert_eq!(second.rows, 3);
    let first = report.functions.iter().find(|f| f.range.start == start(0));
    assert_eq!(first.expect("it is checked").range, start(0)..start(1));

    let file = made.open();
    let table = Table::read(&file, TableKind::EhFrame).expect("a table");
    let rows = table.rows_in(&(start(0)..start(2)));
    let found: Vec<(u64, u64)> = rows.iter().map(|row| (row.start, row.end)).collect();
    let [a, b] = [start(0), start(1)];
    let own = [(a, a + 1), (a + 1, a + 2), (a + 2, b)];
    let next = [(b, b + 1), (b + 1, b + 2), (b + 2, b + 3)];
    assert_eq!(found, [own, next].concat());
}

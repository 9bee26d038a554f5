//! Differences between the tables of a file: what of them is about code, and what cannot be read.

use crate::made::{ALLOC, CODE, DYN, LOAD, Made, PROGBITS, section};
use unwind_sim_tables::diff::{Cause, Diff, Gravity, Input, diff};
use unwind_sim_tables::table::Table;
use unwind_sim_unwind::row::TableKind;

const EH_FRAME: u64 = 0x1000;
const SFRAME: u64 = 0x1800;
const TEXT: u64 = 0x2000;
/// `ret`, and no-operations up to the next function.
const LEN: u32 = 16;

/// `.eh_frame` that says `rsp+8` of this many bytes of code.
fn eh_frame(size: u32) -> Vec<u8> {
    let mut out = vec![
        20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
    ];
    for word in [16, 28, (TEXT - EH_FRAME - 32) as u32, size, 0, 0] {
        out.extend(word.to_le_bytes());
    }
    out
}

/// `.sframe` of version 3 with one function of this many bytes; its attributes, and its rows.
fn sframe(size: u32, attributes: [u8; 5], rows: &[u8]) -> Vec<u8> {
    let length = attributes.len() + rows.len();
    let count = u32::from(attributes[0]);
    let mut out = vec![0xe2, 0xde, 3, 5, 3, 0, 0xf8, 0];
    for word in [1, count, length as u32, 0, 16] {
        out.extend(word.to_le_bytes());
    }
    let place = SFRAME + out.len() as u64;
    out.extend(TEXT.wrapping_sub(place).to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend([0; 4]);
    out.extend(attributes);
    out.extend(rows);
    out
}

fn compared(eh_frame: Vec<u8>, sframe: Vec<u8>) -> Diff {
    let mut text = vec![0x90; LEN as usize];
    text[0] = 0xc3;
    let made = Made {
        kind: DYN,
        sections: vec![
            section(".eh_frame", (PROGBITS, ALLOC), EH_FRAME, eh_frame),
            section(".sframe", (PROGBITS, ALLOC), SFRAME, sframe),
            section(".text", (PROGBITS, CODE), TEXT, text),
        ],
        programs: vec![(LOAD, 4, 0, 0x2000), (LOAD, 5, TEXT, 0x1000)],
        has_section_headers: true,
    };
    let file = made.open();
    let tables = [TableKind::EhFrame, TableKind::Sframe];
    let [a, b] = tables.map(|kind| Table::read(&file, kind).expect("a table"));
    assert_eq!((a.problems(), b.problems()), (&[][..], &[][..]));
    let input = |table| Input { file: &file, table };
    diff(input(&a), input(&b))
}

/// One row, rsp+8: start 0, an offset of one byte, the base rsp.
const ROW: [u8; 3] = [0, 3, 8];
const ONE: [u8; 5] = [1, 0, 0, 0, 0];

#[test]
fn padding_behind_a_return_is_no_difference() {
    for (of_dwarf, of_sframe) in [(LEN, 1), (1, LEN), (LEN, LEN)] {
        let found = compared(eh_frame(of_dwarf), sframe(of_sframe, ONE, &ROW));
        assert_eq!(found.differences, [], "{of_dwarf} {of_sframe}");
        assert!(found.bytes > 0);
    }
}

/// A flexible function without rows, and a row with a control word too few: no reader takes them.
#[test]
fn a_row_that_cannot_be_read_is_a_contradiction() {
    let flexible = |count, rows: &[u8]| sframe(LEN, [count, 0, 0, 1, 0], rows);
    for table in [flexible(0, &[]), flexible(1, &[0, 2, 8])] {
        let found = compared(eh_frame(LEN), table);
        let [difference] = &found.differences[..] else {
            panic!("{found:#?}");
        };
        assert!(difference.causes.has(Cause::Malformed));
        assert_eq!(difference.gravity(), Gravity::Contradiction);
        assert!(found.contradicts());
    }
}

//! Indexes of unwind tables: each flaw in a small file, and the same file without it.

mod dead;
mod eh_frame;
mod headerless;
mod objects;
mod orc;

use crate::made::{ALLOC, CODE, DYN, EH_FRAME_HDR, LOAD, Made, PROGBITS, section};
use unwind_sim_tables::check::{Options, Report, check};
use unwind_sim_tables::index::Flaw;

/// Where the sections are.
const EH_FRAME: u64 = 0x1000;
const HDR: u64 = 0x1800;
const TEXT: u64 = 0x2000;

/// The bytes of each function: `push %rbp; pop %rbp; ret`.
const FUNCTION: [u8; 3] = [0x55, 0x5d, 0xc3];
/// The distance of two functions, bytes.
const STEP: u64 = 16;

/// The CIE that compilers write for x86-64, with addresses relative to themselves.
const CIE: [u8; 24] = [
    20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0,
];
/// Where the encoding of addresses is in it.
const CIE_ENCODING: usize = 16;

/// The instructions of an FDE of [`FUNCTION`]: a row after the push, and one after the pop.
const ROWS: [u8; 7] = [0x41, 0x0e, 16, 0x41, 0x0e, 8, 0];

/// An FDE at `at` (svma) for `size` bytes of code at `start` (svma).
fn fde(at: u64, start: u64, size: u32) -> Vec<u8> {
    let back = (at + 4 - EH_FRAME) as u32;
    let distance = start.wrapping_sub(at + 8) as u32;
    let mut out = vec![20, 0, 0, 0];
    for word in [back, distance, size] {
        out.extend(word.to_le_bytes());
    }
    out.push(0);
    out.extend(ROWS);
    assert_eq!(out.len(), 24);
    out
}

/// `.eh_frame` with an FDE for each of these, and a terminator.
fn eh_frame(functions: &[(u64, u32)]) -> Vec<u8> {
    let mut out = CIE.to_vec();
    for &(start, size) in functions {
        out.extend(fde(EH_FRAME + out.len() as u64, start, size));
    }
    out.extend([0; 4]);
    out
}

/// The offset in [`eh_frame`] of the FDE with this number.
fn offset(number: usize) -> u64 {
    24 + 24 * number as u64
}

/// `.eh_frame_hdr` with an entry for each of these: a start, and the number of an FDE.
fn hdr(entries: &[(u64, usize)]) -> Vec<u8> {
    let mut out = vec![1, 0x1b, 0x03, 0x3b];
    out.extend((EH_FRAME.wrapping_sub(HDR + 4) as u32).to_le_bytes());
    out.extend((entries.len() as u32).to_le_bytes());
    for &(start, number) in entries {
        out.extend((start.wrapping_sub(HDR) as u32).to_le_bytes());
        let fde = EH_FRAME + offset(number);
        out.extend((fde.wrapping_sub(HDR) as u32).to_le_bytes());
    }
    out
}

/// The first address of a function.
fn start(number: u64) -> u64 {
    TEXT + STEP * number
}

/// The code of three functions.
fn text() -> Vec<u8> {
    let mut out = vec![0xcc; 3 * STEP as usize];
    for number in 0..3 {
        let at = number * STEP as usize;
        out[at..at + FUNCTION.len()].copy_from_slice(&FUNCTION);
    }
    out
}

/// The three functions, each with its FDE.
fn three() -> Vec<(u64, u32)> {
    (0..3).map(|n| (start(n), FUNCTION.len() as u32)).collect()
}

/// The entries of a right search table for [`three`].
fn entries() -> Vec<(u64, usize)> {
    (0..3).map(|n| (start(n as u64), n)).collect()
}

/// A shared library with these tables.
fn library(eh_frame: Vec<u8>, hdr: Vec<u8>) -> Made {
    let hdr_size = hdr.len() as u64;
    Made {
        kind: DYN,
        sections: vec![
            section(".eh_frame", (PROGBITS, ALLOC), EH_FRAME, eh_frame),
            section(".eh_frame_hdr", (PROGBITS, ALLOC), HDR, hdr),
            section(".text", (PROGBITS, CODE), TEXT, text()),
        ],
        programs: vec![
            (LOAD, 4, 0, 0x2000),
            (LOAD, 5, 0x2000, 0x1000),
            (EH_FRAME_HDR, 4, HDR, hdr_size),
        ],
        has_section_headers: true,
    }
}

/// What is found: the flaw, the section, and the offset in it.
fn found(made: &Made) -> Vec<(Flaw, &'static str, u64)> {
    let report = check(&made.open(), &Options::default());
    let index = report.index.iter();
    index.map(|f| (f.flaw, f.section, f.offset)).collect()
}

/// Functions: all, proven, contradicted, unproven.
fn counts(report: &Report) -> [u64; 4] {
    let totals = report.totals();
    [
        totals.all.functions,
        totals.proven.functions,
        totals.contradicted.functions,
        totals.unproven.functions,
    ]
}

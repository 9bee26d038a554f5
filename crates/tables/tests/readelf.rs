//! `dump --as readelf` of what compilers and assemblers write rarely.

use crate::made::{ALLOC, CODE, DYN, LOAD, Made, PROGBITS, section};
use unwind_sim_tables::dump::{Filter, readelf};
use unwind_sim_unwind::row::TableKind;

const EH_FRAME: u64 = 0x1000;
const TEXT: u64 = 0x2000;

/// A CIE of this version: `rsp+8`, the return address below.
fn cie(version: u8) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, 0, 0, 0, 0, version, b'z', b'R', 0];
    if version == 4 {
        out.extend([8, 0]);
    }
    out.extend([1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1]);
    out.resize(out.len().next_multiple_of(4), 0);
    out[0] = out.len() as u8 - 4;
    out
}

/// A table with an FDE of these instructions.
fn table(version: u8, program: &[u8]) -> Vec<u8> {
    let mut out = cie(version);
    let at = out.len() as u64;
    let mut fde = Vec::new();
    for word in [at + 4, TEXT.wrapping_sub(EH_FRAME + at + 8), 16] {
        fde.extend((word as u32).to_le_bytes());
    }
    fde.push(0);
    fde.extend(program);
    fde.resize(fde.len().next_multiple_of(4), 0);
    out.extend((fde.len() as u32).to_le_bytes());
    out.extend(fde);
    out.extend([0; 4]);
    out
}

/// A library whose sections have this order.
fn library(sections: &[(&'static str, u64, u64, Vec<u8>)]) -> Made {
    let mut all: Vec<_> = sections
        .iter()
        .map(|(name, flags, address, bytes)| {
            section(name, (PROGBITS, *flags), *address, bytes.clone())
        })
        .collect();
    all.push(section(".text", (PROGBITS, CODE), TEXT, vec![0x90; 16]));
    Made {
        kind: DYN,
        sections: all,
        programs: vec![(LOAD, 4, 0, 0x2000), (LOAD, 5, TEXT, 0x1000)],
        has_section_headers: true,
    }
}

/// The lines.
fn dump(made: &Made) -> Vec<String> {
    let mut out = Vec::new();
    let kinds = [TableKind::EhFrame, TableKind::DebugFrame];
    let dumped = readelf::write(&made.open(), &kinds, &Filter::ALL, &mut out).expect("a vector");
    assert_eq!(dumped.problems, []);
    let text = String::from_utf8(out).expect("text");
    text.lines().map(str::to_owned).collect()
}

fn one(table: Vec<u8>) -> Vec<String> {
    dump(&library(&[(".eh_frame", ALLOC, EH_FRAME, table)]))
}

#[test]
fn the_registers_of_apx_have_columns_and_names() {
    // advance 4, CFA offset 24, r16 at CFA-24, r31 at CFA-16, advance 4, CFA offset 8.
    let program = [
        0x44, 0x0e, 24, 0x05, 0x82, 1, 3, 0x05, 0x91, 1, 2, 0x44, 0x0e, 8,
    ];
    let lines = one(table(1, &program));
    let at = lines.iter().position(|line| line.contains("r16"));
    let rows = &lines[at.expect("a heading")..];
    assert_eq!(rows[0], "   LOC           CFA      ra    r16   r31   ");
    assert_eq!(rows[1], "0000000000002000 rsp+8    c-8   u     u     ");
    assert_eq!(rows[2], "0000000000002004 rsp+24   c-8   c-24  c-16  ");
    assert_eq!(rows[3], "0000000000002008 rsp+8    c-8   c-24  c-16  ");
}

#[test]
fn a_cie_of_version_4_is_read_in_eh_frame() {
    let program = [0x41, 0x0e, 16, 0x83, 2];
    let (third, fourth) = (one(table(3, &program)), one(table(4, &program)));
    // The sizes make the entry longer; what it says is the same.
    let rows = |lines: &[String]| {
        let rows = lines.iter().filter(|line| line.contains("rsp+"));
        rows.cloned().collect::<Vec<_>>()
    };
    assert_eq!(rows(&third).len(), 3);
    assert_eq!(rows(&third), rows(&fourth));
    assert!(
        fourth[3].ends_with("CIE \"zR\" cf=1 df=-8 ra=16"),
        "{fourth:#?}"
    );
}

#[test]
fn sections_have_the_order_of_their_headers() {
    let empty = Vec::from([0; 4]);
    let names = |made: &Made| {
        let lines = dump(made);
        let names = lines.iter().filter(|line| line.starts_with("Contents"));
        names.cloned().collect::<Vec<_>>()
    };
    let eh_frame = (".eh_frame", ALLOC, EH_FRAME, empty.clone());
    let debug_frame = (".debug_frame", 0, 0x1800, empty);
    let first = names(&library(&[debug_frame.clone(), eh_frame.clone()]));
    let second = names(&library(&[eh_frame, debug_frame]));
    assert!(first[0].contains(".debug_frame") && first[1].contains(".eh_frame"));
    assert!(second[0].contains(".eh_frame") && second[1].contains(".debug_frame"));
}

//! Tables put one after the other, as linkers do that do not know the format.

use super::*;
use std::sync::Arc;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, Value};

const PROGRAM: &[u8] = include_bytes!("../../corpus/sframe/t_2.46");
/// Where the program has code.
const CODE: u64 = 0x1020;

type Described<'a> = (u64, u32, &'a [(u32, i32)]);

/// A table at `address` whose rows have these CFA offsets from rsp.
fn table(version: Version, address: u64, functions: &[Described<'_>]) -> Vec<u8> {
    let mut writer = SframeWriter::new(version);
    for (start, size, rows) in functions {
        let row = |offset| writer.row(&Rule::call(Value::reg(Reg::Rsp, offset)));
        let rows: Vec<_> = rows
            .iter()
            .map(|(at, cfa)| (*at, row(*cfa).expect("a row")))
            .collect();
        let function = Function {
            start: *start,
            size: *size,
            repeat: None,
            signal: false,
            rows: &rows,
        };
        writer.function(&function).expect("a function");
    }
    let sections = writer.finish(address).expect("a section");
    sections.into_iter().next().expect("one").bytes
}

/// The program with these tables in its `.sframe`, one after the other.
fn program(tables: &[(Version, &[Described<'_>])]) -> (File, Arc<Vec<u8>>) {
    let editor = Editor::open("program", PROGRAM).expect("an ELF file");
    let address = editor.room();
    let mut bytes = Vec::new();
    for (version, functions) in tables {
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes.extend(table(*version, address + bytes.len() as u64, functions));
    }
    let section = NewSection {
        name: ".sframe",
        kind: 1,
        address,
        align: 8,
        entry_size: 0,
        program: Some(PT_GNU_SFRAME),
        bytes,
    };
    let data = Arc::new(editor.add(&[section]).expect("a file"));
    let file = File::read("program", data.clone()).expect("a file");
    (file, data)
}

/// The functions of the merged file: start, size, and rows.
fn merged(file: &File, data: &[u8]) -> (Vec<(u64, u64, usize)>, Merged) {
    let (bytes, merged) = merge_in_file(file, data).expect("merged");
    let file = File::read("merged", Arc::new(bytes)).expect("a file");
    let table = AnyTable::read(&file, TableKind::Sframe).expect("a table");
    assert!(table.problems().is_empty());
    let functions = table.functions().iter().map(|f| {
        let size = f.range.end - f.range.start;
        (f.range.start, size, table.rows(f).len())
    });
    (functions.collect(), merged)
}

const TWO_ROWS: &[(u32, i32)] = &[(0, 8), (4, 16)];
const ONE_ROW: &[(u32, i32)] = &[(0, 8)];

#[test]
fn several_tables_become_one_that_is_sorted() {
    for version in [Version::V2, Version::V3] {
        let later = [(CODE + 0x40, 16, TWO_ROWS), (CODE + 0x60, 8, ONE_ROW)];
        let first = [(CODE, 16, ONE_ROW)];
        let between = [(CODE + 0x20, 16, TWO_ROWS)];
        let (file, data) = program(&[(version, &later), (version, &first), (version, &between)]);
        let before = AnyTable::read(&file, TableKind::Sframe).expect("a table");
        assert_eq!(before.functions().len(), 2);

        let (functions, merged) = merged(&file, &data);
        let expected = [
            (CODE, 16, 1),
            (CODE + 0x20, 16, 2),
            (CODE + 0x40, 16, 2),
            (CODE + 0x60, 8, 1),
        ];
        assert_eq!(functions, expected, "{version:?}");
        assert_eq!((merged.tables, merged.functions_found_before), (3, 2));
        assert_eq!(merged.version, version);

        // Two headers less: it stays where it was.
        assert_eq!(
            Some(merged.section.address),
            file.image().section(SectionKind::Sframe).map(|s| s.address)
        );
    }
}

#[test]
fn the_newest_version_holds_them_all() {
    let (file, data) = program(&[
        (Version::V2, &[(CODE, 16, ONE_ROW)]),
        (Version::V3, &[(CODE + 16, 16, TWO_ROWS)]),
    ]);
    let (functions, merged) = merged(&file, &data);
    assert_eq!(merged.version, Version::V3);
    assert_eq!(functions, [(CODE, 16, 1), (CODE + 16, 16, 2)]);
}

#[test]
fn what_was_described_twice_is_there_once() {
    let (file, data) = program(&[
        (
            Version::V3,
            &[(CODE, 16, ONE_ROW), (CODE + 16, 32, TWO_ROWS)],
        ),
        (
            Version::V3,
            &[(CODE, 16, ONE_ROW), (CODE + 16, 32, ONE_ROW)],
        ),
        // This one starts inside another, and this one where there is no code.
        (Version::V3, &[(CODE + 18, 4, ONE_ROW)]),
        (Version::V3, &[(0x7000_0000, 4, ONE_ROW)]),
    ]);
    let (functions, merged) = merged(&file, &data);
    assert_eq!(
        functions,
        [(CODE, 16, 1), (CODE + 16, 2, 1), (CODE + 18, 4, 1)]
    );
    assert_eq!((merged.duplicates, merged.dead, merged.clipped), (1, 1, 1));
    assert_eq!(merged.conflicts, [CODE + 16]);
    assert_eq!(merged.rows, 3, "none past the end of its function");
}

#[test]
fn starts_without_the_pcrel_flag_are_understood_by_where_functions_are() {
    // V1: relative to the section by the specification. A linker that concatenates leaves the second
    // table relative to its own start.
    let known = AnyTable::read(
        &File::read("program", Arc::new(PROGRAM.to_vec())).expect("a file"),
        TableKind::EhFrame,
    );
    let known = known.expect("a table");
    let starts: Vec<u64> = known.functions().iter().map(|f| f.range.start).collect();
    let described = |at: usize| [(starts[at], 4, ONE_ROW)];
    let (first, second) = (described(2), described(3));
    let (file, data) = program(&[(Version::V1, &first), (Version::V1, &second)]);
    let (functions, _) = merged(&file, &data);
    assert_eq!(functions, [(starts[2], 4, 1), (starts[3], 4, 1)]);
}

#[test]
fn damage_is_named_with_its_place() {
    let (file, data) = program(&[
        (Version::V3, &[(CODE, 16, ONE_ROW)]),
        (Version::V3, &[(CODE + 16, 16, TWO_ROWS)]),
    ]);
    let section = file
        .image()
        .section(SectionKind::Sframe)
        .expect("a section");

    let len = section.data.len() as u64;
    let start = data
        .windows(section.data.len())
        .position(|w| w == &section.data[..]);
    let start = start.expect("its bytes");

    // The version of the second table.
    let second = (28 + 16 + 5 + 3usize).next_multiple_of(8);
    let mut broken = data.to_vec();
    broken[start + second + 2] = 9;

    let broken = File::read("broken", Arc::new(broken)).expect("a file");
    let error = merge(&broken, section.address)
        .expect_err("refused")
        .to_string();
    assert_eq!(
        error,
        format!(
            "broken: .sframe+{:#x} (table 1): version is not 1, 2 or 3",
            second + 2
        )
    );

    assert!(len > second as u64);

    let mut none = data.to_vec();
    none[start] = 0;
    let none = File::read("none", Arc::new(none)).expect("a file");
    assert!(merge(&none, section.address).is_err());
}

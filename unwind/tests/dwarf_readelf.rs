//! Compares every row of every FDE in this machine's files with
//! `readelf --debug-dump=frames-interp`: CFA, return address, rsp and callee-saved registers.

use std::collections::BTreeMap;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::Image;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Base, Rule, Value};

/// The columns of a rule, as named by readelf.
const COLUMNS: [&str; 8] = ["ra", "rsp", "rbx", "rbp", "r12", "r13", "r14", "r15"];

/// CFA and [`COLUMNS`], as printed by readelf.
type Row = Vec<String>;
/// Rows by address, FDEs by offset.
type Table = BTreeMap<u64, (std::ops::Range<u64>, BTreeMap<u64, Row>)>;

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The words of a line. `r9 (r9)`, which is one cell, becomes `r9`.
fn words(line: &str) -> Vec<&str> {
    let mut words: Vec<&str> = Vec::new();
    for word in line.split_whitespace() {
        match word.strip_prefix('(').and_then(|w| w.strip_suffix(')')) {
            Some(name) => *words.last_mut().unwrap() = name,
            None => words.push(word),
        }
    }
    words
}

/// Readelf's table of `section`.
fn parse(dump: &str, section: &str) -> Table {
    let heading = format!("Contents of the {section} section:");
    let body = dump.split("Contents of the ").find_map(|part| {
        let part = part.strip_prefix(section)?.strip_prefix(" section:")?;
        Some(part)
    });
    let body = body.unwrap_or_else(|| panic!("no {heading}"));

    let mut table = Table::new();
    let mut cies: BTreeMap<u64, Row> = BTreeMap::new();
    let mut columns: Vec<String> = Vec::new();
    let (mut cie, mut fde) = (None, None);

    for line in body.lines() {
        let words = words(line);
        if words.get(3) == Some(&"CIE") {
            // The rows that follow are those of the CIE.
            (cie, fde) = (hex(words[0]), None);
        } else if words.get(3) == Some(&"FDE") {
            let parent = hex(words[4].strip_prefix("cie=").unwrap()).unwrap();
            let (start, end) = words[5]
                .strip_prefix("pc=")
                .unwrap()
                .split_once("..")
                .unwrap();
            let range = hex(start).unwrap()..hex(end).unwrap();

            // For an FDE without instructions, readelf prints no row; its row is the CIE's.
            let first = cies.get(&parent).map(|row| (range.start, row.clone()));
            let first = first.into_iter().collect();
            (cie, fde) = (None, hex(words[0]));
            table.insert(fde.unwrap(), (range, first));
        } else if words.first() == Some(&"LOC") {
            // Each entry has a column only for the registers with a rule.
            columns = words[1..].iter().map(|w| w.to_string()).collect();
        } else if let Some(at) = words.first().and_then(|w| hex(w))
            && words.len() == columns.len() + 1
        {
            let cell = |name: &str| {
                let at = columns.iter().position(|c| c == name);
                at.map_or("u".to_string(), |i| words[i + 1].to_string())
            };

            let row = std::iter::once("CFA").chain(COLUMNS).map(cell).collect();

            match (cie, fde) {
                (Some(cie), _) => drop(cies.insert(cie, row)),
                (_, Some(fde)) => {
                    let (range, rows) = table.get_mut(&fde).unwrap();
                    if range.contains(&at) {
                        rows.insert(at, row);
                    }
                }
                _ => panic!("a row outside any FDE or CIE: {line}"),
            }
        }
    }

    table
}

fn word(value: Value) -> String {
    match value {
        Value::Undefined | Value::Unspecified => "u".into(),
        Value::Same => "s".into(),
        Value::Offset {
            base: Base::Cfa,
            offset,
        } => format!("v{offset:+}"),
        Value::Offset {
            base: Base::Reg(reg),
            offset: 0,
        } => reg.to_string(),
        Value::Load {
            base: Base::Cfa,
            offset,
            addend: 0,
        } => format!("c{offset:+}"),
        Value::Expression(e) if e.load => "exp".into(),
        Value::Expression(_) => "vexp".into(),
        other => panic!("not a DWARF rule: {other}"),
    }
}

fn row(rule: &Rule) -> Row {
    let cfa = match rule.cfa {
        Value::Offset {
            base: Base::Reg(reg),
            offset,
        } => format!("{reg}{offset:+}"),
        Value::Expression(_) => "exp".into(),
        other => panic!("not a DWARF CFA: {other}"),
    };
    let columns = COLUMNS.map(|name| match name {
        "ra" => word(rule.ra),
        "rsp" => word(rule.sp),
        name => word(rule.saved(Reg::from_name(name).unwrap())),
    });
    std::iter::once(cfa).chain(columns).collect()
}

fn ours(image: &Image, kind: TableKind) -> Table {
    let mut cache = Cache::new();
    let mut table = Table::new();
    for unit in dwarf::units(image, kind) {
        let unit = unit.unwrap();
        let id = dwarf::compile_unit(image, kind, unit.offset, &mut cache).unwrap();
        assert_eq!(cache.unit_error(id), None, "{:#x}", unit.offset);
        let rows = cache.unit_rows(id);
        let rows = rows.map(|r| (cache.source(r).start, row(cache.rule(r))));
        table.insert(unit.offset, (unit.range, rows.collect()));
    }
    table
}

#[test]
fn every_row_equals_readelfs() {
    const TEST: &str = "every_row_equals_readelfs";
    let mut rows = 0;
    for (path, image) in crate::common::images(TEST) {
        let Some(dump) = crate::common::tool(TEST, "readelf", &["-wFN", path]) else {
            return;
        };
        let (expected, ours) = (parse(&dump, ".eh_frame"), ours(&image, TableKind::EhFrame));
        assert_eq!(expected.len(), ours.len(), "{path}: number of FDEs");
        for (offset, expected) in expected {
            assert_eq!(
                Some(&expected),
                ours.get(&offset),
                "{path}: FDE {offset:#x}"
            );
            rows += expected.1.len();
        }
    }
    assert!(rows > 1000, "only {rows} rows were compared");
}

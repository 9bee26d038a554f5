//! Sections byte by byte, and what the writer refuses.

use super::*;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::Value;
use unwind_sim_unwind::sframe::Table;

fn cfa(reg: Reg, offset: i32) -> Rule {
    Rule::call(Value::reg(reg, offset))
}

fn pushed(reg: Reg, offset: i32) -> Rule {
    cfa(reg, offset).with_saved(Reg::Rbp, Value::at_cfa(-16))
}

fn add(writer: &mut SframeWriter, start: u64, size: u32, rules: &[(u32, Rule)]) {
    let row = |rule: &Rule| writer.row(rule).expect("a row that fits");
    let rows: Vec<_> = rules.iter().map(|(at, rule)| (*at, row(rule))).collect();
    let function = Function {
        start,
        size,
        repeat: None,
        signal: false,
        rows: &rows,
    };
    writer.function(&function).expect("a function that fits");
}

fn bytes(writer: &SframeWriter, address: u64) -> Vec<u8> {
    let sections = writer.finish(address).expect("a section");
    sections.into_iter().next().expect("one section").bytes
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2);
    let pairs = pairs.map(|pair| std::str::from_utf8(pair).expect("digits"));
    let bytes = pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits"));
    bytes.collect()
}

/// The two functions of `corpus/sframe/g.s`; the second has its last row at 0x13a.
fn golden(version: Version) -> Vec<u8> {
    let mut writer = SframeWriter::new(version);
    let first = [
        (0, cfa(Reg::Rsp, 8)),
        (1, pushed(Reg::Rsp, 16)),
        (4, pushed(Reg::Rbp, 16)),
        (5, pushed(Reg::Rsp, 8)),
    ];
    add(&mut writer, 0x40_1000, 6, &first);
    let second = [
        (0, cfa(Reg::Rsp, 8)),
        (7, cfa(Reg::Rsp, 0x1008)),
        (0x13a, cfa(Reg::Rsp, 8)),
    ];
    add(&mut writer, 0x40_1006, 0x13b, &second);
    bytes(&writer, 0x40_3000)
}

/// What GNU as and ld wrote for the same functions: 2.40, and 2.47.
#[test]
fn sections_are_those_of_gnu_byte_for_byte() {
    let v1 = "e2de0101 0300f800 02000000 07000000 1c000000 00000000 22000000
        00e0ffff 06000000 00000000 04000000 00 06e0ffff 3b010000 0f000000 03000000 01
        000308 010510f0 040410f0 050508f0 0000 03 08 0700 23 0810 3a01 03 08";
    assert_eq!(golden(Version::V1), hex(v1));
    let v3 = "e2de0305 0300f800 02000000 07000000 26000000 00000000 20000000
        e4dfffffffffffff 06000000 00000000 dadfffffffffffff 3b010000 14000000
        0400 00 00 00 000308 010510f0 040410f0 050508f0
        0300 01 00 00 0000 03 08 0700 23 0810 3a01 03 08";
    assert_eq!(golden(Version::V3), hex(v3));
    // clang 22 and lld, except that theirs is not sorted (flags 04).
    let v2 = "e2de0205 0300f800 02000000 07000000 1c000000 00000000 28000000
        e4dfffff 06000000 00000000 04000000 00 00 0000
        d6dfffff 3b010000 0f000000 03000000 01 00 0000
        000308 010510f0 040410f0 050508f0 0000 03 08 0700 23 0810 3a01 03 08";
    assert_eq!(golden(Version::V2), hex(v2));
}

#[test]
fn a_row_start_is_as_wide_as_the_last_row_needs() {
    for (last, width) in [(0xff, 1), (0x100, 2), (0xffff, 2), (0x1_0000, 4)] {
        let mut writer = SframeWriter::new(Version::V3);
        let rules = [(0, cfa(Reg::Rsp, 8)), (last, cfa(Reg::Rsp, 16))];
        add(&mut writer, 0x1000, 0x20_0000, &rules);
        let bytes = bytes(&writer, 0x8000);
        assert_eq!(bytes.len(), 28 + 16 + 5 + 2 * (width + 2), "{last:#x}");
        let table = Table::parse(&bytes, 0x8000).expect("a table");
        let fde = table.fde(0).expect("an FDE").expect("a good one");
        let starts = table.rows(&fde).map(|row| row.expect("a row").start);
        assert_eq!(starts.collect::<Vec<_>>(), [0, last]);
    }
}

#[test]
fn equal_rows_are_shared_only_if_wanted() {
    let write = |writer: SframeWriter| {
        let mut writer = writer;
        for i in 0..4 {
            add(&mut writer, 0x1000 + 16 * i, 16, &[(0, cfa(Reg::Rsp, 8))]);
        }
        bytes(&writer, 0x8000)
    };
    let (own, shared) = (
        write(SframeWriter::new(Version::V3)),
        write(SframeWriter::new(Version::V3).share()),
    );
    assert_eq!(own.len() - shared.len(), 3 * 8);
    let rules = |bytes: &[u8]| {
        let table = Table::parse(bytes, 0x8000).expect("a table");
        let fdes = table.fdes().map(|fde| fde.expect("an FDE"));
        let rows = fdes.map(|fde| (fde.start, table.rows(&fde).next().expect("a row")));
        let rows = rows.map(|(start, row)| (start, row.expect("a good row").rule));
        rows.collect::<Vec<_>>()
    };
    assert_eq!(rules(&own), rules(&shared));
}

#[test]
fn v3_counts_65535_rows_and_refuses_more() {
    let rows = |count: u32| -> Vec<(u32, Row)> {
        let writer = SframeWriter::new(Version::V3);
        let rule = |i: u32| cfa(Reg::Rsp, 8 + 8 * (i % 2) as i32);
        let row = |i| writer.row(&rule(i)).expect("a row");
        (0..count).map(|i| (i, row(i))).collect()
    };
    for (version, count, fits) in [
        (Version::V3, 0xffff, true),
        (Version::V3, 0x1_0000, false),
        (Version::V2, 0x1_0000, true),
    ] {
        let rows = rows(count);
        let function = Function {
            start: 0x1000,
            size: count,
            repeat: None,
            signal: false,
            rows: &rows,
        };
        let result = SframeWriter::new(version).function(&function);
        assert_eq!(result.is_ok(), fits, "{version:?} {count}");
    }
}

#[test]
fn far_functions_fit_v3_only() {
    let far = 0x1_0000_0000;
    for (version, fits) in [
        (Version::V1, false),
        (Version::V2, false),
        (Version::V3, true),
    ] {
        let mut writer = SframeWriter::new(version);
        add(&mut writer, 0x1000, 16, &[(0, cfa(Reg::Rsp, 8))]);
        assert_eq!(writer.finish(far).is_ok(), fits, "{version:?}");
    }
}

#[test]
fn old_versions_say_why_they_cannot_hold_a_rule() {
    let outermost = Rule::OUTERMOST;
    let signal = Rule {
        kind: RuleKind::Signal,
        ..cfa(Reg::Rsp, 8)
    };
    let flexible = cfa(Reg::R10, 0);
    let names = |version| {
        let writer = SframeWriter::new(version);
        [outermost, signal, flexible]
            .map(|rule| writer.row(&rule).map_err(LossReason::as_str).err())
    };
    assert_eq!(
        names(Version::V1),
        [Some("outermost"), Some("signal-mark"), Some("cfa-register")]
    );
    assert_eq!(
        names(Version::V2),
        [None, Some("signal-mark"), Some("cfa-register")]
    );
    assert_eq!(names(Version::V3), [None; 3]);
}

//! The SFrame reader on golden bytes, compared with objdump's text, and on damaged sections.

use quickcheck::{Gen, QuickCheck};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::Tables;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Mapping, Section, SectionKind};
use unwind_sim_unwind::reason::{Code, Reason};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Rule, RuleKind, Value};
use unwind_sim_unwind::sframe::{Fde, Profile, Sframe, Table, Version, compile_unit, text_rows};

/// `g.s` as V1 (GNU as 2.40), V2 (2.44), V2 with PC-relative starts (clang 22), V3 (2.47);
/// `.sframe` is at 0x403000, `.text` at 0x401000.
const GOLDEN: &[&str] = &[
    "e2de0101 0300f800 02000000 07000000 1c000000 00000000 22000000
     00e0ffff 06000000 00000000 04000000 00 06e0ffff 3b010000 0f000000 03000000 01
     000308 010510f0 040410f0 050508f0 0000 03 08 0700 23 0810 3a01 03 08",
    "e2de0201 0300f800 02000000 07000000 1c000000 00000000 28000000
     00e0ffff 06000000 00000000 04000000 00 00 0000 06e0ffff 3b010000 0f000000 03000000 01 00 0000
     000308 010510f0 040410f0 050508f0 0000 03 08 0700 23 0810 3a01 03 08",
    "e2de0204 0300f800 02000000 07000000 1c000000 00000000 28000000
     e4dfffff 06000000 00000000 04000000 00 00 0000 d6dfffff 3b010000 0f000000 03000000 01 00 0000
     000308 010510f0 040410f0 050508f0 0000 03 08 0700 23 0810 3a01 03 08",
    "e2de0305 0300f800 02000000 07000000 26000000 00000000 20000000
     e4dfffffffffffff 06000000 00000000 dadfffffffffffff 3b010000 14000000
     0400 00 00 00 000308 010510f0 040410f0 050508f0
     0300 01 00 00 0000 03 08 0700 23 0810 3a01 03 08",
];

const GOLDEN_ROWS: &[(u64, &str)] = &[
    (0x401000, "call cfa=rsp+8 ra=*(cfa-8) rbp=same"),
    (0x401001, "call cfa=rsp+16 ra=*(cfa-8) rbp=*(cfa-16)"),
    (0x401004, "call cfa=rbp+16 ra=*(cfa-8) rbp=*(cfa-16)"),
    (0x401005, "call cfa=rsp+8 ra=*(cfa-8) rbp=*(cfa-16)"),
    (0x401006, "call cfa=rsp+8 ra=*(cfa-8) rbp=same"),
    (0x40100d, "call cfa=rsp+4104 ra=*(cfa-8) rbp=same"),
    (0x401140, "call cfa=rsp+8 ra=*(cfa-8) rbp=same"),
];

/// `flex.s` as V3: a realigned frame, and a function whose return address is undefined.
const FLEX: &str = "
    e2de0305 0300f800 02000000 07000000 30000000 00000000 20000000
    e4dfffffffffffff 1c000000 00000000 f0dfffffffffffff 03000000 29000000
    0600 00 01 00 00 04 3908 05 04 5100 0e 0a 5100 00 3300 13 0a 33f8 00 3300
    16 0a 5100 00 3300 1b 0a 3908 00 3300 0100 00 00 00 00 00";

const FLEX_ROWS: &[(u64, &str)] = &[
    (0x401000, "call cfa=rsp+8 ra=*(cfa-8) rbp=same"),
    (0x401005, "call cfa=r10 ra=*(cfa-8) rbp=same"),
    (0x40100e, "call cfa=r10 ra=*(cfa-8) rbp=*(rbp)"),
    (0x401013, "call cfa=*(rbp-8) ra=*(cfa-8) rbp=*(rbp)"),
    (0x401016, "call cfa=r10 ra=*(cfa-8) rbp=*(rbp)"),
    (0x40101b, "call cfa=rsp+8 ra=*(cfa-8) rbp=*(rbp)"),
    (0x40101c, "outermost"),
];

const SECTION: u64 = 0x403000;
const TEXT: std::ops::Range<u64> = 0x401000..0x402000;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// An image with only this section, and code at `text`.
fn image_of(bytes: Vec<u8>, address: u64, text: std::ops::Range<u64>) -> Arc<Image> {
    Arc::new(Image::new(ImageParts {
        text: vec![text],
        sections: vec![Section {
            kind: SectionKind::Sframe,
            address,
            data: Bytes::from_vec(bytes),
        }],
        ..ImageParts::default()
    }))
}

fn mapping(image: &Arc<Image>) -> Mapping {
    Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image.clone()),
        name: String::new(),
    }
}

fn sframe(profile: Profile) -> Sframe {
    Sframe::new(profile, Tables::Real)
}

fn find(finder: &dyn Finder, image: &Arc<Image>, svma: u64) -> Result<Rule, Reason> {
    let mut cache = Cache::new();
    let row = finder.find(&mapping(image), svma, &mut cache)?;
    Ok(*cache.rule(row))
}

#[track_caller]
fn check(bytes: &[u8], expected: &[(u64, &str)], end: u64) {
    let image = image_of(bytes.to_vec(), SECTION, TEXT);
    let finder = sframe(Profile::Spec);
    for (i, &(start, rule)) in expected.iter().enumerate() {
        let next = expected.get(i + 1).map_or(end, |r| r.0);
        for pc in start..next {
            let found = find(&finder, &image, pc).map(|r| r.to_string());
            assert_eq!(found.as_deref(), Ok(rule), "{pc:#x}");
        }
    }
    for pc in [expected[0].0 - 1, end] {
        assert_eq!(find(&finder, &image, pc), Err(Reason::NoRow { pc }));
    }
}

#[test]
fn golden_bytes_of_every_version() {
    for text in GOLDEN {
        check(&hex(text), GOLDEN_ROWS, 0x401141);
    }
}

#[test]
fn golden_bytes_of_flexible_rows() {
    check(&hex(FLEX), FLEX_ROWS, 0x40101f);
}

#[test]
fn a_row_says_where_it_stands() {
    let image = image_of(hex(GOLDEN[3]), SECTION, TEXT);
    let mut cache = Cache::new();
    let row = sframe(Profile::Spec).find(&mapping(&image), 0x401010, &mut cache);
    let source = cache.source(row.unwrap());
    // Header 28, the second index entry at 28 + 16; FREs at 60, the second function's rows after
    // the first 5 + 15 + 5 bytes of them, its second row four bytes further.
    assert_eq!(source.table, TableKind::Sframe);
    assert_eq!(source.unit_offset, 44);
    assert_eq!(source.row_offset, 60 + 0x14 + 5 + 4);
    assert_eq!((source.start, source.end), (0x40100d, 0x401140));
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus/sframe")
}

/// Name, section, address and objdump's text.
fn recorded() -> Vec<(String, Vec<u8>, u64, String)> {
    let read = |name: &str| std::fs::read(corpus().join(name)).unwrap();
    let text = |name: &str| String::from_utf8(read(name)).unwrap();
    let addresses = text("addresses.txt");
    let lines = addresses.lines().map(|line| {
        let (name, address) = line.split_once(" 0x").unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        let bytes = read(&format!("{name}.sframe.bin"));
        (
            name.into(),
            bytes,
            address,
            text(&format!("{name}.objdump.txt")),
        )
    });
    lines.collect()
}

fn heading(fde: &Fde) -> String {
    let mut attributes = String::new();
    if fde.flex {
        attributes.push('F');
    }
    if fde.signal {
        attributes.push('S');
    }
    let attr = match attributes.as_str() {
        "" => String::new(),
        some => format!(", attr = \"{some}\""),
    };
    let (index, start, size) = (fde.index, fde.start, fde.size);
    format!("func idx [{index}]: pc = {start:#x}, size = {size} bytes{attr}")
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_recorded_section_equals_objdump() {
    for (name, bytes, address, text) in recorded() {
        let table = Table::parse(&bytes, address).unwrap();
        let mut ours = Vec::new();
        for fde in table.fdes() {
            let fde = fde.unwrap();
            ours.push(heading(&fde));
            let mark = if fde.rep_size.is_some() { "[m]" } else { "" };
            ours.push(format!("STARTPC{mark} CFA FP RA"));
            ours.extend(text_rows(&table, &fde).map(|row| words(&row.unwrap().to_string())));
        }

        // Behind its heading, objdump's text has one line for each of ours.
        let lines = text
            .lines()
            .skip_while(|l| !l.contains("Function Index"))
            .skip(1);
        let theirs: Vec<_> = lines.map(words).filter(|l| !l.is_empty()).collect();
        assert_eq!(ours, theirs, "{name}");

        // Each function has two lines of heading.
        let rows = ours.len() - 2 * table.header().num_fdes as usize;
        assert_eq!(rows, table.header().num_fres as usize, "{name}");
        let version = text.split("SFRAME_VERSION_").nth(1).unwrap().as_bytes()[0] - b'0';
        assert_eq!(
            Some(table.header().version),
            Version::from_number(version),
            "{name}"
        );

        // What follows the table in its segment is padding.
        assert!(table.tail().iter().all(|b| *b == 0), "{name}");
    }
}

/// The algorithm of the specification's pseudo-code: every descriptor, then every row, in order.
fn linear(table: &Table<'_>, svma: u64) -> Option<Rule> {
    let holds = |fde: &Fde| fde.contains(svma);
    let fde = table.fdes().map(Result::unwrap).find(holds)?;
    let offset = fde.row_offset(svma);
    let rows = table.rows(&fde).map(Result::unwrap);
    rows.take_while(|r| u64::from(r.start) <= offset)
        .last()
        .map(|r| r.rule)
}

#[test]
fn every_address_of_a_recorded_section_equals_a_linear_search() {
    for (name, bytes, address, _) in recorded() {
        let table = Table::parse(&bytes, address).unwrap();
        let image = image_of(bytes.clone(), address, 0..u64::MAX);

        let ends = table
            .fdes()
            .map(|f| f.unwrap())
            .map(|f| f.start + u64::from(f.size));
        let end = ends.max().unwrap() + 8;

        // From right before the first function to right behind the last one.
        let start = table.fdes().map(|f| f.unwrap().start).min().unwrap() - 8;

        let mut cache = Cache::new();
        let finder = sframe(Profile::Spec);

        // Every address of the small programs; in the large one, those around every row.
        let starts = table.fdes().flatten().flat_map(|fde| {
            let rows = table.rows(&fde).flatten();
            let first = rows.map(move |r| fde.start + u64::from(r.start));
            first.chain([fde.start + u64::from(fde.size)])
        });
        let near: Vec<u64> = match bytes.len() {
            0..4096 => (start..end).collect(),
            _ => starts.flat_map(|a| [a - 1, a, a + 12]).collect(),
        };

        for pc in near {
            let found = finder.find(&mapping(&image), pc, &mut cache);
            let found = found.map(|row| *cache.rule(row));
            let expected = linear(&table, pc).ok_or(Reason::NoRow { pc });
            assert_eq!(found, expected, "{name} {pc:#x}");
        }
    }
}

#[test]
fn profiles_refuse_what_their_readers_refuse() {
    let at = |profile, text: &str, pc| {
        let image = image_of(hex(text), SECTION, TEXT);
        find(&sframe(profile), &image, pc).map_err(Reason::code)
    };

    let (spec, kernel) = (Profile::Spec, Profile::KernelV3);
    for (i, text) in GOLDEN.iter().enumerate() {
        assert!(at(spec, text, 0x401000).is_ok());
        assert_eq!(at(kernel, text, 0x401000).is_ok(), i == 3, "V3 only");
        // Neither V1 nor clang's unsorted table.
        assert_eq!(
            at(Profile::Libsframe, text, 0x401000).is_ok(),
            i == 1 || i == 3
        );
    }

    // Linux reads flexible rows, but does not accept all of them below the topmost frame.
    let image = image_of(hex(FLEX), SECTION, TEXT);
    let rule = |pc| find(&sframe(kernel), &image, pc).unwrap();
    let permits = |pc, topmost| {
        sframe(kernel)
            .permits(&rule(pc), topmost)
            .map_err(Reason::code)
    };

    let refused = Err(Code::RegisterNotCarried);
    assert_eq!(permits(0x401000, false), Ok(()));
    assert_eq!(permits(0x401005, true), Ok(()));
    assert_eq!(permits(0x401005, false), refused, "CFA = r10");
    assert_eq!(permits(0x40101b, false), refused, "rbp = *(rbp)");
    assert_eq!(sframe(spec).permits(&rule(0x401005), false), Ok(()));
}

#[test]
fn linux_judges_each_lookup_unless_it_validates() {
    // The second function's row starts do not increase: 0, 7, 7.
    let mut bytes = hex(GOLDEN[3]);
    let last = bytes.len() - 4;
    bytes[last..last + 2].copy_from_slice(&[7, 0]);

    let image = image_of(bytes, SECTION, TEXT);

    let code = |profile, pc| {
        find(&sframe(profile), &image, pc)
            .map_err(Reason::code)
            .err()
    };

    assert_eq!(code(Profile::KernelV3, 0x401000), None);
    assert_eq!(code(Profile::KernelV3, 0x401007), None, "before the defect");
    assert_eq!(code(Profile::KernelV3, 0x401010), Some(Code::MalformedRow));
    assert_eq!(
        code(Profile::KernelV3Validate, 0x401000),
        Some(Code::MalformedRow)
    );

    let fine = image_of(hex(GOLDEN[3]), SECTION, TEXT);
    assert!(find(&sframe(Profile::KernelV3Validate), &fine, 0x401000).is_ok());

    // Text that ends within a function: Linux rejects that function.
    let short = image_of(hex(GOLDEN[3]), SECTION, 0x401000..0x401100);
    assert!(find(&sframe(Profile::KernelV3), &short, 0x401000).is_ok());
    assert!(find(&sframe(Profile::KernelV3), &short, 0x401010).is_err());
}

/// A V3 section with one function of `size` bytes at 0x401000.
fn v3(size: u32, info: u8, info2: u8, rep_size: u8, fres: &[&[u8]]) -> Vec<u8> {
    let rows = fres.concat();
    let mut out = hex("e2de0305 0300f800 01000000");
    out.extend((fres.len() as u32).to_le_bytes());
    out.extend((rows.len() as u32 + 5).to_le_bytes());
    out.extend([0, 0, 0, 0, 16, 0, 0, 0]);
    out.extend((0x401000_i64 - 0x40301c).to_le_bytes());
    out.extend(size.to_le_bytes());
    out.extend([0; 4]);
    out.extend((fres.len() as u16).to_le_bytes());
    out.extend([info, info2, rep_size]);
    out.extend(rows);
    out
}

#[test]
fn a_repeated_function_repeats_its_rows() {
    let rows: &[&[u8]] = &[&[0, 0x03, 8], &[11, 0x03, 16]];
    let image = image_of(v3(40, 0x10, 0, 16, rows), SECTION, TEXT);
    for pc in 0x401000..0x401028 {
        let offset = if (pc - 0x401000) % 16 < 11 { 8 } else { 16 };
        let rule = find(&sframe(Profile::Spec), &image, pc).unwrap();
        assert_eq!(rule.cfa, Value::reg(Reg::Rsp, offset), "{pc:#x}");
    }
    // A block whose first bytes have no row, in every repetition.
    let image = image_of(v3(40, 0x10, 0, 16, &rows[1..]), SECTION, TEXT);
    for pc in 0x401000..0x401028 {
        let found = find(&sframe(Profile::Spec), &image, pc).is_ok();
        assert_eq!(found, (pc - 0x401000) % 16 >= 11, "{pc:#x}");
    }
}

#[test]
fn a_row_of_a_repeated_function_ends_with_its_block() {
    let rows: &[&[u8]] = &[&[0, 0x03, 8], &[11, 0x03, 16]];
    let image = image_of(v3(40, 0x10, 0, 16, rows), SECTION, TEXT);

    // Behind the header, the FDE and its attribute.
    let fres = 0x1c + 16 + 5;
    let expected = [
        (0x401000, 0x40100b, fres),
        (0x40100b, 0x401010, fres + 3),
        (0x401010, 0x40101b, fres),
        (0x40101b, 0x401020, fres + 3),
        // The last block has only eight bytes.
        (0x401020, 0x401028, fres),
    ];

    let finder = sframe(Profile::Spec);
    let ask = |pc, cache: &mut Cache| {
        let row = finder.find(&mapping(&image), pc, cache).unwrap();
        let source = cache.source(row);
        assert_eq!(source.unit_offset, 0x1c);
        (source.start, source.end, source.row_offset)
    };

    let forward: Vec<_> = (0x401000..0x401028).collect();
    let backward: Vec<_> = forward.iter().rev().copied().collect();
    let jumping: Vec<_> = (0..40).map(|i| 0x401000 + i * 17 % 40).collect();

    for order in [forward, backward, jumping] {
        let mut cache = Cache::new();
        for pc in order {
            let row = expected.iter().find(|row| (row.0..row.1).contains(&pc));
            assert_eq!(Some(&ask(pc, &mut Cache::new())), row, "{pc:#x} alone");
            assert_eq!(Some(&ask(pc, &mut cache)), row, "{pc:#x}");
        }
    }
    // The rows of the whole function are those of the first block.
    let mut cache = Cache::new();
    let data = v3(40, 0x10, 0, 16, rows);
    let table = Table::parse(&data, SECTION).unwrap();
    let fde = table.fde(0).unwrap().unwrap();
    let unit = compile_unit(&table, &fde, &image, &mut cache);
    assert_eq!(cache.unit_rows(unit).len(), 2);
    assert_eq!(cache.unit_range(unit), 0x401000..0x401010);
}

/// 4 GB of one-byte blocks: only those looked up are kept.
#[test]
fn a_repeated_function_costs_what_is_asked_of_it() {
    let image = image_of(
        v3(u32::MAX, 0x10, 0, 1, &[&[0, 0x03, 8]]),
        SECTION,
        0x401000..0x401000 + u64::from(u32::MAX),
    );
    let finder = sframe(Profile::Spec);
    let mut cache = Cache::new();
    for at in (0..u64::from(u32::MAX)).step_by(1 << 24) {
        let pc = 0x401000 + at;
        let row = finder.find(&mapping(&image), pc, &mut cache).unwrap();
        let source = cache.source(row);
        assert_eq!((source.start, source.end), (pc, pc + 1));
    }
    assert!(cache.bytes() < 256 << 10, "{}", cache.bytes());
}

#[test]
fn signal_frames_and_functions_without_rows() {
    let row: &[&[u8]] = &[&[0, 0x03, 8]];
    let signal = image_of(v3(8, 0x80, 0, 0, row), SECTION, TEXT);
    let rule = find(&sframe(Profile::Spec), &signal, 0x401004).unwrap();
    assert_eq!(rule.kind, RuleKind::Signal);
    let none = |info2| image_of(v3(8, 0, info2, 0, &[]), SECTION, TEXT);
    let code = |p, i: &_| find(&sframe(p), i, 0x401004).map_err(Reason::code);
    assert_eq!(code(Profile::Spec, &none(0)), Ok(Rule::OUTERMOST));
    assert_eq!(code(Profile::Spec, &none(1)), Err(Code::MalformedRow));
    assert_eq!(code(Profile::Libsframe, &none(0)), Err(Code::MalformedRow));
    assert_eq!(code(Profile::KernelV3, &none(0)), Err(Code::MalformedRow));
}

#[test]
fn flexible_rows_express_what_the_format_can() {
    let rule = |fre: &[u8]| {
        let image = image_of(v3(8, 0, 1, 0, &[fre]), SECTION, TEXT);
        find(&sframe(Profile::Spec), &image, 0x401000)
    };

    // Offsets of the words: start, info (count in bits 1 to 4, size in bits 5 and 6), then pairs.
    let ok = |fre: &[u8]| rule(fre).unwrap().to_string();
    assert_eq!(
        ok(&[0, 0x08, 0x39, 8, 0x02, 0xf0]),
        "call cfa=rsp+8 ra=*(cfa-16) rbp=same"
    );
    assert_eq!(
        ok(&[0, 0x08, 0x39, 8, 0x09, 0]),
        "call cfa=rsp+8 ra=rdx rbp=same"
    );

    // Return address and rbp, each with a control word and an offset.
    let all = [0, 0x0c, 0x39, 8, 0x02, 0xf8, 0x02, 0xf0];
    assert_eq!(ok(&all), "call cfa=rsp+8 ra=*(cfa-8) rbp=*(cfa-16)");
    let wide = [0, 0x28, 0x3b, 0, 0xa0, 0, 0x3b, 0, 0xa8, 0];
    assert_eq!(ok(&wide), "call cfa=*(rsp+160) ra=*(rsp+168) rbp=same");
    assert_eq!(
        ok(&[0, 0x06, 0x39, 8, 0]),
        "call cfa=rsp+8 ra=*(cfa-8) rbp=same"
    );

    for bad in [
        &[0u8, 0x02, 0x39][..],                         // a control word has no offset
        &[0, 0x04, 0x02, 8],                            // the CFA relative to the CFA
        &[0, 0x04, 0x3d, 8],                            // the reserved bit
        &[0, 0x04, 0xf9, 8],                            // register 31
        &[0, 0x02, 0],                                  // no CFA
        &[0, 0x0e, 0x39, 8, 0x02, 0xf8, 0x02, 0xf0, 0], // one word too many
        &[0, 0x64, 0x39, 8],                            // data words of size 3
    ] {
        assert_eq!(
            rule(bad).map_err(Reason::code),
            Err(Code::MalformedRow),
            "{bad:x?}"
        );
    }
}

#[test]
fn where_the_header_does_not_fix_the_return_address_the_rows_say() {
    let mut bytes = v3(8, 0, 0, 0, &[&[0, 0x07, 16, 0xf8, 0xf0]]);
    bytes[6] = 0;
    let image = image_of(bytes, SECTION, TEXT);
    let rule = find(&sframe(Profile::Spec), &image, 0x401000).unwrap();
    assert_eq!(
        rule.to_string(),
        "call cfa=rsp+16 ra=*(cfa-8) rbp=*(cfa-16)"
    );
}

#[test]
fn a_bad_header_names_its_field() {
    let good = hex(GOLDEN[3]);
    let mut cases = vec![(good[..20].to_vec(), 0), (Vec::new(), 0)];
    for (at, value) in [(0, 0xde), (2, 4), (3, 2), (4, 2), (8, 200), (16, 0xff)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        cases.push((bytes, at as u64));
    }
    for (bytes, offset) in cases {
        let error = Table::parse(&bytes, 0).unwrap_err();
        assert_eq!(error.offset, offset, "{error}");
        let image = image_of(bytes, SECTION, TEXT);
        let found = find(&sframe(Profile::Spec), &image, 0x401000);
        assert!(matches!(
            found,
            Err(Reason::MalformedRow {
                section: ".sframe",
                ..
            })
        ));
    }
}

/// Reads everything there is to read; nothing may panic.
fn exercise(bytes: Vec<u8>, address: u64) {
    if let Ok(table) = Table::parse(&bytes, address) {
        for fde in table.fdes().flatten() {
            let _ = text_rows(&table, &fde).count();
        }
    }

    let image = image_of(bytes, address, TEXT);

    const PCS: [u64; 12] = [
        0x401000,
        0x401007,
        0x401001,
        0x401004,
        0x401010,
        0x401020,
        0x401140,
        0x40100e,
        0x400fff,
        0,
        1,
        u64::MAX,
    ];

    for profile in Profile::ALL {
        let mut cache = Cache::new();
        let finder = sframe(profile);
        for pc in PCS {
            let found = finder.find(&mapping(&image), pc, &mut cache);
            let rule = found.map(|row| {
                let source = cache.source(row);
                assert!(source.start <= pc && pc < source.end, "{source:?} {pc:#x}");
                *cache.rule(row)
            });
            // Earlier lookups make no difference.
            assert_eq!(rule, find(&finder, &image, pc), "{profile:?} {pc:#x}");
        }
    }
}

#[test]
fn every_flipped_byte_of_small_sections_is_survived() {
    for (_, bytes, address, _) in recorded().into_iter().filter(|r| r.1.len() < 300) {
        for at in 0..bytes.len() {
            for flip in [0xff, 0x01, 0x80, 0x10] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                exercise(bytes, address);
            }
        }
        for len in 0..bytes.len() {
            exercise(bytes[..len].to_vec(), address);
        }
    }
}

#[test]
fn random_sections_are_survived() {
    fn check(version: u8, flags: u8, counts: [u8; 2], tail: Vec<u8>, address: u64) {
        let mut bytes = hex("e2de 00 00 03 00 f8 00");
        bytes[2] = version % 3 + 1;
        bytes[3] = flags & 5;
        bytes.extend([counts[0] % 4, 0, 0, 0, counts[1], 0, 0, 0]);
        bytes.extend((tail.len() as u32 / 2).to_le_bytes());
        bytes.extend([0, 0, 0, 0, counts[1] % 64, 0, 0, 0]);
        bytes.extend(tail);
        exercise(bytes, address);
    }
    fn property(version: u8, flags: u8, counts: (u8, u8), tail: Vec<u8>, address: u64) -> bool {
        check(version, flags, [counts.0, counts.1], tail, address);
        true
    }
    QuickCheck::new()
        .rng(Gen::new(200))
        .tests(3000)
        .quickcheck(property as fn(u8, u8, (u8, u8), Vec<u8>, u64) -> bool);
}

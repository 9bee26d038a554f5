//! Conversions of small files whose tables other tools wrote.

use super::in_file::{ConvertedFile, InFileError, convert_in_file};
use super::*;
use crate::elf_write::Editor;
use crate::write::Function;
use std::sync::Arc;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Rule, Value};
use unwind_sim_unwind::sframe::{Profile, Version};

/// A small C program, its SFrame table by binutils 2.46.
const PROGRAM: &[u8] = include_bytes!("../../corpus/sframe/t_2.46");
/// Functions with a realigned frame and an undefined return address, by binutils 2.47.
const FLEXIBLE: &[u8] = include_bytes!("../../corpus/sframe/v3flex");

fn options(to: Target) -> Options {
    Options {
        to,
        from: None,
        from_orc: None,
        share: false,
        address: 0,
    }
}

fn convert_bytes(data: &[u8], options: &Options) -> Result<ConvertedFile, InFileError> {
    let file = File::read("file", Arc::new(data.to_vec())).expect("an ELF file");
    convert_in_file(&file, data, options, true)
}

fn sframe(data: &[u8]) -> Vec<u8> {
    let file = File::read("file", Arc::new(data.to_vec())).expect("an ELF file");
    let section = file.image().section(SectionKind::Sframe);
    section.expect("a table").data.to_vec()
}

#[test]
fn flexible_functions_become_the_bytes_that_gnu_wrote() {
    let written = convert_bytes(FLEXIBLE, &options(Target::Sframe(Version::V3)));
    let written = written.expect("converted");
    assert!(written.reused);
    assert_eq!(sframe(&written.bytes), sframe(FLEXIBLE));
    assert_eq!(written.bytes, FLEXIBLE, "nothing else changed either");
}

#[test]
fn a_table_of_gnu_does_not_get_larger() {
    let old = sframe(PROGRAM).len();
    let options = Options {
        from: Some(TableKind::Sframe),
        ..options(Target::Sframe(Version::V3))
    };
    let written = convert_bytes(PROGRAM, &options).expect("converted");
    assert!(written.reused);
    let new = written.converted.sections[0].bytes.len();
    assert!(new <= old, "{new} bytes instead of {old}");
}

#[test]
fn the_source_is_the_best_table_there_is() {
    let file = File::read("file", Arc::new(PROGRAM.to_vec())).expect("an ELF file");
    let orc = Target::from_name("orc").expect("a name");

    // The default source is the best table of another format.
    assert_eq!(source_kind(&file, orc), Some(TableKind::EhFrame));
    assert_eq!(source_kind(&file, Target::EhFrame), Some(TableKind::Sframe));

    // A source that is named must be there.
    let missing = Options {
        from: Some(TableKind::DebugFrame),
        ..options(orc)
    };
    let error = convert(&file, &missing).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "file has no debug_frame to convert to orc:6.4"
    );

    let same = Options {
        from: Some(TableKind::EhFrame),
        ..options(Target::EhFrame)
    };
    assert!(matches!(
        convert(&file, &same),
        Err(ConvertError::Same { .. })
    ));

    let data = PROGRAM;
    let kept = convert_in_file(&file, data, &options(Target::EhFrame), false);
    assert!(matches!(kept, Err(InFileError::HasEhFrame { .. })));
}

/// The program with an `.eh_frame` of one function that has these rules, a byte apart.
fn with_function(rules: impl Iterator<Item = Rule>) -> Vec<u8> {
    let rows: Vec<_> = rules
        .enumerate()
        .map(|(i, rule)| (i as u32, rule))
        .collect();
    let mut writer = EhFrameWriter::new(&[]);
    let function = Function {
        start: 0x1020,
        size: rows.len() as u32,
        repeat: None,
        signal: false,
        rows: &rows,
    };
    writer.function(&function).expect("a function");
    let editor = Editor::open("file", PROGRAM).expect("an ELF file");
    let sections = writer.finish(editor.room()).expect("sections");
    editor.add(&sections).expect("a file")
}

#[test]
fn a_function_with_too_many_rows_is_divided() {
    let rule = |i: u32| Rule::call(Value::reg(Reg::Rsp, 8 + 8 * (i % 2) as i32));
    let data = with_function((0..70_000).map(rule));
    let written = |version| {
        let options = options(Target::Sframe(version));
        let written = convert_bytes(&data, &options).expect("converted");
        assert_eq!(written.comparison.equal, 70_000);
        (
            written.converted.report.functions_written,
            written.converted.report.rows_written,
        )
    };
    assert_eq!(written(Version::V3), (2, 70_000));
    assert_eq!(written(Version::V2), (1, 70_000));
}

#[test]
fn a_function_is_divided_around_rows_that_cannot_be_held() {
    let held = Rule::call(Value::reg(Reg::Rsp, 8));
    let lost = Rule::call(Value::reg(Reg::R10, 0));
    let saved = held.with_saved(Reg::Rbx, Value::at_cfa(-24));

    // Two bytes that can be held, two that cannot, and one with a register that the format leaves
    // out.
    let data = with_function([held, held, lost, lost, saved, held].into_iter());
    let written = convert_bytes(&data, &options(Target::Sframe(Version::V2))).expect("converted");

    let report = &written.converted.report;
    assert_eq!((report.functions_written, report.rows_written), (2, 2));
    assert_eq!(
        (written.comparison.equal, written.comparison.inexpressible),
        (4, 2)
    );

    let losses = report.by_reason();
    let shown: Vec<_> = losses
        .iter()
        .map(|(lost, count)| (lost.as_str(), *count))
        .collect();
    // The program's own .sframe, which is replaced, has more functions.
    let of_sframe = ("other-table", (7, 18, 214));
    assert_eq!(
        shown,
        [
            ("cfa-register", (1, 2, 2)),
            ("callee-saved", (1, 1, 1)),
            of_sframe
        ]
    );
    assert_eq!(report.losses[0].first, 0x1022);
    assert_eq!(report.losses[0].function, 0x1020..0x1026);
}

#[test]
fn a_plt_of_gigabytes_is_cut_off() {
    // `rsp + 8 + (((rip & 15) >= 11) << 3)`, as linkers write it for a lazy PLT.
    let formula = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let expression = unwind_sim_unwind::rule::Expression {
        start: 0,
        len: 11,
        load: false,
    };

    // What matters is that time and memory are bounded, whatever a table claims.
    let size = 1 << 30;
    let mut writer = EhFrameWriter::new(&formula);
    let function = Function {
        start: 0x1020,
        size,
        repeat: None,
        signal: false,
        rows: &[(0, Rule::call(Value::Expression(expression)))],
    };
    writer.function(&function).expect("a function");

    let editor = Editor::open("file", PROGRAM).expect("an ELF file");
    let sections = writer.finish(editor.room()).expect("sections");
    let data = editor.add(&sections).expect("a file");

    // Each format has another bound, and what lies behind it is counted as left out.
    for (to, equal) in [
        ("sframe-v1", 1 << 19),
        ("sframe-v3", 1 << 20),
        ("orc", 1 << 19),
    ] {
        let options = options(Target::from_name(to).expect("a name"));
        let written = convert_bytes(&data, &options).expect("converted");
        let (found, limited) = (written.comparison.equal, written.comparison.limited);
        assert_eq!((found, found + limited), (equal, size.into()), "{to}");

        let losses = written.converted.report.losses;
        let reasons: Vec<_> = losses.iter().map(|loss| loss.lost.as_str()).collect();
        assert_eq!(reasons, ["too-many-rows"], "{to}");
    }
}

#[test]
fn nothing_is_written_if_nothing_can_be_held() {
    let lost = Rule::call(Value::reg(Reg::R10, 0));
    let data = with_function(std::iter::once(lost));
    let error = convert_bytes(&data, &options(Target::Sframe(Version::V1))).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "file: none of the 1 rows of its eh_frame can be expressed as sframe-v1"
    );
}

#[test]
fn strict_readers_accept_what_is_written() {
    for data in [PROGRAM, FLEXIBLE] {
        let written = convert_bytes(data, &options(Target::Sframe(Version::V3)));
        let written = written.expect("converted");
        let file = File::read("file", Arc::new(written.bytes)).expect("an ELF file");
        let section = file.image().section(SectionKind::Sframe).expect("a table");
        let table = unwind_sim_unwind::sframe::Table::parse(&section.data, section.address);
        let table = table.expect("a header");
        for profile in Profile::ALL {
            assert_eq!(profile.check_table(&table), Ok(()), "{profile:?}");
            assert_eq!(
                profile.validate(&table, file.image().text()),
                Ok(()),
                "{profile:?}"
            );
        }
    }
}

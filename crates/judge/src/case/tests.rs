//! Tests of the parser on the error corpus, the case corpus and its own output.

use super::*;
use std::path::{Path, PathBuf};
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::{FakeVariant, Variant};

const SMALL: &str = "\
#! claim: Two frames.
#! source: psABI 3.2.2
#! group: basic
#! right: dwarf fp(at leaf_in)
#! wrong: fp(US510 at leaf)
#@ leaf: leaf < _start
#@ leaf_in #2: leaf < <signal> < [libc.so] < rec*3 < ...
leaf:
leaf_in: ret
";

fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    fn visit(folder: &Path, extension: &str, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).expect("folder of the corpus") {
            let path = entry.expect("entry").path();
            if path.is_dir() {
                visit(&path, extension, into);
            } else if path.extension().is_some_and(|found| found == extension) {
                into.push(path);
            }
        }
    }
    let mut found = Vec::new();
    visit(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("corpus")
            .join(folder),
        extension,
        &mut found,
    );
    found.sort();
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_header_is_read_into_its_fields() {
    // The only sample at `leaf_in` is that of its second visit.
    let error = Case::parse("two-frames.s", SMALL).expect_err("fp is claimed at visit 1");
    assert_eq!(
        error.kind,
        CaseErrorKind::UnknownPoint {
            key: "leaf_in".into()
        }
    );

    let text = SMALL.replace("at leaf_in", "at leaf_in#2");
    let case = Case::parse("x/two-frames.s", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (case.name.as_str(), case.header.group.as_str()),
        ("two-frames", "basic")
    );

    assert_eq!(case.header.link, ["-nostdlib", "-static", "-no-pie"]);
    assert_eq!(case.header.regs, [Variant::Hardware]);
    assert_eq!(
        case.header.wrong[0].args[0].code,
        Some(Code::FramePointerNotYet)
    );

    assert_eq!(case.samples[1].key(), "leaf_in#2");

    // `rec*3` stands for three frames, and `...` for none.
    let names: Vec<String> = case.samples[1]
        .chain
        .frames
        .iter()
        .map(Frame::to_string)
        .collect();
    assert_eq!(
        names,
        ["leaf", "<signal>", "[libc.so]", "rec", "rec", "rec"]
    );
    assert!(!case.samples[1].chain.complete && case.samples[0].chain.complete);
}

#[test]
fn each_key_is_set_by_its_own_name() {
    let is_unknown = |key| {
        let set = Header::default().set(key, "7");
        matches!(set, Err(CaseErrorKind::UnknownKey { .. }))
    };
    for key in KEYS {
        assert!(!is_unknown(key), "{key} is in KEYS and sets nothing");
    }

    let mut header = Header::default();
    assert!(header.set("new-key", "7").is_err());
    assert_eq!(header, Header::default());
}

#[test]
fn every_key_of_a_full_header_is_kept() {
    let text = "\
#! claim: Everything.
#! source: a
#! source: b
#! group: start
#! right: dwarf@fake:v5.2 sframe:kernel-v3+fp
#! covers: US301 US203
#! link: -no-pie
#! cflags: -Wa,--gsframe
#! assembler: 2.40
#! regs: hw fake:v5.2
#! config: FRAME_POINTER=y
#! view: copy:0x40
#! tables: eh_frame sframe
#! inject: late-row at deep equivalent: no call there
#! memory: rbp-8 = leaf+0x10 @deep
#! set: rax = 7 @deep/own
#! forget: rbx r12 @deep
#! truth-unknown-max: 2
#@ deep: deep < _start
#@ deep fake own=own: _start
.ifdef DEFECT
.endif
FUNC deep
own: ret
";

    let case = Case::parse("everything.s", text).unwrap_or_else(|error| panic!("{error}"));
    let header = &case.header;

    assert_eq!(header.sources, ["a", "b"]);
    assert_eq!(
        header.right[0].start,
        Some(Variant::Fake(FakeVariant::V5_2))
    );

    // A profile and a fallback are parts of the name.
    assert_eq!(header.right[1].unwinder, "sframe:kernel-v3+fp");

    assert_eq!(header.assembler.as_deref(), Some("2.40"));
    assert_eq!(header.view, View::CopyBytes(64));
    assert_eq!(header.tables, [Table::EhFrame, Table::Sframe]);
    assert!(header.frame_pointer_config && case.samples[1].is_fake());

    let inject = header.inject.as_ref().expect("inject");
    assert_eq!(
        (inject.kind, inject.label.as_str()),
        (Defect::LateRow, "deep")
    );
    assert_eq!(inject.equivalent.as_deref(), Some("no call there"));

    // `rbp-8`: a negative offset is kept as what it adds, modulo 2^64.
    let below = Operand {
        base: Base::Register(Reg::Rbp),
        offset: 8u64.wrapping_neg(),
    };
    assert_eq!(header.corruptions[0].target, Target::Memory(below));
    assert_eq!(
        header.corruptions[0].value.base,
        Base::Symbol("leaf".into())
    );

    // `memory` and `set` are one list, in the order of the file.
    assert_eq!(header.corruptions[1].target, Target::Register(Reg::Rax));
    assert_eq!(header.corruptions[1].point.to_string(), "deep/own");
    assert_eq!(header.forgotten[0].registers, [Reg::Rbx, Reg::R12]);
    assert_eq!(header.truth_unknown_max, 2);
}

#[test]
fn a_matrix_survives_being_written_and_read() {
    // Every verdict once, some with a code, and the cell of a start that does not apply.
    let cells = [
        ". ~ m1@1 x12@0/US206 w@3/US501 t@2/US203",
        "r/US301 l/US205 u ? - .",
    ];
    let text = format!(
        "#= sample a b@hw c@fake:v5.2 orc(derived) sframe:kernel-v3+fp f\n#= one {}\n#= two#2/x {}\n",
        cells[0], cells[1]
    );

    let matrix = Matrix::parse(&text).expect("a matrix");
    let written = matrix.format();
    assert_eq!(Matrix::parse(&written), Ok(matrix.clone()));
    assert_eq!(Matrix::parse(&written).expect("same").format(), written);

    assert_eq!(
        matrix
            .cell("one", "c@fake:v5.2")
            .map(|cell| cell.to_string()),
        Some("m1@1".into())
    );
    assert_eq!(
        matrix.cell("two#2/x", "a").and_then(|cell| cell.code()),
        Some(Code::RegistersMissing)
    );

    assert_eq!(matrix.cell("three", "a"), None);
    assert!(written.lines().all(|line| line == line.trim_end()));
}

#[test]
fn only_verdicts_are_cells() {
    for bad in [
        "", "..", "m@1", "m0@1", "m1", "m01@1", "x1@", "w", "w@-1", "t2", "r@1", "é", "/US1",
    ] {
        assert!(Cell::parse(bad).is_err(), "{bad}");
    }
    for bad in [
        "./US203",
        "-/US203",
        "w@1/",
        "w@1/US20",
        "w@1/US2033",
        "w@1/us203",
        "w@4294967296",
    ] {
        assert!(Cell::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn blessing_changes_no_line_of_the_author() {
    let text = SMALL
        .replace("at leaf_in", "at leaf_in#2")
        .replace("ret\n", "ret");
    let case = Case::parse("two-frames.s", &text).unwrap_or_else(|error| panic!("{error}"));
    let matrix = Matrix::parse("#= sample dwarf fp\n#= leaf . m1@1/US510\n").expect("a matrix");
    let blessed = case.with_expectations(&matrix);
    assert_eq!(
        blessed.strip_prefix(&text),
        Some("\n#= sample dwarf fp\n#= leaf   .     m1@1/US510\n")
    );
    let again = Case::parse("two-frames.s", &blessed).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.expected.as_ref(), Some(&matrix));
    assert_eq!(again.with_expectations(&matrix), blessed);
    assert_eq!(again.author_text().trim_end(), text);
}

#[test]
fn wide_expectations_are_blocks_side_by_side() {
    let columns: Vec<String> = (0..30).map(|n| format!("unwinder{n}")).collect();
    let head = format!("#= sample {}\n", columns.join(" "));
    let row = |point: &str| format!("#= {point}{}\n", " t@12/US203".repeat(30));
    let matrix = Matrix::parse(&(head + &row("leaf") + &row("sample"))).expect("a matrix");
    let text = matrix.format();
    assert!(text.lines().all(|line| line.len() <= COLUMNS_MAX), "{text}");
    assert!(
        text.lines().count() > 9 && text.lines().count() < 15,
        "{text}"
    );
    assert_eq!(Matrix::parse(&text), Ok(matrix));
}

#[test]
fn long_lines_are_folded_and_read_back() {
    let words = ["leaf"; 60].join(" < ");
    let line = format!("#@ leaf_in: {words}");
    let text = fold(&line);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len() == 5 && lines.iter().all(|line| line.len() <= COLUMNS_MAX),
        "{text}"
    );
    let unfolded = super::folded::unfold(&lines);
    assert_eq!((unfolded.len(), &*unfolded[0].text), (1, &*line));
    for number in 1..lines.len() {
        let before = lines[..number].iter().enumerate();
        let at = before.fold(0, |sum, (index, line)| {
            sum + line.len() + 1 - if index == 0 { 0 } else { 6 }
        });
        assert_eq!(unfolded[0].place(&lines, at), (number + 1, 7));
    }
    let long = "x".repeat(120);
    assert_eq!(
        fold(&format!("#! {long} y")),
        format!("#! {long}\n#!    y\n")
    );
}

#[test]
fn every_malformed_case_gives_its_stated_message() {
    let cases = files("errors", "s");
    assert!(cases.len() >= 30, "only {} malformed cases", cases.len());
    for path in cases {
        let name = path.file_name().expect("name").to_string_lossy();
        let error = Case::parse(&name, &read(&path)).expect_err(&name);
        assert_eq!(
            format!("{error}\n"),
            read(&path.with_extension("txt")),
            "{name}"
        );
    }
}

#[test]
fn every_case_is_read_and_stands_in_its_group() {
    let mut names = std::collections::BTreeSet::new();
    for path in files("cases", "s") {
        let shown = path.display().to_string();
        let case = Case::parse(&shown, &read(&path)).unwrap_or_else(|error| panic!("{error}"));

        // `group` is the folder below `corpus/cases` (docs/case-format.md).
        let folder = path
            .parent()
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy());
        assert_eq!(
            folder.as_deref(),
            Some(case.header.group.as_str()),
            "{shown}"
        );

        assert!(
            names.insert(case.name.clone()),
            "{} appears twice",
            case.name
        );
        assert!(
            case.header.sources.iter().all(|source| source.len() > 8),
            "{shown}"
        );
        assert!(
            case.expected.is_some() || case.author_text() == read(&path),
            "{shown}"
        );
    }

    // With a wrong path there would be no file, and nothing would be checked.
    assert!(names.len() >= 80, "only {} cases", names.len());
}

#[test]
fn every_reachable_code_and_every_unwinder_has_its_cases() {
    let parse = |path: PathBuf| {
        Case::parse(&path.display().to_string(), &read(&path)).unwrap_or_else(|e| panic!("{e}"))
    };
    let cases: Vec<Case> = files("cases", "s").into_iter().map(parse).collect();

    for code in Code::ALL {
        // Cases run without branch records, so none can run out; every case knows its truth; and ring 0
        // has one processor, so no task runs elsewhere.
        let unreachable = [Code::LbrDepth, Code::EndUnknown, Code::OnOtherCpu];
        let reachable = !unreachable.contains(code);
        let covered = cases.iter().any(|case| case.header.covers.contains(code));
        assert_eq!(covered, reachable, "{code}");
    }

    // Otherwise a verdict that is always the same would not be noticed.
    for name in ["dwarf", "sframe", "orc", "fp", "guess"] {
        let named = |claims: &[Claim]| claims.iter().any(|claim| claim.unwinder == name);
        assert!(
            cases.iter().any(|case| named(&case.header.right)),
            "{name} is never right"
        );
        assert!(
            cases.iter().any(|case| named(&case.header.wrong)),
            "{name} is never wrong"
        );
    }

    for defect in Defect::ALL {
        let injects = |case: &&Case| {
            case.header
                .inject
                .as_ref()
                .is_some_and(|i| i.kind == defect)
        };
        assert!(
            cases.iter().filter(injects).count() >= 3,
            "{}",
            defect.as_str()
        );
    }

    for start in Variant::ALL {
        assert!(
            cases.iter().any(|case| case.header.regs.contains(&start)),
            "{}",
            start.as_str()
        );
    }
}

#[test]
fn a_mistake_in_cut_or_altered_text_has_a_place_in_it() {
    fn check(path: &str, text: &str) {
        let Err(error) = Case::parse(path, text) else {
            return;
        };
        assert_eq!(error.path, path);
        let lines = text.lines().count().max(1);
        assert!((1..=lines).contains(&error.line), "{error}\n{text}");
        let line = text.lines().nth(error.line - 1).unwrap_or("");

        // The column behind the last character is where something is missing.
        let columns = 1..=line.chars().count() + 1;
        assert!(columns.contains(&error.column), "{error}\n{text}");
    }

    // Each text is cut and altered at every position, so a few have to do.
    let texts = files("cases", "s")
        .into_iter()
        .take(6)
        .map(|path| read(&path));
    let full = SMALL.replace("at leaf_in", "at leaf_in#2");
    let blessed = format!("{full}#= sample dwarf\n#= leaf t@2/US203\n");

    for text in texts.chain([full, blessed]) {
        for at in 0..text.len() {
            if !text.is_char_boundary(at) {
                continue;
            }
            check("cut.s", &text[..at]);

            // The separators of the format, a character of two bytes, and a number beyond 64 bits.
            for other in [
                "<",
                "@",
                "#",
                ":",
                "/",
                "é",
                "9999999999999999999999",
                "(",
                "\n",
            ] {
                let altered = format!("{}{other}{}", &text[..at], &text[at..]);
                check("altered.s", &altered);
            }
        }
    }
}

#[test]
fn what_depends_on_the_system_has_words_of_its_own() {
    assert_eq!(Cell::parse("*"), Ok(Cell::Open));
    assert_eq!(Cell::Open.to_string(), "*");
    assert_eq!((Cell::Open.verdict(), Cell::Open.code()), (None, None));
    assert!(Cell::parse("*/US203").is_err());
    let chain = Chain::parse("main < [libc]+ < [libc]").unwrap();
    let frames: Vec<String> = chain.frames.iter().map(ToString::to_string).collect();
    assert_eq!(frames, ["main", "[libc]+", "[libc]"]);
    for bad in ["[]+", "[libc]++", "main+", "[libc+"] {
        assert!(Chain::parse(bad).is_err(), "{bad}");
    }
}

//! All tables of a file are checked, and their functions are those of all of them together.

use crate::proof::build::{Scratch, compile, open};
use crate::proof::expect::read;
use crate::skip::skip;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use unwind_sim_tables::check::{Checked, Options, Report, check};
use unwind_sim_tables::convert::{self, LossReason, Target};
use unwind_sim_tables::elf_write::Editor;
use unwind_sim_tables::file::File;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::verdict::{Contradiction, Verdict};
use unwind_sim_tables::write::NewSection;
use unwind_sim_unwind::image::SectionKind;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::sframe;

/// Offset of a function's size in its FDE, bytes (SFrame version 2, `sfde_func_size`).
const FUNC_SIZE: usize = 4;

/// A function in `.eh_frame`.
const LISTED: &str = "
	.text
	.globl listed
	.type listed, @function
listed:
	.cfi_startproc
	push %rbx
	.cfi_def_cfa_offset 16
	.cfi_offset %rbx, -16
	mov %edi, %ebx
	pop %rbx
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size listed, .-listed
	.section .note.GNU-stack,\"\",@progbits
";

/// Functions in `.debug_frame`; the row behind the second one's release of the stack is wrong.
const OTHERS: &str = "
	.cfi_sections .debug_frame
	.text
	.globl right
	.type right, @function
right:
	.cfi_startproc
	sub $24, %rsp
	.cfi_def_cfa_offset 32
	add $24, %rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size right, .-right
	.globl wrong
	.type wrong, @function
wrong:
	.cfi_startproc
	sub $24, %rsp
	.cfi_def_cfa_offset 32
	add $24, %rsp
	.globl wrong_here
wrong_here:
	ret
	.cfi_endproc
	.size wrong, .-wrong
	.section .note.GNU-stack,\"\",@progbits
";

/// Links a shared object of these sources.
fn link(scratch: &Scratch, sources: &[&str], options: &[&str]) -> Result<PathBuf, String> {
    let mut args: Vec<String> = vec!["-nostdlib".to_owned(), "-shared".to_owned()];
    args.extend(options.iter().map(|&option| option.to_owned()));
    for (number, source) in sources.iter().enumerate() {
        let path = scratch.path(&format!("{number}.s"));
        std::fs::write(&path, source).expect("the folder for temporary files is writable");
        args.push(path.display().to_string());
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = scratch.path("linked.so");
    compile("cc", &args, &output)?;
    Ok(output)
}

fn address(data: &[u8], name: &str) -> u64 {
    let elf = object::File::parse(data).expect("an ELF file");
    let mut symbols = elf.symbols();
    let symbol = symbols.find(|symbol| symbol.name() == Ok(name));
    symbol
        .unwrap_or_else(|| panic!("no symbol {name}"))
        .address()
}

fn checked<'r>(report: &'r Report, data: &[u8], name: &str) -> &'r Checked {
    let start = address(data, name);
    let mut functions = report.functions.iter();
    let found = functions.find(|checked| checked.range.start == start);
    found.unwrap_or_else(|| panic!("{name} was not checked"))
}

fn contradictions<'r>(report: &'r Report, data: &[u8], name: &str) -> &'r [Contradiction] {
    &checked(report, data, name).verdict.contradictions
}

fn file(path: &Path, data: Vec<u8>) -> File {
    let name = path.display().to_string();
    File::read(&name, Arc::new(data)).expect("an ELF file")
}

/// Hides `.debug_frame` from its readers.
fn without_debug_frame(mut data: Vec<u8>) -> Vec<u8> {
    let name = b".debug_frame\0";
    let at = data.windows(name.len()).rposition(|bytes| bytes == name);
    let at = at.expect("the name of the section");
    data[at + 1..at + 6].copy_from_slice(b"other");
    data
}

fn options(from: TableKind, address: u64) -> convert::Options {
    convert::Options {
        to: Target::from_name("sframe-v2").expect("a format"),
        from: Some(from),
        from_orc: None,
        share: false,
        address,
    }
}

/// `data` with a section `.sframe` of the tables of these kinds, one behind the other.
fn with_sframe(path: &Path, data: &[u8], kinds: &[TableKind]) -> Vec<u8> {
    let source = file(path, data.to_vec());
    let name = path.display().to_string();
    let editor = Editor::open(&name, data).expect("a file that can be changed");
    let mut whole: Option<NewSection> = None;
    for &kind in kinds {
        let end = whole.as_ref().map_or(editor.room(), NewSection::end);
        let converted = convert::convert(&source, &options(kind, end)).expect("it is expressible");
        let section = converted.sections.into_iter().next().expect("a section");
        match &mut whole {
            Some(whole) => {
                let distance = section.address - whole.address;
                whole.bytes.resize(distance as usize, 0);
                whole.bytes.extend(section.bytes);
            }
            None => whole = Some(section),
        }
    }
    editor
        .add(&[whole.expect("a table")])
        .expect("there is room")
}

#[test]
fn debug_frame_is_checked_beside_eh_frame() {
    let scratch = Scratch::new("beside");
    for compressed in [&[][..], &["-Wl,--compress-debug-sections=zlib"]] {
        let path = match link(&scratch, &[LISTED, OTHERS], compressed) {
            Ok(path) => path,
            Err(error) => {
                skip("debug_frame_is_checked_beside_eh_frame", &error);
                continue;
            }
        };
        let (data, file) = open(&path);
        let report = check(&file, &Options::default());
        assert_eq!(report.problems, [""; 0]);
        let kinds = [TableKind::EhFrame, TableKind::DebugFrame];
        assert_eq!(report.tables, kinds, "{compressed:?}");

        for (name, table) in [
            ("listed", TableKind::EhFrame),
            ("right", TableKind::DebugFrame),
        ] {
            let checked = checked(&report, &data, name);
            assert_eq!(checked.verdict.verdict(), Verdict::Proven, "{name}");
            assert_eq!(checked.table, Some(table), "{name}");
        }
        let [wrong] = contradictions(&report, &data, "wrong") else {
            panic!("one contradiction: {report:?}");
        };
        let found = (wrong.table, wrong.subject, wrong.pc);
        let at = address(&data, "wrong_here");
        assert_eq!(found, (TableKind::DebugFrame, Subject::Cfa, at));
        let covered = |gap: &unwind_sim_tables::check::Gap| gap.range.contains(&at);
        assert!(!report.gaps.iter().any(covered), "{:?}", report.gaps);
    }
}

#[test]
fn a_conversion_names_the_functions_of_other_tables() {
    let scratch = Scratch::new("others");
    let path = link(&scratch, &[LISTED, OTHERS], &[]).expect("cc");
    let (data, file) = open(&path);
    let converted = convert::convert(&file, &options(TableKind::EhFrame, 0)).expect("converted");
    let losses = converted.report.losses.iter();
    let lost = losses.filter(|loss| loss.lost == LossReason::OtherTable);
    let starts: Vec<u64> = lost.map(|loss| loss.function.start).collect();
    let right = [address(&data, "right"), address(&data, "wrong")];
    assert_eq!(starts, right);
}

#[test]
fn functions_that_only_sframe_has_are_checked() {
    let scratch = Scratch::new("only-sframe");
    let path = link(&scratch, &[LISTED, OTHERS], &[]).expect("cc");
    let data = std::fs::read(&path).expect("the linked file");
    for kinds in [
        &[TableKind::DebugFrame][..],
        // The second table, which no reader finds, is checked as well.
        &[TableKind::EhFrame, TableKind::DebugFrame],
    ] {
        let data = without_debug_frame(with_sframe(&path, &data, kinds));
        let report = check(&file(&path, data.clone()), &Options::default());
        let tables = [TableKind::EhFrame, TableKind::Sframe];
        assert_eq!(report.tables, tables, "{kinds:?}");

        let right = checked(&report, &data, "right");
        assert_eq!(right.verdict.verdict(), Verdict::Proven, "{kinds:?}");
        assert_eq!(right.table, Some(TableKind::Sframe));
        let wrong = contradictions(&report, &data, "wrong");
        assert_eq!(wrong.len(), 1, "{kinds:?}: {wrong:?}");
        assert_eq!(wrong[0].pc, address(&data, "wrong_here"));
        let listed = checked(&report, &data, "listed");
        assert_eq!(listed.table, Some(TableKind::EhFrame));
    }
}

#[test]
fn a_function_of_sframe_that_ends_too_early_is_found() {
    let scratch = Scratch::new("short-sframe");
    let path = link(&scratch, &[LISTED], &[]).expect("cc");
    let data = std::fs::read(&path).expect("the linked file");
    let mut data = with_sframe(&path, &data, &[TableKind::EhFrame]);
    let whole = check(&file(&path, data.clone()), &Options::default());
    assert_eq!(contradictions(&whole, &data, "listed"), []);

    let (place, start) = (section_offset(&data, ".sframe"), address(&data, "listed"));
    let fde = sframe_fde(&path, &data, start);
    let at = place + fde.offset as usize + FUNC_SIZE;
    let shorter = fde.size - 1;
    data[at..at + 4].copy_from_slice(&shorter.to_le_bytes());

    let report = check(&file(&path, data.clone()), &Options::default());
    let [missing] = contradictions(&report, &data, "listed") else {
        panic!("one contradiction: {report:?}");
    };
    assert_eq!(missing.subject, Subject::Row);
    assert_eq!(missing.table, TableKind::Sframe);
    assert_eq!(missing.row_offset, fde.offset);
    let last = start + u64::from(shorter);
    assert_eq!(missing.row, last..last + 1);
}

#[test]
fn a_function_of_sframe_that_begins_too_late_is_found() {
    const LEAF: &str = "
	.text
	.type leaf, @function
leaf:
	.cfi_startproc
	mov %edi, %eax
	ret
	.cfi_endproc
	.size leaf, .-leaf
	.section .note.GNU-stack, \"\", @progbits
";
    const FIRST: u32 = 2;
    let scratch = Scratch::new("late-sframe");
    let path = link(&scratch, &[LEAF], &[]).expect("cc");
    let data = std::fs::read(&path).expect("the linked file");
    let mut data = with_sframe(&path, &data, &[TableKind::EhFrame]);

    let (place, start) = (section_offset(&data, ".sframe"), address(&data, "leaf"));
    let fde = sframe_fde(&path, &data, start);
    let at = place + fde.offset as usize;
    let distance = i32::from_le_bytes(*data[at..].first_chunk().expect("4 bytes"));
    data[at..at + 4].copy_from_slice(&(distance + FIRST as i32).to_le_bytes());
    let at = at + FUNC_SIZE;
    data[at..at + 4].copy_from_slice(&(fde.size - FIRST).to_le_bytes());

    let report = check(&file(&path, data.clone()), &Options::default());
    let [missing] = contradictions(&report, &data, "leaf") else {
        panic!("one contradiction: {report:?}");
    };
    assert_eq!(
        (missing.subject, missing.table),
        (Subject::Row, TableKind::Sframe)
    );
    assert_eq!(missing.row_offset, fde.offset);
    assert_eq!(missing.row, start..start + u64::from(FIRST));
}

/// The FDE of `.sframe` that a reader finds for `address` (svma).
fn sframe_fde(path: &Path, data: &[u8], address: u64) -> sframe::Fde {
    let file = file(path, data.to_vec());
    let section = file.image().section(SectionKind::Sframe).expect(".sframe");
    let table = sframe::Table::parse(&section.data, section.address).expect("a table");

    let found = table.find(address, table.order().as_ref());
    found.expect("readable").expect("an FDE")
}

/// Offset of a section in the file, bytes.
fn section_offset(data: &[u8], name: &str) -> usize {
    let elf = object::File::parse(data).expect("an ELF file");
    let section = elf.section_by_name(name).expect("the section");
    section.file_range().expect("it has bytes").0 as usize
}

/// Without symbols, what is reached with everything as at entry may be another function.
const MAYBE_OTHERS: [&str; 3] = ["bad_leaf", "bad_two_parts", "bad_case"];

/// What no symbol tells is told by what leads where.
#[test]
fn functions_that_end_too_early_are_found_without_symbols() {
    let scratch = Scratch::new("stripped");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proof/fixtures/ends.s");
    let source = std::fs::read_to_string(source).expect("the fixture is text");
    let common = "
	.globl returns
	.hidden returns
	.type returns, @function
returns:
	.cfi_startproc
	xor %eax, %eax
	ret
	.cfi_endproc
	.section .note.GNU-stack,\"\",@progbits
";
    let path = link(&scratch, &[&source, common], &[]).expect("cc");
    let expected = read(&std::fs::read(&path).expect("the linked file"));
    let path = link(&scratch, &[&source, common], &["-s"]).expect("cc");
    let (_, file) = open(&path);
    let report = check(&file, &Options::default());

    let mut count = 0;
    for (start, (name, right)) in &expected.functions {
        let checked = report.functions.iter().find(|c| c.range.start == *start);
        let checked = checked.unwrap_or_else(|| panic!("{name} was not checked"));
        if right.verdict != Verdict::Contradicted {
            assert_eq!(checked.verdict.contradictions, [], "{name}");
            continue;
        }
        let found = checked.verdict.contradictions.iter();
        let found: Vec<u64> = found.map(|c| c.pc - start).collect();
        let mut right: Vec<u64> = right.wrong.iter().map(|(offset, _)| *offset).collect();
        if MAYBE_OTHERS.contains(&name.as_str()) {
            right.clear();
        }
        assert_eq!(found, right, "{name}");
        count += 1;
    }
    assert!(count >= 9, "{count}");
}

/// SFrame V2 cannot say that the return address is in rdx, so the function has two FDEs; and the second one
/// ends an instruction too early.
#[test]
fn an_fde_of_sframe_behind_a_hole_that_ends_too_early_is_found() {
    const MOVED: &str = "
	.text
	.type moved, @function
moved:
	.cfi_startproc
	pop %rdx
	.cfi_def_cfa_offset 0
	.cfi_register %rip, %rdx
	lea (%rdi,%rsi), %rax
	push %rdx
	.cfi_def_cfa_offset 8
	.cfi_offset %rip, -8
	inc %eax
	ret
	.cfi_endproc
	.size moved, .-moved
	.section .note.GNU-stack, \"\", @progbits
";
    /// Offset of the second FDE's first address from the function's, and its length, bytes.
    const SECOND: (u64, u32) = (6, 3);
    let scratch = Scratch::new("hole-in-sframe");
    let path = link(&scratch, &[MOVED], &[]).expect("cc");
    let data = std::fs::read(&path).expect("the linked file");
    let mut data = with_sframe(&path, &data, &[TableKind::EhFrame]);
    let whole = check(&file(&path, data.clone()), &Options::default());
    assert_eq!(contradictions(&whole, &data, "moved"), []);

    let (place, start) = (section_offset(&data, ".sframe"), address(&data, "moved"));
    let second = start + SECOND.0;
    let fde = sframe_fde(&path, &data, second);
    assert_eq!((fde.start, fde.size), (second, SECOND.1));
    let at = place + fde.offset as usize + FUNC_SIZE;
    data[at..at + 4].copy_from_slice(&(SECOND.1 - 1).to_le_bytes());

    let report = check(&file(&path, data.clone()), &Options::default());
    let [missing] = contradictions(&report, &data, "moved") else {
        panic!("one contradiction: {report:?}");
    };
    assert_eq!(
        (missing.subject, missing.table, missing.row_offset),
        (Subject::Row, TableKind::Sframe, fde.offset)
    );
    let last = second + u64::from(SECOND.1) - 1;
    assert_eq!(missing.row, last..last + 1);
}

//! Tests of the known classes: from code, a wrong row, and who may have written it.

use super::*;
use std::sync::Arc;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::program::Entry;
use unwind_sim_tables::proof::value::Value;
use unwind_sim_tables::proof::verdict::{Contradiction, FunctionVerdict};
use unwind_sim_unwind::convention::{Convention, Evidence};
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{self, Rule};

const START: u64 = 0x1000;

#[test]
fn classes_have_names_of_their_own() {
    let ids: BTreeSet<&str> = KNOWN.iter().map(|known| known.id).collect();
    assert_eq!(ids.len(), KNOWN.len());
    for known in KNOWN {
        assert!(
            !known.who.is_empty() && !known.what.ends_with('.'),
            "{}",
            known.id
        );
    }
}

/// A file with this code, of which nobody says who wrote it.
fn file(code: &[u8]) -> File {
    let range = START..START + code.len() as u64;
    let image = Image::new(ImageParts {
        text: vec![range],
        sections: vec![Section {
            kind: SectionKind::Text,
            address: START,
            data: Bytes::from_vec(code.to_vec()),
        }],
        ..ImageParts::default()
    });
    File::of_image(&Arc::new(image))
}

/// A function at [`START`] with a wrong row.
fn wrong(at: u64, rule: Rule, subject: Subject, found: Value) -> Checked {
    let wrong = Contradiction {
        table: TableKind::EhFrame,
        row: START..START + 0x100,
        row_offset: 0,
        pc: START + at,
        rule,
        subject,
        found,
        sp: Value::Unknown,
        right: None,
        fits: None,
        path: Vec::new(),
    };

    Checked {
        range: START..START + 0x100,
        entry: Entry::Call,
        table: Some(TableKind::EhFrame),
        convention: Convention::SystemV,
        evidence: Evidence::Nothing,
        verdict: FunctionVerdict {
            contradictions: vec![wrong],
            rows: 5,
            ..FunctionVerdict::default()
        },
    }
}

fn class(code: &[u8], checked: &Checked) -> Option<&'static str> {
    let file = file(code);
    let blame = Judge::new(&file).blame(checked).expect("a wrong row");
    assert_eq!(blame.writer.kind, Kind::Unknown);
    blame.known.map(|known| known.id)
}

/// The CFA is by rsp, and so far off.
fn cfa(at: u64, off: i32) -> Checked {
    let rule = Rule::call(rule::Value::reg(Reg::Rsp, 8));
    wrong(at, rule, Subject::Cfa, Value::frame(8 + off))
}

fn register(at: u64, reg: Reg, said: rule::Value, found: Value) -> Checked {
    let rule = Rule::call(rule::Value::reg(Reg::Rsp, 8)).with_saved(reg, said);
    wrong(at, rule, Subject::Register(reg), found)
}

#[test]
fn a_wrong_row_belongs_to_the_class_that_fits() {
    let same = rule::Value::Same;
    let slot = rule::Value::at_cfa(-16);

    // add $40, %rsp; cmp $0, %al
    let add = [0x48, 0x83, 0xc4, 40, 0x3c, 0];
    assert_eq!(class(&add, &cfa(4, 40)), Some("llvm-epilogue"));

    // add $40, %rsp; ret
    assert_eq!(class(&[0x48, 0x83, 0xc4, 40, 0xc3], &cfa(4, 40)), None);

    // sub $40, %rsp; call
    let call = [0x48, 0x83, 0xec, 40, 0xe8, 0, 0, 0, 0];
    assert_eq!(class(&call, &cfa(4, -40)), Some("llvm-call"));

    // push %rbp; push $5; ret
    let pushes = [0x55, 0x6a, 5, 0xc3];
    assert_eq!(class(&pushes, &cfa(1, -8)), Some("llvm-call"));

    // pushf; popf; ret
    let flags = [0x9c, 0x9d, 0xc3];
    assert_eq!(class(&flags, &cfa(1, -8)), Some("inline-asm-push"));

    let mut one_row = cfa(1, -8);
    one_row.verdict.rows = 1;
    assert_eq!(class(&flags, &one_row), Some("hand-no-row"));

    // cpuid; ret
    let cpuid = register(2, Reg::Rbx, same, Value::Computed);
    assert_eq!(class(&[0x0f, 0xa2, 0xc3], &cpuid), Some("inline-asm-cpuid"));

    // xor %ebx, %ebx; ret
    let changed = register(2, Reg::Rbx, same, Value::Const(0));
    assert_eq!(class(&[0x31, 0xdb, 0xc3], &changed), Some("hand-changed"));

    // syscall; xor %ebp, %ebp; ret
    let child = register(4, Reg::Rbp, same, Value::Const(0));
    assert_eq!(
        class(&[0x0f, 5, 0x31, 0xed, 0xc3], &child),
        Some("clone-child")
    );

    // lea 0x58(%rsp), %rsp; ret
    let mut added = cfa(5, 0xb0);
    added.verdict.contradictions[0].row.start = START + 5;
    let lea = [0x48, 0x8d, 0x64, 0x24, 0x58, 0xc3];
    assert_eq!(class(&lea, &added), Some("hand-added"));

    // push $0x22; call, behind the end of a function of OCaml's
    let grow = [0x6a, 0x22, 0xe8, 0, 0, 0, 0];
    let mut behind = cfa(0, -8);
    behind.verdict.contradictions[0].path = vec![(START + 0x50, START)];
    assert_eq!(class(&grow, &behind), None);
    behind.convention = Convention::Ocaml;
    assert_eq!(class(&grow, &behind), Some("ocaml-behind-end"));

    // push %r13; nop
    let by_rbp = Rule::call(rule::Value::reg(Reg::Rbp, 24));
    let moved = wrong(2, by_rbp, Subject::Cfa, Value::frame(16));
    assert_eq!(class(&[0x41, 0x55, 0x90], &moved), Some("hand-moved-cfa"));

    // mov %r15, -16(%rsp); ret
    let named = register(5, Reg::R14, slot, Value::entry(Reg::R15));
    let store = [0x4c, 0x89, 0x7c, 0x24, 0xf0, 0xc3];
    assert_eq!(class(&store, &named), Some("hand-other-register"));

    // and $-64, %rsp; mov %rbx, 8(%rsp); ret
    let aligned = [0x48, 0x83, 0xe4, 0xc0, 0x48, 0x89, 0x5c, 0x24, 8, 0xc3];
    let slots = register(9, Reg::Rbx, slot, Value::Computed);
    assert_eq!(class(&aligned, &slots), Some("hand-aligned-slots"));

    // The same without the alignment is like no class.
    assert_eq!(
        class(&aligned[4..], &register(5, Reg::Rbx, slot, Value::Computed)),
        None
    );

    // and $-64, %rsp; pop %rbp; ret, with rbx relative to rbp
    let by_rbp = rule::Value::Load {
        base: rule::Base::Reg(Reg::Rbp),
        offset: -40,
        addend: 0,
    };
    let realigned = [0x48, 0x83, 0xe4, 0xc0, 0x5d, 0xc3];
    let epilogue = register(5, Reg::Rbx, by_rbp, Value::Computed);
    assert_eq!(class(&realigned, &epilogue), Some("gcc-realigned"));

    assert_eq!(
        class(
            &realigned[4..],
            &register(1, Reg::Rbx, by_rbp, Value::Computed)
        ),
        None
    );
}

#[test]
fn functions_of_one_cause_and_author_are_a_group() {
    let file = file(&[0x9c, 0x9d, 0xc3]);
    let mut one_row = cfa(1, -8);
    one_row.verdict.rows = 1;
    let right = Checked {
        verdict: FunctionVerdict::default(),
        ..cfa(1, -8)
    };
    let report = Report {
        functions: vec![cfa(1, -8), right, one_row, cfa(1, -8)],
        ..Report::default()
    };
    let groups = Judge::new(&file).groups(&report);
    let shown = groups.iter().map(|group| {
        let known = group.blame.known.map(|known| known.id);
        (known, group.functions.len(), group.contradictions)
    });
    let shown: Vec<_> = shown.collect();
    assert_eq!(
        shown,
        [(Some("inline-asm-push"), 2, 2), (Some("hand-no-row"), 1, 1)]
    );
}

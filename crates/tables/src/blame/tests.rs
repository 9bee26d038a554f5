//! Tests of causes: from the row, what it gives, and the instructions around it.

use super::*;
use std::sync::Arc;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::{Expression, Rule};

const START: u64 = 0x1000;

fn file(code: &[u8]) -> File {
    let range = START..START + code.len() as u64;
    let image = Image::new(ImageParts {
        text: vec![range],
        sections: vec![
            Section {
                kind: SectionKind::Text,
                address: START,
                data: Bytes::from_vec(code.to_vec()),
            },
            // An expression of one operation, DW_OP_breg6 (rbp) - 40.
            Section {
                kind: SectionKind::EhFrame,
                address: 0x2000,
                data: Bytes::from_vec(vec![0, 0, 0x76, 0x58]),
            },
        ],
        ..ImageParts::default()
    });
    File::of_image(&Arc::new(image))
}

/// A wrong row of the function at [`START`], at this offset of it.
struct Row {
    code: &'static [u8],
    at: u64,
    /// Where the row starts.
    start: u64,
    rule: Rule,
    subject: Subject,
    found: Value,
    right: Option<Rule>,
    is_jump_target: bool,
}

fn by_rsp(offset: i32) -> Rule {
    Rule::call(rule::Value::reg(Reg::Rsp, offset))
}

impl Row {
    /// A wrong CFA by rsp, so far off.
    fn cfa(code: &'static [u8], (at, start): (u64, u64), off: i32) -> Row {
        Row {
            code,
            at,
            start,
            rule: by_rsp(8),
            subject: Subject::Cfa,
            found: Value::frame(8 + off),
            right: None,
            is_jump_target: false,
        }
    }

    fn register(code: &'static [u8], at: u64, said: rule::Value, right: rule::Value) -> Row {
        Row {
            rule: by_rsp(8).with_saved(Reg::Rbx, said),
            subject: Subject::Register(Reg::Rbx),
            found: Value::Computed,
            right: Some(by_rsp(8).with_saved(Reg::Rbx, right)),
            ..Row::cfa(code, (at, 0), 0)
        }
    }

    fn cause(&self) -> Cause {
        let file = file(self.code);
        let pc = START + self.at;
        let path = self.is_jump_target.then_some((START, pc));
        let wrong = Contradiction {
            table: TableKind::EhFrame,
            row: START + self.start..START + 0x100,
            row_offset: 0,
            pc,
            rule: self.rule,
            subject: self.subject,
            found: self.found,
            sp: Value::Unknown,
            right: self.right,
            fits: None,
            path: path.into_iter().collect(),
        };
        cause(&file, START, &wrong)
    }
}

/// `push %rbx; nop`, `sub $40, %rsp; nop`, `add $40, %rsp; nop`, `pop %rbp; ret`, `leave; ret`,
/// `mov %rdi, %rbx; nop`.
const PUSH: &[u8] = &[0x53, 0x90];
const SUB: &[u8] = &[0x48, 0x83, 0xec, 40, 0x90];
const ADD: &[u8] = &[0x48, 0x83, 0xc4, 40, 0x90];
const POP: &[u8] = &[0x5d, 0xc3];
const LEAVE: &[u8] = &[0xc9, 0xc3];
/// `pop %r15; pop %rbx; ret`.
const POPS: &[u8] = &[0x41, 0x5f, 0x5b, 0xc3];
const MOV: &[u8] = &[0x48, 0x89, 0xfb, 0x90];

#[test]
fn a_moved_stack_pointer_names_the_cause() {
    // The address at which the row is wrong, where the row starts, and how far its CFA is off.
    let all = [
        (Row::cfa(PUSH, (1, 0), -8), Cause::Push),
        (Row::cfa(SUB, (4, 0), -40), Cause::Lowered),
        (Row::cfa(ADD, (4, 0), 40), Cause::Raised),
        (Row::cfa(POP, (1, 0), 8), Cause::Raised),
        (Row::cfa(LEAVE, (1, 0), 64), Cause::Raised),
        // The row is there, with another number.
        (Row::cfa(SUB, (4, 4), -8), Cause::Distance),
        // It is there one instruction too early.
        (Row::cfa(PUSH, (0, 0), 8), Cause::Early),
        (Row::cfa(SUB, (0, 0), 40), Cause::Early),
        (Row::cfa(SUB, (0, 0), 16), Cause::Distance),
        // What is off is not what the instruction did.
        (Row::cfa(ADD, (4, 0), 16), Cause::Distance),
    ];

    for (number, (row, cause)) in all.iter().enumerate() {
        assert_eq!(row.cause(), *cause, "{number}");
    }

    let jump = |row: Row| Row {
        is_jump_target: true,
        ..row
    };

    // Behind a jump the instruction before has not been executed, so it is not to blame.
    assert_eq!(jump(Row::cfa(PUSH, (1, 0), -8)).cause(), Cause::Way);

    let by_rbp = |row: Row| Row {
        rule: Rule::call(rule::Value::reg(Reg::Rbp, 16)),
        ..row
    };

    // A CFA by rbp goes wrong when rbp is popped, not when rsp moves.
    assert_eq!(by_rbp(Row::cfa(POP, (1, 0), 8)).cause(), Cause::BaseLost);
    assert_eq!(by_rbp(Row::cfa(PUSH, (1, 0), 8)).cause(), Cause::Distance);

    let lost = Row {
        found: Value::Computed,
        ..by_rbp(Row::cfa(PUSH, (1, 0), 8))
    };
    assert_eq!(lost.cause(), Cause::Base);
}

#[test]
fn a_registers_rule_names_the_cause() {
    let slot = rule::Value::at_cfa(-16);
    let (same, lost) = (rule::Value::Same, rule::Value::Undefined);
    let none = rule::Value::Unspecified;
    let by_rbp = rule::Value::Expression(Expression {
        start: 2,
        len: 2,
        load: true,
    });

    // The address, what the row says of the register, and what would be right.
    let all = [
        (Row::register(MOV, 3, same, lost), Cause::Changed),
        // Its rule is taken back where it is still to be popped, behind another register.
        (
            Row {
                start: 0,
                ..Row::register(POPS, 0, same, slot)
            },
            Cause::Early,
        ),
        // There never was one.
        (
            Row {
                start: 0,
                ..Row::register(POPS, 2, same, slot)
            },
            Cause::Changed,
        ),
        (Row::register(MOV, 3, none, lost), Cause::Changed),
        (Row::register(MOV, 3, slot, same), Cause::NotSaved),
        (Row::register(MOV, 3, slot, lost), Cause::Slot),
        // rbp has its caller's value again.
        (Row::register(POP, 1, by_rbp, same), Cause::BaseLost),
        (Row::register(MOV, 3, by_rbp, same), Cause::NotSaved),
    ];

    for (number, (row, cause)) in all.iter().enumerate() {
        assert_eq!(row.cause(), *cause, "{number}");
    }

    // A register that is changed is that, however the code got there.
    let jump = |row: Row| Row {
        is_jump_target: true,
        ..row
    };
    assert_eq!(
        jump(Row::register(MOV, 3, same, lost)).cause(),
        Cause::Changed
    );
    assert_eq!(jump(Row::register(MOV, 3, slot, same)).cause(), Cause::Way);

    let address = Row {
        subject: Subject::ReturnAddress,
        ..Row::cfa(MOV, (3, 0), 0)
    };
    assert_eq!(address.cause(), Cause::ReturnAddress);
}

#[test]
fn causes_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> = Cause::ALL.map(Cause::as_str).into();
    let texts: std::collections::BTreeSet<_> = Cause::ALL.map(Cause::description).into();
    assert_eq!(
        (names.len(), texts.len()),
        (Cause::ALL.len(), Cause::ALL.len())
    );
}

/// The hash of a function does not depend on where it and what it refers to are.
#[test]
fn a_shape_is_the_same_where_code_was_moved() {
    let shape = |code: &[u8]| shape(&file(code), &(START..START + code.len() as u64));
    // lea 0x100(%rip), %rax; call; mov $0x400000, %edi; mov $5, %esi
    let one = [
        &[0x48, 0x8d, 5, 0, 1, 0, 0, 0xe8, 1, 2, 0, 0][..],
        &[0xbf, 0, 0, 0x40, 0, 0xbe, 5, 0, 0, 0],
    ]
    .concat();
    let mut moved = one.clone();
    (moved[3], moved[8], moved[15]) = (8, 9, 0x41);
    assert_eq!(shape(&one), shape(&moved));
    // Another number, another register, another length.
    for (at, byte) in [(18, 6), (17, 0xbf), (2, 0x0d)] {
        let mut other = one.clone();
        other[at] = byte;
        assert_ne!(shape(&one), shape(&other), "{at}");
    }
    assert_ne!(shape(&one), shape(&one[..17]));
    // It is in files of users: it may not change.
    assert_eq!(format!("{:016x}", shape(PUSH)), "c484625d632c3079");
}

#[test]
fn apx_is_known_by_its_prefixes() {
    for apx in [
        &[0xd5, 0x10, 0x89, 0xc7][..],
        &[0x66, 0xd5, 0x10],
        &[0x62, 0xf4, 0x5c],
    ] {
        assert!(is_apx(apx), "{apx:x?}");
    }
    // AVX-512, whatever else is no instruction, and nothing.
    for other in [
        &[0x62, 0xf1, 0x7c][..],
        &[0x06],
        &[0x66, 0x66],
        &[0x62],
        &[],
    ] {
        assert!(!is_apx(other), "{other:x?}");
    }
}

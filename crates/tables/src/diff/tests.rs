//! Pairs of rules, and what the comparison says of them.

use super::cause::{Cause, Causes, Gravity};
use super::code::CodeScan;
use super::compare::{Function, RowContext, RowDifference, RowSide, compare};
use super::format::Format;
use super::normal::normal;
use crate::file::File;
use std::cell::OnceCell;
use std::sync::Arc;
use unwind_sim_unwind::derived::Loss;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::rule::{Base, Expression, Rule, RuleKind, Value};
use unwind_sim_unwind::sframe::Version;

/// The address of the code.
const START: u64 = 0x1000;

/// A shared object with only this code, at [`START`].
fn file(code: &[u8]) -> File {
    let mut bytes = vec![0; 64 + 56];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0, 1]);
    put(32, &64_u64.to_le_bytes());
    put(52, &[64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    put(64, &[1, 0, 0, 0, 5, 0, 0, 0]);
    for (i, word) in [120, START, START, code.len() as u64, code.len() as u64, 1]
        .into_iter()
        .enumerate()
    {
        put(72 + 8 * i, &word.to_le_bytes());
    }
    bytes.extend_from_slice(code);
    File::read("code", Arc::new(bytes)).expect("an ELF file")
}

fn found_in(code: &[u8], offset: u64, rules: [Rule; 2], formats: [Format; 2]) -> RowDifference {
    let file = file(code);
    let function = Function {
        file: &file,
        range: START..START + code.len() as u64,
        code: OnceCell::new(),
    };
    let side = |i: usize| RowSide {
        rule: normal(&rules[i], &[]),
        format: formats[i],
        section: &[],
    };
    let place = RowContext {
        address: START + offset,
        function: &function,
    };
    let found = compare(&side(0), &side(1), &place);
    let back = compare(&side(1), &side(0), &place);
    assert_eq!(found, back, "the order does not matter");
    found
}

const BOTH_DWARF: [Format; 2] = [Format::Dwarf; 2];

/// `nop; ret`
const NOTHING: &[u8] = &[0x90, 0xc3];

fn causes(a: Rule, b: Rule) -> Vec<Cause> {
    let found = found_in(NOTHING, 1, [a, b], BOTH_DWARF);
    found.causes.iter().collect()
}

fn rsp(offset: i32) -> Rule {
    Rule::call(Value::reg(Reg::Rsp, offset))
}

fn rbp(offset: i32) -> Rule {
    let saved = Value::at_cfa(-16);
    Rule::call(Value::reg(Reg::Rbp, offset)).with_saved(Reg::Rbp, saved)
}

fn load(reg: Reg, offset: i32) -> Value {
    Value::Load {
        base: Base::Reg(reg),
        offset,
        addend: 0,
    }
}

#[test]
fn the_same_in_other_words_is_no_difference() {
    // Each pair says the same in two ways.
    let by_register = rbp(16).with_saved(Reg::Rbp, load(Reg::Rbp, 0));
    assert_eq!(causes(rbp(16), by_register), []);

    // rsp of the caller is the CFA if there is no rule for it.
    let by_sp = Rule {
        sp: Value::reg(Reg::Rsp, 8),
        ..rsp(8)
    };
    assert_eq!(causes(rsp(8), by_sp), []);

    // A register that is its own value is unchanged.
    let by_itself = rsp(8).with_saved(Reg::Rbx, Value::reg(Reg::Rbx, 0));
    assert_eq!(
        causes(rsp(8).with_saved(Reg::Rbx, Value::Same), by_itself),
        []
    );

    // cfa - 16 is rbp's own value where the CFA is rbp + 16.
    let own = Value::Offset {
        base: Base::Cfa,
        offset: -16,
    };
    let unchanged = rbp(16).with_saved(Reg::Rbp, Value::Same);
    assert_eq!(causes(unchanged, rbp(16).with_saved(Reg::Rbp, own)), []);

    // The return address lies at the CFA minus 8, which is rsp here.
    let ra = Rule {
        ra: load(Reg::Rsp, 0),
        ..rsp(8)
    };
    assert_eq!(causes(rsp(8), ra), []);
}

#[test]
fn another_offset_is_a_contradiction() {
    assert_eq!(causes(rsp(8), rsp(16)), [Cause::CfaOffset]);
    let loaded = |offset| Rule::call(load(Reg::R10, offset));
    assert_eq!(causes(loaded(0), loaded(8)), [Cause::CfaOffset]);
    assert_eq!(Cause::CfaOffset.gravity(), Gravity::Contradiction);
}

#[test]
fn another_register_is_a_contradiction_only_if_the_code_says_so() {
    // push %rbp; mov %rsp,%rbp; sub $16,%rsp; nop
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x90];
    let mut own = rsp(32);
    own.saved = rbp(16).saved;
    let causes = |rule: Rule, offset| -> Vec<Cause> {
        let found = found_in(&code, offset, [rule, rbp(16)], BOTH_DWARF);
        found.causes.iter().collect()
    };
    assert_eq!(causes(own, 8), [Cause::CfaRegister]);
    assert_eq!(causes(own, 4), [Cause::CfaDistance]);
    own.cfa = Value::reg(Reg::Rsp, 16);
    assert_eq!(causes(own, 4), [Cause::CfaRegister]);
    assert_eq!(causes(own, 8), [Cause::CfaDistance]);
    // In the middle of an instruction nothing is known.
    assert_eq!(causes(own, 5), [Cause::CfaRegister]);
}

#[test]
fn a_cfa_of_the_callers_register_is_a_contradiction() {
    assert_eq!(causes(rsp(8), rbp(16))[0], Cause::CfaUnchanged);
    let loaded = Rule::call(load(Reg::Rbp, -8)).with_saved(Reg::Rbp, Value::at_cfa(-16));
    assert_eq!(causes(rsp(8), loaded)[0], Cause::CfaUnchanged);
    // A register that the caller does not keep may hold the CFA.
    assert_eq!(
        causes(rsp(8), Rule::call(Value::reg(Reg::R10, 0))),
        [Cause::CfaRegister]
    );
}

#[test]
fn a_saved_register_is_unchanged_until_it_is_written() {
    // push %rbx; mov %edi,%ebx; nop
    let code = [0x53, 0x89, 0xfb, 0x90];
    let saved = rsp(16).with_saved(Reg::Rbx, Value::at_cfa(-16));
    let causes = |offset| -> Vec<Cause> {
        let found = found_in(&code, offset, [rsp(16), saved], BOTH_DWARF);
        found.causes.iter().collect()
    };
    assert_eq!(causes(1), [Cause::RegisterForm]);
    assert_eq!(causes(3), [Cause::Register]);
}

#[test]
fn lost_is_not_unchanged() {
    let lost = rsp(8).with_saved(Reg::R12, Value::Undefined);
    assert_eq!(causes(rsp(8), lost), [Cause::RegisterLost]);
    assert_eq!(causes(rsp(8), Rule::OUTERMOST), [Cause::Root]);
    assert_eq!(causes(Rule::OUTERMOST, Rule::OUTERMOST), []);
}

#[test]
fn what_a_format_cannot_say_is_a_loss() {
    let formats = [Format::Dwarf, Format::Sframe(Version::V3)];
    let saved = rsp(16).with_saved(Reg::Rbx, Value::at_cfa(-16));
    let found = found_in(NOTHING, 1, [saved, rsp(16)], formats);
    let lost = RowDifference {
        causes: Causes::NONE,
        loss: Some(Loss::CalleeSaved),
    };
    assert_eq!(found, lost);
    let signal = Rule {
        kind: RuleKind::Signal,
        ..rsp(8)
    };
    let found = found_in(NOTHING, 1, [signal, rsp(8)], formats);
    assert_eq!(found.causes, Causes::one(Cause::Signal));
    let formats = [Format::Dwarf, Format::Sframe(Version::V2)];
    let found = found_in(NOTHING, 1, [signal, rsp(8)], formats);
    assert_eq!(
        (found.causes, found.loss),
        (Causes::NONE, Some(Loss::SignalFrame))
    );
}

#[test]
fn an_expression_is_compared_with_nothing_but_itself() {
    let expression = Value::Expression(Expression {
        start: 0,
        len: 0,
        load: false,
    });
    assert_eq!(causes(Rule::call(expression), rsp(8)), [Cause::CfaForm]);
    assert_eq!(causes(Rule::call(expression), Rule::call(expression)), []);
    let register = rsp(8).with_saved(Reg::R15, expression);
    assert_eq!(causes(register, rsp(8)), [Cause::RegisterForm]);
}

#[test]
fn older_versions_of_sframe_can_say_less() {
    let v1 = Format::Sframe(Version::V1);
    let v3 = Format::Sframe(Version::V3);
    let r10 = Rule::call(Value::reg(Reg::R10, 0));
    assert_eq!(
        (v1.loss(&r10), v3.loss(&r10)),
        (Some(Loss::CfaRegister), None)
    );
    let root = Rule::OUTERMOST;
    assert_eq!(
        (v1.loss(&root), v3.loss(&root)),
        (Some(Loss::RaUndefined), None)
    );
    let ra = Rule {
        ra: Value::at_cfa(-16),
        ..rsp(8)
    };
    assert_eq!((v1.loss(&ra), v3.loss(&ra)), (Some(Loss::RaSlot), None));
    assert_eq!((v1.loss(&rbp(16)), v3.loss(&rbp(16))), (None, None));
    assert_eq!(Format::Orc.loss(&ra), Some(Loss::RaSlot));
    assert_eq!(Format::Dwarf.loss(&ra), None);
}

/// Padding behind a return is not executed: what a table says of it, or does not say, is no difference.
#[test]
fn padding_behind_what_ends_a_way_is_not_code() {
    let code = |code: &[u8]| {
        let range = START..START + code.len() as u64;
        let found = CodeScan::of(&file(code), &range);
        let parts = found.without_padding(&range).into_iter();
        parts
            .map(|part| (part.start - START, part.end - START))
            .collect::<Vec<_>>()
    };
    // `ret; nopw; ret; int3; int3`
    let nopw = [0x66, 0x0f, 0x1f, 0x44, 0, 0];
    let all = [&[0xc3][..], &nopw, &[0xc3, 0xcc, 0xcc]].concat();
    assert_eq!(code(&all), [(0, 1), (7, 8)]);
    // Code runs into no-operations behind a call, and behind anything but an end.
    assert_eq!(code(&[0xe8, 0, 0, 0, 0, 0x90, 0xc3]), [(0, 7)]);
    assert_eq!(code(&[0x31, 0xc0, 0x90, 0x90]), [(0, 4)]);
    // A jump leads to the second of two: `je 4; ret; nop; nop; ret`.
    assert_eq!(code(&[0x74, 2, 0xc3, 0x90, 0x90, 0xc3]), [(0, 3), (4, 6)]);
}

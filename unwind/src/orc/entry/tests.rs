//! Conversion between entries and rules, register by register, and rules without an entry.

use super::*;
use crate::rule::Expression;
use alloc::string::ToString;

const LOAD: SpIndirect = SpIndirect::LoadThenAdd;
const EXPRESSION: Value = Value::Expression(Expression {
    start: 0,
    len: 1,
    load: false,
});

fn load(reg: Reg, offset: i32, addend: i32) -> Value {
    Value::Load {
        base: Base::Reg(reg),
        offset,
        addend,
    }
}

#[test]
fn each_base_of_the_cfa_is_a_rule_and_back() {
    let cases = [
        (OrcReg::Sp, 16, Value::reg(Reg::Rsp, 16)),
        (OrcReg::Bp, -16, Value::reg(Reg::Rbp, -16)),
        (OrcReg::SpIndirect, 8, load(Reg::Rsp, 0, 8)),
        (OrcReg::BpIndirect, -8, load(Reg::Rbp, -8, 0)),
        (OrcReg::R10, 0, Value::reg(Reg::R10, 0)),
        (OrcReg::R13, 0, Value::reg(Reg::R13, 0)),
        (OrcReg::Di, 0, Value::reg(Reg::Rdi, 0)),
        (OrcReg::Dx, 0, Value::reg(Reg::Rdx, 0)),
        (OrcReg::Ax, 0, Value::reg(Reg::Rax, 0)),
    ];

    // In both directions: each base has one rule, and each such rule one entry.
    for (sp_reg, sp_offset, cfa) in cases {
        let entry = Entry {
            sp_reg,
            sp_offset,
            ..Entry::NULL
        };

        let rule = Rule::call(cfa).with_saved(Reg::Rbp, Value::Same);
        assert_eq!(entry.rule(LOAD), Ok(rule), "{entry}");
        assert_eq!(Entry::from_rule(&rule), Ok(entry), "{entry}");
    }

    let indirect = Entry {
        sp_reg: OrcReg::SpIndirect,
        ..Entry::NULL
    };
    // Before 5.12 the offset was added before the load.
    let at_offset = indirect.rule(SpIndirect::LoadAtOffset).map(|r| r.cfa);
    assert_eq!(at_offset, Ok(load(Reg::Rsp, 8, 0)));
}

#[test]
fn each_way_to_rbp_is_a_rule_and_back() {
    for (bp_reg, bp_offset, value) in [
        (OrcReg::Undefined, 0, Value::Same),
        (OrcReg::PrevSp, -16, Value::at_cfa(-16)),
        (OrcReg::Bp, 8, load(Reg::Rbp, 8, 0)),
    ] {
        let entry = Entry {
            bp_reg,
            bp_offset,
            ..Entry::NULL
        };
        let rule = Rule::call(Value::reg(Reg::Rsp, 8)).with_saved(Reg::Rbp, value);
        assert_eq!(entry.rule(LOAD), Ok(rule), "{entry}");
        assert_eq!(Entry::from_rule(&rule), Ok(entry), "{entry}");
    }
}

#[test]
fn each_type_is_a_kind_and_back() {
    for (kind, signal, rule) in [
        (EntryType::Call, false, RuleKind::Call),
        (EntryType::Call, true, RuleKind::Signal),
        (EntryType::Regs, true, RuleKind::PtRegs),
        (EntryType::RegsPartial, true, RuleKind::Iret),
    ] {
        let entry = Entry {
            kind,
            signal,
            ..Entry::NULL
        };

        let found = entry.rule(LOAD).expect("a rule");
        assert_eq!(found.kind, rule);
        assert_eq!(Entry::from_rule(&found), Ok(entry));
    }

    // The two entries without a caller.
    let end = Entry {
        kind: EntryType::EndOfStack,
        ..Entry::UNDEFINED
    };
    assert_eq!(end.rule(LOAD), Ok(Rule::OUTERMOST));
    assert_eq!(Entry::from_rule(&Rule::OUTERMOST), Ok(end));

    let lost = Entry::UNDEFINED.rule(LOAD).expect("a rule");
    let undefined = (Value::Undefined, Value::Undefined, Value::Undefined);
    assert_eq!((lost.cfa, lost.ra, lost.sp), undefined);
    assert_eq!(lost.saved, [Value::Undefined; 6]);
}

#[test]
fn entries_without_a_meaning_have_no_rule() {
    for sp_reg in [OrcReg::Undefined, OrcReg::PrevSp] {
        let entry = Entry {
            sp_reg,
            ..Entry::NULL
        };
        assert_eq!(entry.rule(LOAD), Err("unknown SP base reg"));
    }
    for bp_reg in [OrcReg::Sp, OrcReg::BpIndirect, OrcReg::R10, OrcReg::Ax] {
        let entry = Entry {
            bp_reg,
            ..Entry::NULL
        };
        assert_eq!(entry.rule(LOAD), Err("unknown BP base reg"));
    }
}

#[test]
fn a_loss_that_no_entry_can_express_is_named() {
    let plain = Rule::call(Value::reg(Reg::Rsp, 8));
    let cfa = |cfa| Rule { cfa, ..plain };
    let ra = |ra| Rule { ra, ..plain };
    let rbp = |value| plain.with_saved(Reg::Rbp, value);

    let signal = Rule {
        kind: RuleKind::Signal,
        ra: Value::at_cfa(-16),
        ..plain
    };

    // `sp_offset` and `bp_offset` have 16 bits, with a sign.
    let max = i32::from(i16::MAX);

    let cases = [
        (cfa(Value::reg(Reg::Rbx, 8)), Loss::CfaRegister),
        (cfa(Value::reg(Reg::R10, 8)), Loss::CfaOffset),
        (cfa(Value::reg(Reg::Rsp, max + 1)), Loss::CfaOffset),
        (cfa(load(Reg::Rsp, 8, 0)), Loss::CfaLoad),
        (cfa(load(Reg::Rbp, 8, 8)), Loss::CfaLoad),
        (cfa(load(Reg::Rbx, 0, 0)), Loss::CfaLoad),
        (cfa(EXPRESSION), Loss::CfaExpression),
        (cfa(Value::Undefined), Loss::CfaUndefined),
        (ra(Value::at_cfa(-16)), Loss::RaSlot),
        (ra(EXPRESSION), Loss::RaExpression),
        (ra(Value::reg(Reg::Rdx, 0)), Loss::RaRegister),
        (ra(Value::Undefined), Loss::RaRegister),
        (signal, Loss::SignalFrame),
        (
            Rule {
                sp: Value::reg(Reg::R8, 0),
                ..plain
            },
            Loss::SpRule,
        ),
        (rbp(Value::Undefined), Loss::RbpUndefined),
        (rbp(EXPRESSION), Loss::RbpExpression),
        (rbp(load(Reg::Rbx, 8, 0)), Loss::RbpRule),
        (rbp(load(Reg::Rbp, 8, 8)), Loss::RbpRule),
        (rbp(Value::reg(Reg::Rbx, 0)), Loss::RbpRule),
        (rbp(Value::at_cfa(max + 1)), Loss::RbpOffset),
    ];

    // The loss is named by the first part that has no form.
    for (rule, loss) in cases {
        assert_eq!(Entry::from_rule(&rule), Err(loss), "{rule:?}");
    }

    // The largest and the smallest offset still fit.
    for most in [max, i32::from(i16::MIN)] {
        assert!(Entry::from_rule(&cfa(Value::reg(Reg::Rsp, most))).is_ok());
        assert!(Entry::from_rule(&rbp(Value::at_cfa(most))).is_ok());
    }

    // If all registers are saved, return address and sp are always at the same offsets.
    let regs = Rule {
        kind: RuleKind::PtRegs,
        ra: Value::Undefined,
        ..plain
    };
    assert!(Entry::from_rule(&regs).is_ok());
}

#[test]
fn entries_are_shown_as_objtool_shows_them() {
    let entry = |sp_reg, bp_reg| Entry {
        sp_reg,
        bp_reg,
        bp_offset: -16,
        ..Entry::NULL
    };

    // As objtool writes them.
    let bases = [
        (OrcReg::Undefined, "(und)"),
        (OrcReg::PrevSp, "prevsp+8"),
        (OrcReg::Bp, "bp+8"),
        (OrcReg::Sp, "sp+8"),
        (OrcReg::BpIndirect, "(bp+8)"),
        (OrcReg::SpIndirect, "(sp)+8"),
        (OrcReg::R10, "r10+8"),
        (OrcReg::R13, "r13+8"),
        (OrcReg::Di, "di+8"),
        (OrcReg::Dx, "dx+8"),
        (OrcReg::Ax, "ax+8"),
    ];
    for (reg, text) in bases {
        let shown = entry(reg, OrcReg::PrevSp).to_string();
        let expected = alloc::format!("type:call sp:{text} bp:prevsp-16 signal:0");
        assert_eq!(shown, expected);
    }
    let kind = |kind| {
        let signal = true;
        Entry {
            kind,
            signal,
            ..Entry::NULL
        }
        .to_string()
    };
    assert_eq!(kind(EntryType::Undefined), "(und)");
    assert_eq!(kind(EntryType::EndOfStack), "type:end");
    let rest = "sp:sp+8 bp:(und) signal:1";
    assert_eq!(kind(EntryType::Regs), alloc::format!("type:regs {rest}"));
    let partial = alloc::format!("type:regs (partial) {rest}");
    assert_eq!(kind(EntryType::RegsPartial), partial);
}

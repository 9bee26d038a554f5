//! The rows of the tables above, one by one, and the writers against them.

use super::*;
use crate::write::Writer;
use crate::write::eh_frame::EhFrameWriter;
use crate::write::orc::OrcWriter;
use crate::write::sframe::SframeWriter;

fn call(cfa: Value) -> Rule {
    Rule::call(cfa)
}

fn load(base: Base, offset: i32, addend: i32) -> Value {
    Value::Load {
        base,
        offset,
        addend,
    }
}

/// Many rules: every kind of frame with every kind of value in every column that matters.
fn rules() -> Vec<Rule> {
    let regs = [Reg::Rsp, Reg::Rbp, Reg::R10, Reg::Rax, Reg::R11].map(Base::Reg);
    let bases = || regs.into_iter().chain([Base::Cfa]);
    // ORC's offsets end at 0x7fff.
    let offsets = [0, 8, -8, -16, 0x7fff, 0x8000, 1 << 27];

    // Every base with every offset, as an address and loaded with and without an addend.
    let mut values = vec![Value::Undefined, Value::Same, Value::Unspecified];
    for base in bases() {
        for offset in offsets {
            values.push(Value::Offset { base, offset });
            values.push(load(base, offset, 0));
            values.push(load(base, 0, offset));
        }
    }

    let kinds = [
        RuleKind::Call,
        RuleKind::Signal,
        RuleKind::PtRegs,
        RuleKind::Iret,
    ];
    let mut all = vec![Rule::OUTERMOST];
    let plain = call(Value::reg(Reg::Rsp, 8));

    // Each value in each column by itself, the others as in a usual row.
    for kind in kinds {
        for value in &values {
            all.push(Rule {
                kind,
                ..call(*value)
            });
            all.push(Rule {
                kind,
                ra: *value,
                ..plain
            });
            all.push(Rule {
                kind,
                sp: *value,
                ..plain
            });
            all.push(Rule { kind, ..plain }.with_saved(Reg::Rbp, *value));
        }
    }
    all
}

fn writes(rule: &Rule, target: Target) -> bool {
    match target {
        Target::Sframe(version) => SframeWriter::new(version).row(rule).is_ok(),
        Target::Orc(encoding) => OrcWriter::new(encoding, 0..0).row(rule).is_ok(),
        Target::EhFrame => EhFrameWriter::new(&[]).row(rule).is_ok(),
    }
}

/// Expressions cannot hold these offsets in a form that readers simplify.
fn is_wide(rule: &Rule) -> bool {
    let wide = |value| match value {
        Value::Offset {
            base: Base::Reg(_),
            offset,
        } => offset >= 1 << 27,
        Value::Load { offset, addend, .. } => offset.max(addend) >= 1 << 27,
        _ => false,
    };
    wide(rule.cfa) || wide(rule.ra) || wide(rule.sp) || rule.saved.into_iter().any(wide)
}

#[test]
fn what_can_be_expressed_is_written_and_nothing_else() {
    let rules = rules();
    assert!(rules.len() > 2000, "{}", rules.len());

    // The writers must take exactly what the table of the format allows, no less and no more.
    for target in Target::ALL {
        let mut expressed = 0;
        for rule in &rules {
            if target == Target::EhFrame && is_wide(rule) {
                continue;
            }

            // pt_regs rules take every other register from memory.
            let kind = rule.kind;
            let plain = Rule {
                kind,
                ..call(rule.cfa)
            };
            if matches!(kind, RuleKind::PtRegs | RuleKind::Iret) && *rule != plain {
                continue;
            }

            let name = target.as_str();
            assert_eq!(
                writes(rule, target),
                expressible(rule, target),
                "{name}: {rule}"
            );
            expressed += u32::from(expressible(rule, target));
        }

        // If nothing could be expressed, the test would prove nothing.
        assert!(expressed > 5, "{}", target.as_str());
    }
}

#[test]
fn each_version_of_sframe_expresses_its_column_of_the_table() {
    let versions = [Version::V1, Version::V2, Version::V3].map(Target::Sframe);
    let (sp, rbp) = (Base::Reg(Reg::Rsp), Base::Reg(Reg::Rbp));
    let plain = call(Value::reg(Reg::Rsp, 8));
    let [y, n] = [true, false];

    // One rule for each line of the table in the documentation above.
    for (rule, expected) in [
        (plain, [y, y, y]),
        (call(Value::reg(Reg::Rbp, 16)), [y, y, y]),
        (call(Value::reg(Reg::R10, 0)), [n, n, y]),
        (call(load(rbp, -8, 0)), [n, n, y]),
        (call(load(sp, 0, 8)), [n, n, n]),
        (
            Rule {
                ra: load(Base::Cfa, -16, 0),
                ..plain
            },
            [n, n, y],
        ),
        (
            Rule {
                ra: load(sp, 168, 0),
                ..plain
            },
            [n, n, y],
        ),
        (
            Rule {
                ra: Value::reg(Reg::Rdx, 0),
                ..plain
            },
            [n, n, y],
        ),
        (
            Rule {
                ra: Value::Undefined,
                ..plain
            },
            [n, y, y],
        ),
        (Rule::OUTERMOST, [n, y, y]),
        (plain.with_saved(Reg::Rbp, Value::at_cfa(-16)), [y, y, y]),
        (plain.with_saved(Reg::Rbp, load(rbp, 0, 0)), [n, n, y]),
        (
            plain.with_saved(Reg::Rbp, Value::reg(Reg::Rcx, 0)),
            [n, n, y],
        ),
        (plain.with_saved(Reg::Rbp, Value::Undefined), [n, n, n]),
        (
            plain.with_saved(
                Reg::Rbp,
                Value::Offset {
                    base: Base::Cfa,
                    offset: -16,
                },
            ),
            [n, n, n],
        ),
        (
            Rule {
                sp: Value::reg(Reg::Rsp, 0),
                ..plain
            },
            [n, n, n],
        ),
        (
            Rule {
                kind: RuleKind::Signal,
                ..plain
            },
            [n, n, y],
        ),
        (
            Rule {
                kind: RuleKind::PtRegs,
                ..plain
            },
            [n, n, n],
        ),
    ] {
        assert_eq!(
            versions.map(|to| expressible(&rule, to)),
            expected,
            "{rule}"
        );
    }
}

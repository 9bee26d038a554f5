//! Written programs, read by gimli's twin in the heart: the same rules come back.

use super::*;
use std::sync::Arc;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::derived::simplify;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind};
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::row::TableKind;
use unwind_sim_unwind::rule::Base;

fn load(base: Base, offset: i32, addend: i32) -> Value {
    Value::Load {
        base,
        offset,
        addend,
    }
}

fn offset(base: Base, offset: i32) -> Value {
    Value::Offset { base, offset }
}

/// Rules with every kind of CFA and column, aligned and not.
fn rules() -> Vec<Rule> {
    let rbp = Base::Reg(Reg::Rbp);
    let call = |cfa| Rule::call(cfa);
    let mut all = vec![call(Value::reg(Reg::Rsp, 8))];
    for cfa in [
        Value::reg(Reg::Rsp, 16),
        Value::reg(Reg::Rbp, 16),
        Value::reg(Reg::Rbp, 100_000),
        Value::reg(Reg::Rsp, -64),
        Value::reg(Reg::R10, -3),
        load(rbp, -8, 0),
        load(Base::Reg(Reg::Rsp), 0, 24),
        Value::reg(Reg::Rsp, 24),
    ] {
        all.push(call(cfa));
    }

    // Each value in the columns of rbx, rsp and the return address.
    for value in [
        Value::Undefined,
        Value::Same,
        Value::at_cfa(-16),
        Value::at_cfa(24),
        Value::at_cfa(-17),
        offset(Base::Cfa, -40),
        offset(Base::Cfa, 5),
        offset(rbp, 0),
        offset(rbp, -300),
        load(rbp, 1 << 20, 0),
        load(rbp, 8, 16),
        Value::Unspecified,
    ] {
        let rule = call(Value::reg(Reg::Rsp, 32));
        all.push(rule.with_saved(Reg::Rbx, value));
        all.push(Rule { sp: value, ..rule });
        if !matches!(value, Value::Undefined | Value::Same | Value::Unspecified) {
            all.push(Rule { ra: value, ..rule });
        }
    }

    all.push(Rule::OUTERMOST);
    all.push(call(Value::reg(Reg::Rsp, 8)));
    all
}

/// The rows of the one function in `sections`.
fn read(sections: &[NewSection], text: std::ops::Range<u64>) -> Vec<(u64, Rule)> {
    let kind = |name| match name {
        ".eh_frame" => SectionKind::EhFrame,
        _ => SectionKind::EhFrameHdr,
    };

    let sections: Vec<Section> = sections
        .iter()
        .map(|section| Section {
            kind: kind(section.name),
            address: section.address,
            data: Bytes::from_vec(section.bytes.clone()),
        })
        .collect();

    let data = sections.last().expect("a table").data.to_vec();
    let image = Arc::new(Image::new(ImageParts {
        text: vec![text],
        sections,
        ..ImageParts::default()
    }));

    let mut cache = Cache::new();
    let units: Vec<_> = dwarf::units(&image, TableKind::EhFrame).collect();
    assert_eq!(units.len(), 1);

    let unit = units[0].as_ref().expect("an FDE").offset;
    let unit = dwarf::compile_unit(&image, TableKind::EhFrame, unit, &mut cache);
    let rows = cache.unit_rows(unit.expect("a function"));
    let rows = rows.map(|id| (cache.source(id).start, simplify(cache.rule(id), &data)));
    rows.collect()
}

#[test]
fn every_rule_comes_back() {
    for signal in [false, true] {
        // Signal frames have a CIE of their own.
        let kind = if signal {
            RuleKind::Signal
        } else {
            RuleKind::Call
        };
        let rules = rules().into_iter().map(|rule| match rule.kind {
            RuleKind::Outermost => rule,
            _ => Rule { kind, ..rule },
        });

        let mut writer = EhFrameWriter::new(&[]);
        let rows: Vec<(u32, Rule)> = rules
            .enumerate()
            .map(|(i, rule)| (i as u32 * 90, rule))
            .collect();

        for (_, rule) in &rows {
            writer
                .row(rule)
                .unwrap_or_else(|lost| panic!("{rule}: {lost:?}"));
        }

        let function = Function {
            start: 0x1000,
            size: 0x10_0000,
            repeat: None,
            signal,
            rows: &rows,
        };
        writer.function(&function).expect("a function");
        let sections = writer.finish(0x20_0004).expect("sections");

        let found = read(&sections, 0x1000..0x20_0000);
        assert_eq!(found.len(), rows.len());
        for ((at, rule), (start, found)) in rows.iter().zip(found) {
            assert_eq!(u64::from(*at) + 0x1000, start);
            if rule.kind == RuleKind::Outermost {
                assert_eq!(found.kind, RuleKind::Outermost);
                continue;
            }
            // The state after an outermost row keeps nothing of it.
            assert_eq!(found, simplify(rule, &[]), "{rule}");
        }
    }
}

#[test]
fn one_unaligned_offset_needs_the_fine_alignment() {
    let call = Rule::call(Value::reg(Reg::Rsp, 8));
    for rule in [
        Rule::call(Value::reg(Reg::R10, -3)),
        call.with_saved(Reg::R12, Value::at_cfa(-17)),
        call.with_saved(Reg::R12, offset(Base::Cfa, 4)),
    ] {
        let mut writer = EhFrameWriter::new(&[]);
        let function = Function {
            start: 0x1000,
            size: 16,
            repeat: None,
            signal: false,
            rows: &[(0, rule)],
        };
        writer.function(&function).expect("a function");
        let sections = writer.finish(0x20_0000).expect("sections");
        assert_eq!(read(&sections, 0x1000..0x2000), [(0x1000, rule)]);
    }
}

#[test]
fn what_no_instruction_can_say_is_refused() {
    let writer = EhFrameWriter::new(&[]);
    let call = Rule::call(Value::reg(Reg::Rsp, 8));
    let rsp = Base::Reg(Reg::Rsp);

    for (rule, reason) in [
        (Rule::call(Value::Undefined), "cfa-undefined"),
        (Rule::call(load(rsp, 0, -8)), "cfa-load"),
        (Rule::call(load(rsp, 1 << 27, 0)), "cfa-load"),
        (
            Rule {
                ra: Value::Unspecified,
                ..call
            },
            "ra-expression",
        ),
        (
            Rule {
                sp: load(Base::Cfa, 0, 8),
                ..call
            },
            "sp-rule",
        ),
        (
            Rule {
                kind: RuleKind::PtRegs,
                ..call
            },
            "signal-frame",
        ),
    ] {
        assert_eq!(
            writer.row(&rule).map_err(LossReason::as_str),
            Err(reason),
            "{rule}"
        );
    }
}

#[test]
fn the_header_finds_every_function() {
    let mut writer = EhFrameWriter::new(&[]);
    let rows = [(0, Rule::call(Value::reg(Reg::Rsp, 8)))];
    for i in 0..5 {
        let function = Function {
            start: 0x1000 + 0x20 * i,
            size: 0x10,
            repeat: None,
            signal: i == 3,
            rows: &rows,
        };
        writer.function(&function).expect("a function");
    }

    let sections = writer.finish(0x8000).expect("sections");
    let [header, table] = &sections[..] else {
        panic!("{} sections", sections.len());
    };

    // Version 1, then `pcrel|sdata4`, `udata4` and `datarel|sdata4`.
    assert_eq!(&header.bytes[..4], [1, 0x1b, 3, 0x3b]);
    assert_eq!(header.bytes[8..12], 5u32.to_le_bytes());

    // Each pair is a start and the address of its FDE, both relative to the header.
    for (i, pair) in header.bytes[12..].as_chunks::<8>().0.iter().enumerate() {
        let word =
            |at: usize| i32::from_le_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
        let address = |at| 0x8000u64.wrapping_add_signed(word(at).into());
        assert_eq!(address(0), 0x1000 + 0x20 * i as u64);
        let fde = (address(4) - table.address) as usize;
        let field = i32::from_le_bytes(*table.bytes[fde + 8..].first_chunk().expect("a field"));
        let start = (table.address + fde as u64 + 8).wrapping_add_signed(field.into());
        assert_eq!(start, address(0));
    }

    assert_eq!(table.bytes[table.bytes.len() - 4..], [0; 4]);
}

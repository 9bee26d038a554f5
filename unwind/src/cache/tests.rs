//! Deduplication, packing, hot addresses, partly known units.

extern crate std;

use super::*;
use crate::regs::Reg;
use crate::rule::{Base, RuleKind, Shape, Value};
use alloc::vec::Vec;

const KEY: UnitKey = UnitKey {
    table: TableKind::EhFrame,
    image: None,
    offset: 0x100,
    block: 0,
};

fn rule(offset: i32) -> Rule {
    Rule::call(Value::reg(Reg::Rsp, offset))
}

fn row(start: u64, rule: Rule) -> NewRow {
    NewRow {
        start,
        offset: 0x100 + start,
        rule,
    }
}

#[test]
fn rows_of_a_unit() {
    let mut cache = Cache::new();
    // Rows before the unit, duplicates and rows out of order are all dropped.
    let rows = [
        row(0x0f, rule(1)),
        row(0x10, rule(8)),
        row(0x10, rule(2)),
        row(0x18, rule(16)),
        row(0x14, rule(3)),
        row(0x20, rule(8)),
    ];

    let reason = Reason::NotAtRoot;
    let unit = cache.add_unit(KEY, 0x10..0x40, rows, Some((0x30, reason)));
    assert_eq!(cache.unit(&KEY), Some(Ok(unit)));
    assert_eq!(cache.unit_range(unit), 0x10..0x40);
    assert_eq!(cache.unit_error(unit), Some((0x30, reason)));
    assert_eq!((cache.unit_len(), cache.unit_rows(unit).len()), (1, 3));

    // With the row's range, which ends where the next one starts.
    let find = |svma| {
        let row = cache.find_row(unit, svma)?;
        let source = cache.source(row);
        Ok((
            *cache.rule(row),
            source.start..source.end,
            source.row_offset,
        ))
    };

    assert_eq!(find(0x0f), Err(Reason::NoRow { pc: 0x0f }));
    assert_eq!(find(0x10), Ok((rule(8), 0x10..0x18, 0x110)));
    assert_eq!(find(0x17), Ok((rule(8), 0x10..0x18, 0x110)));
    assert_eq!(find(0x18), Ok((rule(16), 0x18..0x20, 0x118)));
    assert_eq!(find(0x2f), Ok((rule(8), 0x20..0x40, 0x120)));
    assert_eq!(find(0x30), Err(reason));
    assert_eq!(find(0x40), Err(Reason::NoRow { pc: 0x40 }));

    assert_eq!(cache.rules.len(), 2, "equal rules are kept once");
}

#[test]
fn a_unit_whose_first_row_starts_later() {
    let mut cache = Cache::new();
    let unit = cache.add_unit(KEY, 0x10..0x40, [row(0x20, rule(8))], None);
    assert_eq!(cache.find_row(unit, 0x1f), Err(Reason::NoRow { pc: 0x1f }));
    assert!(cache.find_row(unit, 0x20).is_ok());
}

#[test]
fn forgotten_units_are_compiled_again() {
    let mut cache = Cache::new();
    for offset in 0..1000 {
        let key = UnitKey { offset, ..KEY };
        cache.add_unit(key, 0x10..0x40, [row(0x10, rule(8))], None);
    }
    cache.add_failed_unit(KEY, Reason::NotAtRoot);
    cache.spend(&KEY, 5);
    let before = cache.bytes();
    cache.forget_units();
    assert!(cache.bytes() < before / 50, "{} of {before}", cache.bytes());
    assert_eq!((cache.unit(&KEY), cache.spend(&KEY, 1)), (None, 1));
    let unit = cache.add_unit(
        KEY,
        0x10..0x40,
        [row(0x10, rule(16)), row(0x20, rule(8))],
        None,
    );
    let found = cache.find_row(unit, 0x20).map(|row| *cache.rule(row));
    assert_eq!(found, Ok(rule(8)));
    assert_eq!(cache.rules.len(), 2, "rules are still kept once");
}

#[test]
fn units_that_cannot_be_compiled() {
    let mut cache = Cache::new();
    assert_eq!(cache.unit(&KEY), None);
    cache.add_failed_unit(KEY, Reason::NotAtRoot);
    let other = UnitKey { offset: 1, ..KEY };
    cache.add_failed_unit(other, Reason::RootReached);
    assert_eq!(cache.unit(&KEY), Some(Err(Reason::NotAtRoot)));
    assert_eq!(cache.unit(&other), Some(Err(Reason::RootReached)));
    assert_eq!(cache.unit_len(), 0);
    // The last result counts, and a unit has one place.
    let unit = cache.add_unit(KEY, 0x10..0x40, [row(0x10, rule(8))], None);
    assert_eq!(cache.unit(&KEY), Some(Ok(unit)));
    cache.add_failed_unit(KEY, Reason::NotAtRoot);
    assert_eq!(cache.unit(&KEY), Some(Err(Reason::NotAtRoot)));
    assert_eq!(cache.add_unit(KEY, 0x10..0x40, [], None), unit);
    assert_eq!(cache.unit(&KEY), Some(Ok(unit)));
    assert_eq!((cache.unit_len(), cache.unit_ids.len()), (1, 1));
}

#[test]
fn a_unit_known_in_part_and_then_whole() {
    let mut cache = Cache::new();
    let mut part = cache.begin_unit(KEY, 0x10..0x40);
    part.push(row(0x18, rule(16)));
    let unit = part.finish_part(0x18..0x20);

    let early = cache.find_row(unit, 0x19).expect("a row");
    assert!(cache.knows(unit, 0x18) && cache.knows(unit, 0x1f));
    assert!(!cache.knows(unit, 0x17) && !cache.knows(unit, 0x20));
    assert!(!cache.is_complete(unit));
    assert_eq!(
        (cache.source(early).start, cache.source(early).end),
        (0x18, 0x20)
    );

    // Compiled in full, the unit keeps its id, and the row found first stays valid.
    let rows = [row(0x10, rule(8)), row(0x18, rule(16)), row(0x20, rule(8))];
    let whole = cache.add_unit(KEY, 0x10..0x40, rows, None);
    assert_eq!(whole, unit);
    assert!(cache.is_complete(unit) && cache.knows(unit, 0x10));
    let late = cache.find_row(unit, 0x19).expect("a row");
    assert_eq!(cache.source(early), cache.source(late));

    // The part known was the last row.
    let mut part = cache.begin_unit(UnitKey { offset: 0, ..KEY }, 0x10..0x40);
    part.push(row(0x20, rule(8)));
    let unit = part.finish_part(0x20..0x40);
    let early = cache.find_row(unit, 0x20).expect("a row");

    let rows = [row(0x10, rule(8)), row(0x20, rule(8))];
    cache.add_unit(UnitKey { offset: 0, ..KEY }, 0x10..0x40, rows, None);
    assert_eq!(cache.source(early).end, 0x40);
}

/// Different rules are never confused, whether or not they have a short form.
#[test]
fn the_short_form_tells_rules_apart() {
    // On both sides of what the short form has room for.
    let values = [
        Value::Unspecified,
        Value::Undefined,
        Value::Same,
        Value::at_cfa(-8),
        Value::at_cfa(-16),
        Value::at_cfa(-2016),
        Value::at_cfa(-2024),
        Value::at_cfa(8),
        Value::at_cfa(0),
        Value::at_cfa(-4),
        Value::reg(Reg::Rbx, 0),
        Value::Offset {
            base: Base::Cfa,
            offset: -8,
        },
        Value::Load {
            base: Base::Cfa,
            offset: -8,
            addend: 1,
        },
        Value::Load {
            base: Base::Reg(Reg::Rbx),
            offset: -8,
            addend: 0,
        },
    ];

    let mut rules = Vec::new();
    for value in values {
        rules.extend(Reg::CALLEE_SAVED.map(|reg| rule(8).with_saved(reg, value)));
        rules.push(Rule {
            ra: value,
            ..rule(8)
        });
        rules.push(Rule {
            sp: value,
            ..rule(8)
        });
    }

    let kinds = [
        RuleKind::Signal,
        RuleKind::PtRegs,
        RuleKind::Iret,
        RuleKind::Outermost,
    ];
    rules.extend(kinds.map(|kind| Rule { kind, ..rule(8) }));
    rules.extend([rule(-8), rule(16), Rule::FRAME_POINTER, Rule::OUTERMOST]);
    rules.push(Rule::call(Value::at_cfa(8)));

    // No two rules may have one short form; not every rule has one.
    for a in &rules {
        for b in &rules {
            let (short_a, short_b) = (RuleKey::of(a), RuleKey::of(b));
            let equal = short_a.is_some() && short_a == short_b;
            assert!(!equal || a == b, "{a} and {b}");
        }
    }

    // In a cache, rules that have no short form are told apart, too.
    let mut cache = Cache::new();
    let rows = rules
        .iter()
        .zip(0x10..)
        .map(|(&rule, start)| row(start, rule));
    let unit = cache.add_unit(KEY, 0x10..0x1000, rows, None);
    let kept: Vec<Rule> = cache.unit_rows(unit).map(|row| *cache.rule(row)).collect();
    assert_eq!(kept, rules);
}

#[test]
fn rules_that_take_the_fast_path() {
    let pack = |rule: Rule| RuleKey::of(&rule).map_or(Packed::GENERIC, |key| Packed::of(&key));

    // The slots are in words below the CFA; 0 stands for a register that is not saved.
    let parts = |rule| {
        let packed = pack(rule);
        (
            packed.shape(),
            packed.cfa_offset(),
            [0, 1, 2, 3, 4, 5].map(|index| packed.slot(index)),
        )
    };

    assert_eq!(parts(rule(24)), (Shape::Rsp, 24, [0; 6]));
    assert_eq!(parts(rule(0x1fff8)), (Shape::Rsp, 0x1fff8, [0; 6]));
    assert_eq!(
        parts(Rule::FRAME_POINTER),
        (Shape::Rbp, 16, [0, 2, 0, 0, 0, 0])
    );

    // The largest slot that the short form has room for.
    let saved = Rule::call(Value::reg(Reg::Rbp, 16))
        .with_saved(Reg::Rbx, Value::Same)
        .with_saved(Reg::R15, Value::at_cfa(-2016));
    assert_eq!(parts(saved), (Shape::Rbp, 16, [0, 0, 0, 0, 0, 252]));
    assert_eq!(Packed::GENERIC.shape(), Shape::Generic);

    // The CFA is too far, below rsp, not aligned, or of another register; then other rules.
    for rule in [
        rule(0x20000),
        rule(-8),
        rule(12),
        Rule::call(Value::reg(Reg::R11, 8)),
        rule(8).with_saved(Reg::Rbx, Value::Undefined),
        rule(8).with_saved(Reg::Rbx, Value::at_cfa(-2024)),
        rule(8).with_saved(Reg::Rbx, Value::reg(Reg::R12, 0)),
        Rule {
            kind: RuleKind::Signal,
            ..rule(8)
        },
        Rule {
            ra: Value::at_cfa(-16),
            ..rule(8)
        },
        Rule {
            sp: Value::Same,
            ..rule(8)
        },
    ] {
        assert_eq!(pack(rule), Packed::GENERIC, "{rule}");
    }
}

/// A cache with one row, found in `space`.
fn one_row(space: &AddressSpace) -> (Cache, RowId) {
    let mut cache = Cache::new();
    cache.select(space);
    let unit = cache.add_unit(KEY, 0..u64::MAX, [row(0, rule(8))], None);
    let row = cache.find_row(unit, 0).expect("a row");
    (cache, row)
}

#[test]
fn hot_addresses_survive_growth() {
    let space = AddressSpace::new();
    let (mut cache, row) = one_row(&space);
    let addresses = || (0..20_000u64).map(|i| 0x40_0000 + i * 24);
    for address in addresses() {
        assert!(cache.hot(address).is_none());
        cache.insert_hot(address, row, true, None);
    }
    let found = addresses().filter(|&a| cache.hot(a).is_some()).count();
    // An entry that finds no place near its home replaces another.
    assert!(found > 19_990, "{found}");
    assert!(cache.hot(0x40_0001).is_none());
    assert_eq!(cache.hot_len(), 20_000);
}

#[test]
fn hot_addresses_of_the_kernel_and_of_no_space() {
    let space = AddressSpace::new();
    let (mut cache, row) = one_row(&space);
    for address in [0, 1, 0x7fff_ffff_ffff, 0xffff_8000_0000_0000, u64::MAX] {
        cache.insert_hot(address, row, true, None);
        assert!(cache.hot(address).is_some(), "{address:#x}");
    }
    for address in [
        0x8000_0000_0000,
        0x1_0000_0000_0000,
        0xffff_0000_0000_0000,
        1 << 63,
    ] {
        cache.insert_hot(address, row, true, None);
        assert!(cache.hot(address).is_none(), "{address:#x}");
    }
    assert_eq!(cache.hot_len(), 5);
}

#[test]
fn hot_addresses_belong_to_their_space() {
    use crate::image::Mapping;

    let mut one = AddressSpace::new();
    let other = AddressSpace::new();
    let (mut cache, row) = one_row(&one);
    cache.insert_hot(0x1000, row, true, Some(Reason::NotAtRoot));

    // Nothing that was found in one space is found in another.
    cache.select(&other);
    assert!(cache.hot(0x1000).is_none());
    assert_eq!(cache.fallback_cause(0x1000), None);

    cache.select(&one);
    assert!(cache.hot(0x1000).is_some());
    assert_eq!(cache.fallback_cause(0x1000), Some(Reason::NotAtRoot));

    // What was unmapped may be something else by then.
    one.map(Mapping {
        range: 0x1000..0x2000,
        bias: 0,
        image: None,
        name: alloc::string::String::new(),
    });
    cache.select(&one);
    assert!(cache.hot(0x1000).is_some());

    // Unmapping changes the space, so what was found there is forgotten.
    one.clear();
    cache.select(&one);
    assert!(cache.hot(0x1000).is_none());
}

/// More address spaces than a key can number.
#[test]
fn more_spaces_than_a_key_can_number() {
    let first = AddressSpace::new();
    let (mut cache, row) = one_row(&first);
    for _ in 0..0x8010 {
        cache.select(&AddressSpace::new());
        assert!(cache.hot(0x1000).is_none());
        cache.insert_hot(0x1000, row, true, None);
    }
    assert!(cache.hot(0x1000).is_some());
    cache.select(&first);
    assert!(cache.hot(0x1000).is_none());
}

#[test]
fn an_index_is_made_once() {
    let image = crate::image::Image::new(crate::image::ImageParts::default());
    let mut cache = Cache::new();
    let first = cache.index(image.id(), TableKind::EhFrame, || 1u32);
    let again = cache.index(image.id(), TableKind::EhFrame, || 2u32);
    let other = cache.index(image.id(), TableKind::DebugFrame, || 3u32);
    assert_eq!((*first, *again, *other), (1, 1, 3));
}

#[test]
fn heap_bytes_are_those_of_rows_rules_and_units() {
    let mut cache = Cache::new();
    assert_eq!(cache.bytes(), 0);
    let rows = (0..1000u64).map(|i| row(0x10 + i, rule(8 + 8 * (i % 2) as i32)));
    let unit = cache.add_unit(KEY, 0x10..0x1000, rows, None);
    assert_eq!(cache.unit_rows(unit).len(), 1000);
    let least = 1000 * size_of::<Row>();
    let bytes = cache.bytes();
    assert!((least..4 * least).contains(&bytes), "{bytes}");
    // Units are counted, too.
    let mut cache = Cache::new();
    for offset in 0..1000 {
        cache.add_unit(UnitKey { offset, ..KEY }, 0x10..0x20, [], None);
    }
    let least = 1000 * (size_of::<Unit>() + size_of::<u32>());
    let bytes = cache.bytes();
    assert!((least..4 * least).contains(&bytes), "{bytes}");
}

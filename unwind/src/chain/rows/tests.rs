//! A chain has the rows that the cache had when the frames were found.

use super::{KEPT_MAX, PROBES_MAX};
use crate::address::CodeAddress;
use crate::cache::{Cache, NewRow, RowId, UnitId, UnitKey};
use crate::chain::{Chain, How, RowRef, Sink as _, Step};
use crate::reason::Reason;
use crate::regs::Reg;
use crate::row::{Row, RowSource, TableKind};
use crate::rule::{Rule, Value};
use alloc::vec::Vec;

fn rule(offset: i32) -> Rule {
    Rule::call(Value::reg(Reg::Rsp, offset))
}

fn key(offset: u64) -> UnitKey {
    UnitKey {
        table: TableKind::EhFrame,
        image: None,
        offset,
        block: 0,
    }
}

fn add_unit(cache: &mut Cache, offset: u64, cfa: i32) -> UnitId {
    let (start, rule) = (0x10, rule(cfa));
    let row = NewRow {
        start,
        offset,
        rule,
    };
    cache.add_unit(key(offset), 0x10..0x40, [row], None)
}

/// A cache with `count` rows of different units.
fn cache_of(count: u64) -> (Cache, Vec<RowId>) {
    let mut cache = Cache::new();
    let units: Vec<_> = (0..count)
        .map(|i| add_unit(&mut cache, i, 8 * (i as i32 % 50 + 1)))
        .collect();
    let rows = units.into_iter().flat_map(|unit| cache.unit_rows(unit));
    let rows = rows.collect();
    (cache, rows)
}

fn push(chain: &mut Chain, row: RowRef<'_>) {
    chain.frame(Step {
        pc: CodeAddress::Return(1),
        sp: 2,
        slot: None,
        how: How::Rule { row, words: &[] },
    });
}

fn push_cached(chain: &mut Chain, cache: &Cache, row: RowId) {
    push(chain, RowRef::cached(&cache.sources(), row));
}

fn row_of(cache: &Cache, row: RowId) -> Row {
    RowRef::cached(&cache.sources(), row).row()
}

fn rows_of(chain: &Chain) -> Vec<Row> {
    let row = |step: Step<'_>| match step.how {
        How::Rule { row, .. } => row.row(),
        other => panic!("{other:?}"),
    };
    chain.steps().map(row).collect()
}

#[test]
fn a_row_of_a_cache_is_stored_once_and_kept_for_the_next_walk() {
    let (cache, rows) = cache_of(1000);
    let expected: Vec<Row> = rows.iter().map(|&row| row_of(&cache, row)).collect();
    let mut chain = Chain::default();
    for _ in 0..2 {
        for _ in 0..2 {
            rows.iter()
                .for_each(|&row| push_cached(&mut chain, &cache, row));
        }
        assert_eq!(chain.rows.rows, expected);
        assert_eq!(rows_of(&chain), [&expected[..], &expected].concat());
        chain = chain.emptied();
    }
    assert_eq!(chain.rows.rows, expected);
}

#[test]
fn rows_with_the_same_id_in_two_caches_are_two() {
    let (first, ids) = cache_of(3);
    let mut second = Cache::new();
    add_unit(&mut second, 7, 800);
    let (mut chain, at) = (Chain::default(), ids[0]);
    for cache in [&first, &second, &first] {
        push_cached(&mut chain, cache, at);
    }
    let [of_first, of_second] = [&first, &second].map(|cache| row_of(cache, at));
    assert_ne!(of_first, of_second);
    assert_eq!(rows_of(&chain), [of_first, of_second, of_first]);
    chain = chain.emptied();
    assert!(chain.rows.rows.is_empty());
    push_cached(&mut chain, &second, at);
    assert_eq!(rows_of(&chain), [of_second]);
}

/// A cache with a unit of one row, and a chain with a frame that this row found.
fn found_once() -> (Cache, UnitId, RowId, Chain) {
    let (mut cache, mut chain) = (Cache::new(), Chain::default());
    let unit = add_unit(&mut cache, 5, 16);
    let id = cache.find_row(unit, 0x10).expect("a row");
    push_cached(&mut chain, &cache, id);
    (cache, unit, id, chain)
}

/// The frames found before keep the row that they were found with.
#[test]
fn an_id_that_means_another_row_gives_that_row() {
    // Each change lets the id that the chain knows mean another row.
    let changes: [fn(&mut Cache, UnitId); 3] = [
        |cache, unit| cache.overrule(unit, &Rule::OUTERMOST),
        |cache, _| {
            cache.forget_units();
            add_unit(cache, 5, 400);
        },
        |cache, _| {
            for _ in 0..2 {
                add_unit(cache, 5, 400);
            }
            cache.forget_units();
            add_unit(cache, 6, 408);
        },
    ];

    for (i, change) in changes.into_iter().enumerate() {
        let (mut cache, unit, id, mut chain) = found_once();
        let before = row_of(&cache, id);

        change(&mut cache, unit);
        push_cached(&mut chain, &cache, id);

        let after = row_of(&cache, id);
        assert_ne!(before, after, "change {i}");
        assert_eq!(rows_of(&chain), [before, after], "change {i}");
    }
}

/// The end of a row depends on the rows of its unit.
#[test]
fn a_row_of_a_unit_that_was_added_again_gets_its_new_end() {
    let (mut cache, unit, id, mut chain) = found_once();
    let before = row_of(&cache, id);
    let row = |start| NewRow {
        start,
        offset: 5,
        rule: rule(24),
    };
    assert_eq!(
        cache.add_unit(key(5), 0x10..0x40, [row(0x10), row(0x20)], None),
        unit
    );
    push_cached(&mut chain, &cache, id);
    let ends: Vec<u64> = rows_of(&chain).iter().map(|row| row.source.end).collect();
    assert_eq!((before.source.end, ends), (0x40, [0x40, 0x20].into()));
}

#[test]
fn rows_of_no_cache_are_stored_once_in_a_row_and_not_kept() {
    let (cache, ids) = cache_of(1);
    let cached = row_of(&cache, ids[0]);

    let own = Row {
        rule: Rule::FRAME_POINTER,
        source: RowSource {
            fallback: Some(Reason::NotAtRoot),
            ..cached.source
        },
    };

    let mut chain = Chain::default();
    push_cached(&mut chain, &cache, ids[0]);
    let mut other = own;
    other.source.fallback = None;

    // Equal neighbours are stored once.
    for row in [&own, &own, &other] {
        push(&mut chain, RowRef::from(row));
    }
    push_cached(&mut chain, &cache, ids[0]);

    assert_eq!(rows_of(&chain), [cached, own, own, other, cached]);
    assert_eq!(chain.rows.rows, [cached, own, other]);

    chain = chain.emptied();
    assert!(chain.rows.rows.is_empty());
    push_cached(&mut chain, &cache, ids[0]);
    assert_eq!(rows_of(&chain), [cached]);
}

#[test]
fn too_many_rows_are_not_kept() {
    let (cache, ids) = cache_of(KEPT_MAX as u64 + 1);
    for (count, kept) in [(KEPT_MAX, KEPT_MAX), (KEPT_MAX + 1, 0)] {
        let mut chain = Chain::default();
        ids[..count]
            .iter()
            .for_each(|&id| push_cached(&mut chain, &cache, id));
        assert_eq!(chain.rows.rows.len(), count);
        assert_eq!(chain.emptied().rows.rows.len(), kept);
    }
}

/// More rows than probes at one place of the table: some are stored again, but none is mistaken.
#[test]
fn rows_whose_places_collide_are_not_mistaken_for_each_other() {
    let (cache, ids) = cache_of(20_000);
    let home = |id: RowId| id.index().wrapping_mul(0x9e37_79b9) >> 24;
    let same = ids.iter().copied().filter(|&id| home(id) == home(ids[1]));
    let same: Vec<RowId> = same.take(60).collect();
    assert!(same.len() > 2 * PROBES_MAX);
    let mut chain = Chain::default();
    for _ in 0..3 {
        for _ in 0..3 {
            same.iter()
                .for_each(|&id| push_cached(&mut chain, &cache, id));
        }
        let expected = [&same[..], &same, &same].concat();
        let expected: Vec<Row> = expected.iter().map(|&id| row_of(&cache, id)).collect();
        assert_eq!(rows_of(&chain), expected);
        assert!(chain.rows.rows.len() <= 9 * same.len());
        chain = chain.emptied();
    }
}

#[test]
fn a_frame_of_another_chain_has_no_rule_here() {
    let (cache, ids) = cache_of(1);
    let mut chain = Chain::default();
    push_cached(&mut chain, &cache, ids[0]);
    let mut other = Chain::default();
    other.frames.clone_from(&chain.frames);
    assert_eq!(other.step(0).how, How::External);
    assert_ne!(other, chain);
}

//! What is kept between lookups: parts of functions, CIEs, and the cost of reading them.

use super::super::index::Header;
use super::super::read::Table;
use super::super::{FdePlace, Transcribe, compile_all};
use super::sections::{find, find_row, with_functions};
use super::*;
use crate::cache::{UnitBuilder, UnitId, UnitKey};
use crate::regs::Reg;
use crate::rule::{Rule, RuleKey, Value};
use alloc::sync::Arc;
use core::ops::Range;

fn key(image: &Image, table: TableKind, offset: u64) -> UnitKey {
    UnitKey {
        table,
        image: Some(image.id()),
        offset,
        block: 0,
    }
}

#[test]
fn a_header_knows_how_many_functions_it_lists() {
    for len in [0, 1, 2, 5] {
        let functions: Vec<_> = (0..len).map(|i| (0x1000 * (i + 1), 0x10)).collect();
        let image = with_functions(&functions, true);
        let table = Table::of(&image, TableKind::EhFrame).expect("a table");
        let header = Header::of(&image, &table).expect("a header");
        assert_eq!(header.len() as u64, len);
    }
}

/// A function with two rows, and the offset of its FDE.
fn two_rows() -> (Arc<Image>, u64) {
    let cie = Cie::default();
    let bytes = cie.eh_frame(&[0x50, 0x0e, 16]);
    let image = image(SectionKind::EhFrame, ADDRESS, bytes);
    (Arc::new(image), cie.bytes(0).len() as u64)
}

#[test]
fn a_function_known_in_part_is_read_again_for_its_rest() {
    let (image, fde) = two_rows();
    let mut cache = Cache::new();
    let unit = |cache: &mut Cache| cache.unit(&key(&image, TableKind::EhFrame, fde));
    for svma in [0x1000, 0x1010, 0x100f, 0x10ff] {
        let row = svma & !0xf & 0x1010;
        let found = find(&image, svma, &mut cache);
        assert_eq!(found, Ok((TableKind::EhFrame, row)), "{svma:#x}");
    }
    let Some(Ok(id)) = unit(&mut cache) else {
        panic!("it is compiled")
    };
    assert_eq!(cache.unit_rows(id).len(), 2);
    // The function is compiled whole if all of it is requested.
    let mut cache = Cache::new();
    assert!(find(&image, 0x1000, &mut cache).is_ok());
    let id = compile_unit(&image, TableKind::EhFrame, fde, &mut cache).expect("readable");
    assert_eq!(cache.unit_rows(id).len(), 2);
}

/// Two rows are read alone and the third one with all others; each stays what it was.
#[test]
fn rows_read_alone_stay_valid() {
    let cie = Cie::default();
    let program = [0x50, 0x0e, 16, 0x50, 0x0e, 24, 0x50, 0x0e, 32];
    let image = image(SectionKind::EhFrame, ADDRESS, cie.eh_frame(&program));
    let (image, fde) = (Arc::new(image), cie.bytes(0).len() as u64);
    let starts = [0x1000, 0x1010, 0x1020, 0x1030, 0x1100];

    let key = key(&image, TableKind::EhFrame, fde);

    // In every order, since rows are compiled alone at first and then with all others.
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let mut cache = Cache::new();
        let mut rows = Vec::new();
        for (count, &index) in order.iter().enumerate() {
            // Twice: the row just found is known.
            for svma in [starts[index], starts[index + 1] - 1] {
                let row = find_row(&image, svma, &mut cache).expect("a row");
                rows.push((index, row));
            }
            let unit = cache.unit(&key).and_then(Result::ok).expect("compiled");
            let expected = if count < 2 { 1 } else { 4 };
            assert_eq!(cache.unit_rows(unit).len(), expected, "{order:?}");

            // What was found earlier still has its range and rule.
            for &(index, row) in &rows {
                let source = cache.source(row);
                let range = starts[index]..starts[index + 1];
                assert_eq!(source.start..source.end, range, "{order:?}");
                let offset = 8 * (index as i32 + 1);
                assert_eq!(cache.rule(row).cfa, Value::reg(Reg::Rsp, offset));
            }
        }

        assert_eq!(cache.unit_len(), 2, "the second row's unit is completed");
    }
}

#[test]
fn a_function_is_compiled_once() {
    let cie = Cie::default();
    let image = image(SectionKind::EhFrame, ADDRESS, cie.eh_frame(&[0; 600]));
    let (image, fde) = (Arc::new(image), cie.bytes(0).len() as u64);
    // Running its 600 bytes this often would exceed the section's limit.
    let mut cache = Cache::new();
    for _ in 0..100 {
        let unit = compile_unit(&image, TableKind::EhFrame, fde, &mut cache);
        assert!(unit.is_ok(), "{unit:?}");
    }
    let mut cache = Cache::new();
    for _ in 0..100 {
        let found = find(&image, 0x1000, &mut cache);
        assert_eq!(found, Ok((TableKind::EhFrame, 0x1000)));
    }
}

#[test]
fn a_function_costs_its_own_program_and_its_cies() {
    let program = [&[0x0c, 7, 8][..], &[0; 600]].concat();
    let cie = Cie {
        program: &program,
        ..Cie::default()
    };
    let compiled = compile_eh_frame(&cie, &[0; 600]).expect("not too much work");
    assert_eq!(compiled.rows.len(), 1);
}

/// Adds rows to a unit unchanged.
struct Copied;

impl Transcribe for Copied {
    fn row(
        &mut self,
        unit: &mut UnitBuilder<'_>,
        addresses: Range<u64>,
        offset: u64,
        key: Option<RuleKey>,
        rule: impl FnOnce() -> Rule,
    ) {
        unit.push_short(addresses.start, offset, key, rule);
    }

    fn complete(&mut self, _: UnitId, _: &mut Cache) {}
}

#[test]
fn functions_share_their_cie_whatever_table_is_made_of_them() {
    let image = with_functions(&[(0x2000, 0x10), (0x3000, 0x10)], true);
    let cie = key(&image, TableKind::EhFrame, 0);
    let mut cache = Cache::new();
    assert!(find(&image, 0x2000, &mut cache).is_ok());
    assert!(cache.take_common(&cie).is_some());

    let mut cache = Cache::new();
    let place = FdePlace::find(&image, 0x3000, &mut cache).expect("it has an FDE");
    let made = key(&image, TableKind::Sframe, place.offset);
    let unit = place.compile(made, None, &mut Copied, &mut cache);
    let range = unit.map(|unit| cache.unit_range(unit));
    assert_eq!(range, Ok(0x3000..0x3010));
    assert!(cache.take_common(&cie).is_some());
}

#[test]
fn all_functions_of_a_table_are_counted_with_their_rows() {
    let mut bytes = Cie::default().eh_frame(&[0x50, 0x0e, 16]);
    bytes.extend(Cie::default().eh_frame(&[]));
    // One is malformed from its second row on, and two cannot be read at all.
    bytes.extend(Cie::default().eh_frame(&[0x50, 0x3e]));
    bytes.extend(entry(&[0xff, 0xff, 0, 0, 1, 2, 3, 4]));
    bytes.extend(entry(&[0xff, 0xff, 0, 0, 1, 2, 3, 4]));
    let image = image(SectionKind::EhFrame, ADDRESS, bytes);
    let all = compile_all(&image, TableKind::EhFrame, &mut Cache::new());
    assert_eq!((all.units, all.rows, all.malformed), (3, 4, 3));
    let none = compile_all(&image, TableKind::DebugFrame, &mut Cache::new());
    assert_eq!((none.units, none.rows, none.malformed), (0, 0, 0));
}

//! Chunks of entries: which entries are compiled together, and the position of each.

use super::*;
use crate::image::{Bytes, ImageParts, Section};
use crate::orc::{Entry, Layout};
use crate::regs::Reg;
use crate::row::RowSource;
use crate::rule::Value;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

const LAYOUT: Layout = Layout::V6_4;

/// The address of `.orc_unwind_ip`.
const IPS: u64 = 0x8000_0000;

/// An entry whose CFA is rsp + `offset`.
fn entry(offset: i16) -> [u8; ENTRY_LEN] {
    let entry = Entry {
        sp_offset: offset,
        ..Entry::NULL
    };
    entry.encode(LAYOUT)
}

/// A mapping of text with these entries, from the first address to 16 bytes after the last.
fn mapping(entries: &[(u64, [u8; ENTRY_LEN])]) -> Mapping {
    let ips = entries.iter().enumerate().map(|(i, (ip, _))| {
        // Each word is the distance from itself to the code.
        let relative = ip.wrapping_sub(IPS + 4 * i as u64).cast_signed();
        i32::try_from(relative).expect("near enough").to_le_bytes()
    });

    let section = |kind, address, data: Vec<u8>| Section {
        kind,
        address,
        data: Bytes::from_vec(data),
    };
    let ips = ips.flatten().collect();
    let bytes = entries.iter().flat_map(|entry| entry.1).collect();
    let starts = || entries.iter().map(|entry| entry.0);
    // The text ends behind the last entry, which would otherwise cover all that follows.
    let text = starts().min().unwrap_or(0)..starts().max().unwrap_or(0) + 16;

    let image = Image::new(ImageParts {
        text: vec![text],
        sections: vec![
            section(SectionKind::OrcUnwind, 0x9000_0000, bytes),
            section(SectionKind::OrcUnwindIp, IPS, ips),
        ],
        ..ImageParts::default()
    });

    Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(Arc::new(image)),
        name: String::new(),
    }
}

fn unwinder(tables: Tables) -> Orc {
    Orc::new(Some(Encoding::since_5_12(LAYOUT)), tables)
}

/// The CFA's offset at `svma`, and the source of its row.
fn find(mapping: &Mapping, svma: u64, cache: &mut Cache) -> Result<(i32, RowSource), Reason> {
    let row = unwinder(Tables::Real).find(mapping, svma, cache)?;
    let Value::Offset { offset, .. } = cache.rule(row).cfa else {
        panic!("{:?}", cache.rule(row));
    };
    Ok((offset, cache.source(row)))
}

#[test]
fn neighbours_are_one_unit() {
    let entries: Vec<_> = (0..40)
        .map(|i| (0x1000 + 16 * i, entry(8 * i as i16)))
        .collect();
    let mapping = mapping(&entries);
    let mut cache = Cache::new();
    // Index and unit of each: the first chunk is 32 entries of 6 bytes.
    for (index, unit) in [(3, 0), (0, 0), (31, 0), (32, 192), (39, 192), (3, 0)] {
        let svma = 0x1000 + 16 * index + 5;
        let (offset, source) = find(&mapping, svma, &mut cache).expect("an entry");
        assert_eq!(offset, 8 * index as i32);
        assert_eq!((source.unit_offset, source.row_offset), (unit, 6 * index));
        let start = 0x1000 + 16 * index;
        assert_eq!((source.start, source.end), (start, start + 16));
    }
    assert_eq!(cache.unit_len(), 2);
}

#[test]
fn entries_in_any_order_stand_where_they_are_stored() {
    let mapping = mapping(&[(0x1020, entry(24)), (0x1000, entry(8)), (0x1010, entry(16))]);
    let mut cache = Cache::new();
    for (svma, offset, stored) in [(0x1000, 8, 6), (0x101f, 16, 12), (0x1020, 24, 0)] {
        let (found, source) = find(&mapping, svma, &mut cache).expect("an entry");
        assert_eq!((found, source.row_offset), (offset, stored));
    }
}

#[test]
fn of_several_entries_at_an_address_the_last_is_found() {
    // The last entry of a chunk and the first of the next one have the same address, too.
    let at = |i: u64| match i {
        0..=1 => 0x1000,
        32 => 0x1000 + 16 * 31,
        i => 0x1000 + 16 * i,
    };
    let entries: Vec<_> = (0..40).map(|i| (at(i), entry(8 * i as i16))).collect();
    let mapping = mapping(&entries);
    let mut cache = Cache::new();
    for (svma, index) in [(0x1000, 1), (0x1000 + 16 * 30, 30), (0x1000 + 16 * 31, 32)] {
        for svma in [svma, svma + 7] {
            let (offset, _) = find(&mapping, svma, &mut cache).expect("an entry");
            assert_eq!(offset, 8 * index, "{svma:#x}");
        }
    }
}

#[test]
fn entries_too_far_apart_are_separate_units() {
    // 4 GiB - 1 still fits into one unit.
    for (first, units) in [(4, 1), (3, 2)] {
        let last = first + u64::from(u32::MAX) + (units - 1);
        let mapping = mapping(&[(first, entry(8)), (last, entry(16))]);
        let mut cache = Cache::new();
        for (svma, offset) in [(first, 8), (last, 16), (last - 1, 8)] {
            let (found, source) = find(&mapping, svma, &mut cache).expect("an entry");
            assert_eq!(
                (found, source.start),
                (offset, if offset == 8 { first } else { last })
            );
        }
        assert_eq!(cache.unit_len(), units as usize);
    }
}

#[test]
fn an_entry_without_a_rule_says_why_and_where() {
    let mut bad = entry(8);
    bad[5] = 7;
    let mapping = mapping(&[(0x1000, entry(8)), (0x1010, entry(8)), (0x1020, bad)]);
    let error = find(&mapping, 0x1020, &mut Cache::new()).map(|found| found.0);
    let expected = Reason::MalformedRow {
        section: ".orc_unwind",
        offset: 12,
        what: "unknown type",
    };
    assert_eq!(error, Err(expected));
}

#[test]
fn a_table_that_is_there_is_read_before_one_is_derived() {
    let mapping = mapping(&[(0x1000, entry(8))]);
    let reason = |tables| {
        let mut cache = Cache::new();
        let found = unwinder(tables).find(&mapping, 0x1000, &mut cache);
        found.map(|row| cache.rule(row).cfa)
    };
    let cfa = Ok(Value::reg(Reg::Rsp, 8));
    assert_eq!(reason(Tables::Real), cfa);
    assert_eq!(reason(Tables::RealOrDerived), cfa);
    assert!(reason(Tables::Derived).is_err());
}

#[test]
fn an_unwinder_is_named_after_its_encoding() {
    let names = Encoding::ALL.map(|encoding| {
        let unwinder = Orc::new(Some(encoding), Tables::Real);
        assert_eq!(unwinder.encoding(), Some(encoding));
        String::from(unwinder.name())
    });
    assert_eq!(
        names,
        ["orc:4.14", "orc:5.12", "orc:6.3", "orc:6.4", "orc:7.1"]
    );
    let told_nothing = Orc::default();
    assert_eq!(
        (told_nothing.name(), told_nothing.encoding()),
        ("orc", None)
    );
    assert_eq!(told_nothing.carries(), RegMask::FRAME);
}

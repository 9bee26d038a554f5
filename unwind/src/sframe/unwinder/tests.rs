//! Rows that are repeated, and what a table says of roots.

use super::*;
use crate::image::{Bytes, ImageParts};
use crate::regs::Reg;
use crate::rule::Value;
use crate::sframe::fde::FreType;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;

fn fde(size: u32) -> Fde {
    Fde {
        index: 0,
        offset: 28,
        start: 0x1000,
        size,
        fres: 50,
        num_fres: 1,
        fre_type: FreType::Addr1,
        rep_size: Some(16),
        flex: false,
        signal: false,
    }
}

fn row(start: u64, offset: u64) -> NewRow {
    let rule = Rule::call(Value::reg(Reg::Rsp, 8));
    NewRow {
        start,
        offset,
        rule,
    }
}

/// Start and offset of the rows that these make, and from where there are no more.
fn repeated(rows: &[NewRow], size: u32) -> (Vec<(u64, u64)>, Option<u64>) {
    let mut rows = rows.to_vec();
    let end = 0x1000 + u64::from(size);
    let error = repeat(&mut rows, &fde(size), 16, end);
    let rows = rows.iter().map(|row| (row.start, row.offset)).collect();
    (rows, error.map(|error| error.0))
}

#[test]
fn rows_repeat_up_to_the_last_byte() {
    let rows = [row(0x1000, 60), row(0x1009, 63)];
    let expected = [0x1000, 0x1009, 0x1010, 0x1019, 0x1020, 0x1029];
    for (size, count) in [
        (16, 2),
        (17, 3),
        (25, 3),
        (26, 4),
        (32, 4),
        (33, 5),
        (42, 6),
    ] {
        let (rows, error) = repeated(&rows, size);
        assert_eq!(error, None);
        let offsets = rows.iter().map(|row| row.1);
        assert!(offsets.eq([60, 63].into_iter().cycle().take(count)));
        let starts = rows.iter().map(|row| row.0);
        assert!(starts.eq(expected[..count].iter().copied()), "{size}");
    }
    assert_eq!(repeated(&[], 40), (vec![], None));
}

#[test]
fn the_bytes_before_the_first_row_have_none_in_any_block() {
    let (rows, error) = repeated(&[row(0x1003, 60)], 40);
    let expected = [
        (0x1000, 28),
        (0x1003, 60),
        (0x1010, 28),
        (0x1013, 60),
        (0x1020, 28),
        (0x1023, 60),
    ];
    assert_eq!((rows.as_slice(), error), (&expected[..], None));
}

#[test]
fn so_many_rows_and_not_one_more() {
    let most = REPEATED_ROWS_MAX as u32;
    let (rows, error) = repeated(&[row(0x1000, 60)], 16 * most);
    assert_eq!((rows.len(), error), (REPEATED_ROWS_MAX, None));
    let (rows, error) = repeated(&[row(0x1000, 60)], 16 * most + 1);
    let end = 0x1000 + 16 * u64::from(most);
    assert_eq!((rows.len(), error), (REPEATED_ROWS_MAX, Some(end)));
}

/// A space with an image at 0x1000 that has a section of this version, or none.
fn space(version: Option<u8>) -> AddressSpace {
    let mut data = vec![0; 28];
    data[..5].copy_from_slice(&[0xe2, 0xde, version.unwrap_or(0), 0, 3]);
    let section = Section {
        kind: SectionKind::Sframe,
        address: 0x3000,
        data: Bytes::from_vec(data),
    };
    let image = Image::new(ImageParts {
        sections: version.map(|_| section).into_iter().collect(),
        ..ImageParts::default()
    });
    let mut space = AddressSpace::new();
    space.map(Mapping {
        range: 0x1000..0x2000,
        bias: 0,
        image: Some(Arc::new(image)),
        name: String::new(),
    });
    space
}

#[test]
fn only_version_3_says_where_a_stack_ends() {
    for (version, real) in [
        (Some(1), false),
        (Some(2), false),
        (Some(3), true),
        // Nobody to ask: the claim is made elsewhere.
        (None, true),
    ] {
        for tables in [Tables::Real, Tables::RealOrDerived, Tables::Derived] {
            let finder = Sframe::new(Profile::Spec, tables);
            let mut cache = Cache::new();
            let marks = finder.marks_roots(&space(version), 0x1000, &mut cache);
            let expected = real || tables == Tables::Derived;
            assert_eq!(marks, expected, "{version:?} {tables:?}");
        }
        let finder = Sframe::default();
        assert!(finder.marks_roots(&space(version), 0x3000, &mut Cache::new()));
    }
}

#[test]
fn an_unwinder_keeps_its_profile() {
    for profile in Profile::ALL {
        let unwinder = Sframe::new(profile, Tables::Real);
        assert_eq!(unwinder.profile(), profile);
        assert_eq!(unwinder.name(), profile.unwinder());
    }
}

//! Mappings that replace parts of each other, and the symbol of an address.

use super::*;
use alloc::string::ToString;

/// First address, end address, name.
type ListedMapping<'a> = (u64, u64, &'a str);

fn mapping(range: Range<u64>, name: &str) -> Mapping {
    Mapping {
        range,
        bias: 0,
        image: None,
        name: name.to_string(),
    }
}

/// A space with `a` at 0x1000..0x2000, `b` at 0x2000..0x3000 and `c` at 0x4000..0x5000.
fn three() -> AddressSpace {
    let mut space = AddressSpace::new();
    space.map(mapping(0x4000..0x5000, "c"));
    space.map(mapping(0x1000..0x2000, "a"));
    space.map(mapping(0x2000..0x3000, "b"));
    space
}

fn listed(space: &AddressSpace) -> Vec<ListedMapping<'_>> {
    let all = space.mappings().iter();
    all.map(|m| (m.range.start, m.range.end, m.name.as_str()))
        .collect()
}

#[test]
fn only_unmapped_ranges_are_removed() {
    let a = (0x1000, 0x2000, "a");
    let b = (0x2000, 0x3000, "b");
    let c = (0x4000, 0x5000, "c");

    let cases: [(Range<u64>, &[ListedMapping<'_>]); 12] = [
        (0x1000..0x2000, &[b, c]),
        (0x1000..0x3000, &[c]),
        (0..0x9000, &[]),
        (0x1000..0x1800, &[(0x1800, 0x2000, "a"), b, c]),
        (0x1800..0x2000, &[(0x1000, 0x1800, "a"), b, c]),
        (
            0x1400..0x1800,
            &[(0x1000, 0x1400, "a"), (0x1800, 0x2000, "a"), b, c],
        ),
        (
            0x1800..0x4800,
            &[(0x1000, 0x1800, "a"), (0x4800, 0x5000, "c")],
        ),
        // Up to a mapping, from the end of one, in a gap, and an empty range.
        (0..0x1000, &[a, b, c]),
        (0x3000..0x4000, &[a, b, c]),
        (0x5000..0x9000, &[a, b, c]),
        (0x1800..0x1800, &[a, b, c]),
        (
            0x1fff..0x2001,
            &[(0x1000, 0x1fff, "a"), (0x2001, 0x3000, "b"), c],
        ),
    ];

    for (range, expected) in cases {
        let mut space = three();
        let stamp = space.stamp();
        space.unmap(range.clone());
        assert_eq!(listed(&space), expected, "{range:x?}");

        // The stamp changes exactly if something was unmapped.
        let changed = expected != [a, b, c];
        assert_eq!(space.stamp() != stamp, changed, "{range:x?}");
    }
}

#[test]
fn a_new_mapping_replaces_what_it_covers() {
    let mut space = three();
    space.map(mapping(0x1800..0x2800, "new"));
    let expected = [
        (0x1000, 0x1800, "a"),
        (0x1800, 0x2800, "new"),
        (0x2800, 0x3000, "b"),
        (0x4000, 0x5000, "c"),
    ];
    assert_eq!(listed(&space), expected);
    let stamp = space.stamp();
    space.map(mapping(0x4800..0x4800, "empty"));
    assert_eq!(listed(&space), expected, "an empty range is ignored");
    assert_eq!(space.stamp(), stamp);
    space.clear();
    assert_eq!(listed(&space), []);
    assert_ne!(space.stamp(), stamp);
    assert_ne!(three().clone().stamp().id, three().stamp().id);
}

/// What was not found at an address may be there later, with the same stamp.
#[test]
fn the_contents_change_when_something_is_mapped_or_unmapped() {
    let mut space = three();
    let (stamp, before) = (space.stamp(), space.contents());
    space.map(mapping(0x3000..0x4000, "new"));
    let mapped = space.contents();
    assert!(mapped != before && space.stamp() == stamp);
    space.unmap(0x3000..0x4000);
    assert!(![before, mapped].contains(&space.contents()));
    assert_ne!(space.clone().contents(), space.contents());
}

#[test]
fn an_address_is_found_from_the_first_byte_to_the_last() {
    let space = three();
    for (address, name) in [
        (0xfff, None),
        (0x1000, Some("a")),
        (0x1fff, Some("a")),
        (0x2000, Some("b")),
        (0x2fff, Some("b")),
        (0x3000, None),
        (0x4fff, Some("c")),
        (0x5000, None),
    ] {
        let found = space.find(address).map(|m| m.name.as_str());
        assert_eq!(found, name, "{address:#x}");
        assert_eq!(space.is_text(address), name.is_some(), "{address:#x}");
    }
}

#[test]
fn text_of_an_image_is_where_it_says() {
    let image = Image::new(ImageParts {
        text: core::iter::once(0x100..0x200).collect(),
        ..ImageParts::default()
    });
    let mut space = AddressSpace::new();
    space.map(Mapping {
        bias: 0x1000,
        image: Some(Arc::new(image)),
        ..mapping(0x1000..0x2000, "image")
    });
    let text = [0x10ff, 0x1100, 0x11ff, 0x1200].map(|a| space.is_text(a));
    assert_eq!(text, [false, true, true, false]);
    assert_eq!(space.mappings()[0].svma(0x1100), 0x100);
}

#[test]
fn a_part_of_bytes_stays_within_its_bounds() {
    let bytes = Bytes::from_vec((0..10).collect());
    let part = bytes.part(2..8).expect("inside");
    assert_eq!(part[..], [2, 3, 4, 5, 6, 7]);
    assert_eq!(part.part(1..3).expect("inside")[..], [3, 4]);
    assert_eq!(part.part(0..6).expect("all of it").len(), 6);
    assert!(part.part(0..7).is_none(), "the part ends before its owner");
    assert!(bytes.part(0..11).is_none());
    let owner: Owner = Arc::new(Vec::from([7u8; 4]));
    assert!(Bytes::new(owner.clone(), 0..5).is_none());
    assert_eq!(Bytes::new(owner, 1..4).expect("inside").len(), 3);
}

#[test]
fn text_bytes_are_those_from_an_address_on() {
    let section = |kind, address, bytes: &[u8]| Section {
        kind,
        address,
        data: Bytes::from_vec(bytes.to_vec()),
    };

    let image = Image::new(ImageParts {
        sections: Vec::from([
            section(SectionKind::Text, 0x100, &[1, 2, 3, 4]),
            section(SectionKind::Text, 0x200, &[5, 6]),
            section(SectionKind::EhFrame, 0x300, &[7]),
        ]),
        ..ImageParts::default()
    });

    // Up to the end of its section at most, and only of sections of text.
    for (svma, len, bytes) in [
        (0x100, 2, &[1, 2][..]),
        (0x102, 9, &[3, 4]),
        (0x103, 1, &[4]),
        (0x104, 1, &[]),
        (0xff, 1, &[]),
        (0x201, 4, &[6]),
        (0x300, 1, &[]),
        (0x100, 0, &[]),
    ] {
        assert_eq!(image.text_bytes(svma, len), bytes, "{svma:#x}");
    }
}

#[test]
fn the_innermost_sized_symbol_names_an_address() {
    let symbols: [(&str, u64, u64); 9] = [
        ("outer", 0x100, 0x100),
        ("inner", 0x140, 0x10),
        ("alias", 0x140, 0x10),
        ("label", 0x120, 0),
        ("unsized", 0x300, 0),
        ("also_unsized", 0x300, 0),
        ("last", 0x400, 1),
        // At the same address, the first one, within its size.
        ("a_short", 0x500, 4),
        ("b_long", 0x500, 0x10),
    ];

    let image = Image::new(ImageParts {
        symbols: symbols
            .iter()
            .map(|(name, address, size)| Symbol {
                address: *address,
                size: *size,
                name: name.to_string(),
            })
            .collect(),
        ..ImageParts::default()
    });

    // Between symbols, the innermost one with a size; without sizes, the last one before.
    for (svma, name) in [
        (0xff, None),
        (0x100, Some("outer")),
        (0x125, Some("outer")),
        (0x13f, Some("outer")),
        (0x140, Some("inner")),
        (0x14f, Some("inner")),
        (0x150, Some("outer")),
        (0x1ff, Some("outer")),
        (0x200, None),
        (0x2ff, None),
        (0x300, Some("unsized")),
        (0x3ff, Some("unsized")),
        (0x400, Some("last")),
        (0x401, None),
        (0x500, Some("a_short")),
        (0x503, Some("a_short")),
        (0x504, Some("b_long")),
        (0x50f, Some("b_long")),
        (0x510, None),
    ] {
        let found = image.symbol(svma).map(|s| s.name.as_str());
        assert_eq!(found, name, "{svma:#x}");
    }
}

#[test]
fn functions_without_a_length_reach_to_the_next_symbol() {
    let symbol = |(name, address, size): (&str, u64, u64)| Symbol {
        address,
        size,
        name: name.to_string(),
    };
    // `long` contains address 0x10 only because of its size; `short` ends one byte before.
    let image = Image::new(ImageParts {
        name: "a name".to_string(),
        symbols: [("long", 0x4, 0xd), ("short", 0x8, 8)].map(symbol).to_vec(),
        ..ImageParts::default()
    });
    let named = |svma| image.symbol(svma).map(|s| s.name.as_str());
    let names = [0x3, 0x4, 0x8, 0xf, 0x10, 0x11].map(named);
    let (long, short) = (Some("long"), Some("short"));
    assert_eq!(names, [None, long, short, short, long, None]);
    assert_eq!(image.name(), "a name");
}

#[test]
fn a_copy_of_a_space_is_another_with_the_same_mappings() {
    let space = three();
    let copy = space.clone();
    assert_eq!(listed(&copy), listed(&space));
    assert_ne!(copy.stamp(), space.stamp());
}

#[test]
fn bytes_are_shown_by_their_number() {
    let bytes = Bytes::from_vec(Vec::from([1, 2, 3]));
    assert_eq!(alloc::format!("{bytes:?}"), "3 bytes");
}

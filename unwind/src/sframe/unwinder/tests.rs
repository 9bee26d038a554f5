//! Whether a table can mark roots.

use super::*;
use crate::image::{Bytes, ImageParts};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;

/// A space with an image at 0x1000 that has a section of this version, or no section.
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
        // No section to ask: the default applies.
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

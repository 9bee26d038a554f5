//! The table in which an address is looked up.

use super::support::{MODULE, TEXT, TEXT_LEN, call, table};
use crate::image::{AddressSpace, Image, ImageParts, Mapping, Symbol};
use crate::kernel::{Code, FindCache, Source, Version};
use crate::orc::Entry;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

fn version(name: &str) -> Version {
    Version::from_name(name).expect("a version")
}

/// Maps an image as long as the kernel at `base`, with this text, one entry and symbols.
fn map(
    space: &mut AddressSpace,
    base: u64,
    text: Range<u64>,
    entry: Entry,
    symbols: &[(&str, u64)],
) {
    let symbol = |(name, address): &(&str, u64)| Symbol {
        address: *address,
        size: 0,
        name: name.to_string(),
    };

    let image = Image::new(ImageParts {
        text: core::iter::once(text).collect(),
        sections: table(&[(base, entry)], base + 0x10_0000, Version::DEFAULT),
        symbols: symbols.iter().map(symbol).collect(),
        ..ImageParts::default()
    });

    space.map(Mapping {
        range: base..base + TEXT_LEN,
        bias: 0,
        image: Some(Arc::new(image)),
        name: "an image".to_string(),
    });
}

fn map_generated(space: &mut AddressSpace, range: Range<u64>, name: &str) {
    space.map(Mapping {
        range,
        bias: 0,
        image: None,
        name: name.to_string(),
    });
}

const BOUNDS: [(&str, u64); 2] = [("_stext", TEXT), ("_etext", TEXT + TEXT_LEN)];

fn code(space: &AddressSpace) -> Code {
    Code::new(space, Version::DEFAULT, Some(Version::DEFAULT.encoding()))
}

#[test]
fn an_address_is_looked_up_in_the_table_of_its_own_image() {
    let second = MODULE + 0x10_0000 * 4;
    let mut space = AddressSpace::new();

    // The kernel is the first of the images, wherever it is.
    let low = TEXT - 0x1000_0000;
    map(&mut space, low, low..low + TEXT_LEN, call(40), &[]);
    map(&mut space, TEXT, TEXT..TEXT + TEXT_LEN, call(8), &BOUNDS);
    map(&mut space, MODULE, MODULE..MODULE + TEXT_LEN, call(16), &[]);
    map(&mut space, second, second..second + TEXT_LEN, call(24), &[]);

    let (code, mut finds) = (code(&space), FindCache::default());
    // All of them share one slot of the cache, which the last one occupies.
    for _ in 0..2 {
        for (base, image, sp_offset) in
            [(TEXT, 0, 8), (low, 1, 40), (MODULE, 2, 16), (second, 3, 24)]
        {
            // Twice: looked up, then from the cache.
            for _ in 0..2 {
                let found = *code.find(base + 4, &mut finds).expect("an entry");
                assert_eq!(found.entry.sp_offset, sp_offset, "{base:#x}");
                let source = Source::Table { image, position: 0 };
                assert_eq!(found.source, source, "{base:#x}");
            }
        }
    }

    assert_eq!(code.find(second + TEXT_LEN, &mut finds), None);
}

/// The search must end even if the original is itself in a copy.
#[test]
fn a_trampoline_does_not_lead_to_another() {
    let page = MODULE + 0x40_0000..MODULE + 0x40_1000;
    let mut space = AddressSpace::new();
    let original = ("ftrace_caller", page.start + 0x10);
    let symbols = [BOUNDS[0], BOUNDS[1], original];
    map(&mut space, TEXT, TEXT..TEXT + TEXT_LEN, call(8), &symbols);
    map_generated(&mut space, page.clone(), "ftrace_trampoline");
    for name in ["5.9", "6.12"] {
        let code = Code::new(&space, version(name), Some(Version::DEFAULT.encoding()));
        assert_eq!(code.known().ftrace_caller, original.1);
        let mut finds = FindCache::default();
        assert_eq!(code.find(page.start + 4, &mut finds), None, "{name}");
    }
    let images: Vec<_> = code(&space).images().map(|i| i.text().len()).collect();
    assert_eq!(images, [1], "generated code has no image");
}

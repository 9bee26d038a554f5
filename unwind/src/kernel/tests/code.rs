//! Where code is, and what the cache returns.

use super::support::{MODULE, Small, TEXT, TEXT_LEN, call};
use crate::image::{AddressSpace, Image, ImageParts, Mapping, Symbol};
use crate::kernel::hijack::recover;
use crate::kernel::{Code, Cursors, FindCache, GraphReturn, Rethook, Task, Version};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

#[test]
fn cached_lookups_equal_fresh_ones() {
    let entries: Vec<_> = (0..64)
        .map(|i| (0x40 * i, call(8 * (i as i16 + 1))))
        .collect();
    let mut small = Small::new("6.12", &entries);
    small.module = vec![(0, call(8)), (0x555, call(16))];
    let code = small.code();
    let mut finds = FindCache::default();
    let text = TEXT..TEXT + TEXT_LEN;
    let all = || text.clone().chain(MODULE - 1..MODULE + 0x1001);
    for ip in all().chain(all()) {
        let fresh = code.find(ip, &mut FindCache::default()).cloned();
        assert_eq!(code.find(ip, &mut finds).cloned(), fresh, "{ip:#x}");
    }
}

/// An image at `at` with text in its first half, and these symbols.
fn mapping(at: u64, symbols: &[(&str, u64)]) -> Mapping {
    let symbol = |&(name, offset): &(&str, u64)| Symbol {
        address: at + offset,
        size: 0,
        name: String::from(name),
    };
    let image = Image::new(ImageParts {
        text: core::iter::once(at..at + 0x800).collect(),
        symbols: symbols.iter().map(symbol).collect(),
        ..ImageParts::default()
    });
    Mapping {
        range: at..at + 0x1000,
        bias: 0,
        image: Some(Arc::new(image)),
        name: String::new(),
    }
}

fn code(mappings: Vec<Mapping>) -> Code {
    let mut space = AddressSpace::new();
    for mapping in mappings {
        space.map(mapping);
    }
    Code::new(&space, Version::DEFAULT, None)
}

#[test]
fn the_kernel_is_the_image_that_bounds_its_text() {
    let stext = ("_stext", 0);
    let has_core = |etext: &[(&str, u64)]| {
        let symbols = [&[stext], etext].concat();
        let code = code(vec![mapping(TEXT, &symbols), mapping(MODULE, &[])]);
        (
            code.has_core(),
            code.is_text(TEXT + 0x7ff),
            code.is_text(TEXT + 0x800),
        )
    };
    assert_eq!(has_core(&[("_etext", 0x1000)]), (true, true, true));
    assert_eq!(has_core(&[("_etext", 0x10)]), (true, false, false));
    // Without an end, or with an empty text, it is an image like the others.
    assert_eq!(has_core(&[]), (false, true, false));
    assert_eq!(has_core(&[("_etext", 0)]), (false, true, false));
}

#[test]
fn only_a_modules_own_text_is_text() {
    let code = code(vec![
        mapping(TEXT, &[("_stext", 0), ("_etext", 0x100)]),
        mapping(MODULE, &[]),
        mapping(MODULE + 0x2000, &[]),
    ]);
    for (address, is_text) in [
        (MODULE - 1, false),
        (MODULE, true),
        (MODULE + 0x7ff, true),
        (MODULE + 0x800, false),
        (MODULE + 0x1000, false),
        (MODULE + 0x2000, true),
        (MODULE + 0x2800, false),
        (TEXT + 0x100, false),
    ] {
        assert_eq!(code.is_text(address), is_text, "{address:#x}");
    }
}

#[test]
fn only_a_tracers_own_address_is_looked_up() {
    let code = Small::new("6.12", &[(0, call(8))]).code();
    let handler = TEXT + 0xe00;
    let trampoline = TEXT + 0xe40;
    let returned = |ret, retp| GraphReturn { ret, retp };
    let hook = |ret_addr, frame| Rethook { ret_addr, frame };
    let task = Task {
        graph: vec![returned(0x1111, 8), returned(0x2222, 16)],
        rethooks: vec![hook(0x3333, 24), hook(0x4444, 24), hook(0x5555, 32)],
        ..Task::default()
    };
    let mut cursors = Cursors::default();
    let mut at = |word, slot| recover(&code, &task, &mut cursors, word, slot);
    // Other words in the same slots are returned unchanged.
    assert_eq!((at(TEXT + 1, 16), at(TEXT + 1, 24)), (TEXT + 1, TEXT + 1));
    assert_eq!((at(handler, 16), at(handler, 8)), (0x2222, 0x1111));
    // If a slot has several entries, each is used once; after that nothing is found.
    assert_eq!((at(trampoline, 24), at(trampoline, 24)), (0x3333, 0x4444));
    assert_eq!((at(trampoline, 32), at(trampoline, 32)), (0x5555, 0));
}

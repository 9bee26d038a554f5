//! Every form of kallsyms, ORC tables with and without section headers, and malformed input.

use super::open;
use super::synthetic::{FUNCTIONS, LONG, Shape, TEXT, TEXT_LEN, USUAL, pack, symbols, vmlinux};
use crate::input_file::InputFile;
use crate::kernel::ToldLayout;
use crate::kernel::{
    EncodingSource, Form, KernelErrorKind, KernelSymbols, OpenOptions, SymbolSource, from_bytes,
};
use unwind_sim_unwind::image::{Bytes, SectionKind};
use unwind_sim_unwind::orc::{Index, Layout, SpIndirect};

fn shapes() -> Vec<Shape> {
    let mut out = Vec::new();
    for form in [
        Form::Addresses,
        Form::AbsolutePercpu,
        Form::BaseRelative,
        Form::PlaceRelative,
    ] {
        // A bit for each property, so that all combinations occur.
        for bits in 0..16 {
            let shape = Shape {
                form,
                values_first: bits & 1 != 0 || form == Form::Addresses,
                wide_markers: bits & 2 != 0,
                seqs: bits & 4 != 0,
                sections: bits & 8 != 0,
                ..USUAL
            };
            // The newest form never had the old position.
            if form != Form::PlaceRelative || !shape.values_first {
                out.push(shape);
            }
            if form == Form::PlaceRelative && !shape.values_first && !shape.wide_markers {
                out.push(Shape { align: 4, ..shape });
            }
        }
    }

    out
}

#[test]
fn every_form_of_kallsyms_gives_the_symbols_that_were_put_in() {
    for shape in shapes() {
        let kernel = open(vmlinux(&shape)).expect("a kernel");
        assert_eq!(kernel.kallsyms_form, Some(shape.form));
        assert_eq!(kernel.symbol_source, Some(SymbolSource::Kallsyms));
        let found = kernel.symbols.iter();
        let found: Vec<_> = found
            .map(|s| (s.address, char::from(s.kind), s.name.to_owned()))
            .collect();
        assert_eq!(found, symbols(&shape));
        assert_eq!(kernel.version.as_deref(), Some("6.1.0-test"));
        assert_eq!(kernel.range, TEXT..TEXT + 0x10_0000);
        let text = TEXT..TEXT + TEXT_LEN as u64;
        assert_eq!(kernel.image.text(), std::slice::from_ref(&text));
    }
}

#[test]
fn addresses_are_those_of_the_first_symbols_with_the_names() {
    let long = "y".repeat(200);
    let map = format!(
        "ffffffff81000000 T first\nffffffff81000010 t twice\nffffffff81000020 T twice\n\
         ffffffff81000030 D {long}\nffffffff81000040 T other\n"
    );
    let of_map = KernelSymbols::from_map(map.as_bytes()).expect("a map");

    let names = [
        long.as_str(),
        "twice",
        "missing",
        "first",
        "twice",
        "firs",
        &long[..199],
    ];

    let at = |offset: u64| Some(0xffff_ffff_8100_0000 + offset);
    // Of two symbols with one name the first counts, and a part of a name is not the name.
    let expected = [at(0x30), at(0x10), None, at(0), at(0x10), None, None];
    assert_eq!(of_map.addresses(names), expected);

    // In names from kallsyms, each type is passed over.
    let kernel = open(vmlinux(&USUAL)).expect("a kernel");
    let found = kernel
        .symbols
        .addresses(["function_7", "Tfunction_7", "_etext", "function_8"]);
    let function = |n: u64| Some(TEXT + 8 * n);
    let expected = [function(7), None, Some(TEXT + TEXT_LEN as u64), function(8)];
    assert_eq!(found, expected);

    assert_eq!(kernel.symbols.range("_etext", "_stext"), None);
    let text = TEXT..TEXT + TEXT_LEN as u64;
    assert_eq!(kernel.symbols.range("_stext", "_etext"), Some(text));
}

#[test]
fn code_symbols_end_where_the_next_ones_start() {
    let kernel = open(vmlinux(&USUAL)).expect("a kernel");
    let name = |at| kernel.image.symbol(at).map(|s| (s.name.as_str(), s.size));
    assert_eq!(name(TEXT + 8 * 7 + 3), Some(("function_7", 8)));
    assert_eq!(name(TEXT + 8 * 5), Some(("x".repeat(LONG).as_str(), 8)));
    let all: Vec<_> = kernel.image.symbols().iter().map(|s| &s.name).collect();
    assert!(all.iter().any(|n| *n == "_etext"), "bounds of the text");
    assert!(!all.iter().any(|n| *n == "linux_banner"), "no data");
}

#[test]
fn orc_tables_are_found_with_and_without_section_headers() {
    for sections in [true, false] {
        let kernel = open(vmlinux(&Shape { sections, ..USUAL })).expect("a kernel");
        assert_eq!(kernel.encoding_source, Some(EncodingSource::Version));
        let index = Index::new(&kernel.image, kernel.encoding).expect("a good table");
        let index = index.expect("a table");
        let table = index.table().expect("a table");
        assert_eq!(table.len() as u64, FUNCTIONS);
        assert_eq!(table.ip(9), Some(TEXT + 72), "sections: {sections}");
    }
}

#[test]
fn the_encoding_comes_from_the_version_unless_it_is_given_or_the_entries_forbid_it() {
    let encoding = |version, told| {
        let options = OpenOptions {
            orc_layout: told,
            ..OpenOptions::default()
        };
        let bytes = Bytes::from_vec(vmlinux(&Shape { version, ..USUAL }));
        let kernel = from_bytes("vmlinux", bytes, &options).expect("a kernel");
        let encoding = kernel.encoding.expect("an encoding");
        let source = kernel.encoding_source.expect("a source");
        (encoding.layout, encoding.sp_indirect, source)
    };

    use EncodingSource::{Entries, Told, Version};
    use SpIndirect::{LoadAtOffset, LoadThenAdd};
    let old = Layout::V4_14;
    assert_eq!(encoding("6.1.0", None), (old, LoadThenAdd, Version));
    assert_eq!(encoding("5.10.3", None), (old, LoadAtOffset, Version));
    // There was no ORC before 4.14, so this version says nothing.
    assert_eq!(encoding("4.9.1", None), (old, LoadThenAdd, Entries));

    let named = |name| Some(ToldLayout::from_name(name).expect("a layout"));
    // Calls are the same in both.
    assert_eq!(
        encoding("5.10.3", named("6.3")),
        (Layout::V6_3, LoadAtOffset, Told)
    );
    assert_eq!(encoding("5.10.3", named("4.14")), (old, LoadAtOffset, Told));
    assert_eq!(encoding("5.10.3", named("5.12")), (old, LoadThenAdd, Told));

    // In 6.4 and 7.1 they would be undefined.
    for other in ["6.4", "7.1"] {
        let options = OpenOptions {
            orc_layout: named(other),
            ..OpenOptions::default()
        };
        let bytes = Bytes::from_vec(vmlinux(&USUAL));
        let refused = from_bytes("vmlinux", bytes, &options).expect_err(other);
        let fits = Layout::V4_14;
        let expected = KernelErrorKind::OrcLayout { told: other, fits };
        assert_eq!(refused.what, expected);
    }

    assert_eq!(ToldLayout::NAMES, ["4.14", "5.12", "6.3", "6.4", "7.1"]);
    assert!(
        ToldLayout::NAMES
            .iter()
            .all(|name| ToldLayout::from_name(name).is_some())
    );
}

#[test]
fn entries_that_are_not_valid_overrule_the_version() {
    let mut bytes = vmlinux(&USUAL);
    // Types and registers of 6.4: call, signal.
    let entry = [8, 0, 0, 0, 5, 0];
    let mut at = 0;
    while let Some(next) = bytes[at..].windows(6).position(|w| w == entry) {
        at += next;
        bytes[at + 5] = 0x0a;
        at += 6;
    }
    // The other entries, which differ only in their offset.
    let plain: Vec<usize> = (0..bytes.len() - 6)
        .filter(|i| matches!(bytes[*i..*i + 6], [16 | 24, 0, 0, 0, 5, 0]))
        .collect();
    for at in plain {
        bytes[at + 5] = 0x02;
    }
    let kernel = open(bytes.clone()).expect("a kernel");
    assert_eq!(kernel.encoding_source, Some(EncodingSource::Entries));
    assert_eq!(kernel.encoding.map(|e| e.layout), Some(Layout::V6_4));

    // A layout that the entries contradict is refused, not used.
    let options = OpenOptions {
        orc_layout: ToldLayout::from_name("5.12"),
        ..OpenOptions::default()
    };
    let refused =
        from_bytes("vmlinux", Bytes::from_vec(bytes), &options).expect_err("another layout");
    let (told, fits) = ("5.12", Layout::V6_4);
    assert_eq!(refused.what, KernelErrorKind::OrcLayout { told, fits });
    assert!(
        refused
            .to_string()
            .contains("the layout of Linux 6.4, not of 5.12"),
        "{refused}"
    );
}

#[test]
fn a_system_map_overrules_the_image_and_must_be_its_own() {
    let dir = std::env::temp_dir().join(format!("unwind-sim-map-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");

    let open = |text: &str| {
        let path = dir.join("System.map");
        std::fs::write(&path, text).expect("written");
        let options = OpenOptions {
            system_map: Some(InputFile::open(&path).expect("the map")),
            ..OpenOptions::default()
        };
        let bytes = Bytes::from_vec(vmlinux(&USUAL));
        from_bytes("vmlinux", bytes, &options)
    };

    let kernel = open("ffffffff81000010 t one\nffffffff81000020 T two\n").expect("a kernel");
    assert_eq!(kernel.symbol_source, Some(SymbolSource::SystemMap));
    assert_eq!(kernel.symbols.address("two"), Some(TEXT + 0x20));
    assert_eq!(kernel.image.symbols().len(), 2);

    // The second address is not hexadecimal.
    let bad = open("ffffffff81000010 t one\nffffffff8100002x T two\n").expect_err("bad");
    assert_eq!(bad.what, KernelErrorKind::MapLine { line: 2 });
    assert!(bad.file.ends_with("System.map"));

    // The stub that Debian installs next to the image.
    let stub = open("ffffffffffffffff B The real System.map is elsewhere\n").expect_err("stub");
    assert_eq!(stub.what, KernelErrorKind::MapForeign);

    std::fs::remove_dir_all(&dir).expect("removed");
}

#[test]
fn orc_sections_of_different_lengths_are_an_error_with_a_place() {
    let mut bytes = vmlinux(&USUAL);
    let headers = bytes.len() - 5 * 64;
    bytes[headers + 3 * 64 + 32] -= 6;
    let KernelErrorKind::Orc(error) = open(bytes).expect_err("bad").what else {
        panic!("another error");
    };
    assert_eq!(
        (error.section, error.offset),
        (".orc_unwind_ip", 4 * (FUNCTIONS - 1))
    );
}

#[test]
fn a_damaged_kallsyms_table_is_not_taken() {
    let good = vmlinux(&USUAL);
    let index_end = good.len() - 5 * 64 - 43;
    for offset in [index_end - 4 * 616, index_end - 4 * 616 - 300] {
        let mut bytes = good.clone();
        bytes[offset] ^= 0x40;
        let kernel = open(bytes).expect("a kernel");
        assert_eq!(kernel.symbol_source, None);
        assert!(kernel.image.section(SectionKind::OrcUnwind).is_some());
    }
}

#[test]
fn names_that_their_markers_do_not_fit_are_not_taken() {
    let mut bytes = vmlinux(&USUAL);
    let symbols = symbols(&USUAL);
    let block = symbols[..256]
        .iter()
        .map(|(_, kind, name)| pack(*kind, name).len());
    let marker = u32::try_from(block.sum::<usize>()).expect("small");
    let at = bytes.windows(4).position(|w| w == marker.to_le_bytes());
    bytes[at.expect("the second marker")] ^= 1;
    assert_eq!(open(bytes).expect("a kernel").symbol_source, None);
}

#[test]
fn kaslr_is_found_by_a_symbol_and_by_return_addresses() {
    let kernel = open(vmlinux(&USUAL)).expect("a kernel");
    let offset = 0x1a60_0000;
    let at = TEXT + 8 * 9 + offset;
    assert_eq!(kernel.kaslr_by_symbol("function_9", at), Some(offset));
    assert_eq!(kernel.kaslr_by_symbol("function_9", at + 8), None);
    assert_eq!(kernel.kaslr_by_symbol("no_function", at), None);
    let mut returns: Vec<u64> = (0..40).map(|n| TEXT + offset + 8 * n + 5).collect();
    assert_eq!(kernel.kaslr(&returns), Some(offset));
    // Words that are not return addresses do no harm as long as they are the minority.
    returns.extend((0..30).map(|n| TEXT + 13 * n));
    assert_eq!(kernel.kaslr(&returns), Some(offset));
    assert_eq!(kernel.kaslr(&[]), None);
    assert_eq!(kernel.kaslr(&[TEXT + offset + 2]), None);
}

#[test]
fn section_kinds_are_those_of_the_file() {
    let kernel = open(vmlinux(&USUAL)).expect("a kernel");
    let kinds: Vec<_> = kernel.image.sections().iter().map(|s| s.kind).collect();
    use SectionKind::{OrcUnwind, OrcUnwindIp, Text};
    assert_eq!(kinds, [OrcUnwind, OrcUnwindIp, Text]);
    assert_eq!(kernel.image.text_bytes(TEXT, 1), [0xe8]);
}

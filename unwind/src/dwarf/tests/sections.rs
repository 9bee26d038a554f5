//! Entries, augmentations, pointer encodings, both sections, and finding the FDE of an address.

use super::super::Dwarf;
use super::*;
use crate::cache::RowId;
use crate::finder::Finder;
use crate::image::Mapping;
use alloc::sync::Arc;

#[track_caller]
fn malformed(result: Result<Compiled, Reason>) -> (&'static str, u64, &'static str) {
    match result {
        Err(Reason::MalformedRow {
            section,
            offset,
            what,
        }) => (section, offset, what),
        other => panic!("not malformed: {other:?}"),
    }
}

#[test]
fn augmentations() {
    let cases: &[(&str, &[u8], &str)] = &[
        ("", &[], "call"),
        ("S", &[], "signal"),
        ("z", &[0], "call"),
        ("zR", &[1, 0x00], "call"),
        ("zRS", &[1, 0x00], "signal"),
        ("zPLR", &[7, 0x1b, 1, 2, 3, 4, 0x1b, 0x00], "call"),
        ("zPR", &[6, 0x9b, 1, 2, 3, 4, 0x04], "call"),
    ];
    for &(augmentation, data, kind) in cases {
        let cie = Cie {
            augmentation,
            data,
            ..Cie::default()
        };
        let compiled = compile_eh_frame(&cie, &[]).expect(augmentation);
        let row = alloc::format!("1000: {kind} cfa=rsp+8 ra=*(cfa-8)");
        assert_eq!(compiled.rows, [row], "{augmentation}");
    }
}

#[test]
fn malformed_cies() {
    let check = |cie: Cie<'_>, what: &str| {
        let (section, offset, said) = malformed(compile_eh_frame(&cie, &[]));
        assert_eq!((section, said), (".eh_frame", what));
        assert!(
            offset < cie.bytes(0).len() as u64,
            "{offset:#x} is not in the CIE"
        );
    };

    // No standard ever had this version.
    let version = Cie {
        version: 2,
        ..Cie::default()
    };
    check(version, "unknown CIE version");

    let augmentation = |augmentation, data| Cie {
        augmentation,
        data,
        ..Cie::default()
    };
    // GCC 2's "eh", an unknown letter, and one before the `z` that announces the data.
    check(augmentation("eh", &[]), "unknown augmentation");
    check(augmentation("zX", &[0]), "unknown augmentation");
    check(augmentation("Sz", &[]), "unknown augmentation");

    // The data that a letter announces are missing, too long, or of an unknown encoding.
    check(augmentation("R", &[]), "the entry ends too early");
    check(
        augmentation("z", &[0xff, 0xff, 0x03]),
        "the entry ends too early",
    );
    check(
        augmentation("zP", &[2, 0x0f, 0]),
        "unknown pointer encoding",
    );

    let program = |program| Cie {
        program,
        ..Cie::default()
    };
    // `DW_CFA_advance_loc`
    check(program(&[0x41]), "a CIE must not advance the location");
    check(program(&[0x3f]), "unknown instruction");
}

#[test]
fn an_augmentation_has_a_longest_length() {
    for (letters, is_read) in [("SSSSSSSSSSSSSSS", true), ("SSSSSSSSSSSSSSSS", false)] {
        let cie = Cie {
            augmentation: letters,
            ..Cie::default()
        };
        let compiled = compile_eh_frame(&cie, &[]);
        assert_eq!(compiled.is_ok(), is_read, "{} letters", letters.len());
    }
}

/// Version 1 has one byte for the return-address column; later versions have an LEB128 number.
#[test]
fn the_return_address_column_has_one_byte_only_in_version_1() {
    // Column 144: DW_CFA_offset_extended puts it at cfa-8.
    let program = [0x01, 0x0c, 7, 8, 0x05, 0x90, 0x01, 1];
    for (version, program) in [(1, &program[1..]), (3, &program)] {
        let cie = Cie {
            version,
            ra: 0x90,
            program,
            ..Cie::default()
        };
        let compiled = compile_eh_frame(&cie, &[]).expect("readable");
        assert_eq!(
            compiled.rows,
            ["1000: call cfa=rsp+8 ra=*(cfa-8)"],
            "{version}"
        );
    }
}

#[test]
fn a_cie_of_debug_frame_must_be_in_its_section() {
    let mut bytes = debug_frame(3, false);
    let (len, fde) = (bytes.len() as u32, Cie::default().bytes(0).len());
    for (cie, what) in [
        (len - 1, "the entry ends too early"),
        (len, "its CIE lies outside the section"),
    ] {
        bytes[fde + 4..fde + 8].copy_from_slice(&cie.to_le_bytes());
        let image = image(SectionKind::DebugFrame, 0, bytes.clone());
        let (_, _, said) = malformed(compile(&image, TableKind::DebugFrame));
        assert_eq!(said, what, "{cie:#x}");
    }
}

/// An FDE with encoded addresses, and a CIE that declares the encoding.
fn encoded(encoding: u8, pointer: &[u8], length: &[u8]) -> Vec<u8> {
    let cie = Cie {
        augmentation: "zR",
        data: &[1, encoding],
        ..Cie::default()
    };
    let mut out = cie.bytes(0);
    let mut body = (out.len() as u32 + 4).to_le_bytes().to_vec();
    body.extend(pointer);
    body.extend(length);
    body.push(0);
    out.extend(entry(&body));
    out
}

#[test]
fn pointer_encodings() {
    // The pointer is 8 bytes into the FDE, which has 12 bytes without it.
    let at = ADDRESS + encoded(0, &[], &[]).len() as u64 - 12 + 8;
    let from_here = |to: u64| (to.wrapping_sub(at)) as u32;
    let cases: &[(u8, &[u8], &[u8])] = &[
        (0x00, &0x1000u64.to_le_bytes(), &0x100u64.to_le_bytes()),
        (0x01, &[0x80, 0x20], &[0x80, 0x02]),
        (0x02, &[0x00, 0x10], &[0x00, 0x01]),
        (0x03, &[0, 0x10, 0, 0], &[0, 1, 0, 0]),
        (0x04, &0x1000u64.to_le_bytes(), &0x100u64.to_le_bytes()),
        (0x09, &[0x80, 0x20], &[0x80, 0x02]),
        (0x0a, &[0x00, 0x10], &[0x00, 0x01]),
        (0x0b, &[0, 0x10, 0, 0], &[0, 1, 0, 0]),
        (0x0c, &0x1000u64.to_le_bytes(), &0x100u64.to_le_bytes()),
        (0x1b, &from_here(0x1000).to_le_bytes(), &[0, 1, 0, 0]),
    ];
    for (encoding, pointer, length) in cases {
        let bytes = encoded(*encoding, pointer, length);
        let image = image(SectionKind::EhFrame, ADDRESS, bytes);
        let unit = units(&image, TableKind::EhFrame).next().expect("an FDE");
        let range = unit.map(|u| u.range);
        assert_eq!(range, Ok(FUNCTION), "encoding {encoding:#x}");
    }
}

#[test]
fn pointers_that_cannot_be_read() {
    let cases = [
        (0xff, "an address is omitted"),
        (0x20, "unsupported pointer encoding"),
        (0x50, "unsupported pointer encoding"),
        (0x30, "data-relative address without a GOT"),
        (0x40, "function start is encoded relative to the function"),
        (0x07, "unknown pointer encoding"),
    ];
    for (encoding, what) in cases {
        let bytes = encoded(encoding, &[0; 8], &[1; 8]);
        let image = image(SectionKind::EhFrame, ADDRESS, bytes);
        let (_, _, said) = malformed(compile(&image, TableKind::EhFrame));
        assert_eq!(said, what, "encoding {encoding:#x}");
    }
    let wraps = encoded(0, &[0xff; 8], &[0xff; 8]);
    let image = image(SectionKind::EhFrame, ADDRESS, wraps);
    let (_, _, said) = malformed(compile(&image, TableKind::EhFrame));
    assert_eq!(said, "the function's range wraps around");
}

#[test]
fn a_data_relative_address_counts_from_the_got() {
    let mut parts = ImageParts::default();
    for (kind, address, bytes) in [
        (
            SectionKind::EhFrame,
            ADDRESS,
            encoded(0x3b, &[0, 0xf0, 0xff, 0xff], &[0, 1, 0, 0]),
        ),
        (SectionKind::Got, 0x2000, Vec::new()),
    ] {
        let data = Bytes::from_vec(bytes);
        parts.sections.push(Section {
            kind,
            address,
            data,
        });
    }
    let image = Image::new(parts);
    let unit = units(&image, TableKind::EhFrame).next().expect("an FDE");
    assert_eq!(unit.map(|u| u.range), Ok(FUNCTION));
}

/// A `.debug_frame` of this version and format.
fn debug_frame(version: u8, wide: bool) -> Vec<u8> {
    let cie = Cie {
        version,
        ..Cie::default()
    };
    let widen = |entry: Vec<u8>, word: u64| {
        if !wide {
            return entry;
        }
        let body = &entry[8..];
        let mut out = alloc::vec![0xff; 4];
        out.extend((body.len() as u64 + 8).to_le_bytes());
        out.extend(word.to_le_bytes());
        out.extend(body);
        out
    };
    let mut out = widen(cie.bytes(u32::MAX), u64::MAX);
    let mut body = 0u32.to_le_bytes().to_vec();
    body.extend(FUNCTION.start.to_le_bytes());
    body.extend((FUNCTION.end - FUNCTION.start).to_le_bytes());
    body.extend([0x41, 0x0e, 16]);
    out.extend(widen(entry(&body), 0));
    out
}

#[test]
fn debug_frame_of_every_version_and_format() {
    for version in [1, 3, 4] {
        for wide in [false, true] {
            let image = image(SectionKind::DebugFrame, 0, debug_frame(version, wide));
            let compiled = compile(&image, TableKind::DebugFrame).expect("readable");
            let expected = [
                "1000: call cfa=rsp+8 ra=*(cfa-8)",
                "1001: call cfa=rsp+16 ra=*(cfa-8)",
            ];
            assert_eq!(compiled.rows, expected, "version {version}, 64-bit: {wide}");
        }
    }
    let mut bytes = debug_frame(4, false);
    bytes[10] = 4;
    let (_, _, what) = malformed(compile(
        &image(SectionKind::DebugFrame, 0, bytes),
        TableKind::DebugFrame,
    ));
    assert_eq!(what, "addresses are not 8 bytes wide");
}

#[test]
fn units_continue_after_terminators_and_bad_entries() {
    let good = Cie::default().eh_frame(&[]);
    let mut bytes = good.clone();
    bytes.extend([0; 4]);
    // An FDE whose CIE would lie before the section.
    bytes.extend(entry(&[0xff, 0xff, 0, 0, 1, 2, 3, 4]));
    let second = bytes.len() as u64;
    bytes.extend(&good);
    let image = image(SectionKind::EhFrame, ADDRESS, bytes);
    let found: Vec<_> = units(&image, TableKind::EhFrame).collect();
    let cie = Cie::default().bytes(0).len() as u64;
    let offsets: Vec<_> = found.iter().map(|u| u.as_ref().map(|u| u.offset)).collect();
    assert_eq!(offsets.len(), 3, "{found:?}");
    assert_eq!((offsets[0], offsets[2]), (Ok(cie), Ok(second + cie)));
    assert!(matches!(offsets[1], Err(Reason::MalformedRow { .. })));
}

/// An image with these FDEs (start, length), with or without a header.
pub(super) fn with_functions(functions: &[(u64, u64)], header: bool) -> Arc<Image> {
    const HEADER: u64 = 0x4000;
    let mut bytes = Cie::default().bytes(0);

    let mut pairs = Vec::new();
    for &(start, length) in functions {
        pairs.push((start, ADDRESS + bytes.len() as u64));
        let mut body = (bytes.len() as u32 + 4).to_le_bytes().to_vec();
        body.extend(start.to_le_bytes());
        body.extend(length.to_le_bytes());
        bytes.extend(entry(&body));
    }

    // The search needs the order of addresses, whatever the order of the FDEs.
    pairs.sort_unstable();

    // `eh_frame_ptr` relative to itself, a count, then pairs relative to the header.
    let mut hdr = alloc::vec![1, 0x1b, 0x03, 0x3b];
    hdr.extend(((ADDRESS - HEADER - 4) as u32).to_le_bytes());
    hdr.extend((pairs.len() as u32).to_le_bytes());
    for (start, fde) in pairs {
        hdr.extend((start.wrapping_sub(HEADER) as u32).to_le_bytes());
        hdr.extend((fde.wrapping_sub(HEADER) as u32).to_le_bytes());
    }

    let mut parts = ImageParts {
        text: alloc::vec![0..u64::MAX],
        ..ImageParts::default()
    };
    let mut add = |kind, address, bytes| {
        let data = Bytes::from_vec(bytes);
        parts.sections.push(Section {
            kind,
            address,
            data,
        });
    };

    add(SectionKind::EhFrame, ADDRESS, bytes);
    add(SectionKind::DebugFrame, 0, debug_frame(3, false));
    if header {
        add(SectionKind::EhFrameHdr, HEADER, hdr);
    }

    Arc::new(Image::new(parts))
}

pub(super) fn find(
    image: &Arc<Image>,
    svma: u64,
    cache: &mut Cache,
) -> Result<(TableKind, u64), Reason> {
    let row = find_row(image, svma, cache)?;
    let source = cache.source(row);
    Ok((source.table, source.start))
}

/// The row of `svma`.
pub(super) fn find_row(image: &Arc<Image>, svma: u64, cache: &mut Cache) -> Result<RowId, Reason> {
    let mapping = Mapping {
        range: 0..u64::MAX,
        bias: 0,
        image: Some(image.clone()),
        name: String::new(),
    };
    Dwarf::new().find(&mapping, svma, cache)
}

#[test]
fn the_fde_of_an_address_with_a_header_and_without() {
    let functions = [(0x3000, 0x10), (0x2000, 0x100), (0x2100, 0x20), (0x5000, 1)];
    for header in [true, false] {
        let image = with_functions(&functions, header);
        let mut cache = Cache::new();

        let mut check = |svma, expected| {
            // Twice: compiled, then from the cache.
            assert_eq!(
                find(&image, svma, &mut cache),
                expected,
                "{svma:#x} {header}"
            );
            assert_eq!(
                find(&image, svma, &mut cache),
                expected,
                "{svma:#x} {header}"
            );
        };

        let eh = TableKind::EhFrame;
        check(0x2000, Ok((eh, 0x2000)));
        check(0x20ff, Ok((eh, 0x2000)));
        check(0x2100, Ok((eh, 0x2100)));
        check(0x211f, Ok((eh, 0x2100)));
        check(0x2120, Err(Reason::NoRow { pc: 0x2120 }));
        check(0x300f, Ok((eh, 0x3000)));
        check(0x3010, Err(Reason::NoRow { pc: 0x3010 }));
        check(0x5000, Ok((eh, 0x5000)));
        check(0x5001, Err(Reason::NoRow { pc: 0x5001 }));
        check(0x1fff, Err(Reason::NoRow { pc: 0x1fff }));
        check(u64::MAX, Err(Reason::NoRow { pc: u64::MAX }));

        // An address that .eh_frame does not cover may be in .debug_frame.
        check(0x1001, Ok((TableKind::DebugFrame, 0x1001)));
    }
}

#[test]
fn without_a_table_the_reason_says_so() {
    let image = Arc::new(Image::new(ImageParts::default()));
    let found = find(&image, 0x10, &mut Cache::new());
    assert_eq!(found, Err(Reason::NoTable { pc: 0x10 }));
}

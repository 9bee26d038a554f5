//! Hand-made files, damaged in every way. `tests/elf_files.rs` compares real ones with `readelf`.

extern crate std;

use super::*;
use alloc::sync::Arc;
use alloc::vec;

mod build;
mod conventions;
mod plt;
mod sections;
mod symbols;

/// A program with one executable segment, a build id note and `.eh_frame_hdr`, without section
/// headers.
fn program() -> Vec<u8> {
    let mut out = vec![0u8; 0x300];

    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    // ET_DYN, EM_X86_64, and three program headers of 56 bytes behind this header.
    put(16, &3u16.to_le_bytes());
    put(18, &62u16.to_le_bytes());
    put(32, &64u64.to_le_bytes());
    put(52, &64u16.to_le_bytes());
    put(54, &56u16.to_le_bytes());
    put(56, &3u16.to_le_bytes());

    let mut header = |index: usize, kind: u32, flags: u32, words: [u64; 6]| {
        let at = 64 + 56 * index;
        put(at, &kind.to_le_bytes());
        put(at + 4, &flags.to_le_bytes());
        for (i, word) in words.into_iter().enumerate() {
            put(at + 8 + 8 * i, &word.to_le_bytes());
        }
    };

    // PT_LOAD, PT_NOTE and PT_GNU_EH_FRAME.
    header(0, 1, 5, [0, 0x1000, 0x1000, 0x300, 0x300, 0x1000]);
    header(1, 4, 4, [0x200, 0x1200, 0x1200, 0x18, 0x18, 4]);
    header(2, 0x6474_e550, 4, [0x220, 0x1220, 0x1220, 0x0c, 0x0c, 4]);

    // A build id of eight bytes.
    put(0x200, &[4, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0]);
    put(0x20c, b"GNU\0\x01\x02\x03\x04\x05\x06\x07\x08");
    // `eh_frame_ptr` is relative to itself, in four bytes.
    put(0x220, &[1, 0x1b, 0x03, 0x3b]);
    put(0x224, &(0x240i32 - 0x224).to_le_bytes());

    // An entry of `.eh_frame`, its terminator, and other bytes of the segment.
    put(0x240, &12u32.to_le_bytes());
    put(0x254, &[0xff; 4]);

    out
}

fn parse(bytes: Vec<u8>) -> Result<Elf, ElfError> {
    read("test", Arc::new(bytes), &ReadOptions::default())
}

#[test]
fn a_file_without_section_headers_is_read_by_its_program_headers() {
    let elf = parse(program()).unwrap();
    assert_eq!(elf.problems, []);
    assert_eq!(elf.parts.build_id, [1, 2, 3, 4, 5, 6, 7, 8]);
    let image = elf.into_image();
    assert_eq!(image.text(), core::slice::from_ref(&(0x1000..0x1300)));
    let hdr = image.section(SectionKind::EhFrameHdr).unwrap();
    assert_eq!((hdr.address, hdr.data.len()), (0x1220, 12));
    let eh_frame = image.section(SectionKind::EhFrame).unwrap();
    assert_eq!((eh_frame.address, eh_frame.data.len()), (0x1240, 0x14));
    assert_eq!(image.text_bytes(0x1200, 4), [4, 0, 0, 0]);
}

/// Linkers put the start of its code into a library's header, too.
#[test]
fn a_program_has_an_entry_point_and_a_library_has_none() {
    let entry = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = program();
        // `e_entry`
        bytes[24..32].copy_from_slice(&0x1010u64.to_le_bytes());
        change(&mut bytes);
        let image = parse(bytes).unwrap().into_image();
        image.section(SectionKind::Entry).map(|s| s.address)
    };

    assert_eq!(entry(&|_| {}), None, "a library");
    assert_eq!(entry(&|bytes| bytes[16] = 2), Some(0x1010), "ET_EXEC");
    // The second program header becomes PT_INTERP, or PT_DYNAMIC with DT_FLAGS_1.
    let second = 64 + 56;
    assert_eq!(entry(&|bytes| bytes[second] = 3), Some(0x1010), "PT_INTERP");

    let dynamic = |flags: u64| {
        entry(&|bytes| {
            bytes[second] = 2;
            bytes[second + 32] = 32;
            bytes[0x200..0x208].copy_from_slice(&0x6fff_fffbu64.to_le_bytes());
            bytes[0x208..0x210].copy_from_slice(&flags.to_le_bytes());
        })
    };
    assert_eq!(dynamic(0x0800_0001), Some(0x1010), "DF_1_PIE");
    assert_eq!(dynamic(1), None, "DF_1_NOW");

    let outside = |bytes: &mut Vec<u8>| {
        bytes[16] = 2;
        bytes[25] = 0x70;
    };
    assert_eq!(entry(&outside), None, "not in code");
}

#[test]
fn other_files_are_refused_by_name() {
    let refused = |at: usize, byte: u8| {
        let mut bytes = program();
        bytes[at] = byte;
        parse(bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(0, 0).what, ElfErrorKind::NotElf);
    assert_eq!(refused(4, 1).what, ElfErrorKind::Class(1));
    assert_eq!(refused(5, 2).what, ElfErrorKind::BigEndian);
    assert_eq!(refused(18, 183).what, ElfErrorKind::Machine(183));
    assert_eq!(refused(16, 1).what, ElfErrorKind::Relocatable);
    assert_eq!(refused(16, 4).what, ElfErrorKind::Core);
    assert_eq!(refused(16, 9).what, ElfErrorKind::Type(9));
    assert_eq!(refused(56, 0).what, ElfErrorKind::NoHeaders);
    assert_eq!(parse(vec![]).unwrap_err().what, ElfErrorKind::NotElf);
    let error = refused(33, 0x80);
    assert_eq!((error.section, error.offset), ("program headers", 0x8040));
    assert_eq!(
        alloc::format!("{error}"),
        "program headers at offset 0x8040: lies outside the file of 768 bytes, or has entries of \
         the wrong size"
    );
}

#[test]
fn a_bad_header_of_eh_frame_is_a_problem_not_an_error() {
    let problem = |at: usize, byte: u8| {
        let mut bytes = program();
        bytes[at] = byte;
        let elf = parse(bytes).unwrap();
        assert!(
            elf.parts
                .sections
                .iter()
                .all(|s| s.kind != SectionKind::EhFrame)
        );
        elf.problems[0]
    };
    assert_eq!(problem(0x220, 2).what, ElfErrorKind::HdrVersion(2));
    assert_eq!(problem(0x221, 0x9b).what, ElfErrorKind::HdrEncoding(0x9b));
    let outside = problem(0x227, 0x70);
    assert_eq!(outside.what, ElfErrorKind::Pointer(0x7000_1240));
    assert_eq!((outside.section, outside.offset), (".eh_frame_hdr", 0x220));
}

#[test]
fn the_empty_header_that_v8_writes_is_an_empty_table() {
    // V8's header: its pointer and its counts are 0. perf puts it into a file without `.eh_frame`.
    let mut bytes = program();
    let segment_end = 0x220u64;
    bytes[64 + 32..64 + 40].copy_from_slice(&segment_end.to_le_bytes());
    bytes[64 + 40..64 + 48].copy_from_slice(&segment_end.to_le_bytes());
    bytes[0x224..0x228].copy_from_slice(&[0; 4]);
    let elf = parse(bytes.clone()).unwrap();
    assert_eq!(elf.problems, []);
    assert!(elf.into_image().section(SectionKind::EhFrame).is_none());

    // One that counts an FDE must lead to it.
    bytes[0x228] = 1;
    let problem = parse(bytes).unwrap().problems[0];
    assert_eq!(problem.what, ElfErrorKind::Pointer(0x1224));
}

#[test]
fn a_cut_or_altered_file_yields_only_what_it_contains() {
    let whole = program();

    // The number of bytes in the sections of a file of `len` bytes.
    let held = |elf: &Elf, len: usize| {
        let sections = &elf.parts.sections;
        for section in sections {
            assert!(section.data.len() <= len, "{:?}", section.kind);
        }
        sections.iter().map(|s| s.data.len()).sum::<usize>()
    };

    let all = held(&parse(whole.clone()).unwrap(), whole.len());
    assert!(all > 0);

    for len in 0..whole.len() {
        match parse(whole[..len].to_vec()) {
            Ok(elf) => assert!(held(&elf, len) <= all, "cut at {len}"),
            Err(error) => assert_ne!(alloc::format!("{error}"), "", "cut at {len}"),
        }
    }

    // Even the header is incomplete.
    assert!((0..64).all(|len| parse(whole[..len].to_vec()).is_err()));

    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(elf) = parse(bytes) {
                held(&elf, whole.len());
                // Whatever the segments are, this must not panic.
                let _ = elf.bias(0x7f00_0000_0000, 0x1000, 0, true);
            }
        }
    }
}

fn with_segments(segments: &[(u64, u64, u64, u32)]) -> Elf {
    let segments = segments.iter();
    let segment = |&(offset, address, size, flags)| Segment {
        offset,
        address,
        file_size: size,
        memory_size: size,
        align: 0x1000,
        flags,
    };
    Elf {
        segments: segments.map(segment).collect(),
        ..Elf::default()
    }
}

#[test]
fn the_bias_is_that_of_the_segment_that_was_mapped() {
    // GNU ld: each segment has its own pages.
    let ld = with_segments(&[
        (0, 0, 0xb40, 4),
        (0x1000, 0x1000, 0x6d1, 5),
        (0x2db8, 0x3db8, 0x258, 6),
    ]);
    assert_eq!(
        ld.bias(0x5000_1000, 0x1000, 0x1000, true),
        Some(0x5000_0000)
    );
    assert_eq!(
        ld.bias(0x5000_3000, 0x1000, 0x2000, false),
        Some(0x5000_0000)
    );

    // lld: segments share pages of the file, and the addresses jump.
    let lld = with_segments(&[
        (0, 0, 0x1540, 4),
        (0x1540, 0x2540, 0x900, 5),
        (0x1e40, 0x3e40, 0x100, 6),
    ]);
    assert_eq!(lld.bias(0x5000_0000, 0x2000, 0, false), Some(0x5000_0000));
    assert_eq!(
        lld.bias(0x5000_2000, 0x1000, 0x1000, true),
        Some(0x5000_0000)
    );
    assert_eq!(
        lld.bias(0x5000_3000, 0x1000, 0x1000, false),
        Some(0x5000_0000)
    );

    // A fixed address, and a piece cut out of the middle by mprotect or a huge page.
    let fixed = with_segments(&[(0, 0x40_0000, 0x80_0000, 5)]);
    assert_eq!(fixed.bias(0x40_0000, 0x80_0000, 0, true), Some(0));
    assert_eq!(fixed.bias(0x60_0000, 0x20_0000, 0x20_0000, true), Some(0));
    assert_eq!(fixed.bias(0x60_0000, 0x1000, 0x100_0000, true), None);
    assert_eq!(fixed.bias(0x60_0000, u64::MAX, 0x1000, true), None);

    // Only the pages of the executable segment are code.
    assert!(ld.is_code(0x1000, 0x1000) && lld.is_code(0x1000, 0x1000));
    assert!(!ld.is_code(0x1000, 0x2000) && !lld.is_code(0x2000, 0));
    assert!(!ld.is_code(u64::MAX, 0x1000));
}

/// The first mapping of a PIE reserves room for all segments, also if the first one has the code.
#[test]
fn a_mapping_that_reserves_all_segments_is_the_files() {
    let segment = |address, offset, file_size, flags| Segment {
        address,
        offset,
        file_size,
        memory_size: file_size,
        align: PAGE,
        flags,
    };
    let pie = Elf {
        segments: vec![segment(0, 0, 0x930, 5), segment(0x1dd0, 0xdd0, 0x258, 6)],
        ..Elf::default()
    };
    assert!(pie.has_room_for(0x1000, 0) && pie.has_room_for(0x3000, 0));
    for (length, offset) in [(0x2000, 0), (0x4000, 0), (0x3000, 0x1000), (0x2000, 0x1000)] {
        assert!(!pie.has_room_for(length, offset), "{length:#x} {offset:#x}");
    }
    let usual = Elf {
        segments: vec![segment(0, 0, 0x930, 4), segment(0x1000, 0x1000, 0x258, 5)],
        ..Elf::default()
    };
    assert!(!usual.has_room_for(0x2000, 0) && usual.has_room_for(0x1000, 0x1000));
}

#[test]
fn of_several_segments_in_a_mapping_the_first_counts() {
    // Both lie in the mapped part of the file, but only the first starts there.
    let two = with_segments(&[(0x1000, 0x11000, 0x800, 6), (0x2100, 0x22100, 0x800, 6)]);
    assert_eq!(
        two.bias(0x5000_0000, 0x2000, 0x1000, false),
        Some(0x5000_0000 - 0x11000)
    );

    // Another segment covers the same part of the file but starts earlier.
    let nested = with_segments(&[(0x2000, 0x22000, 0x800, 6), (0x1000, 0x11000, 0x1800, 6)]);
    let bias = nested.bias(0x5000_0000, 0x1000, 0x2000, false);
    assert_eq!(bias, Some(0x5000_0000 - 0x22000));

    // No segment starts there, so the mapping was cut out of the one that starts earlier.
    let cut = with_segments(&[(0, 0x10000, 0x3000, 6), (0x3000, 0x23000, 0x1000, 6)]);
    assert_eq!(
        cut.bias(0x5000_0000, 0x2000, 0x2000, false),
        Some(0x5000_0000 - 0x12000)
    );

    // A segment that ends where the mapping starts, or starts where it ends, is not in it, even if
    // it is the only executable one.
    let next = with_segments(&[
        (0, 0x10000, 0x2000, 5),
        (0x2000, 0x22000, 0x1000, 4),
        (0x3000, 0x33000, 0x1000, 5),
    ]);
    assert_eq!(
        next.bias(0x5000_0000, 0x1000, 0x2000, true),
        Some(0x5000_0000 - 0x22000)
    );

    // A segment without bytes in the file cannot be mapped from it.
    let empty = with_segments(&[(0, 0x10000, 0x3000, 4), (0x2800, 0x22800, 0, 5)]);
    assert_eq!(
        empty.bias(0x5000_0000, 0x1000, 0x2000, true),
        Some(0x5000_0000 - 0x12000)
    );
}

/// A shared object with section headers only, these symbol names and this string table.
fn with_symbols(names: &[u32], strings: &[u8]) -> Result<Elf, ElfError> {
    let mut out = vec![0u8; 64];

    // Section 0 is reserved and all zeros.
    let mut sections: Vec<[u64; 10]> = vec![[0; 10]];

    let mut add = |out: &mut Vec<u8>, kind: u64, flags: u64, link: u64, data: &[u8]| {
        sections.push([
            0,
            kind,
            flags,
            0x1000,
            out.len() as u64,
            data.len() as u64,
            link,
            0,
            1,
            0,
        ]);
        out.extend(data);
    };

    // The code, the symbols, and their strings.
    add(&mut out, 1, 6, 0, &[0x90; 64]);

    let symbol = |name: &u32| {
        let mut symbol = [0u8; 24];
        symbol[..4].copy_from_slice(&name.to_le_bytes());
        // A global function, in section 1.
        symbol[4] = 0x12;
        symbol[6] = 1;
        symbol[8..16].copy_from_slice(&0x1000u64.to_le_bytes());
        symbol
    };

    let symbols: Vec<u8> = names.iter().flat_map(symbol).collect();
    add(&mut out, 2, 0, 3, &symbols);
    add(&mut out, 3, 0, 0, strings);

    let at = out.len() as u64;
    for [
        name,
        kind,
        flags,
        address,
        offset,
        size,
        link,
        info,
        align,
        entry,
    ] in sections
    {
        out.extend((name as u32).to_le_bytes());
        out.extend((kind as u32).to_le_bytes());
        out.extend(
            [flags, address, offset, size]
                .iter()
                .flat_map(|w| w.to_le_bytes()),
        );
        out.extend((link as u32).to_le_bytes());
        out.extend((info as u32).to_le_bytes());
        out.extend([align, entry].iter().flat_map(|w| w.to_le_bytes()));
    }

    // The file header is filled in last, when the places are known.
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[3, 0, 62, 0]);
    // `e_shoff`; then four headers of 64 bytes, and the strings are the names of sections, too.
    put(40, &at.to_le_bytes());
    put(58, &[64, 0, 4, 0, 3, 0]);

    parse(out)
}

#[test]
fn symbol_names_that_share_bytes_do_not_multiply_them() {
    let elf = with_symbols(&[1, 5, 0], b"\0memcpy\0").unwrap();
    let names: Vec<&str> = elf.parts.symbols.iter().map(|s| s.name.as_str()).collect();
    assert_eq!((names, &elf.problems[..]), (vec!["memcpy", "py"], &[][..]));
    assert_eq!(elf.parts.text, core::slice::from_ref(&(0x1000..0x1040)));
    // Each name is a long tail of the same bytes.
    let mut strings = vec![b'x'; 60_000];
    strings.push(0);
    let many: Vec<u32> = (0..1000).collect();
    let elf = with_symbols(&many, &strings).unwrap();
    let limit = 1 << 20;
    assert_eq!(elf.problems[0].what, ElfErrorKind::SymbolNames { limit });
    assert_eq!(elf.parts.symbols.len(), 17);
    // Unterminated names cost as much as the longest and are dropped.
    let endless = vec![b'x'; 1 << 17];
    let elf = with_symbols(&many, &endless).unwrap();
    let limit = 16 << 17;
    assert_eq!(elf.problems[0].what, ElfErrorKind::SymbolNames { limit });
    assert_eq!(elf.parts.symbols.len(), 0);
}

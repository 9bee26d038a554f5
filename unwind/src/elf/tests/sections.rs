//! Selection of sections by name, type and program header.

use super::build::*;
use super::*;

/// Kind, address and length of the sections read.
fn taken(elf: &Elf) -> Vec<(SectionKind, u64, usize)> {
    let sections = elf.parts.sections.iter();
    sections
        .map(|s| (s.kind, s.address, s.data.len()))
        .collect()
}

#[test]
fn sections_are_known_by_name_or_by_type() {
    let names = [
        (".eh_frame", SectionKind::EhFrame),
        (".eh_frame_hdr", SectionKind::EhFrameHdr),
        (".debug_frame", SectionKind::DebugFrame),
        (".sframe", SectionKind::Sframe),
        (".orc_unwind", SectionKind::OrcUnwind),
        (".orc_unwind_ip", SectionKind::OrcUnwindIp),
        (".orc_header", SectionKind::OrcHeader),
    ];

    for (name, kind) in names {
        let eh_frame = sec(".eh_frame", PROGBITS, ALLOC, 0x9000, &[0; 4]);
        let elf = elf_of(
            &[sec(name, PROGBITS, ALLOC, 0x1000, &[7; 9]), eh_frame],
            &[],
        );
        assert_eq!(taken(&elf)[0], (kind, 0x1000, 9), "{name}");

        // A section without bytes is ignored.
        let elf = elf_of(&[sec(name, PROGBITS, ALLOC, 0x1000, &[])], &[]);
        assert_eq!((taken(&elf), elf.problems.len()), (vec![], 0), "{name}");
    }

    // By type, without a known name: `SHT_GNU_SFRAME`, and an ordinary section.
    let by_type = |kind| taken(&elf_of(&[sec(".other", kind, ALLOC, 0x1000, &[7; 9])], &[]));
    assert_eq!(by_type(0x6fff_fff4), [(SectionKind::Sframe, 0x1000, 9)]);
    assert_eq!(by_type(PROGBITS), []);
}

#[test]
fn the_offset_table_is_got_plt_or_else_got() {
    let section = |name, address| sec(name, PROGBITS, ALLOC, address, &[0; 8]);
    let (got, plt) = (section(".got", 0x1000), section(".got.plt", 0x2000));
    let address = |sections: &[Sec]| taken(&elf_of(sections, &[]));
    assert_eq!(
        address(core::slice::from_ref(&got)),
        [(SectionKind::Got, 0x1000, 0)]
    );
    for both in [[got.clone(), plt.clone()], [plt, got]] {
        assert_eq!(address(&both), [(SectionKind::Got, 0x2000, 0)]);
    }
}

#[test]
fn code_is_what_is_loaded_and_executable() {
    let text = |flags, len| {
        let section = sec(".text", PROGBITS, flags, 0x1000, &vec![0x90; len]);
        elf_of(&[section], &[]).parts.text
    };
    assert_eq!(text(ALLOC | EXEC, 8), vec![0x1000..0x1008]);
    assert_eq!(text(ALLOC | EXEC, 0), vec![]);
    for flags in [0, ALLOC, EXEC, ALLOC | 1] {
        assert_eq!(text(flags, 8), vec![], "{flags}");
    }
}

#[test]
fn text_is_what_executable_segments_load() {
    let sections = [
        sec(".a", PROGBITS, ALLOC, 0x1000, &[1; 8]),
        sec(".b", PROGBITS, ALLOC, 0x2000, &[2; 8]),
        sec(".c", PROGBITS, ALLOC, 0x3000, &[3; 8]),
        sec(".d", PROGBITS, ALLOC, 0x4000, &[]),
    ];
    // Loaded and executable; loaded only; executable only (a stack); loaded, but without bytes.
    let programs = [(1, 5, 0), (1, 6, 1), (0x6474_e551, 7, 2), (1, 1, 3)];
    let elf = elf_of(&sections, &programs);
    assert_eq!(taken(&elf), [(SectionKind::Text, 0x1000, 8)]);
    assert_eq!(elf.problems, []);
}

#[test]
fn program_headers_locate_tables_without_a_section() {
    let hdr = sec(
        ".hdr",
        PROGBITS,
        ALLOC,
        0x1000,
        &[1, 0xff, 0, 0, 0, 0, 0, 0],
    );
    let sframe = sec(".table", PROGBITS, ALLOC, 0x2000, &[5; 9]);
    let empty = sec(".none", PROGBITS, ALLOC, 0x3000, &[]);
    let sections = [hdr, sframe, empty];

    let found = |programs: &[Program]| taken(&elf_of(&sections, programs));
    // PT_GNU_EH_FRAME and PT_GNU_SFRAME.
    let (eh, sf) = (0x6474_e550, 0x6474_e554);
    assert_eq!(found(&[(eh, 4, 0)]), [(SectionKind::EhFrameHdr, 0x1000, 8)]);
    assert_eq!(found(&[(sf, 4, 1)]), [(SectionKind::Sframe, 0x2000, 9)]);
    assert_eq!(found(&[(eh, 4, 2), (sf, 4, 2)]), []);

    // A second header for the same table is ignored.
    assert_eq!(
        found(&[(sf, 4, 1), (sf, 4, 0)]),
        [(SectionKind::Sframe, 0x2000, 9)]
    );

    let named = sec(".sframe", PROGBITS, ALLOC, 0x4000, &[6; 7]);
    let twice = elf_of(&[sections[1].clone(), named], &[(sf, 4, 0)]);
    assert_eq!(taken(&twice), [(SectionKind::Sframe, 0x4000, 7)]);

    // A debug file has its program's headers, but other bytes.
    let code = sec(".text", NOBITS, ALLOC | EXEC, 0x5000, &[0; 8]);
    let debug = elf_of(&[sections[1].clone(), code], &[(sf, 4, 0), (1, 5, 0)]);
    assert_eq!(taken(&debug), []);
}

#[test]
fn the_header_leads_to_eh_frame_in_each_encoding() {
    // The frames start 16 bytes after the header's start, in the same segment at 0x1000.
    let found = |encoding: u8, value: &[u8]| {
        let mut bytes = vec![1, encoding, 3, 0x3b];
        bytes.extend(value);
        bytes.resize(16, 0);
        bytes.extend([0x77; 20]);

        let hdr = sec(".hdr", PROGBITS, ALLOC, 0x1000, &bytes);
        let elf = elf_of(&[hdr], &[(1, 4, 0), (0x6474_e550, 4, 0)]);
        let at = elf.parts.sections.iter();
        let at = at.filter(|s| s.kind == SectionKind::EhFrame);
        let at: Vec<_> = at.map(|s| (s.address, s.data.len(), s.data[0])).collect();
        at.first().copied().ok_or_else(|| elf.problems[0].what)
    };

    let expected = Ok((0x1010, 20, 0x77));
    // Absolute, relative to the field, and relative to the header (DW_EH_PE_datarel).
    for (base, value) in [(0x00, 0x1010_i64), (0x10, 0x1010 - 0x1004), (0x30, 0x10)] {
        let (four, eight) = ((value as i32).to_le_bytes(), value.to_le_bytes());
        for kind in [0x00, 0x04, 0x0c] {
            assert_eq!(found(base | kind, &eight), expected, "{base:#x} {kind:#x}");
        }
        for kind in [0x03, 0x0b] {
            assert_eq!(found(base | kind, &four), expected, "{base:#x} {kind:#x}");
        }
    }

    for encoding in [0x01, 0x02, 0x09, 0x1a, 0x23, 0x43, 0xff] {
        let error = Err(ElfErrorKind::HdrEncoding(encoding));
        assert_eq!(found(encoding, &[0; 8]), error, "{encoding:#x}");
    }
}

#[test]
fn a_debug_link_is_a_name_padding_and_a_sum() {
    let link = |bytes: &[u8]| {
        let elf = elf_of(&[sec(".gnu_debuglink", PROGBITS, 0, 0, bytes)], &[]);
        let link = elf.debug_link.map(|link| (link.name, link.crc));
        link.ok_or(elf.problems.len())
    };
    let found = |name: &str| Ok((String::from(name), 0x0403_0201));
    assert_eq!(link(b"abc\0\x01\x02\x03\x04"), found("abc"));
    assert_eq!(link(b"abcd\0\0\0\0\x01\x02\x03\x04"), found("abcd"));
    assert_eq!(link(b"ab\0\0\x01\x02\x03\x04\xff"), found("ab"));
    assert_eq!(link(b"abc\0\x01\x02\x03"), Err(1));
    assert_eq!(link(b"abcdefgh"), Err(1));
    assert_eq!(link(b""), Err(0));
    // The longest possible file name, and one byte more.
    for (len, fits) in [(255, true), (256, false)] {
        let mut bytes = vec![b'x'; len];
        bytes.resize((len + 1).next_multiple_of(4), 0);
        bytes.extend([1, 2, 3, 4]);
        assert_eq!(link(&bytes).is_ok(), fits, "{len}");
    }
}

#[test]
fn a_small_debug_file_is_kept_packed() {
    let elf = elf_of(&[sec(".gnu_debugdata", PROGBITS, 0, 0, &[1, 2, 3])], &[]);
    assert_eq!(elf.debug_data.as_deref(), Some(&[1, 2, 3][..]));
}

/// The format before `SHF_COMPRESSED`: `ZLIB` and a big-endian size in front of the data.
#[test]
fn a_zdebug_section_is_a_compressed_one() {
    let read = |bytes: &[u8]| elf_of(&[sec(".zdebug_frame", PROGBITS, 0, 0, bytes)], &[]);
    let elf = read(b"ZLIB\0\0\0\0\0\0\x12\x34packed");
    let [found] = &elf.compressed[..] else {
        panic!("one section expected");
    };
    assert_eq!((found.kind, found.size), (SectionKind::DebugFrame, 0x1234));
    assert_eq!(
        (found.compression, found.offset),
        (Compression::Zlib, 64 + 12)
    );
    assert_eq!(&found.data[..], b"packed");
    assert_eq!(taken(&elf), []);

    // Without the header, it is what it is.
    for bytes in [&b"ZLIB"[..], b"twelve bytes and no header"] {
        let elf = read(bytes);
        assert!(elf.compressed.is_empty() && elf.problems.is_empty());
        assert_eq!(&elf.parts.sections[0].data[..], bytes);
    }
}

#[test]
fn a_compressed_section_is_kept_packed() {
    const COMPRESSED: u64 = 0x800;
    let read = |kind: u8, len: usize| {
        let mut bytes = vec![0; 24];
        // `ch_type` and `ch_size` of `Elf64_Chdr`.
        bytes[0] = kind;
        bytes[8] = 0x34;
        bytes[9] = 0x12;
        bytes.extend([9; 5]);
        bytes.truncate(len);

        let section = sec(".debug_frame", PROGBITS, COMPRESSED, 0x1000, &bytes);
        let elf = elf_of(&[section], &[]);
        assert_eq!(taken(&elf), []);
        let problem = elf.problems.first().map(|problem| problem.what);
        (elf.compressed, problem)
    };

    for (kind, compression) in [(1, Compression::Zlib), (2, Compression::Zstd)] {
        let (found, problem) = read(kind, 29);
        assert_eq!(problem, None);
        let found = &found[0];
        assert_eq!(
            (found.kind, found.address),
            (SectionKind::DebugFrame, 0x1000)
        );
        assert_eq!((found.compression, found.size), (compression, 0x1234));
        // The file header is 64 bytes long, the section's header 24.
        assert_eq!((found.offset, &found.data[..]), (64 + 24, &[9; 5][..]));
    }

    assert_eq!(read(3, 29).1, Some(ElfErrorKind::Compression(3)));

    let cut = read(1, 23).1;
    assert!(
        matches!(cut, Some(ElfErrorKind::OutOfFile { .. })),
        "{cut:?}"
    );
}

#[test]
fn a_program_with_empty_data_is_not_a_debug_file() {
    let sections = [
        sec(".text", PROGBITS, ALLOC | EXEC, 0x1000, &[0x90; 8]),
        sec(".bss", NOBITS, ALLOC, 0x2000, &[0; 8]),
    ];
    let elf = elf_of(&sections, &[(1, 5, 0)]);
    assert_eq!(taken(&elf), [(SectionKind::Text, 0x1000, 8)]);
}

#[test]
fn a_build_id_is_a_note_of_gnu_of_64_bytes_at_most() {
    const NOTE: u32 = 7;
    let id = |kind: u32, name: &[u8; 4], len: usize| {
        // The lengths of name and content, the type, then both, each padded to four bytes.
        let mut note = [4, len as u32, 3].map(u32::to_le_bytes).concat();
        note.extend(name);
        note.resize(note.len() + len, 0x11);
        note.resize(note.len().next_multiple_of(4), 0);

        let section = sec(".note", kind, ALLOC, 0x1000, &note);
        let by_section = elf_of(core::slice::from_ref(&section), &[]);

        // The same with a program header; only PT_NOTE counts.
        let by_segment = elf_of(&[sec(".x", PROGBITS, ALLOC, 0x1000, &note)], &[(4, 4, 0)]);
        assert_eq!(
            by_segment.parts.build_id.len(),
            if name == b"GNU\0" && len <= 64 {
                len
            } else {
                0
            }
        );

        let loaded = elf_of(&[sec(".x", PROGBITS, ALLOC, 0x1000, &note)], &[(1, 4, 0)]);
        assert_eq!(loaded.parts.build_id, []);
        by_section.parts.build_id.len()
    };

    assert_eq!(id(NOTE, b"GNU\0", 20), 20);
    assert_eq!(id(NOTE, b"GNU\0", 64), 64);
    assert_eq!(id(NOTE, b"GNU\0", 65), 0);
    assert_eq!(id(NOTE, b"Gnu\0", 20), 0);
    assert_eq!(id(PROGBITS, b"GNU\0", 20), 0);
}

//! New files, read back with another reader.

use super::*;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

/// Code, data that is only in memory, an index of unwind rows, and what is not loaded.
fn example() -> NewFile<'static> {
    let new = NewFileSection::new;
    NewFile {
        entry: Some(0x40_1010),
        sections: vec![
            new(".text", &[0xc3; 0x30]).at(0x40_1010, NewFileSection::CODE),
            NewFileSection::without_bytes(".bss", 0x50_0000, 0x3000, NewFileSection::DATA),
            new(".eh_frame_hdr", &[1, 0xff, 0xff, 0xff]).at(0x50_4008, NewFileSection::READ_ONLY),
            new(".comment", b"made"),
        ],
        symbols: vec![
            NewFileSymbol {
                name: "main",
                address: 0x40_1010,
                size: 0x20,
                section: Some(0),
            },
            NewFileSymbol {
                name: "cut\0off",
                address: 0x40_1030,
                size: 0x10,
                section: None,
            },
        ],
    }
}

#[test]
fn what_is_written_is_read_back() {
    let bytes = example().bytes(1 << 20).expect("a small file");
    let file: ElfFile64<'_> = ElfFile64::parse(&*bytes).expect("an ELF file");
    assert_eq!(
        (file.kind(), file.entry()),
        (object::ObjectKind::Executable, 0x40_1010)
    );

    let sections: Vec<_> = file
        .sections()
        .map(|s| {
            (
                s.name().expect("text"),
                s.address(),
                s.size(),
                s.data().expect("in it").len(),
            )
        })
        .collect();
    assert_eq!(
        sections[..4],
        [
            (".text", 0x40_1010, 0x30, 0x30),
            (".bss", 0x50_0000, 0x3000, 0),
            (".eh_frame_hdr", 0x50_4008, 4, 4),
            (".comment", 0, 4, 4),
        ]
    );
    let names: Vec<&str> = sections[4..].iter().map(|section| section.0).collect();
    assert_eq!(names, [".strtab", ".symtab", ".shstrtab"]);
    let comment = file.section_by_name_bytes(b".comment").expect("a section");
    assert_eq!(comment.data(), Ok(&b"made"[..]));

    // As `mmap` wants it.
    let segments: Vec<_> = file.segments().collect();
    // In memory and in the file: `.bss` has its size in memory alone.
    let sizes: Vec<_> = segments
        .iter()
        .map(|s| (s.address(), s.size(), s.file_range().1))
        .collect();
    assert_eq!(
        sizes,
        [
            (0x40_1010, 0x30, 0x30),
            (0x50_0000, 0x3000, 0),
            (0x50_4008, 4, 4)
        ]
    );
    for segment in segments {
        let (offset, _) = segment.file_range();
        assert_eq!(segment.address() % PAGE, offset % PAGE);
    }

    let symbols: Vec<_> = file
        .symbols()
        .map(|s| {
            (
                s.name().expect("text"),
                s.address(),
                s.size(),
                s.section_index(),
            )
        })
        .collect();
    let text = Some(object::SectionIndex(1));
    assert_eq!(
        symbols,
        [
            ("main", 0x40_1010, 0x20, text),
            ("cut", 0x40_1030, 0x10, None)
        ]
    );
}

#[test]
fn a_file_without_symbols_is_a_shared_object_without_their_table() {
    let file = NewFile {
        entry: None,
        symbols: Vec::new(),
        ..example()
    };
    let bytes = file.bytes(1 << 20).expect("a small file");
    let file: ElfFile64<'_> = ElfFile64::parse(&*bytes).expect("an ELF file");
    assert_eq!(file.kind(), object::ObjectKind::Dynamic);
    assert!(file.section_by_name(".symtab").is_none());
    assert!(file.section_by_name(".text").is_some());
}

#[test]
fn limits_hold() {
    let len = example().bytes(u64::MAX).expect("a small file").len() as u64;
    assert!(example().bytes(len).is_ok());
    let max = len - 1;
    assert_eq!(
        example().bytes(max),
        Err(NewFileError::TooLong { len, max })
    );

    let many = NewFile {
        sections: vec![NewFileSection::new(".one", &[]); 0xff00],
        ..NewFile::default()
    };
    assert_eq!(many.bytes(u64::MAX), Err(NewFileError::TooMany));
}

//! The changed file keeps what it had, and says where the new sections are.

use super::*;

/// A position-independent executable, and a static one at a fixed address.
const FILES: [(&str, &[u8]); 2] = [
    ("t_2.46", include_bytes!("../../corpus/sframe/t_2.46")),
    ("v3flex", include_bytes!("../../corpus/sframe/v3flex")),
];

fn section(name: &'static str, address: u64, len: usize, program: Option<u32>) -> NewSection {
    NewSection {
        name,
        kind: 1,
        address,
        align: 8,
        entry_size: 0,
        program,
        bytes: (0..len).map(|i| i as u8 | 1).collect(),
    }
}

fn headers_of(data: &[u8]) -> headers::ElfHeaders {
    headers::read("new", data).expect("headers")
}

fn field(data: &mut [u8], at: usize, bytes: &[u8]) {
    data[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn what_was_there_keeps_its_place() {
    for (name, data) in FILES {
        let editor = Editor::open(name, data).expect("an ELF file");
        let new = section(".new", editor.room(), 100, Some(0x6fff_0001));
        let out = editor.add(std::slice::from_ref(&new)).expect("a file");
        let kept = editor.kept as usize;
        assert_eq!(out[64..kept], data[64..kept], "{name}");
        assert_eq!(out[..0x20], data[..0x20], "{name}");
        let (before, after) = (headers_of(data), headers_of(&out));
        let old = before.sections.len();
        for (i, (was, is)) in before.sections.iter().zip(&after.sections).enumerate() {
            // Only the names are elsewhere.
            assert_eq!(was == is, Some(i) != before.names_index, "{name} {i}");
        }
        assert_eq!(after.sections.len(), old + 1);
        let added = &after.sections[old];
        let range = added.offset as usize..(added.offset + added.size) as usize;
        assert_eq!(out[range], new.bytes[..], "{name}");
        assert_eq!((added.address, added.flags), (new.address, SHF_ALLOC));
    }
}

#[test]
fn the_new_segment_holds_the_program_headers_and_the_sections() {
    for (name, data) in FILES {
        let editor = Editor::open(name, data).expect("an ELF file");
        let new = section(".new", editor.room(), 5000, Some(0x6fff_0001));
        let out = editor.add(std::slice::from_ref(&new)).expect("a file");

        // The headers are read from the bytes, as a loader would do it.
        let (before, after) = (headers_of(data), headers_of(&out));
        let loads: Vec<_> = after
            .programs
            .iter()
            .filter(|p| p.kind == PT_LOAD)
            .collect();

        assert!(loads.is_sorted_by_key(|p| p.address), "{name}");
        let (load, others) = loads.split_last().expect("segments");
        let old = before.programs.iter().filter(|p| p.kind == PT_LOAD);
        assert!(others.iter().copied().eq(old), "{name}");

        // A page of the file is mapped to a page of memory, so both have the same offset in it
        // (gABI, `p_align`).
        assert_eq!(load.address % PAGE, load.offset % PAGE);
        let first = loads[0];
        assert_eq!(
            load.address - load.offset,
            first.address - first.offset,
            "{name}"
        );

        // The table has moved to the start of the new segment, and has room there.
        let table = headers::program_table(&out);
        assert_eq!(table, load.offset);
        let len = (after.programs.len() * phdr::LEN) as u64;
        assert!(table + len <= load.offset + load.file_size);
        assert_eq!(load.address + load.file_size, new.end());

        for phdr in after.programs.iter().filter(|p| p.kind == PT_PHDR) {
            assert_eq!((phdr.offset, phdr.address), (load.offset, load.address));
            assert_eq!(phdr.file_size, len);
        }

        // The new section has a program header of its own, by which it is found at run time.
        let found = after.programs.iter().find(|p| p.kind == 0x6fff_0001);
        let found = found.expect("the new program header");
        assert_eq!((found.address, found.file_size), (new.address, 5000));
        assert_eq!(found.offset - load.offset, found.address - load.address);
    }
}

#[test]
fn a_section_of_the_same_name_is_replaced() {
    let (name, data) = FILES[0];
    let editor = Editor::open(name, data).expect("an ELF file");
    let before = headers_of(data);
    let new = section(".sframe", editor.room(), 4000, Some(0x6474_e554));
    let out = editor.add(&[new]).expect("a file");
    let after = headers_of(&out);
    assert_eq!(after.sections.len(), before.sections.len());
    assert_eq!(after.programs.len(), before.programs.len() + 1);
    let again = Editor::open("again", &out).expect("an ELF file");
    let room = again.reusable(".sframe", 0x6474_e554).expect("room");
    assert_eq!(room.end - room.start, 4000);
    // Over the old contents: nothing else changes.
    let new = section(".sframe", room.start, 3000, Some(0x6474_e554));
    let over = again.replace(&new).expect("a file");
    assert_eq!(over.len(), out.len());
    let changed = (0..out.len()).filter(|i| out[*i] != over[*i]).count();
    assert!(changed > 900 && changed < 1100, "{changed}");
    assert_eq!(headers_of(&over).sections.len(), after.sections.len());
    let large = section(".sframe", room.start, 4001, Some(0x6474_e554));
    assert!(again.replace(&large).is_err());
}

#[test]
fn a_file_without_section_headers_gets_some() {
    let (name, data) = FILES[0];
    let mut data = data[..headers::section_table(data) as usize].to_vec();
    field(&mut data, 0x28, &[0; 8]);
    field(&mut data, 0x3c, &[0; 4]);
    // The bytes of debug sections are now nobody's.
    let end = headers::read(name, &data).err().map(|error| match error {
        ElfWriteError::Overlay { offset, .. } => offset as usize,
        other => panic!("{other}"),
    });
    data.truncate(end.unwrap_or(data.len()));
    let editor = Editor::open(name, &data).expect("an ELF file");
    let new = section(".new", editor.room(), 10, None);
    let out = editor.add(&[new]).expect("a file");
    let after = Editor::open("after", &out).expect("an ELF file");
    let names: Vec<_> = after.sections.iter().map(|s| after.name_of(s)).collect();
    assert_eq!(names, [&b""[..], b".new", b".shstrtab"]);
}

#[test]
fn large_zeroed_memory_leaves_no_hole_in_the_file() {
    let (name, data) = FILES[0];
    let mut data = data.to_vec();
    let table = headers::program_table(&data) as usize;
    let programs = headers_of(&data).programs;
    let last = programs
        .iter()
        .rposition(|p| p.kind == PT_LOAD)
        .expect("a segment");

    // A large `.bss` takes memory, but no bytes of the file.
    let size = 1u64 << 34;
    // `p_memsz`.
    field(
        &mut data,
        table + last * phdr::LEN + 40,
        &size.to_le_bytes(),
    );

    let editor = Editor::open(name, &data).expect("an ELF file");
    let out = editor
        .add(&[section(".new", editor.room(), 10, None)])
        .expect("a file");
    assert!(out.len() < data.len() + 0x4000, "{}", out.len());

    // The segment is above that memory, in a file that is hardly larger.
    let after = headers_of(&out);
    let mut loads = after.programs.iter().filter(|p| p.kind == PT_LOAD);
    let load = loads.next_back().expect("a segment");
    assert!(load.address >= programs[last].address + size);
    assert_eq!(load.address % PAGE, load.offset % PAGE);
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let (name, data) = FILES[0];
    let refused = |data: &[u8]| Editor::open(name, data).map(|_| ()).expect_err("refused");
    assert!(matches!(refused(b"\x7fELF"), ElfWriteError::NotElf { .. }));

    let cut = &data[..data.len() - 1];
    assert!(matches!(refused(cut), ElfWriteError::Cut { .. }));

    // Bytes that no header accounts for may be the program's own data.
    let longer = [data, &[7; 100]].concat();

    let ElfWriteError::Overlay { offset, len, .. } = refused(&longer) else {
        panic!("not an overlay");
    };
    assert_eq!((offset, len), (data.len() as u64, 100));

    let mut many = data.to_vec();
    // `e_phnum`.
    field(&mut many, 0x38, &[0xff, 0xff]);
    assert!(matches!(
        refused(&many),
        ElfWriteError::TooManyHeaders { .. }
    ));

    let mut none = data.to_vec();
    field(&mut none, 0x38, &[0, 0]);
    assert!(matches!(refused(&none), ElfWriteError::NoSegments { .. }));

    let mut high = data.to_vec();
    let table = headers::program_table(data) as usize;
    let last = headers_of(data)
        .programs
        .iter()
        .rposition(|p| p.kind == PT_LOAD);
    // `p_vaddr`.
    let at = table + last.expect("a segment") * phdr::LEN + 16;
    field(&mut high, at, &0xffff_ffff_ffff_f000u64.to_le_bytes());
    assert!(matches!(refused(&high), ElfWriteError::NoRoom { .. }));
}

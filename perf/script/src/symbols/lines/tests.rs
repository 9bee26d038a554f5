//! Source lines of the corpus' programs, as printed by `addr2line`, and of hostile files.

use super::super::files::lines_among;
use super::super::helper::Owner;
use super::super::helper::tests::PLAIN;
use super::*;
use crate::random::Random;
use object::elf::FileHeader64;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Elf64 = FileHeader64<Endianness>;

fn owned(bytes: &[u8]) -> Owner {
    Arc::new(bytes.to_vec())
}

fn program(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/perfdata/script/symfs");
    std::fs::read(folder.join(name)).expect("the corpus")
}

fn at(lines: &mut Lines, offset: u64) -> Option<(String, u32)> {
    match lines.at(offset) {
        SourceLine::Line { file, line } => Some((String::from_utf8_lossy(file).into(), line)),
        SourceLine::Unknown => None,
        SourceLine::NoLines { .. } => panic!("the file has lines"),
    }
}

#[test]
fn of_rows_at_one_address_the_last_holds() {
    let mut lines =
        lines_among::<Elf64>(&[owned(&program("root/tchain_fp"))], b"", PLAIN).expect("lines");
    let mut line = |offset| at(&mut lines, offset).map(|(_, line)| line);
    let found = [0x11e0, 0x11ec, 0x11ed, 0x1233, 0x1234, 0x1244].map(&mut line);
    assert_eq!(found, [10, 10, 11, 14, 15, 12].map(Some));
    // Code of the C library, data, and nothing.
    let outside = [0x1190, 0x10f0, 0x2010, 0x9999, u64::MAX].map(line);
    assert_eq!(outside, [None; 5]);
    let file = at(&mut lines, 0x1240).map(|(file, _)| file);
    assert_eq!(file.as_deref(), Some("tchain.c"));
}

#[test]
fn a_file_without_lines_has_none() {
    let address = |address| SourceLine::NoLines { address };
    // In a program with fixed addresses, code is at its offset plus 0x400000; all else is unknown.
    let mut none =
        lines_among::<Elf64>(&[owned(&program("opt/fields"))], b"", PLAIN).expect("a file");
    assert_eq!(none.at(0x1011), address(0x401011));
    assert_eq!(none.at(0x7fff_0000), address(0x7fff_0000));
    let bytes = program("root/deep");
    let mut another =
        lines_among::<Elf64>(&[owned(&bytes)], b"another build id", PLAIN).expect("a file");
    assert_eq!(another.at(0x12f0), address(0x12f0));
    assert!(lines_among::<Elf64>(&[owned(b"no ELF")], b"", PLAIN).is_none());
}

#[test]
fn damaged_lines_have_an_answer() {
    let begin = Instant::now();
    let whole = program("root/deep");
    let file = owned(&whole);
    let table = Parts::<'_, Elf64>::parse(&file).expect("ELF");
    let (_, section) = table.section(b".debug_line").expect("lines");
    let (start, size) = section.file_range(table.endian).expect("bytes");

    let mut random = Random::new(1);
    for _ in 0..2000 {
        let mut bytes = whole.clone();
        for _ in 0..3 {
            let place = start + random.below_u64(size);
            bytes[place as usize] = random.below(256) as u8;
        }

        // Every address must have an answer, whatever is left of the lines.
        if let Some(mut lines) = lines_among::<Elf64>(&[owned(&bytes)], b"", PLAIN) {
            assert!(lines.sequences.len() <= size as usize);
            for offset in (0x1000..0x1480).step_by(7) {
                let _ = lines.at(offset);
            }
        }
    }

    // Nor may damage make the reader slow.
    assert!(begin.elapsed() < Duration::from_secs(20));
}

/// A program of DWARF 5 with a row for each of `files` files, all named by offset 0 of
/// `.debug_line_str`.
fn files_of_one_name(files: u32, name: &[u8]) -> Lines {
    let leb = |out: &mut Vec<u8>, mut value: u32| {
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    };

    // Smallest instruction to opcode base, the lengths of the standard opcodes, one folder.
    let mut rest = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1];
    rest.extend([1, 1, 0x1f, 1, 0, 0, 0, 0, 1, 1, 0x1f]);
    leb(&mut rest, files);
    rest.extend(std::iter::repeat_n(0, 4 * files as usize));

    // `DW_LNE_set_address`, then for each file `DW_LNS_set_file`, a row, and an advance.
    let header = rest.len() as u32;
    rest.extend([0, 9, 2, 0, 0x10, 0, 0, 0, 0, 0, 0]);
    for file in 0..files {
        rest.push(4);
        leb(&mut rest, file);
        rest.extend([1, 2, 1]);
    }
    rest.extend([0, 1, 1]);

    // Version 5, addresses of eight bytes, no segments.
    let mut line = (rest.len() as u32 + 8).to_le_bytes().to_vec();
    line.extend([5, 0, 8, 0]);
    line.extend(header.to_le_bytes());
    line.extend(rest);

    let mut lines = Lines {
        is_known: true,
        line,
        line_strings: name.to_vec(),
        address_size: 8,
        ..Lines::default()
    };
    lines.sequences = lines.find_sequences();
    lines
}

/// A short file that claims a long name for each of many files takes no memory for them.
#[test]
fn names_are_bounded_and_not_copied() {
    let mut lines = files_of_one_name(300, b"/usr/src/a.c\0");
    let found = [0x1000, 0x1123].map(|address| at(&mut lines, address));
    assert_eq!(found, [(); 2].map(|()| Some(("a.c".to_owned(), 1))));
    assert_eq!(at(&mut lines, 0x1000 + 300), None);
    let of_length = |length| [&vec![b'x'; length][..], b"\0"].concat();
    for name in [&of_length(PATH_BYTES_MAX)[..], b"no end", b""] {
        let mut lines = files_of_one_name(300, name);
        assert_eq!(at(&mut lines, 0x1123), None);
    }
    let mut longest = files_of_one_name(300, &of_length(PATH_BYTES_MAX - 1));
    assert!(at(&mut longest, 0x1123).is_some());
}

//! What is written is read again; archives made by hand, whole and damaged.

use super::*;

/// An entry, written by hand: mode, contents, and the name with its NUL.
fn entry(name: &str, contents: &[u8]) -> Vec<u8> {
    let mut bytes = b"070701".to_vec();
    let zero = "00000000";
    bytes.extend(format!("00000007000081ED{}", zero.repeat(4)).bytes());
    bytes.extend(format!("{:08x}{}", contents.len(), zero.repeat(4)).bytes());
    bytes.extend(format!("{:08x}{zero}{name}\0", name.len() + 1).bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// An entry: name, mode, device, contents.
type Entry = (String, u32, (u32, u32), Vec<u8>);

/// The entries of an archive. A reader of its own, so that it cannot
/// share a mistake with `check`.
fn entries(archive: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut rest = archive;
    while !rest.is_empty() {
        assert_eq!(&rest[..6], b"070701");
        let field = |index: usize| {
            let digits = std::str::from_utf8(&rest[6 + 8 * index..14 + 8 * index]);
            u32::from_str_radix(digits.expect("digits"), 16).expect("digits")
        };
        let name_end = 110 + field(11) as usize;
        let start = name_end.div_ceil(4) * 4;
        let end = start + field(6) as usize;
        let name = String::from_utf8(rest[110..name_end - 1].to_vec()).expect("a name");
        assert_eq!(rest[name_end - 1], 0);
        let device = (field(9), field(10));
        entries.push((name, field(1), device, rest[start..end].to_vec()));
        rest = &rest[end.div_ceil(4) * 4..];
    }
    entries
}

fn kind(archive: &[u8]) -> Option<(InitramfsErrorKind, usize)> {
    check(archive).err().map(|error| (error.what, error.offset))
}

#[test]
fn written_archives_have_init_and_a_console() {
    for program in [&b""[..], b"1", b"four", b"fives", b"sixsix!"] {
        let archive = with_init(program);
        assert_eq!(check(&archive), Ok(()));
        let none = (0, 0);
        let expected = [
            ("init", 0o100_755, none, program),
            ("dev", 0o040_755, none, b""),
            ("dev/console", 0o020_600, (5, 1), b""),
            ("proc", 0o040_755, none, b""),
            ("sys", 0o040_755, none, b""),
            ("tmp", 0o040_755, none, b""),
            ("TRAILER!!!", 0, none, b""),
        ];
        let expected = expected.map(|(name, mode, device, contents)| {
            (name.to_owned(), mode, device, contents.to_vec())
        });
        assert_eq!(entries(&archive), expected);
    }
}

#[test]
fn inode_numbers_differ() {
    let archive = with_init(b"program");
    let starts = archive.windows(6).filter(|bytes| bytes == b"070701");
    assert_eq!(starts.count(), 7);
    let numbers: Vec<&[u8]> = (0..archive.len())
        .filter(|at| archive[*at..].starts_with(b"070701"))
        .map(|at| &archive[at + 6..at + 14])
        .collect();
    let mut different = numbers.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), numbers.len());
}

#[test]
fn archives_may_follow_each_other() {
    let one = [entry("init", b"abc"), entry(TRAILER, b"")].concat();
    assert_eq!(kind(&one), None);
    assert_eq!(kind(&[&one[..], &[0; 512], &one].concat()), None);
    assert_eq!(kind(&[&[0; 8], &one[..]].concat()), None);
    assert_eq!(kind(&[&one[..], &one].concat()), None);

    // Compressed, and what is behind it: not read.
    for magic in COMPRESSED {
        assert_eq!(kind(&magic), None);
        assert_eq!(
            kind(&[&one[..], &[0; 4], &magic, b"anything"].concat()),
            None
        );
    }

    let second = one.len() + 2;
    let archive = [&one[..], &[0; 2], &one].concat();
    assert_eq!(
        kind(&archive),
        Some((InitramfsErrorKind::Unaligned, second))
    );
    let archive = [&one[..], b"junk"].concat();
    assert_eq!(
        kind(&archive),
        Some((InitramfsErrorKind::NotCpio, one.len()))
    );
}

#[test]
fn the_last_padding_may_be_missing() {
    let mut archive = entry("init", b"abcde");
    assert_eq!(archive.len() % 4, 0);
    archive.truncate(archive.len() - 3);
    assert_eq!(kind(&archive), None);
    archive.pop();
    let needed = archive.len() as u64 + 1;
    assert_eq!(kind(&archive), Some((InitramfsErrorKind::Cut(needed), 0)));

    let mut archive = entry("dev", b"");
    archive.truncate(HEADER + 4);
    assert_eq!(kind(&archive), None);
    archive.pop();
    assert_eq!(
        kind(&archive),
        Some((InitramfsErrorKind::Cut(HEADER as u64 + 4), 0))
    );
}

#[test]
fn damaged_headers_are_found_where_they_are() {
    let first = entry("a", b"x");
    let second = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut damaged = entry("init", b"abc");
        change(&mut damaged);
        let archive = [&first[..], &damaged, &entry(TRAILER, b"")].concat();
        let (what, offset) = kind(&archive).expect("damaged");
        assert_eq!(offset, first.len());
        what
    };

    assert_eq!(
        second(&|bytes| bytes[5] = b'3'),
        InitramfsErrorKind::NotCpio
    );
    assert_eq!(
        second(&|bytes| bytes[5] = b'7'),
        InitramfsErrorKind::OldFormat
    );
    for (index, value) in [(0, b'g'), (4, b'+'), (12, b' '), (6, b'-')] {
        let change = |bytes: &mut Vec<u8>| bytes[6 + 8 * index] = value;
        assert_eq!(second(&change), InitramfsErrorKind::NotHexadecimal(index));
    }

    let name_size = |digits: &'static [u8; 8]| {
        second(&move |bytes: &mut Vec<u8>| bytes[94..102].copy_from_slice(digits))
    };
    assert_eq!(name_size(b"00000000"), InitramfsErrorKind::Name(0));
    assert_eq!(name_size(b"00001001"), InitramfsErrorKind::Name(4097));
    // The NUL is not where the size says.
    assert_eq!(name_size(b"00000004"), InitramfsErrorKind::Name(4));

    let size = second(&|bytes| bytes[54..62].copy_from_slice(b"FFFFFFFF"));
    assert_eq!(size, InitramfsErrorKind::Cut(116 + 0xffff_ffff));
}

#[test]
fn the_format_with_checksums_is_accepted() {
    let mut archive = entry("init", b"abc");
    archive[5] = b'2';
    assert_eq!(kind(&archive), None);
}

#[test]
fn nothing_and_every_prefix_end_without_a_panic() {
    assert_eq!(kind(&[]), Some((InitramfsErrorKind::Empty, 0)));
    assert_eq!(kind(&[0; 512]), Some((InitramfsErrorKind::Empty, 0)));

    let archive = with_init(b"program");
    let whole = |size: usize| check(&archive[..size]).is_ok();
    // Ends at entries are legal: the kernel needs no trailer.
    let legal = (0..archive.len()).filter(|size| whole(*size)).count();
    assert!(legal < 6 * ALIGNMENT + 3, "{legal} prefixes were accepted");
}

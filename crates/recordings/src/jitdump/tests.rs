//! Files as compilers write them, cut, changed and malformed.

use super::records::{ARCH_TIMESTAMP, MAGIC, MOVED_MIN, kind};
use super::*;
use std::ops::Range;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Image, SectionKind};
use unwind_sim_unwind::row::TableKind;

/// The unwind entries of CPython 3.13.0's trampolines, of 11 bytes: one CIE, one FDE, and an
/// `.eh_frame_hdr` of 20 bytes.
const CPYTHON: &str = "1400000000000000017a5200017810011b0c070890010000140000001c000000d0ffffff\
    0b00000000440e10460e0800011b033bccffffff01000000c0ffffffe8ffffff";
const CPYTHON_HEADER: u64 = 20;
/// JIT_CODE_DEBUG_INFO, which is skipped.
const CODE_DEBUG_INFO: u32 = 2;
/// The code of such a trampoline: `sub $8,%rsp; call *%rcx; add $8,%rsp; ret`.
const CODE: [u8; 11] = [0x48, 0x83, 0xec, 8, 0xff, 0xd1, 0x48, 0x83, 0xc4, 8, 0xc3];

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// A file as it is written.
pub(crate) struct File(pub(crate) Vec<u8>);

impl File {
    pub(crate) fn new(flags: u64) -> File {
        let mut out = MAGIC.to_vec();
        for word in [1u32, 40, 62, 0, 7] {
            out.extend(word.to_le_bytes());
        }
        out.extend(1u64.to_le_bytes());
        out.extend(flags.to_le_bytes());
        File(out)
    }

    fn record(mut self, kind: u32, time: u64, body: &[u8]) -> File {
        self.0.extend(kind.to_le_bytes());
        self.0.extend((16 + body.len() as u32).to_le_bytes());
        self.0.extend(time.to_le_bytes());
        self.0.extend(body);
        self
    }

    pub(crate) fn load(self, time: u64, number: u64, address: u64, name: &str) -> File {
        let mut body = [7u32.to_le_bytes(), 7u32.to_le_bytes()].concat();
        for word in [address, address, CODE.len() as u64, number] {
            body.extend(word.to_le_bytes());
        }
        body.extend(name.bytes().chain([0]));
        body.extend(CODE);
        self.record(kind::CODE_LOAD, time, &body)
    }

    pub(crate) fn moved(self, time: u64, number: u64, from: u64, to: u64) -> File {
        let mut body = [7u32.to_le_bytes(), 7u32.to_le_bytes()].concat();
        for word in [from, from, to, CODE.len() as u64, number] {
            body.extend(word.to_le_bytes());
        }
        self.record(kind::CODE_MOVE, time, &body)
    }

    pub(crate) fn unwinding(self, time: u64) -> File {
        let data = unhex(CPYTHON);
        let mut body = Vec::new();
        for word in [data.len() as u64, CPYTHON_HEADER, 80] {
            body.extend(word.to_le_bytes());
        }
        body.extend(data);
        self.record(kind::CODE_UNWINDING_INFO, time, &body)
    }

    fn parse(self) -> Dump {
        Dump::parse(Bytes::from_vec(self.0)).expect("a jitdump file")
    }
}

fn names(dump: &Dump) -> Vec<(&str, u64, u64)> {
    let functions = dump.functions.iter();
    functions
        .map(|f| (f.name.as_str(), f.time, f.address))
        .collect()
}

/// The entries: time, range, bias and names.
fn entries(layout: &Layout) -> Vec<(u64, Range<u64>, u64, Vec<&str>)> {
    let entries = layout.entries.iter();
    entries
        .map(|e| {
            let symbols = e.image.symbols().iter();
            let names = symbols.map(|s| s.name.as_str()).collect();
            (e.time, e.range.clone(), e.bias, names)
        })
        .collect()
}

/// The ranges that the rows of an image cover.
fn rows(image: &Image) -> Vec<(u64, u64)> {
    let units = dwarf::units(image, TableKind::EhFrame);
    units
        .map(|unit| unit.expect("a readable entry").range)
        .map(|range| (range.start, range.end))
        .collect()
}

#[test]
fn records_become_functions() {
    let dump = File::new(0)
        .record(CODE_DEBUG_INFO, 1, &[0; 16])
        .load(10, 1, 0x1000, "a")
        .record(77, 11, b"of a later version")
        .load(20, 2, 0x2000, "b")
        .moved(30, 1, 0x1000, 0x3000)
        .record(kind::CODE_CLOSE, 40, &[])
        .load(50, 3, 0x4000, "behind the end")
        .parse();
    assert_eq!(
        names(&dump),
        [("a", 10, 0x1000), ("b", 20, 0x2000), ("a", 30, 0x3000)]
    );
    assert_eq!(
        (dump.pid, dump.clock, dump.problem),
        (7, Clock::Monotonic, None)
    );
    assert_eq!(*dump.functions[2].code, CODE, "the code that was moved");
    assert_eq!(File::new(ARCH_TIMESTAMP).parse().clock, Clock::Tsc);
}

#[test]
fn a_cut_file_is_used_as_far_as_it_goes() {
    let whole = File::new(0)
        .load(1, 1, 0x1000, "a")
        .load(2, 2, 0x2000, "b")
        .0;
    let second = File::new(0).load(1, 1, 0x1000, "a").0.len();
    for len in second..whole.len() {
        let dump = File(whole[..len].to_vec()).parse();
        assert_eq!(names(&dump), [("a", 1, 0x1000)], "{len} bytes");
        let cut = Problem::Cut {
            offset: second as u64,
            functions: 1,
        };
        assert_eq!(dump.problem, (len > second).then_some(cut), "{len} bytes");
    }
    assert_eq!(File(whole).parse().functions.len(), 2);
}

#[test]
fn malformed_files_are_refused_with_a_reason() {
    let parse = |bytes: &[u8]| Dump::parse(Bytes::from_vec(bytes.to_vec())).map(drop);
    let good = File::new(0).0;
    // The header: the magic, then the version at 4, the size at 8, the machine at 12.
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        parse(&bytes)
    };
    assert_eq!(parse(b""), Err(Problem::Magic));
    assert_eq!(parse(&good[..39]), Err(Problem::Short { have: 39 }));
    assert_eq!(with(0, b'J'), Err(Problem::Magic));
    assert_eq!(with(4, 2), Err(Problem::Version(2)));
    assert_eq!(with(12, 40), Err(Problem::Machine(40)));
    assert_eq!(with(8, 39), Err(Problem::HeaderSize(39)));
    assert_eq!(with(12, 0), Ok(()), "CPython 3.13.0 writes no machine");

    // All fields of a load, but neither name nor code.
    let name_without_end = [0; 40];
    let dump = File::new(0)
        .load(1, 1, 0x1000, "a")
        .record(kind::CODE_LOAD, 2, &name_without_end);
    let offset = File::new(0).load(1, 1, 0x1000, "a").0.len() as u64;
    let dump = dump.parse();
    assert_eq!(names(&dump), [("a", 1, 0x1000)]);
    let kind = kind::CODE_LOAD;
    assert_eq!(dump.problem, Some(Problem::Record { offset, kind }));
}

#[test]
fn times_choose_between_functions_at_one_address() {
    let file = || {
        File::new(0)
            .load(10, 1, 0x1000, "a")
            .load(11, 2, 0x1010, "b")
            // Each function has 11 bytes, so this one overlaps b.
            .load(20, 3, 0x1014, "instead of b")
            .load(5, 4, 0x1030, "c")
            .load(6, 5, 0x9000, "far")
            .moved(30, 1, 0x1000, 0x5000)
    };
    let layout = Layout::new(&file().parse(), "jit-7.dump", true);
    let expected = [
        (5, 0x1030..0x103b, 0, vec!["c"]),
        (6, 0x9000..0x900b, 0, vec!["far"]),
        (10, 0x1000..0x100b, 0, vec!["a"]),
        (11, 0x1010..0x101b, 0, vec!["b"]),
        (20, 0x1014..0x101f, 0, vec!["instead of b"]),
        (30, 0x5000..0x500b, 0x4000, vec!["a"]),
    ];
    assert_eq!(entries(&layout), expected);
    assert_eq!(layout.problems, []);

    // Without times, neither of the two that overlap can be chosen.
    let layout = Layout::new(&file().parse(), "jit-7.dump", false);
    let named: Vec<_> = entries(&layout).into_iter().map(|e| (e.0, e.3)).collect();
    let expected = [
        (0, vec!["a"]),
        (0, vec!["c"]),
        (0, vec!["a"]),
        (0, vec!["far"]),
    ];
    assert_eq!(named, expected);
    assert_eq!(layout.problems, [Problem::Clock { count: 2 }]);
}

#[test]
fn neighbours_share_an_image_and_a_table() {
    let mut file = File::new(0);
    for n in 0..3 {
        file = file
            .unwinding(n)
            .load(n, n, 0x1000 + n * 0x10, &format!("f{n}"));
    }

    let layout = Layout::new(
        &file.load(9, 9, 0x1030, "without rows").parse(),
        "jit-7.dump",
        true,
    );
    // Nothing overlaps, and the gaps have less than a page.
    let [entry] = layout.entries.as_slice() else {
        panic!("{layout:?}");
    };

    assert_eq!((entry.time, entry.range.clone()), (0, 0x1000..0x103b));
    let functions = [(0x1000, 0x100b), (0x1010, 0x101b), (0x1020, 0x102b)];
    assert_eq!(rows(&entry.image), functions);
    // `call *%rcx`, the second instruction of the second function.
    assert_eq!(entry.image.text_bytes(0x1014, 2), [0xff, 0xd1]);
    assert_eq!(
        entry.image.symbol(0x1025).map(|s| s.name.as_str()),
        Some("f2")
    );
    assert_eq!(layout.problems, []);
}

#[test]
fn an_image_has_a_limited_number_of_functions() {
    let mut file = File::new(0);
    for n in 0..600u64 {
        file = file.load(n, n, 0x1000 + n * 0x10, "f");
    }
    let layout = Layout::new(&file.parse(), "jit-7.dump", true);
    let sizes: Vec<usize> = layout
        .entries
        .iter()
        .map(|e| e.image.symbols().len())
        .collect();
    assert_eq!(sizes, [256, 256, 88]);
}

#[test]
fn entries_of_other_code_are_not_used() {
    // Entries for the code before this function.
    let mut file = File::new(0).unwinding(1);
    let pointer = file.0.len() - unhex(CPYTHON).len() + 0x20;
    file.0[pointer..pointer + 4].copy_from_slice(&(-0x1000i32).to_le_bytes());
    let layout = Layout::new(&file.load(1, 1, 0x1000, "f").parse(), "jit-7.dump", true);
    assert!(
        layout.entries[0]
            .image
            .section(SectionKind::EhFrame)
            .is_none()
    );
    let problem = Problem::Unwinding {
        count: 1,
        address: 0x1000,
    };
    assert_eq!(layout.problems, [problem]);
}

#[test]
fn moved_code_keeps_its_rows() {
    let moved = File::new(0)
        .unwinding(1)
        .load(1, 1, 0x1000, "f")
        .moved(2, 1, 0x1000, 0x8000);
    let layout = Layout::new(&moved.parse(), "jit-7.dump", true);
    let [_, moved] = layout.entries.as_slice() else {
        panic!("{layout:?}");
    };
    assert_eq!(
        (moved.bias, rows(&moved.image)),
        (0x7000, vec![(0x1000, 0x100b)])
    );
}

#[test]
fn the_specifications_order_of_the_table_is_read_too() {
    let data = unhex(CPYTHON);
    let (entries, header) = data.split_at(data.len() - CPYTHON_HEADER as usize);
    let swapped = [header, entries].concat();
    let mut body = Vec::new();
    for word in [swapped.len() as u64, CPYTHON_HEADER, 80] {
        body.extend(word.to_le_bytes());
    }
    body.extend(&swapped);
    // The entries lie behind the header now, so the pointer to the code is that much longer.
    let at = 24 + CPYTHON_HEADER as usize + 0x20;
    body[at..at + 4].copy_from_slice(&(-48i32 - 20).to_le_bytes());
    let file = File::new(0).record(kind::CODE_UNWINDING_INFO, 1, &body);
    let layout = Layout::new(&file.load(1, 1, 0x1000, "f").parse(), "jit-7.dump", true);
    assert_eq!(rows(&layout.entries[0].image), vec![(0x1000, 0x100b)]);
}

/// A function is given as soon as its record is complete, whatever the pieces are.
#[test]
fn a_file_that_is_written_in_pieces_is_the_same() {
    let file = File::new(0)
        .unwinding(1)
        .load(1, 1, 0x1000, "a")
        // A record that is skipped.
        .record(CODE_DEBUG_INFO, 1, &[0; 16])
        .moved(2, 1, 0x1000, 0x3000)
        .unwinding(3)
        .load(3, 2, 0x2000, "b")
        // What comes after this record does not count.
        .record(kind::CODE_CLOSE, 4, &[])
        .load(5, 3, 0x4000, "behind the end");

    let whole = File(file.0.clone()).parse();
    let expected = names(&whole);
    let first_end = File::new(0).unwinding(1).load(1, 1, 0x1000, "a").0.len();

    for size in 1..=file.0.len() {
        let mut stream = Stream::default();
        let mut at = 0;
        for piece in file.0.chunks(size) {
            let before = stream.feed(piece);
            assert!(before <= stream.functions().len());
            at += piece.len();
            assert_eq!(!stream.functions().is_empty(), at >= first_end, "{at}");
        }

        let functions = stream.functions().iter();
        let found: Vec<_> = functions
            .map(|f| (f.name.as_str(), f.time, f.address))
            .collect();
        assert_eq!(found, expected, "pieces of {size} bytes");
        assert_eq!(stream.header(), Some(&file.0[..HEADER_SIZE]));
        assert_eq!(stream.problem(), None);

        let tables = stream.functions().iter().map(|f| {
            let entry = f.entry("x").expect("code");
            rows(&entry.image)
        });
        // Moved code keeps the rows of the place where it was written.
        let [a, b] = [(0x1000, 0x100b), (0x2000, 0x200b)];
        assert_eq!(tables.collect::<Vec<_>>(), [vec![a], vec![a], vec![b]]);
    }
}

#[test]
fn a_stream_ends_at_what_is_malformed() {
    let mut stream = Stream::default();
    stream.feed(&File::new(0).load(1, 1, 0x1000, "a").0);
    let offset = File::new(0).load(1, 1, 0x1000, "a").0.len() as u64;
    stream.feed(&File(Vec::new()).record(kind::CODE_LOAD, 2, &[0; 40]).0);
    stream.feed(&File(Vec::new()).load(3, 2, 0x2000, "b").0);
    assert_eq!(stream.functions().len(), 1);
    let kind = kind::CODE_LOAD;
    assert_eq!(stream.problem(), Some(Problem::Record { offset, kind }));
    let mut other = Stream::default();
    other.feed(&[0; 40]);
    assert_eq!(other.problem(), Some(Problem::Magic));
}

#[test]
fn moves_cannot_multiply_a_small_file() {
    let name = "n".repeat(60_000);
    let mut file = File::new(0).load(1, 1, 0x1000, &name);
    for n in 0..30 {
        file = file.moved(2, 1, 0x1000, 0x2000 + n * 0x10);
    }
    let dump = file.parse();
    assert_eq!(dump.problem, Some(Problem::TooMany));
    assert_eq!(dump.functions.len(), 1 + MOVED_MIN / 60_000);
}

#[test]
fn changed_bytes_never_panic() {
    let file = File::new(0)
        .unwinding(1)
        .load(1, 1, 0x1000, "a")
        .unwinding(2)
        .load(2, 2, 0x1008, "b")
        .moved(3, 1, 0x1000, 0x3000)
        .0;
    for at in 0..file.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[at] = value;
            if let Ok(dump) = Dump::parse(Bytes::from_vec(changed)) {
                Layout::new(&dump, "jit-7.dump", true);
                Layout::new(&dump, "jit-7.dump", false);
            }
        }
    }
}

#[test]
fn names_of_files() {
    for name in [
        "/tmp/jit-12.dump",
        "jit-1.dump",
        "/home/x/.debug/jit/j/jit-9.dump (deleted)",
    ] {
        assert!(is_name(name), "{name}");
    }
    for name in [
        "/tmp/jit-.dump",
        "/tmp/jit-x.dump",
        "/tmp/jit-1.dump.gz",
        "//anon",
        "jit-1",
    ] {
        assert!(!is_name(name), "{name}");
    }
}

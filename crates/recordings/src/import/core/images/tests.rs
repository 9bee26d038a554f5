//! A made core of a program and a library, without a list of files.

use super::super::memory::Segment;
use super::*;
use std::ops::Range;
use std::sync::Arc;

const PROGRAM: u64 = 0x5555_5555_0000;
const LIBRARY: u64 = 0x7fff_0000_0000;
const DEBUG: u64 = PROGRAM + 0x2100;
const LIST: u64 = PROGRAM + 0x2200;
const NAMES: u64 = PROGRAM + 0x2400;

/// Memory of the core, and where its parts are in the file.
#[derive(Default)]
struct Core {
    bytes: Vec<u8>,
    segments: Vec<Segment>,
}

impl Core {
    /// A segment; one without bytes was not dumped.
    fn add(&mut self, range: Range<u64>, executable: bool, bytes: &[u8]) {
        let start = self.bytes.len() as u64;
        self.bytes.extend(bytes);
        self.segments.push(Segment {
            range,
            file: start..start + bytes.len() as u64,
            readable: true,
            writable: false,
            executable,
        });
    }

    fn find(&self, notes: &Notes, open: &mut OpenFile<'_>) -> Vec<(String, u64, u64)> {
        let memory = Memory::new(&self.bytes, self.segments.clone());
        let found = find(&memory, notes, open);
        let files = found.files.into_iter();
        let mut files: Vec<_> = files
            .map(|f| (f.name, f.range.start, f.file_offset))
            .collect();
        files.sort();
        files
    }
}

fn put(bytes: &mut [u8], at: usize, words: &[u64]) {
    for (n, word) in words.iter().enumerate() {
        bytes[at + 8 * n..at + 8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// The header of an image with text at 0x1000 and data at 0x2000, whose dynamic section is at 0x2000,
/// and whose interpreter's path is at 0x400.
fn header(is_program: bool) -> Vec<u8> {
    let mut out = vec![0; 0x1000];
    out[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    // ET_DYN for x86-64.
    out[16..20].copy_from_slice(&[3, 0, 62, 0]);
    // e_entry and e_phoff.
    put(&mut out, 24, &[0x1040, 64]);
    // e_ehsize, e_phentsize and e_phnum.
    out[52..58].copy_from_slice(&[64, 0, 56, 0, 5, 0]);

    let headers: [(u32, u32, u64); 5] = [
        (1, 4, 0),
        (1, 5, 0x1000),
        (1, 6, 0x2000),
        (2, 6, 0x2000),
        (if is_program { 3 } else { 0 }, 4, 0x400),
    ];
    for (n, (kind, flags, address)) in headers.into_iter().enumerate() {
        let at = 64 + 56 * n;
        out[at..at + 4].copy_from_slice(&kind.to_le_bytes());
        out[at + 4..at + 8].copy_from_slice(&flags.to_le_bytes());
        put(
            &mut out,
            at + 8,
            &[address, address, address, 0x800, 0x800, 0x1000],
        );
    }

    out[0x400..0x40e].copy_from_slice(b"/lib/ld-own.so");
    out
}

/// The program's data: its dynamic section, the dynamic linker's list, and names.
fn data(last: u64) -> Vec<u8> {
    let mut out = vec![0; 0x1000];
    put(&mut out, 0, &[1, 1, DT_DEBUG, DEBUG]);
    put(&mut out, 0x100, &[1, LIST]);
    put(&mut out, 0x200, &[PROGRAM, NAMES, 0, LIST + 0x40]);
    put(&mut out, 0x240, &[LIBRARY, NAMES + 1, 0, last]);
    out[0x401..0x40e].copy_from_slice(b"/lib/own.so.1");
    out
}

fn core(library_header: &[u8], last: u64) -> Core {
    let mut core = Core::default();
    core.add(PROGRAM..PROGRAM + 0x1000, false, &header(true));
    core.add(PROGRAM + 0x1000..PROGRAM + 0x2000, true, &[]);
    core.add(PROGRAM + 0x2000..PROGRAM + 0x3000, false, &data(last));
    core.add(LIBRARY..LIBRARY + 0x1000, false, library_header);
    core.add(LIBRARY + 0x1000..LIBRARY + 0x2000, true, &[]);
    core
}

fn notes() -> Notes {
    Notes {
        entry: Some(PROGRAM + 0x1040),
        command: Some("/usr/bin/own".into()),
        ..Notes::default()
    }
}

fn files_of(name: &str, start: u64) -> Vec<(String, u64, u64)> {
    let offsets = [0, 0x1000, 0x2000];
    let file = |offset| (name.to_owned(), start + offset, offset);
    offsets.map(file).into()
}

/// Nothing needs to be opened if the headers were dumped.
#[test]
fn images_are_found_by_their_headers_and_named_by_the_linkers_list() {
    let core = core(&header(false), 0);
    let expected = [
        files_of("/lib/own.so.1", LIBRARY),
        files_of("/usr/bin/own", PROGRAM),
    ];
    assert_eq!(core.find(&notes(), &mut |_| None), expected.concat());

    // Without an auxiliary vector, as valgrind writes it, the program is the one with such a list.
    let bare = Notes {
        entry: None,
        ..notes()
    };
    assert_eq!(core.find(&bare, &mut |_| None), expected.concat());
}

/// A static program has no interpreter and no list. Valgrind writes no auxiliary vector either.
#[test]
fn the_only_image_is_the_program() {
    let mut core = Core::default();
    core.add(PROGRAM..PROGRAM + 0x1000, false, &header(false));
    core.add(PROGRAM + 0x1000..PROGRAM + 0x2000, true, &[]);
    let bare = Notes {
        entry: None,
        ..notes()
    };
    let expected = files_of("/usr/bin/own", PROGRAM);
    assert_eq!(core.find(&bare, &mut |_| None), expected);
    // Of two, nothing says which is the program.
    core.add(LIBRARY..LIBRARY + 0x1000, false, &header(false));
    core.add(LIBRARY + 0x1000..LIBRARY + 0x2000, true, &[]);
    let found = core.find(&bare, &mut |_| None);
    assert!(found.iter().all(|(name, ..)| name.starts_with("image at ")));
}

#[test]
fn an_image_whose_header_is_missing_is_found_by_its_name() {
    let core = core(&[], 0);
    let mut opened = Vec::new();
    let found = core.find(&notes(), &mut |name| {
        opened.push(name.to_owned());
        Some(Arc::new(header(false)))
    });
    let expected = [
        files_of("/lib/own.so.1", LIBRARY),
        files_of("/usr/bin/own", PROGRAM),
    ];
    assert_eq!(found, expected.concat());
    assert_eq!(opened, ["/lib/own.so.1"]);
}

/// Also the program's: its place follows from its entry point.
#[test]
fn a_program_whose_header_is_missing_is_placed_by_its_entry_point() {
    let mut core = core(&header(false), 0);
    core.segments[0].file.end = core.segments[0].file.start;
    let found = core.find(&notes(), &mut |name| {
        (name == "/usr/bin/own")
            .then(|| -> unwind_sim_unwind::image::Owner { Arc::new(header(true)) })
    });
    let expected = [
        files_of("/lib/own.so.1", LIBRARY),
        files_of("/usr/bin/own", PROGRAM),
    ];
    assert_eq!(found, expected.concat());
    // And without its file there is what the headers say, under no name.
    let alone = core.find(&notes(), &mut |_| None);
    assert_eq!(alone, files_of(&format!("image at {LIBRARY:#x}"), LIBRARY));
}

#[test]
fn a_list_that_loops_ends_and_what_is_no_image_is_left_out() {
    let looping = core(&header(false), LIST);
    assert_eq!(looping.find(&notes(), &mut |_| None).len(), 6);

    // Headers of nothing executable are a file that was read or mapped as data.
    let mut as_data = core(&header(false), 0);
    as_data.segments[4].executable = false;
    assert_eq!(as_data.find(&notes(), &mut |_| None).len(), 3);
    let mut other = header(false);
    other[18] = 40;
    assert_eq!(core(&other, 0).find(&notes(), &mut |_| None).len(), 3);
}

//! Makes perf.data files with many samples.

use super::elf::{FUNCTION, TEXT};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Bytes of the stack in a sample.
const STACK: u64 = 64;
/// The registers of perf on x86-64: all but the segments ds, es, fs and gs.
const REGISTERS: u64 = 0xff_0fff;
/// `PERF_SAMPLE_IP | TID | TIME | REGS_USER | STACK_USER`
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 1 << 12 | 1 << 13;
const RECORD_COMM: u32 = 3;
const RECORD_SAMPLE: u32 = 9;
const RECORD_MMAP2: u32 = 10;

/// A record of perf.data.
pub(crate) fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut out = kind.to_le_bytes().to_vec();
    out.extend(misc.to_le_bytes());
    out.extend((body.len() as u16 + 8).to_le_bytes());
    out.extend(body);
    out
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// `samples` samples in the first functions of the program `image`, which has `functions` functions.
pub(crate) fn write(path: &Path, samples: u64, image: &Path, functions: u64) -> io::Result<()> {
    // A 32-bit pid, and the tid behind it, in one little-endian word.
    let ids = 7u64 | 7 << 32;
    let mut comm = words(&[ids]);
    comm.extend(b"large\0\0\0");
    let size = (functions * FUNCTION).next_multiple_of(4096);
    // Address, length and offset; no device and no inode; then PROT_READ | PROT_EXEC and
    // MAP_PRIVATE.
    let mut map = words(&[ids, TEXT, size, 4096, 0, 0, 0, 5 | 2 << 32]);
    map.extend(image.display().to_string().bytes());
    map.resize((map.len() + 1).next_multiple_of(8), 0);
    let first = [record(RECORD_COMM, 0, &comm), record(RECORD_MMAP2, 2, &map)].concat();

    let sample = |number: u64| {
        // The first instruction of a function, with two callers on the stack.
        let at = |number: u64| TEXT + number % functions * FUNCTION;
        let mut body = words(&[at(number), ids, number * 1000, 2]);
        let mut registers = [0; 20];
        (registers[7], registers[8]) = (0x7ffc_0000_0000, at(number));
        // Flags that no kernel function makes up, cs and ss of user space.
        (registers[9], registers[10], registers[11]) = (0x202, 0x33, 0x2b);
        body.extend(words(&registers));
        let mut stack = [0; STACK as usize / 8];
        stack[..2].copy_from_slice(&[at(number + 1), at(number + 2)]);
        body.extend(words(&[STACK]));
        body.extend(words(&stack));
        body.extend(words(&[STACK]));
        record(RECORD_SAMPLE, 2, &body)
    };

    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&head(first.len() as u64 + samples * sample(0).len() as u64))?;
    out.write_all(&first)?;
    for number in 0..samples {
        out.write_all(&sample(number))?;
    }
    out.flush()
}

/// A file with these records.
pub(crate) fn write_records(path: &Path, records: &[u8]) -> io::Result<()> {
    std::fs::write(path, [&head(records.len() as u64), records].concat())
}

/// What is in front of so many bytes of records: the header and one attribute.
fn head(data_size: u64) -> Vec<u8> {
    // The header has 104 bytes, the attribute 128, and the place of its ids 16.
    let data_at = 104 + 144;

    let mut attr = words(&[
        // The type is 0, and the size 128 (`PERF_ATTR_SIZE_VER7`).
        128 << 32,
        0,
        1000,
        SAMPLE_TYPE,
        0,
        // The flags `mmap` and `comm`.
        1 << 8 | 1 << 9,
        0,
        0,
        0,
        0,
        REGISTERS,
        STACK,
    ]);
    attr.resize(128, 0);

    let mut out = b"PERFILE2".to_vec();
    // `struct perf_file_header`: its size, that of an attribute, where the attributes and the data
    // are; no event types, and no features.
    out.extend(words(&[
        104, 144, 104, 144, data_at, data_size, 0, 0, 0, 0, 0, 0,
    ]));
    out.extend(attr);

    out.extend(words(&[0, 0]));
    out
}

//! Hostile files: truncated, with flipped bits, and built to use much memory. They must all be
//! handled quickly, in memory bounded by the file's size.

use super::super::helper::tests::PLAIN;
use super::*;
use crate::random::Random;
use object::read::elf::SectionHeader;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

type Elf64 = FileHeader64<Endianness>;

/// A file with all sections that are read, and one with `.gnu_debugdata`.
fn files() -> [Vec<u8>; 2] {
    ["root/tchain_fp", "opt/minidebug"].map(|name| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/perfdata/script/symfs");
        std::fs::read(folder.join(name)).expect("the corpus is readable")
    })
}

/// Everything done with a file's bytes. Returns the number of symbols and the bytes of their names.
fn use_all(bytes: &[u8]) -> (usize, usize) {
    let file: Owner = Arc::new(bytes.to_vec());
    let _ = (debug_link(&file), own_build_id(&file));
    let id = own_build_id(&file).unwrap_or_default();
    let tree = match class(&file) {
        Some(1) => load::<FileHeader32<Endianness>>(&[file], &id, PLAIN),
        _ => load::<Elf64>(&[file.clone(), file], &id, PLAIN),
    };
    let Some(mut tree) = tree else {
        return (0, 0);
    };
    for address in (0..1 << 16).step_by(97).chain([u64::MAX, 1 << 63]) {
        if let Some(at) = tree.find(address) {
            assert!(tree.range(at).start <= address);
            let _ = tree.name(at).len();
        }
    }
    tree.sizes()
}

/// Maximum bytes of names, including displayed ones.
fn bound(bytes: &[u8]) -> usize {
    2 * 2 * 4 * bytes.len()
}

/// Quadratic work would take longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time since some point: where Linux tells it the processor time of this thread, so that other
/// work on the machine takes none.
fn time_taken() -> Duration {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let of_thread = || {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    };
    of_thread().unwrap_or_else(|| BEGIN.elapsed())
}

fn check(bytes: &[u8]) {
    let begin = time_taken();
    let (_, names) = use_all(bytes);
    assert!(names <= bound(bytes), "{names} bytes of names");
    assert!(time_taken() - begin < PATIENCE);
}

#[test]
fn whole_files_have_symbols() {
    for bytes in files() {
        assert!(use_all(&bytes).0 > 3);
    }
}

#[test]
fn cut_files_have_an_answer() {
    for bytes in files() {
        for length in (0..bytes.len()).step_by(53).chain(0..70) {
            check(&bytes[..length]);
        }
    }
}

#[test]
fn files_with_flipped_bits_have_an_answer() {
    let mut random = Random::new(1);

    // The seed is fixed, so that a failure can be repeated.
    for whole in files() {
        let table = u64::from_le_bytes(whole[40..48].try_into().expect("eight bytes")) as usize;
        for turn in 0..3000 {
            let mut bytes = whole.clone();
            // In the header, in the section headers, or anywhere.
            for _ in 0..1 + turn % 3 {
                let at = match turn % 4 {
                    0 => random.below(64),
                    1 | 2 => table + random.below(bytes.len() - table),
                    _ => random.below(bytes.len()),
                };
                bytes[at] ^= 1 << random.below(8);
            }
            check(&bytes);
        }
    }
}

#[test]
fn symbols_that_share_a_long_name_take_no_more_than_the_file() {
    let [mut bytes, _] = files();
    let (strings, symbols) = {
        let file: Owner = Arc::new(bytes.clone());
        let parts = elf::Parts::<Elf64>::parse(&file).expect("an ELF file");
        let range = |name: &[u8]| {
            let (_, section) = parts.section(name).expect("it has one");
            let (start, size) = section.file_range(parts.endian).expect("it is in the file");
            start as usize..(start + size) as usize
        };
        (range(b".strtab"), range(b".symtab"))
    };

    // A string table at the end, as long as everything else, that is one name.
    let tail = bytes.len();
    bytes.extend(std::iter::repeat_n(b'_', 60_000));
    bytes.push(0);
    let table = u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")) as usize;
    let count = usize::from(bytes[60]);

    // The header of the string table is found by its offset, and gets a new one.
    let header = (0..count)
        .map(|index| table + 64 * index)
        .find(|&at| bytes[at + 24..at + 32] == (strings.start as u64).to_le_bytes())
        .expect("its header");
    bytes[header + 24..header + 32].copy_from_slice(&(tail as u64).to_le_bytes());
    bytes[header + 32..header + 40].copy_from_slice(&60_001u64.to_le_bytes());

    // Every symbol has the one long name.
    for symbol in bytes[symbols].chunks_exact_mut(24) {
        symbol[..4].copy_from_slice(&1u32.to_le_bytes());
    }

    let (symbols, names) = use_all(&bytes);
    assert!(
        symbols > 10 && symbols * 59_999 > bound(&bytes),
        "{symbols}"
    );
    assert!(names <= bound(&bytes) && names > 59_999, "{names}");
}

//! Hostile descriptions of generated code: jitdump files, perf's maps, gdb's list.

use std::ops::Range;
use unwind_sim_recordings::files::perf_map as symbols_of;
use unwind_sim_recordings::gdb_jit::{SymbolFile, registered, symbol_file};
use unwind_sim_recordings::jitdump::{Dump, Function, Layout, Problem, Stream};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts};
use unwind_sim_unwind::row::TableKind;

/// Maximum number of units that are compiled of an image.
const UNITS_MAX: usize = 256;
/// Where the memory with gdb's list starts.
const LIST: u64 = 0x1000;
/// Sizes of the pieces that a jitdump file is written in, bytes.
const PIECES: [usize; 3] = [1, 7, 4096];

/// A jitdump file: read whole and in pieces, and laid out with and without times.
pub fn jitdump(data: &[u8]) {
    let dump = Dump::parse(Bytes::from_vec(data.to_vec()));
    if let Ok(dump) = &dump {
        for has_times in [true, false] {
            let layout = Layout::new(dump, "jit-1.dump", has_times);
            assert!(layout.entries.is_sorted_by_key(|entry| entry.time));
            for entry in layout.entries {
                assert!(entry.range.start < entry.range.end);
                rows(&entry.image);
            }
        }
        for function in dump.functions.iter().take(UNITS_MAX) {
            assert_eq!(function.entry("alone").is_some(), function.size > 0);
        }
    }

    // A file that is still being written arrives in pieces that end anywhere.
    for size in PIECES {
        let mut stream = Stream::default();
        let mut given = 0;
        for piece in data.chunks(size) {
            let before = stream.feed(piece);
            assert_eq!(before, given, "each function is new once");
            given = stream.functions().len();
        }
        // How much moves may repeat depends on what is known of the file.
        let is_limited = |problem: Option<Problem>| problem == Some(Problem::TooMany);
        match &dump {
            Err(_) => assert_eq!(given, 0),
            Ok(dump) if is_limited(dump.problem) || is_limited(stream.problem()) => {}
            Ok(dump) => assert!(
                stream
                    .functions()
                    .iter()
                    .map(told)
                    .eq(dump.functions.iter().map(told)),
                "in pieces of {size} bytes"
            ),
        }
    }
}

fn told(function: &Function) -> (u64, u64, u64, u64, &str) {
    let Function {
        time,
        address,
        written_at,
        size,
        name,
        ..
    } = function;
    (*time, *address, *written_at, *size, name)
}

/// Compiles the rows of an image.
fn rows(image: &Image) {
    let mut cache = Cache::new();
    for kind in [TableKind::EhFrame, TableKind::DebugFrame] {
        for unit in dwarf::units(image, kind).take(UNITS_MAX).flatten() {
            let _ = dwarf::compile_unit(image, kind, unit.offset, &mut cache);
        }
    }
}

/// The text of a `perf-PID.map`.
pub fn perf_map(data: &[u8]) {
    let symbols = symbols_of(data);
    assert!(symbols.is_sorted_by_key(|symbol| symbol.address));
    assert!(symbols.iter().all(|symbol| !symbol.name.is_empty()));
    let starts = symbols.windows(2);
    assert!(
        starts
            .into_iter()
            .all(|pair| pair[0].address < pair[1].address)
    );
}

/// A file that was registered for gdb, and a program's memory that starts with the descriptor of a
/// list of such files.
pub fn gdb_jit(data: &[u8]) {
    symbol_file(data).iter().for_each(file);

    // What is not in memory reads as nothing, like that of a program that is gone.
    let read = |address: u64, size: u64| {
        let start = usize::try_from(address.wrapping_sub(LIST)).unwrap_or(usize::MAX);
        let rest = data.get(start..).unwrap_or_default();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        rest[..size.min(rest.len())].to_vec()
    };
    let (files, _) = registered(LIST, read);
    files.iter().for_each(file);
}

fn file(file: &SymbolFile) {
    let code: Vec<Range<u64>> = file.code();
    assert!(code.iter().all(|range| range.start < range.end));
    assert!(code.windows(2).all(|pair| pair[0].end < pair[1].start));
    let parts = ImageParts {
        sections: file.table.iter().cloned().collect(),
        symbols: file.symbols.clone(),
        text: code,
        ..ImageParts::default()
    };
    rows(&Image::new(parts));
}

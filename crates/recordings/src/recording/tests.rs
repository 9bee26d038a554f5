//! Recordings that were cut short: what is there is read, and what is missing is told.

use super::*;
use crate::gaps::Problem;
use std::path::PathBuf;
use unwind_sim_perf_data::PerfFile;

fn corpus(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}"));
    if name.ends_with(".zst") {
        zstd::decode_all(&bytes[..]).expect("zstd")
    } else {
        bytes
    }
}

/// The gaps of a file with these bytes before and after it was read, and its samples; `None` if it
/// is refused.
fn read(bytes: &[u8]) -> Option<(Gaps, Gaps, u64)> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    let options = OpenOptions {
        symfs: Some("/nonexistent".into()),
        ..OpenOptions::default()
    };
    let recording = Recording::open(&InputFile::open(file.path()).ok()?, &options).ok()?;
    let known = recording.gaps();
    let read = recording.views(&mut |_| ControlFlow::Continue(()));
    Some((known, recording.gaps(), read.expect("it can be read")))
}

/// Checks that a recording says, before it is read, that it was cut to each length up to `end`,
/// unless it is refused. Returns the samples found at the lengths that are not.
fn cut_everywhere(bytes: &[u8], end: usize, step: usize) -> Vec<u64> {
    let (whole, after, all) = read(bytes).expect("a recording");
    assert!(whole.problems.is_empty() && after.later.is_empty());
    let mut found = Vec::new();
    for len in (0..end).step_by(step).chain([end - 1]) {
        let Some((known, _, samples)) = read(&bytes[..len]) else {
            continue;
        };
        let problem = known.problems.first();
        let problem = problem.unwrap_or_else(|| panic!("cut to {len} of {end}: nothing said"));
        assert!(problem.is_cut(), "{problem}");
        assert!(problem.to_string().contains(" at offset 0x"), "{problem}");
        assert!(samples <= all);
        found.push(samples);
    }
    found
}

#[test]
fn a_perf_data_cut_anywhere_says_so() {
    for (name, most) in [("perfdata/dwarf.data", 12), ("perfdata/norow.data", 11)] {
        let bytes = corpus(name);
        let found = cut_everywhere(&bytes, bytes.len(), 97);
        assert_eq!(found.iter().max(), Some(&most), "{name}");
        assert!(found.iter().any(|n| (1..most).contains(n)), "{name}");
    }
}

/// A pipe has no sizes: only a record that is not whole can be seen.
#[test]
fn a_pipe_cut_inside_a_record_says_so() {
    for name in ["perfdata/fp-pipe.data", "perfdata/tp-pipe.data"] {
        let bytes = corpus(name);
        let file = PerfFile::parse(&bytes).expect("a perf.data");
        let ends: Vec<u64> = (file.records().skip(1))
            .map(|record| record.expect("whole").offset)
            .collect();
        for end in ends {
            for len in [end - 1, end + 4] {
                if let Some((known, _, _)) = read(&bytes[..len as usize]) {
                    assert!(known.problems.iter().any(Problem::is_cut), "{name}: {len}");
                }
            }
        }
    }
}

/// A core whose last segment is at its end, behind the notes, as the kernel writes them.
fn core_with_notes_first() -> Vec<u8> {
    let mut bytes = corpus("cores/threads.core.zst");
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
    let (headers, count) = (word(&bytes, 32) as usize, bytes[56] as usize);
    let load = (0..count).map(|n| headers + 56 * n).rfind(|&at| {
        let is_load = bytes[at..].starts_with(&[1, 0, 0, 0]);
        is_load && word(&bytes, at + 32) > 4096
    });
    let at = load.expect("a PT_LOAD");
    let (offset, size) = (
        word(&bytes, at + 8) as usize,
        word(&bytes, at + 32) as usize,
    );
    let end = bytes.len() as u64;
    bytes[at + 8..at + 16].copy_from_slice(&end.to_le_bytes());
    bytes.extend_from_within(offset..offset + size);
    bytes
}

#[test]
fn a_core_cut_anywhere_says_so() {
    // The notes are last, with one thread after another: some of them can still be read.
    let bytes = corpus("cores/threads.core.zst");
    let notes = notes_end(&bytes);
    let found = cut_everywhere(&bytes, notes, 1913);
    assert_eq!(
        (found.iter().min(), found.iter().max()),
        (Some(&1), Some(&3))
    );
    let bytes = core_with_notes_first();
    let found = cut_everywhere(&bytes, bytes.len(), 30011);
    assert_eq!(found.last(), Some(&3));
    let (known, _, _) = read(&bytes[..bytes.len() - 1000]).expect("a core");
    let problem = known.problems[0].to_string();
    assert!(problem.contains("PT_LOAD at offset 0x"), "{problem}");
    assert!(problem.contains("1000 bytes from here on"), "{problem}");
}

/// Where the notes of a core end, if they are its last segment.
fn notes_end(bytes: &[u8]) -> usize {
    let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap()) as usize;
    let (headers, count) = (word(32), bytes[56] as usize);
    let segments = (0..count).map(|n| headers + 56 * n);
    let ends = segments.map(|at| word(at + 8) + word(at + 32));
    ends.max().expect("a segment")
}

/// What a recording has no use for is counted once it was read to its end, and only then.
#[test]
fn left_out_samples_are_counted_when_all_were_read() {
    let bytes = corpus("perfdata/fp-pipe.data");
    let (known, after, samples) = read(&bytes).expect("a perf.data");
    let left_out: Vec<_> = after.skipped.into_iter().collect();
    assert_eq!(
        (samples, left_out),
        (0, vec![(crate::import::Skip::NoRegisters, 14)])
    );
    assert!(known.skipped.is_empty());
}

/// The count for a progress is that of the samples that are read, or that are said to be skipped.
#[test]
fn the_samples_to_read_are_counted_by_their_headers() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/perfdata");
    let (mut counted, mut compressed) = (0, 0);
    for file in std::fs::read_dir(folder).expect("the corpus") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|e| e != "data") {
            continue;
        }

        let open = InputFile::open(&path).expect("a file");
        let open = Recording::open(&open, &OpenOptions::default());
        let Ok(recording) = open else { continue };
        // Records that are compressed have no headers that could be counted.
        let Some(all) = recording.samples_to_read() else {
            compressed += 1;
            continue;
        };

        let read = recording.views(&mut |_| ControlFlow::Continue(()));
        let skipped: u64 = recording.gaps().skipped.values().sum();
        let read = read.expect("it can be read");
        let name = path.display();
        assert!(
            read <= all && all <= read + skipped,
            "{name}: {read} + {skipped}, {all}"
        );
        counted += 1;
    }

    assert!(counted > 1 && compressed > 0, "{counted}, {compressed}");
}

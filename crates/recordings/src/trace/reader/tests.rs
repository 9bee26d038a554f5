//! File headers, metadata, and file names in errors.

use super::*;
use crate::trace::tests::support::*;
use crate::trace::{OutputOptions, TraceWriter};
use std::error::Error;
use zerocopy::IntoBytes;

/// The error for a file that starts with these bytes: its name, bytes needed and bytes available.
fn wrong(file: &[u8]) -> (&'static str, u64, u64) {
    match check_header(file).map_err(|error| error.kind) {
        Ok(()) => ("nothing", 0, 0),
        Err(TraceErrorKind::Magic) => ("magic", 0, 0),
        Err(TraceErrorKind::Short { needed, left }) => ("short", needed, left),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_short_file_is_a_trace_if_its_first_bytes_are_a_traces() {
    let header = FileHeader::new();
    let header = header.as_bytes();
    assert_eq!(wrong(header), ("nothing", 0, 0));
    assert_eq!(wrong(&header[..15]), ("short", 16, 15));
    assert_eq!(wrong(&header[..8]), ("short", 16, 8));
    assert_eq!(wrong(&header[..1]), ("short", 16, 1));
    for other in [&b""[..], b"P", b"\x89PNG\r\n\x1a\n", b"PERFILE2________"] {
        assert_eq!(wrong(other), ("magic", 0, 0), "{other:?}");
    }
}

#[test]
fn a_trace_is_shown_without_its_bytes() {
    let (images, items) = everything();
    let trace = open(&write(&items, &images, OutputOptions::default())).expect("it opens");
    assert!(!trace.is_empty());
    let shown = format!("{trace:?}");
    assert_eq!(shown, "Trace { path: None, samples: 5, images: 2, .. }");
}

/// A file that is removed on drop.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let name = format!("unwind-sim-reader-{name}-{}.bin", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("it is written");
        Temporary(path)
    }

    #[track_caller]
    fn is_named_by(&self, error: &TraceError) {
        assert_eq!(error.file.as_ref(), Some(&self.0), "{error}");
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn errors_name_the_file_they_are_of() {
    let (images, items) = everything();
    let whole = write(&items, &images, uncompressed());
    let file = Temporary::new("whole", &whole);
    let trace = Trace::open(&file.0).expect("it opens");
    file.is_named_by(&trace.sample(5).expect_err("there are five"));
    file.is_named_by(&trace.world_at(5).expect_err("there are five"));

    // Without its last byte there is no footer, which is noticed but not an error.
    let file = Temporary::new("cut", &whole[..whole.len() - 1]);
    let trace = Trace::open(&file.0).expect("it opens");
    file.is_named_by(trace.cut().expect("it is cut"));

    // The first byte of the payload of the events or samples block.
    let blocks: Vec<_> = trace.blocks().collect();
    for block_type in [BlockType::Events, BlockType::Samples] {
        let block = blocks.iter().find(|b| b.block_type == Some(block_type));
        let mut bytes = whole.clone();
        bytes[block.expect("there is one").offset as usize + 24] ^= 1;
        let file = Temporary::new(block_type.as_str(), &bytes);
        let trace = Trace::open(&file.0).expect("it opens");
        let error = trace.items().find_map(Result::err).expect("it is damaged");
        assert_eq!(error.block, Some(block_type));
        file.is_named_by(&error);
    }

    let file = Temporary::new("other", b"PERFILE2________");
    file.is_named_by(&Trace::open(&file.0).expect_err("it is another file"));
}

#[test]
fn a_malformed_sample_names_the_file_too() {
    // A valid block with a malformed second sample: only decoding it shows that.
    let mut writer = TraceWriter::with_options(Vec::new(), &Meta::default(), uncompressed());
    let writer = writer.as_mut().expect("writing to a Vec");
    for time in 0..2 {
        let written = writer.sample(&sample(time, Vec::new()));
        written.expect("writing to a Vec");
    }
    writer.end().expect("writing to a Vec");

    let mut bytes = writer.get_mut().clone();
    let trace = open(&bytes).expect("it opens");
    let mut blocks = trace.blocks();
    let block = blocks.find(|b| b.block_type == Some(BlockType::Samples));
    let block = block.expect("there is one");
    let (start, end) = (block.offset as usize, block.offset as usize + 24);
    let payload = end..end + block.stored_bytes as usize;

    // Lengths of records and data, a new thread's number, pid and tid, and the time difference.
    bytes[payload.start + 6] = 0x80;

    // Only the content is damaged, not the block.
    let checksum = crc32c::crc32c(&bytes[start..start + 20]);
    let checksum = crc32c::crc32c_append(checksum, &bytes[payload]);
    bytes[start + 20..end].copy_from_slice(&checksum.to_le_bytes());

    let file = Temporary::new("malformed", &bytes);
    let trace = Trace::open(&file.0).expect("it opens");
    for error in [
        trace.sample(0).expect_err("it is malformed"),
        trace
            .items()
            .find_map(Result::err)
            .expect("it is malformed"),
    ] {
        assert!(
            matches!(error.kind, TraceErrorKind::Malformed { .. }),
            "{error}"
        );
        file.is_named_by(&error);
    }
}

#[test]
fn missing_files_are_system_errors() {
    let file = Temporary::new("missing", b"");
    std::fs::remove_file(&file.0).expect("it was there");
    let error = Trace::open(&file.0).expect_err("it is not there");
    file.is_named_by(&error);
    let source = error.source().and_then(|e| e.downcast_ref());
    let kind = source.map(std::io::Error::kind);
    assert_eq!(kind, Some(std::io::ErrorKind::NotFound));
    let error = open(b"").expect_err("it is empty");
    assert!(error.source().is_none() && error.file.is_none(), "{error}");
}

//! Damaged, truncated and malicious traces: a clear error or the readable part, never a panic.

use super::forged::Forged;
use super::support::*;
use crate::model::Item;
use crate::trace::index::{self, Entry};
use crate::trace::layout::{BlockType, FileHeader};
use crate::trace::{OutputOptions, Trace, TraceError, TraceErrorKind};
use zerocopy::IntoBytes;

/// Reads everything in every way; errors are fine.
fn exhaust(bytes: &[u8]) -> (Vec<Item<'static>>, Vec<TraceError>) {
    let trace = match open(bytes) {
        Ok(trace) => trace,
        Err(error) => return (Vec::new(), vec![error]),
    };
    let mut items = Vec::new();
    let mut errors = Vec::new();
    for item in trace.items() {
        match item {
            Ok(item) => items.push(item),
            Err(error) => errors.push(error),
        }
    }
    for n in 0..trace.len().min(8) {
        errors.extend(trace.sample(n).err());
        errors.extend(trace.world_at(n).err());
    }
    let _ = trace.blocks().count();
    (items, errors)
}

fn both_ways() -> [(Vec<u8>, Vec<Item<'static>>); 2] {
    [OutputOptions::default(), uncompressed()].map(|options| {
        let (images, items) = everything();
        (write(&items, &images, options), items)
    })
}

#[test]
fn cut_at_every_byte_a_prefix_is_read() {
    for (bytes, items) in both_ways() {
        let mut most = 0;
        for length in 0..bytes.len() {
            let (read, errors) = exhaust(&bytes[..length]);
            assert_eq!(read, items[..read.len()], "cut at {length}");
            assert!(
                read.len() >= most,
                "cut at {length}: fewer items than from a shorter file"
            );
            most = read.len();
            match open(&bytes[..length]) {
                Ok(trace) => assert!(errors.is_empty() && trace.cut().is_some(), "at {length}"),
                Err(error) => assert!(length < 16, "cut at {length}: {error}"),
            }
        }
        assert_eq!(most, items.len());
    }
}

#[test]
fn every_flipped_byte_is_found() {
    for (bytes, items) in both_ways() {
        for at in 0..bytes.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[at] ^= mask;
                let (read, errors) = exhaust(&bad);
                let cut = open(&bad).is_ok_and(|t| t.cut().is_some());
                assert!(
                    !errors.is_empty() || cut,
                    "byte {at} ^ {mask:#x} was not detected"
                );
                // What can still be read is what was written, with gaps.
                let mut rest = items.iter();
                let known = read.iter().all(|item| rest.any(|i| i == item));
                assert!(known, "byte {at} ^ {mask:#x}: an item that was not written");
            }
        }
    }
}

/// The same with correct checksums, as an attacker would write them: whatever is read, reading
/// ends.
#[test]
fn no_altered_byte_is_fatal_under_a_correct_checksum() {
    let (images, items) = everything();
    let bytes = write(&items, &images, uncompressed());
    let blocks: Vec<_> = open(&bytes).unwrap().blocks().collect();
    let mut refused = 0;
    for block in &blocks {
        let start = block.offset as usize;
        let payload = start + 24..start + 24 + block.stored_bytes as usize;
        for at in (start..start + 20).chain(payload.clone()) {
            for mask in [0x01, 0x40, 0xff] {
                let mut bad = bytes.clone();
                bad[at] ^= mask;
                let checksum = crc32c::crc32c(&bad[start..start + 20]);
                let checksum = crc32c::crc32c_append(checksum, &bad[payload.clone()]);
                bad[start + 20..start + 24].copy_from_slice(&checksum.to_le_bytes());
                let (read, errors) = exhaust(&bad);
                refused += usize::from(!errors.is_empty());
                assert!(read.len() <= items.len() + 1, "byte {at} ^ {mask:#x}");
            }
        }
    }
    // Many altered bytes are still valid, with another meaning; many are not.
    assert!(refused > 500, "{refused}");
}

fn messages(bytes: &[u8]) -> Vec<String> {
    let (_, errors) = exhaust(bytes);
    let cut = open(bytes)
        .ok()
        .and_then(|t| t.cut().map(ToString::to_string));
    errors.iter().map(ToString::to_string).chain(cut).collect()
}

#[track_caller]
fn refused(bytes: &[u8], what: &str) {
    let all = messages(bytes);
    assert!(
        all.iter().any(|m| m.contains(what)),
        "no `{what}` in {all:#?}"
    );
}

#[test]
fn hostile_payloads_are_refused() {
    // A samples block has the length of its records, the number of its data blocks and their
    // distances, the records, and the literals.
    let cases: &[(BlockType, u32, &[u8], &str)] = &[
        (BlockType::Samples, 1, b"", "inside a record"),
        (
            BlockType::Samples,
            1,
            // 127 bytes of records.
            b"\x7f\x00",
            "records are longer than the block",
        ),
        (
            BlockType::Samples,
            1,
            // 127 data blocks.
            b"\x00\x7f",
            "more references than bytes",
        ),
        (
            BlockType::Samples,
            1,
            // 16 bytes before the block is the file header.
            b"\x00\x01\x10",
            "data block at offset",
        ),
        (
            BlockType::Samples,
            1,
            // The same block twice.
            b"\x00\x02\x10\x10",
            "data blocks are not in order",
        ),
        (
            BlockType::Samples,
            1,
            // A known thread is its place plus 1, and none is known yet.
            b"\x01\x00\x05",
            "a thread that was not named before",
        ),
        (
            BlockType::Samples,
            1,
            // A new thread, its process and number, the time, and a presence bit that is not
            // defined.
            b"\x05\x00\x00\x01\x01\x00\x80",
            "unknown presence bits",
        ),
        (
            BlockType::Samples,
            1,
            // Presence bit 6: branch records follow two empty register masks and no regions.
            b"\x09\x00\x00\x01\x01\x00\x40\x00\x00\x00\x09",
            "more rings of branch records than allowed",
        ),
        (
            BlockType::Samples,
            1,
            // One ring of 8, and a flag that is neither 0 nor 1.
            b"\x0b\x00\x00\x01\x01\x00\x40\x00\x00\x00\x01\x08\x02",
            "branch records with unknown bits",
        ),
        (
            BlockType::Samples,
            1,
            // 0x81 0x08 is 1025 as LEB128, one more than the limit.
            b"\x0d\x00\x00\x01\x01\x00\x40\x00\x00\x00\x01\x08\x00\x81\x08",
            "more branch records than allowed",
        ),
        (
            BlockType::Samples,
            1,
            // No new record, and one of a previous sample that there was not.
            b"\x0d\x00\x00\x01\x01\x00\x40\x00\x00\x00\x01\x08\x00\x00\x01",
            "more branch records shared",
        ),
        (
            BlockType::Samples,
            // One more than a block may have.
            4097,
            b"\x00\x00",
            "more samples than a block may have",
        ),
        // No samples at all are valid.
        (BlockType::Samples, 0, b"\x00\x00", ""),
        (
            BlockType::Events,
            1,
            // The position, the kind, the process.
            b"\x00\x09\x01",
            "an event of unknown kind",
        ),
        (
            BlockType::Events,
            1,
            // After five samples, and there are none.
            b"\x05\x02\x01",
            "after more samples than there are",
        ),
        (BlockType::Events, 9, b"\x00\x02\x01", "inside a record"),
        (BlockType::Events, 1, b"\x00\x02\x01\x00", "bytes are left"),
        (
            BlockType::Events,
            2,
            b"\x00\x02\x01\x00\x00",
            "inside a record",
        ),
        (
            BlockType::Image,
            0,
            // The number, then empty: name, build ID, text ranges, sections, data and symbols
            // blocks.
            b"\x07\x00\x00\x00\x00\x00\x00",
            "images are not in order",
        ),
        (
            BlockType::Image,
            0,
            // A data block, but no section that could need it.
            b"\x00\x00\x00\x00\x00\x01\x10\x00",
            "more bytes than the sections",
        ),
        (
            BlockType::Image,
            0,
            b"\x00\x00\x00\x00\x01\x00\x00\x05\x01\x10\x00",
            "data block at offset",
        ),
        (
            BlockType::Image,
            0,
            b"\x00\x00\x00\x00\x00\x00\x01\x10",
            "symbols block at offset",
        ),
        (
            BlockType::Image,
            0,
            // 2^21 - 1 ranges.
            b"\x00\x00\x00\xff\xff\x7f",
            "more text ranges",
        ),
        (
            BlockType::Image,
            0,
            b"\x00\x00\x00\x00\x01\x00\x00\x05\x00\x00",
            "are longer than",
        ),
        (
            BlockType::Meta,
            0,
            // Field 5, the truth, is text, and this is not UTF-8.
            b"\x05\x01\xff",
            "a field has an invalid value",
        ),
    ];

    for (block_type, count, payload, what) in cases {
        let bytes = Forged::new().block(*block_type, *count, payload).finish();
        if what.is_empty() {
            assert_eq!(messages(&bytes), [""; 0]);
        } else {
            refused(&bytes, what);
        }
    }
}

/// A samples block whose only sample has these regions and literals.
fn with_regions(regions: &[u8], literals: &[u8]) -> Vec<u8> {
    let mut records = b"\x00\x01\x01\x00\x00\x00\x00".to_vec();
    records.extend_from_slice(regions);
    let mut payload = vec![records.len() as u8, 0];
    payload.extend_from_slice(&records);
    payload.extend_from_slice(literals);
    Forged::new()
        .block(BlockType::Samples, 1, &payload)
        .finish()
}

#[test]
fn hostile_regions_are_refused() {
    // The number of regions; role, slot, start and end. 0x10 and 0x20 are 8 and 16 as differences.
    for role in 0..4 {
        let regions = [1, role, 0, 0x10, 0x20];
        assert_eq!(messages(&with_regions(&regions, &[7; 8])), [""; 0]);
    }

    refused(
        &with_regions(b"\x01\x10\x00\x10\x20", &[7; 8]),
        "unknown bits",
    );
    refused(
        &with_regions(b"\x01\x00\x01\x10\x20", &[7; 8]),
        "a slot that was not used",
    );
    refused(
        &with_regions(b"\x01\x00\x00\x20\x10", &[7; 8]),
        "ends before it starts",
    );
    refused(
        &with_regions(b"\x01\x00\x00\x10\x20", &[7; 7]),
        "literals end too early",
    );
    refused(
        &with_regions(b"\x01\x00\x00\x10\x20", &[7; 9]),
        "bytes are left",
    );

    // Both are in slot 0.
    let twice = b"\x02\x00\x00\x10\x20\x00\x00\x00\x00\x00";
    refused(
        &with_regions(twice, &[7; 8]),
        "two regions of a sample in one slot",
    );

    // A region of 2^63 bytes must not be allocated.
    let huge = b"\x01\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    assert!(!messages(&with_regions(huge, &[7; 8])).is_empty());
}

#[test]
fn bombs_are_refused() {
    let mut forged = Forged::new();
    let frame = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    let bytes = forged.raw(BlockType::Meta, 0, 1, 100, &frame).finish();
    refused(&bytes, "not a zstd frame of 100 bytes");
    let mut forged = Forged::new();
    let bytes = forged.raw(BlockType::Meta, 0, 1, 64 << 20, &frame).finish();
    refused(&bytes, "claims 67108864 bytes");
    let mut forged = Forged::new();
    let bytes = forged.raw(BlockType::Meta, 0, 0, 100, b"").finish();
    refused(&bytes, "not a zstd frame of 100 bytes");
    let mut forged = Forged::new();
    refused(
        &forged.raw(BlockType::Meta, 0, 2, 0, b"").finish(),
        "flags 0x0002",
    );
}

#[test]
fn a_data_block_is_not_used_twice() {
    let mut forged = Forged::new();
    forged.block(BlockType::Data, 0, b"abcdefgh");
    forged.block(
        BlockType::Image,
        0,
        b"\x00\x00\x00\x00\x01\x07\x00\x08\x01\x20\x00",
    );
    forged.block(
        BlockType::Image,
        0,
        b"\x01\x00\x00\x00\x01\x07\x00\x08\x01\x48\x00",
    );
    refused(&forged.finish(), "new block at offset 0x10");
}

#[test]
fn samples_that_come_to_too_much_are_refused() {
    // Each sample needs few encoded bytes, but covers the whole of a large region that was stored
    // once.
    let size = 1u64 << 19;
    let mut records = b"\x00\x01\x01\x00\x00\x00\x00\x01\x00\x00\x00".to_vec();
    crate::trace::varint::put_difference(&mut records, size, 0);
    let mut again = b"\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00".to_vec();
    // A run: all words are as in the window, and none follows that is not.
    crate::trace::varint::put(&mut again, size / 8);
    again.push(0);
    let count = 200;

    (1..count).for_each(|_| records.extend_from_slice(&again));

    let mut payload = Vec::new();
    crate::trace::varint::put(&mut payload, records.len() as u64);
    // No data blocks: the literals follow the records.
    payload.push(0);
    payload.extend_from_slice(&records);
    payload.resize(payload.len() + size as usize, 1);

    let bytes = Forged::new()
        .block(BlockType::Samples, count, &payload)
        .finish();
    let (items, errors) = exhaust(&bytes);
    assert_eq!(items.len(), 128, "64 MiB of 512 KiB each");
    assert!(
        errors[0].to_string().contains("come to more than 64 MiB"),
        "{}",
        errors[0]
    );
}

#[test]
fn lying_indexes_are_found_and_the_blocks_read_without_them() {
    let exec = b"\x00\x02\x01";
    let lies = [
        // A wrong length, so that the last block ends elsewhere; a wrong type; a wrong count; a
        // missing block; one too many; the block itself as its predecessor.
        index::encode(
            0,
            16,
            &[Entry {
                offset: 16,
                number: 5,
                length: 30,
                count: 1,
            }],
        ),
        index::encode(0, 16, &[]),
        index::encode(0, 48, &[]),
        index::encode(
            0,
            0,
            &[Entry {
                offset: 0,
                number: 5,
                length: 20,
                count: 1,
            }],
        ),
        index::encode(
            48,
            16,
            &[Entry {
                offset: 16,
                number: 5,
                length: 3,
                count: 1,
            }],
        ),
        index::encode(16, 48, &[]),
        index::encode(u64::MAX, u64::MAX, &[]),
        vec![1, 2, 3],
    ];

    for lie in lies {
        let bytes = Forged::new().block(BlockType::Events, 1, exec).index(&lie);
        let trace = open(&bytes).unwrap();
        assert!(trace.cut().is_some(), "{lie:?}");
        assert_eq!(read(&trace).len(), 1, "{lie:?}");
    }

    // A type or a count that is not that of the block's own header.
    for (number, count) in [(6, 1), (5, 2), (3, 1), (7, 1)] {
        let entry = Entry {
            offset: 16,
            number,
            length: 3,
            count,
        };
        let lie = index::encode(0, 16, &[entry]);
        let bytes = Forged::new().block(BlockType::Events, 1, exec).index(&lie);
        let found = messages(&bytes)
            .iter()
            .any(|m| m.contains("a different block"));
        // If the index gives the block a type that is not read, the error goes unnoticed.
        assert!(
            found || number == 3 || number == 7,
            "type {number}, count {count}"
        );
    }
}

#[test]
fn messages_say_where_and_what_to_do() {
    let error = |bytes: &[u8]| open(bytes).unwrap_err().to_string();
    assert_eq!(
        error(b"PERFILE2________"),
        "trace: offset 0x0: not a trace: it does not start with the trace magic; convert \
         perf.data, core files and kernel dumps with `unwind-sim import` first"
    );

    let mut header = FileHeader::new();
    header.version = 2.into();
    // A right checksum, so that only the version is wrong.
    header.crc32c = header.computed_crc32c().into();
    assert_eq!(
        error(header.as_bytes()),
        "trace: offset 0x0: the trace has format version 2; this program reads version 1; read it \
         with the version of unwind-sim that wrote it, or a later one"
    );

    let (images, items) = everything();
    let mut bytes = write(&items, &images, uncompressed());
    let samples = open(&bytes)
        .unwrap()
        .blocks()
        .find(|b| b.number == 6)
        .unwrap();
    // Behind the block's header of 24 bytes: only the payload is damaged.
    bytes[samples.offset as usize + 40] ^= 1;

    // Only a trace that was opened as a file has a path that a message can name.
    let path = std::env::temp_dir().join(format!("unwind-sim-damage-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let trace = Trace::open(&path).unwrap();
    let message = trace.sample(0).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();

    let place = format!(
        "{}: offset {:#x}, samples block: ",
        path.display(),
        samples.offset
    );
    assert!(
        message.starts_with(&(place + "damaged: the stored checksum is 0x")),
        "{message}"
    );
    assert!(
        message.ends_with("; copy the file again from where it was recorded"),
        "{message}"
    );

    let error = trace.sample(99).unwrap_err();
    assert!(
        matches!(
            error.kind,
            TraceErrorKind::NoSample {
                number: 99,
                count: 5
            }
        ),
        "{error}"
    );
    // It was removed above.
    let missing = Trace::open(&path).unwrap_err();
    assert!(matches!(missing.kind, TraceErrorKind::Io(_)));
}

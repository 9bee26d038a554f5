//! Blocks are closed exactly when they reach a limit.

use super::*;
use crate::trace::index;
use crate::trace::tests::support::{sample, stack, uncompressed};
use std::sync::Arc;
use unwind_sim_unwind::image::Owner;

fn writer() -> TraceWriter<Vec<u8>> {
    let writer = TraceWriter::with_options(Vec::new(), &Meta::default(), uncompressed());
    writer.expect("writing to a Vec")
}

/// The types and sizes in bytes of the blocks after the metadata.
fn blocks(writer: &mut TraceWriter<Vec<u8>>) -> Vec<(BlockType, u32)> {
    let file: Owner = Arc::new(writer.get_mut().clone());
    let entries = index::find(&file).entries.into_iter().skip(1);
    let block = |entry: index::Entry| {
        let block_type = BlockType::from_number(entry.number);
        (block_type.expect("a known type"), entry.length)
    };
    entries.map(block).collect()
}

/// An event of `bytes` bytes, at least 200.
fn event(bytes: usize) -> Event {
    // Position, kind, pid and tid take one byte each; the name's length takes two or three.
    let length = if bytes < 16_390 { 2 } else { 3 };
    Event::Comm {
        pid: 1,
        tid: 1,
        name: "x".repeat(bytes - 4 - length),
    }
}

#[test]
fn events_of_256_kib_are_written() {
    const MOST: usize = 1 << 18;
    for (last, is_written) in [(MOST - 180_001, false), (MOST - 180_000, true)] {
        let mut writer = writer();
        for bytes in [60_000, 60_000, 60_000] {
            writer.event(&event(bytes)).expect("writing to a Vec");
        }
        assert_eq!((blocks(&mut writer), writer.event_count), (vec![], 3));
        // The name would exceed the format's limit, so there are two events.
        for bytes in [60_000, last - 60_000] {
            writer.event(&event(bytes)).expect("writing to a Vec");
        }
        let expected = if is_written {
            (vec![(BlockType::Events, MOST as u32)], 0)
        } else {
            (vec![], 5)
        };
        assert_eq!((blocks(&mut writer), writer.event_count), expected);
    }
}

#[test]
fn without_events_no_events_block_is_written() {
    let mut writer = writer();
    writer.flush().expect("writing to a Vec");
    assert_eq!(blocks(&mut writer), []);
    let written = writer.sample(&sample(1, Vec::new()));
    written.expect("writing to a Vec");
    writer.flush().expect("writing to a Vec");
    let types: Vec<_> = blocks(&mut writer).into_iter().map(|(t, _)| t).collect();
    assert_eq!(types, [BlockType::Samples]);
}

/// Is a chunk of this size full? Its samples are of one thread.
fn is_full(count: u32, records: usize, literals: usize, data_bytes: u64) -> bool {
    let mut chunk = Chunk {
        count,
        data_bytes,
        ..Chunk::default()
    };
    let (out, rest) = (&mut Vec::new(), &mut Vec::new());
    chunk.encoder.sample(&sample(1, Vec::new()), out, rest);
    assert_eq!(chunk.encoder.threads(), 1);
    (chunk.records, chunk.literals) = (vec![0; records], vec![0; literals]);
    chunk.is_full()
}

#[test]
fn a_chunk_is_full_at_each_of_its_limits() {
    const KIB: usize = 1 << 10;
    assert!(!is_full(8, 0, 0, 0));
    // Samples.
    assert!(!is_full(4095, 0, 0, 0));
    assert!(is_full(4096, 0, 0, 0));
    // Records, however few samples there are.
    assert!(!is_full(1, 512 * KIB - 1, 0, 0));
    assert!(is_full(1, 512 * KIB, 0, 0));
    // Literals, including those in separate blocks.
    assert!(!is_full(1, 0, 5, (8 << 20) - 6));
    assert!(is_full(1, 0, 5, (8 << 20) - 5));
    assert!(is_full(1, 0, 6, (8 << 20) - 5));
    // Records and literals together, if the thread has eight samples.
    let most = 960 * KIB;
    assert!(!is_full(8, 100, most - 101, 0));
    assert!(is_full(8, 100, most - 100, 0));
    assert!(is_full(8, 100, 200, most as u64 - 300));
    assert!(!is_full(7, 100, most - 100, 0));
}

#[test]
fn a_chunk_takes_what_comes_to_64_mib_and_not_one_byte_more() {
    let mut writer = writer();
    let sample = |bytes| sample(1, vec![stack(0x7000, bytes, &[])]);
    writer.sample(&sample(16)).expect("writing to a Vec");
    assert_eq!((writer.chunk.count, writer.chunk.weight), (1, 16));
    writer.chunk.weight = (64 << 20) - 8;
    writer.sample(&sample(8)).expect("writing to a Vec");
    assert_eq!((writer.chunk.count, writer.chunk.weight), (2, 64 << 20));
    assert_eq!(blocks(&mut writer), []);
    writer.sample(&sample(1)).expect("writing to a Vec");
    assert_eq!((writer.chunk.count, writer.chunk.weight), (1, 1));
    let written = blocks(&mut writer);
    assert!(
        matches!(written[..], [(BlockType::Samples, _)]),
        "{written:?}"
    );
}

#[test]
fn literals_are_written_in_whole_blocks_beyond_what_may_stay() {
    const MIB: usize = 1 << 20;
    let after = |literals: usize, most: usize| {
        let mut writer = writer();
        writer.chunk.literals = vec![7; literals];
        writer.write_literals(most).expect("writing to a Vec");
        let written = blocks(&mut writer);
        let data = |(block_type, bytes): &(BlockType, u32)| {
            assert_eq!(*block_type, BlockType::Data);
            *bytes as usize
        };
        let lengths: Vec<_> = written.iter().map(data).collect();
        let chunk = &writer.chunk;
        assert_eq!(chunk.data_bytes, lengths.iter().sum::<usize>() as u64);
        assert_eq!(chunk.data.len(), lengths.len());
        (lengths, chunk.literals.len())
    };
    assert_eq!(after(MIB, MIB), (vec![], MIB));
    assert_eq!(after(MIB + 1, MIB), (vec![MIB], 1));
    assert_eq!(after(2 * MIB, MIB), (vec![MIB], MIB));
    assert_eq!(after(2 * MIB + 1, MIB), (vec![MIB, MIB], 1));
    assert_eq!(after(MIB + 5, 0), (vec![MIB, 5], 0));
    assert_eq!(after(0, 0), (vec![], 0));
}

#[test]
fn literals_that_fit_beside_the_records_stay_with_them() {
    // 1 KiB is reserved for what precedes the records.
    const ROOM: usize = (1 << 20) - 1024;
    let written = |records: usize, literals: usize| {
        let mut writer = writer();
        writer.chunk.count = 1;
        writer.chunk.records = vec![0; records];
        writer.chunk.literals = vec![0; literals];
        writer.write_chunk().expect("writing to a Vec");
        let types = blocks(&mut writer).into_iter().map(|(t, _)| t);
        types.collect::<Vec<_>>()
    };
    assert_eq!(written(1000, ROOM - 1000), [BlockType::Samples]);
    let two = [BlockType::Data, BlockType::Samples];
    assert_eq!(written(1000, ROOM - 999), two);
    assert_eq!(written(ROOM / 2, ROOM), two);
}

//! What is written is read back, with all options, sequentially and at random.

use super::support::*;
use crate::model::{Event, ImageIndex, Item, RecordedChain, Region, RegionRole};
use crate::parts::PartReader;
use crate::random::Random;
use crate::recording::Recording;
use crate::trace::{
    BlockType, Meta, OutputOptions, Trace, TraceErrorKind, TraceWriter, WriteError,
};
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::path::PathBuf;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

fn samples<'a>(items: &'a [Item<'static>]) -> impl Iterator<Item = &'a Item<'static>> {
    items.iter().filter(|item| matches!(item, Item::Sample(_)))
}

#[test]
fn everything_comes_back() {
    let (images, items) = everything();
    for options in [OutputOptions::default(), uncompressed()] {
        let bytes = write(&items, &images, options);
        let trace = open(&bytes).unwrap();
        assert!(trace.cut().is_none(), "{:?}", trace.cut());
        assert_eq!(read(&trace), items);
        assert_eq!(trace.images().len(), images.len());
        for (a, b) in trace.images().iter().zip(&images) {
            assert_same_image(a, b);
        }
        assert_eq!((trace.len(), trace.events()), (5, 8));
        for (n, item) in samples(&items).enumerate() {
            assert_eq!(Item::Sample(trace.sample(n as u64).unwrap()), *item);
        }
        assert!(trace.sample(5).is_err());
    }
}

#[test]
fn an_empty_trace_is_a_trace() {
    let trace = open(&write(&[], &[], OutputOptions::default())).unwrap();
    assert!(trace.is_empty() && trace.cut().is_none() && trace.images().is_empty());
    assert_eq!(trace.items().count(), 0);
    assert_eq!(trace.meta(), &Meta::default());
}

/// A recording with several chunks and several threads.
fn long() -> Vec<Item<'static>> {
    let mut n = Random::new(77);
    let mut items = Vec::new();
    for i in 0..9000u64 {
        let length = 64 + 8 * n.below_u64(100);
        let mut s = sample(i, vec![stack(0x7fff_0000 - length, length as usize, &[])]);
        let noise = n.bits().to_le_bytes();
        for at in 0..16 {
            s.regions[0].bytes.to_mut()[at * 4] ^= noise[at % 8];
        }
        s.tid = 100 + (i % 3) as u32;
        if i % 50 == 0 {
            items.push(Item::Event(map(100, 0x40_0000 + i * 0x1000, None)));
        }
        items.push(Item::Sample(s));
    }
    items.push(Item::Event(Event::Exit { pid: 100, tid: 100 }));
    items
}

#[test]
fn any_sample_of_a_long_trace_and_the_world_at_it() {
    let items = long();
    let trace = open(&write(&items, &[], OutputOptions::default())).unwrap();
    // In a single chunk nothing would have to be searched for.
    assert!(trace.chunks().len() > 2, "{} chunks", trace.chunks().len());
    assert_eq!(read(&trace), items);

    let all: Vec<_> = samples(&items).collect();
    let mut n = Random::new(5);
    let last = trace.len() - 1;

    for number in (0..40).map(|_| n.below_u64(last)).chain([0, last]) {
        assert_eq!(
            Item::Sample(trace.sample(number).unwrap()),
            *all[number as usize]
        );
        let world = trace.world_at(number).unwrap();
        assert_eq!(
            world.space(100).mappings().len() as u64,
            mappings_before(number)
        );
    }

    for chunk in trace.chunks().filter(|c| !c.samples().is_empty()) {
        let world = trace.world_before(&chunk).unwrap();
        let first = chunk.samples().start;
        // An event directly before the first sample belongs to the same chunk.
        let before = mappings_before(first) - u64::from(first % 50 == 0);
        assert_eq!(world.space(100).mappings().len() as u64, before);
    }
}

#[test]
fn parts_read_in_any_order_have_the_mappings_of_their_samples() {
    let trace = open(&write(&long(), &[], OutputOptions::default())).unwrap();
    let len = trace.len();
    let recording = Recording::from(trace);
    let parts = recording.parts(usize::MAX).unwrap();
    assert!(parts.len() > 2, "{} parts", parts.len());

    let mut reader = PartReader::default();
    let mut read = |index: usize, at_most: usize| {
        let mut seen = Vec::new();
        let views = reader.views(&parts[index], &mut |view| {
            let mappings = view.space.mappings().len() as u64;
            assert_eq!(mappings, mappings_before(view.number));
            seen.push((view.number, view.space.stamp()));
            if seen.len() == at_most {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        views.unwrap();
        seen
    };

    // Onwards, if not through all of them, what is known of the address space stays true.
    let onwards = (0..parts.len()).filter(|index| index % 3 != 1);
    let seen: Vec<_> = onwards.flat_map(|index| read(index, usize::MAX)).collect();
    assert!(!seen.is_empty() && seen.iter().all(|(_, stamp)| *stamp == seen[0].1));

    // A part that was left half read has its events again.
    read(0, usize::MAX);
    let half = read(1, usize::MAX).len() / 2;
    read(0, usize::MAX);
    read(1, half);

    // Backwards through all, with a look into another one before each.
    let mut numbers = Vec::new();
    read(1, usize::MAX);
    for index in (0..parts.len()).rev() {
        read(parts.len() / 2, 1);
        numbers.extend(read(index, usize::MAX).iter().map(|(number, _)| *number));
    }

    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..len));
}

/// Every 50 samples a mapping of three pages is added, 50 pages after the last one, so none
/// overlap.
fn mappings_before(sample: u64) -> u64 {
    sample / 50 + 1
}

#[test]
fn chunks_read_in_any_order_make_the_whole() {
    let items = long();
    let trace = open(&write(&items, &[], OutputOptions::default())).unwrap();

    let mut parts = std::thread::scope(|scope| {
        let read = |chunk: crate::trace::Chunk<'_>| {
            let mut reader = chunk.read().unwrap();
            let mut part = Vec::new();
            while let Some(item) = reader.next() {
                part.push(item.unwrap().into_owned());
            }
            (chunk.number(), part)
        };
        let threads: Vec<_> = trace
            .chunks()
            .map(|c| scope.spawn(move || read(c)))
            .collect();
        threads
            .into_iter()
            // No chunk may depend on one that was read before it.
            .rev()
            .map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });

    parts.sort_by_key(|(number, _)| *number);
    assert_eq!(
        parts
            .into_iter()
            .flat_map(|(_, part)| part)
            .collect::<Vec<_>>(),
        items
    );
}

#[test]
fn large_stacks_lie_in_data_blocks() {
    let mut first = sample(1, vec![stack(0x1000_0000, 5 << 20, &[])]);
    // Random bytes do not compress, so only sharing can make the file small.
    let mut n = Random::new(3);
    first.regions[0]
        .bytes
        .to_mut()
        .iter_mut()
        .for_each(|b| *b = n.bits() as u8);

    let mut second = first.clone();
    // One word of all these is another one.
    second.regions[0].bytes.to_mut()[4 << 20] ^= 1;
    // The window holds far more than this region.
    let small = sample(3, vec![stack(0x1000_0000, 100, &[])]);
    let items = [first, second, small].map(Item::Sample);

    for options in [OutputOptions::default(), uncompressed()] {
        let bytes = write(&items, &[], options);
        assert!(
            bytes.len() < 6 << 20,
            "the second is a difference: {}",
            bytes.len()
        );

        let trace = open(&bytes).unwrap();
        assert_eq!(read(&trace), items);
        assert!(
            trace
                .blocks()
                .filter(|b| b.block_type == Some(BlockType::Data))
                .count()
                >= 5
        );
        assert!(
            trace
                .blocks()
                .all(|b| b.plain_bytes <= 1 << 20 && b.stored_bytes <= 1 << 20)
        );
    }
}

#[test]
fn many_threads_share_a_chunk() {
    let items: Vec<_> = (0..3200u64)
        .map(|i| {
            let mut s = sample(i, vec![stack(0x7000_0000, 8192, &[(i / 400) as usize])]);
            let mut n = Random::new(i % 400 + 1);
            let random = s.regions[0].bytes.to_mut();
            random.iter_mut().skip(64).for_each(|b| *b = n.bits() as u8);
            s.tid = (i % 400) as u32;
            Item::Sample(s)
        })
        .collect();
    let bytes = write(&items, &[], uncompressed());
    // Each thread's stack is written once, not in every 1 MiB block.
    assert!(bytes.len() < 400 * 8192 * 5 / 4, "{}", bytes.len());
    assert_eq!(read(&open(&bytes).unwrap()), items);
}

#[test]
fn a_changing_checkerboard_does_not_overflow_a_record() {
    // Every other word of a large stack differs: more runs than a record can hold.
    let stacks = (0..3u64).map(|i| {
        let words = (0..1u64 << 18).map(|w| if w % 2 == 0 { i } else { 7 });
        let mut s = sample(i, vec![stack(0x1000_0000, 0, &[])]);
        s.regions[0].bytes = Cow::Owned(words.flat_map(u64::to_le_bytes).collect());
        Item::Sample(s)
    });
    let items: Vec<_> = stacks.collect();
    let trace = open(&write(&items, &[], OutputOptions::default())).unwrap();
    assert!(trace.cut().is_none());
    assert_eq!(read(&trace), items);
}

#[test]
fn a_chain_too_deep_is_kept_as_far_as_it_fits() {
    // Each difference to the frame before takes ten bytes, the most that there is.
    let frame = |i: u64| TrueFrame {
        pc: i.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        cfa: i.wrapping_mul(0xa5a5_a5a5_a5a5_a5a5),
        kind: TrueKind::Call,
        saved: Some([i.wrapping_mul(0x5a5a_5a5a_5a5a_5a5a); 6]),
    };

    let frames: Vec<_> = (0..200_000).map(frame).collect();
    let mut s = sample(1, vec![stack(0x7000, 64, &[])]);
    s.truth = Truth::Complete(frames.clone());

    // Frames that follow each other like this take few bytes.
    let regular = |i: u64| TrueFrame {
        pc: 5,
        cfa: 16 * i,
        kind: TrueKind::Call,
        saved: None,
    };
    let mut deep = s.clone();
    deep.truth = Truth::Complete((0..100_000).map(regular).collect());

    let items = [s, deep.clone(), deep].map(Item::Sample);
    let trace = open(&write(&items, &[], OutputOptions::default())).unwrap();
    let first = trace.sample(0).unwrap().truth;
    assert!(
        !first.is_complete() && first.frames().len() > 3000,
        "{}",
        first.frames().len()
    );
    assert_eq!(first.frames(), &frames[..first.frames().len()]);

    // The last one shares all frames with the one before it.
    for number in [1, 2] {
        assert_eq!(Item::Sample(trace.sample(number).unwrap()), items[1]);
    }
}

#[test]
fn what_exceeds_the_format_is_refused_and_not_written() {
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).unwrap();
    let region = |address, bytes| Region {
        bytes,
        ..stack(address, 0, &[])
    };

    let many = sample(1, (0..256).map(|i| stack(i * 64, 8, &[])).collect());
    let wraps = sample(1, vec![region(u64::MAX - 3, Cow::Owned(vec![0; 8]))]);
    // One byte more than half of what a block may decode to.
    let huge = sample(1, vec![region(0, Cow::Owned(vec![0; (32 << 20) + 1]))]);
    let mut chains = sample(1, Vec::new());
    chains.recorded = vec![RecordedChain {
        source: "perf".into(),
        ips: vec![0; 9000],
        request: None,
    }];

    let expected = [
        "regions of a sample: 256 is more than the 255 that a trace can hold",
        "a region of 8 bytes at 0xfffffffffffffffc extends past the last address",
        "bytes in the regions of a sample: 33554433 is more than the 33554432 that a trace can hold",
        "addresses in a sample's recorded chains: 9000 is more than the 8192 that a trace can hold",
    ];

    for (bad, message) in [many, wraps, huge, chains].iter().zip(expected) {
        assert_eq!(writer.sample(bad).unwrap_err().to_string(), message);
    }

    // No image was added.
    let error = writer.event(&map(1, 0, Some(0))).unwrap_err();
    assert!(matches!(error, WriteError::NoImage(0)), "{error}");

    // What was refused has left nothing behind.
    let good = sample(1, vec![stack(0x7000, 64, &[])]);
    writer.sample(&good).unwrap();
    let trace = open(&writer.finish().unwrap()).unwrap();
    assert_eq!(read(&trace), [Item::Sample(good)]);
}

#[test]
fn more_regions_than_slots_come_back() {
    let regions = |skip: u64| {
        (0..255)
            .map(|i| stack((i + skip) * 4096, 16, &[]))
            .collect()
    };
    let items = [
        sample(1, regions(0)),
        sample(2, regions(1)),
        sample(3, regions(1000)),
    ];
    let items = items.map(Item::Sample);
    assert_eq!(
        read(&open(&write(&items, &[], uncompressed())).unwrap()),
        items
    );
}

#[test]
fn the_last_word_on_the_recording_counts() {
    let begin = Meta {
        program: vec!["a".into()],
        ..Meta::default()
    };
    let end = Meta {
        instructions: 5,
        status: Some(0),
        ..begin.clone()
    };
    let mut writer = TraceWriter::new(Vec::new(), &begin).unwrap();
    writer.meta(&end).unwrap();
    assert_eq!(open(&writer.finish().unwrap()).unwrap().meta(), &end);
    let other = vec![("k".into(), "v".repeat(65537))];
    let long = Meta {
        other,
        ..Meta::default()
    };
    assert!(matches!(
        TraceWriter::new(Vec::new(), &long),
        Err(WriteError::TooLarge { .. })
    ));
}

struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self
            .0
            .checked_sub(bytes.len())
            .ok_or(std::io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn after_a_failed_write_nothing_more_is_written() {
    let mut writer = TraceWriter::new(Full(100), &Meta::default()).unwrap();
    writer
        .sample(&sample(1, vec![stack(0x7000, 64, &[])]))
        .unwrap();
    assert!(matches!(writer.flush(), Err(WriteError::Io(_))));
    writer
        .sample(&sample(2, vec![stack(0x7000, 64, &[])]))
        .unwrap();
    assert!(matches!(writer.flush(), Err(WriteError::Failed)));
    assert!(matches!(writer.finish(), Err(WriteError::Failed)));
}

/// The output of a recorder that is killed: the bytes of all writes so far.
#[derive(Clone, Default)]
struct Writes(std::rc::Rc<std::cell::RefCell<Vec<Vec<u8>>>>);

impl std::io::Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().push(bytes.to_vec());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_write_ends_with_a_whole_block() {
    let writes = Writes::default();
    let mut writer = TraceWriter::new(writes.clone(), &Meta::default()).unwrap();

    writer.add_image(&image("a", 1)).unwrap();
    for i in 0..5u64 {
        let size = 64 + 8 * i as usize;
        writer
            .sample(&sample(i, vec![stack(0x7000, size, &[])]))
            .unwrap();
        writer.flush().unwrap();
    }

    let written = writes.0.borrow();
    let mut file = Vec::new();
    for (count, bytes) in written.iter().enumerate() {
        file.extend_from_slice(bytes);
        if count == 0 {
            continue; // The file header.
        }
        // Everything up to here can be read; only index and footer are missing.
        let trace = open(&file).unwrap();
        let cut = trace.cut().unwrap();
        assert!(
            matches!(cut.kind, TraceErrorKind::Short { left: 0, .. }),
            "write {count}: {cut}"
        );
    }

    // The writer has not finished, but nothing is missing.
    assert_eq!(open(&file).unwrap().len(), 5);
}

#[test]
fn a_last_block_is_complete_without_its_padding() {
    let mut paddings = std::collections::BTreeSet::new();
    for extra in 0..8u64 {
        let mut out = Vec::new();
        let mut writer = TraceWriter::new(&mut out, &Meta::default()).unwrap();
        let one = sample(1 << (7 * extra), vec![stack(0x7000, 64, &[])]);
        writer.sample(&one).unwrap();
        writer.flush().unwrap();
        drop(writer);
        let block = open(&out).unwrap().blocks().last().unwrap();
        let padding = (8 - block.stored_bytes as usize % 8) % 8;
        paddings.insert(padding);
        for lost in 0..=padding {
            let trace = open(&out[..out.len() - lost]).unwrap();
            assert_eq!(trace.len(), 1, "{lost} of {padding} bytes of padding lost");
        }
        let trace = open(&out[..out.len() - padding - 1]).unwrap();
        assert_eq!(trace.len(), 0, "a byte of the payload is lost");
    }
    assert!(paddings.len() > 3, "{paddings:?}");
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unwind-sim-{name}-{}.bin", std::process::id()))
}

#[test]
fn a_file_appears_when_it_is_finished() {
    let path = temporary("finished");
    let mut file = TraceWriter::create(&path, &Meta::default()).unwrap();
    file.sample(&sample(1, vec![stack(0x7000, 64, &[])]))
        .unwrap();
    assert!(!path.exists());
    file.finish().unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!((trace.len(), trace.cut().is_none()), (1, true));
    assert_eq!(trace.path(), Some(&*path));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_interrupted_recording_is_kept_and_an_empty_one_is_not() {
    let path = temporary("interrupted");
    let mut file = TraceWriter::create(&path, &Meta::default()).unwrap();
    file.event(&map(1, 0x1000, None)).unwrap();
    file.sample(&sample(1, vec![stack(0x7000, 64, &[])]))
        .unwrap();

    // Only a complete recording gets the name itself (`docs/trace-format.md`).
    let partial = file.abandon().unwrap();
    assert!(!path.exists());
    let trace = Trace::open(&partial).unwrap();
    assert_eq!((trace.len(), trace.events()), (1, 1));
    assert!(trace.cut().is_some());
    std::fs::rename(&partial, &path).unwrap();

    // The existing file is not replaced by an empty one.
    drop(TraceWriter::create(&path, &Meta::default()).unwrap());
    assert_eq!(Trace::open(&path).unwrap().len(), 1);

    let empty = TraceWriter::create(&path, &Meta::default()).unwrap();
    assert_eq!(empty.abandon(), None);

    std::fs::remove_file(&path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap();
    let left = left.filter(|e| {
        e.as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains(name)
    });
    assert_eq!(left.count(), 0);
    assert!(TraceWriter::create("/", &Meta::default()).is_err());
}

#[test]
fn roles_and_threads_keep_apart() {
    // The same addresses in two threads, and as stack and as data of one thread.
    let mut items = Vec::new();
    for i in 0..6u64 {
        let mut s = sample(
            i,
            vec![stack(0x7000, 64, &[i as usize]), stack(0x7000, 64, &[9])],
        );
        s.regions[1].role = RegionRole::Data;
        s.tid = (i % 2) as u32;
        items.push(Item::Sample(s));
    }
    items.push(Item::Event(Event::Exec { pid: 100 }));
    let trace = open(&write(&items, &[image("a", 1)], uncompressed())).unwrap();
    assert_eq!(read(&trace), items);
    assert!(trace.images().get(ImageIndex(0).0 as usize).is_some());
}

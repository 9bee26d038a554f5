//! The hand-made dumps of `docs/trace-format.md`, compared with the reader and the writer.

use super::support::*;
use crate::model::{Event, ImageIndex, Item, Region, RegionRole, Sample};
use crate::trace::{Engine, Meta, TimeUnit, TraceErrorKind, TraceWriter};
use std::borrow::Cow;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::regs::Regs;
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/trace-format.md"));

/// The bytes of the page's dump `number`; each line is `OFFSET BYTES | COMMENT`.
fn dump(number: usize) -> Vec<u8> {
    let body = PAGE.split("```hex\n").nth(number + 1).unwrap();
    let mut bytes = Vec::new();
    for line in body.split("```").next().unwrap().lines() {
        let mut words = line.split('|').next().unwrap().split_whitespace();
        let Some(offset) = words.next() else {
            continue;
        };
        let offset = usize::from_str_radix(offset, 16).unwrap();
        assert_eq!(offset, bytes.len(), "the offset in `{line}`");
        bytes.extend(words.map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

fn meta() -> Meta {
    let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
    Meta {
        command: words(&["unwind-sim", "record", "./a"]),
        program: words(&["./a"]),
        engine: Engine::Ptrace,
        time_unit: TimeUnit::Instructions,
        truth: "from main".into(),
        instructions: 100,
        ..Meta::default()
    }
}

fn image() -> Image {
    let section = |kind, address, data: &[u8]| Section {
        kind,
        address,
        data: Bytes::from_vec(data.to_vec()),
    };
    Image::new(ImageParts {
        name: "a".into(),
        build_id: vec![0xde, 0xad, 0xbe, 0xef],
        text: std::iter::once(0x1000..0x1010).collect(),
        sections: vec![
            section(SectionKind::EhFrame, 0x2000, &[0; 4]),
            section(SectionKind::Text, 0x1000, &[0x55, 0xc3]),
        ],
        symbols: vec![Symbol {
            address: 0x1000,
            size: 2,
            name: "main".into(),
        }],
    })
}

fn sample(time: u64, regs: Regs, words: &[u64], frames: Vec<TrueFrame>) -> Item<'static> {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let region = Region {
        role: RegionRole::Stack,
        bounds: 0x6000..0x8000,
        next_sp: 0,
        address: regs.rsp(),
        bytes: Cow::Owned(bytes),
    };
    Item::Sample(Sample {
        pid: 7,
        tid: 7,
        time,
        regs: SampleRegs::hardware(regs),
        regions: vec![region],
        truth: Truth::Complete(frames),
        recorded: Vec::new(),
        branches: Vec::new(),
        kernel: None,
        process_memory: None,
    })
}

fn items() -> Vec<Item<'static>> {
    let frame = |pc, cfa, kind| TrueFrame {
        pc,
        cfa,
        kind,
        saved: None,
    };
    // The same in both samples, so that the second one shares it.
    let caller = frame(0x40_1005, 0x7020, TrueKind::Call);

    vec![
        Item::Event(Event::Map {
            pid: 7,
            range: 0x40_1000..0x40_2000,
            bias: 0x40_0000,
            image: Some(ImageIndex(0)),
            name: "/a".into(),
        }),
        sample(
            100,
            Regs::frame(0x40_1000, 0x7000, 0x7ff0),
            &[0x1111, 0x40_1005, 0],
            vec![frame(0x40_1000, 0x7010, TrueKind::Top), caller],
        ),
        sample(
            101,
            Regs::frame(0x40_1001, 0x6ff8, 0x7ff0),
            &[0x33, 0x1111, 0x40_1005, 0x22],
            vec![frame(0x40_1001, 0x7010, TrueKind::Top), caller],
        ),
    ]
}

#[test]
fn the_reader_reads_the_dump() {
    let trace = open(&dump(0)).unwrap();
    assert!(trace.cut().is_none());
    assert_eq!(trace.meta(), &meta());
    assert_eq!(trace.images().len(), 1);
    assert_same_image(&trace.images()[0], &image());
    assert_eq!(read(&trace), items());
    let numbers: Vec<u16> = trace.blocks().map(|b| b.number).collect();
    assert_eq!(numbers, [1, 3, 4, 2, 5, 6, 7]);
}

#[test]
fn the_writer_writes_the_dump() {
    let mut writer = TraceWriter::with_options(Vec::new(), &meta(), uncompressed()).unwrap();
    assert_eq!(writer.add_image(&image()).unwrap(), ImageIndex(0));
    for item in items() {
        writer.item(&item).unwrap();
    }
    assert_eq!(writer.finish().unwrap(), dump(0));
}

#[test]
fn the_reader_reads_the_dump_of_an_interrupted_trace() {
    let bytes = dump(1);
    let trace = open(&bytes).unwrap();
    let cut = trace.cut().unwrap();
    assert_eq!(cut.offset, bytes.len() as u64);
    assert!(
        matches!(
            cut.kind,
            TraceErrorKind::Short {
                needed: 24,
                left: 0
            }
        ),
        "{cut}"
    );
    assert_eq!(trace.meta().program, ["./b"]);
    assert_eq!(read(&trace), [Item::Event(Event::Exec { pid: 9 })]);
    let first = trace.blocks().next().unwrap();
    assert_eq!((first.number, first.block_type), (99, None));
}

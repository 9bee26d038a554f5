//! A small trace with every kind of item, and helpers for tests.

use crate::model::{
    CallchainRequest, Event, ImageIndex, Item, RecordedChain, Region, RegionRole, Sample,
};
use crate::trace::{Meta, OutputOptions, Trace, TraceError, TraceWriter};
use std::borrow::Cow;
use unwind_sim_unwind::image::{Bytes, Image, ImageParts, Section, SectionKind, Symbol};
use unwind_sim_unwind::regs::{Reg, Regs};
use unwind_sim_unwind::start::SampleRegs;
use unwind_sim_unwind::truth::{TrueFrame, TrueKind, Truth};

pub(in crate::trace) fn uncompressed() -> OutputOptions {
    OutputOptions {
        level: None,
        images_in_place: true,
    }
}

pub(in crate::trace) fn write(
    items: &[Item<'_>],
    images: &[Image],
    options: OutputOptions,
) -> Vec<u8> {
    let mut writer = TraceWriter::with_options(Vec::new(), &Meta::default(), options).unwrap();
    for image in images {
        writer.add_image(image).unwrap();
    }
    for item in items {
        writer.item(item).unwrap();
    }
    writer.finish().unwrap()
}

pub(in crate::trace) fn read(trace: &Trace) -> Vec<Item<'static>> {
    trace.items().collect::<Result<_, _>>().unwrap()
}

pub(in crate::trace) fn open(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::from_bytes(bytes.to_vec())
}

pub(in crate::trace) fn image(name: &str, seed: u8) -> Image {
    // `seed` gives images other contents: equal ones would be written once.
    let section = |kind, address, length: usize| Section {
        kind,
        address,
        data: Bytes::from_vec((0..length).map(|i| i as u8 ^ seed).collect()),
    };

    Image::new(ImageParts {
        name: name.to_owned(),
        build_id: vec![seed; 20],
        text: vec![0x1000..0x3000, 0x5000..0x5800],
        sections: vec![
            section(SectionKind::EhFrame, 0x8000, 70),
            section(SectionKind::EhFrameHdr, 0x7000, 12),
            section(SectionKind::Text, 0x1000, 33),
            section(SectionKind::Got, 0x9000, 0),
        ],
        symbols: vec![
            Symbol {
                address: 0x1000,
                size: 16,
                name: "main".into(),
            },
            Symbol {
                address: 0x1010,
                size: 0,
                name: "_ZN4leafEv".into(),
            },
        ],
    })
}

/// Asserts that two images have equal parts; images themselves are compared by identity.
pub(in crate::trace) fn assert_same_image(a: &Image, b: &Image) {
    assert_eq!(a.name(), b.name());
    assert_same_content(a, b);
}

pub(in crate::trace) fn assert_same_content(a: &Image, b: &Image) {
    assert_eq!(a.build_id(), b.build_id());
    assert_eq!(a.text(), b.text());
    assert_eq!(a.symbols(), b.symbols());
    let parts = |i: &Image| -> Vec<_> {
        i.sections()
            .iter()
            .map(|s| (s.kind, s.address, s.data.to_vec()))
            .collect()
    };
    assert_eq!(parts(a), parts(b));
}

/// A stack whose words at the indices `changed` differ from those of other samples.
pub(in crate::trace) fn stack(address: u64, length: usize, changed: &[usize]) -> Region<'static> {
    let mut bytes: Vec<u8> = (0..length)
        .map(|i| ((address + i as u64) / 8) as u8 ^ (i as u8 & 7))
        .collect();
    for at in changed {
        bytes[*at] ^= 0xff;
    }
    Region {
        role: RegionRole::Stack,
        bounds: 0x7f00_0000..0x7fff_0000,
        next_sp: 0,
        address,
        bytes: Cow::Owned(bytes),
    }
}

pub(in crate::trace) fn sample(time: u64, regions: Vec<Region<'static>>) -> Sample<'static> {
    let mut regs = Regs::frame(0x40_1000 + time, 0x7ffe_ff00, 0x7ffe_ff40);
    regs.set(Reg::Rbx, time * 3);
    Sample {
        pid: 100,
        tid: 100,
        time,
        regs: SampleRegs::hardware(regs),
        regions,
        truth: Truth::Unknown,
        recorded: Vec::new(),
        branches: Vec::new(),
        kernel: None,
        process_memory: None,
    }
}

pub(in crate::trace) fn map(pid: u32, start: u64, image: Option<u32>) -> Event {
    Event::Map {
        pid,
        range: start..start + 0x3000,
        bias: start.wrapping_sub(0x1000),
        image: image.map(ImageIndex),
        name: "/usr/bin/program".into(),
    }
}

/// The word at `address` in a region.
fn word(region: &Region<'_>, address: u64) -> u64 {
    let at = (address - region.address) as usize;
    u64::from_le_bytes(region.bytes[at..at + 8].try_into().unwrap())
}

/// A true chain whose return addresses are in `region`, except the one that was altered.
fn truth(region: &Region<'_>, rip: u64) -> Vec<TrueFrame> {
    let slots = [
        region.address + 16,
        region.address + 40,
        region.address + 48,
    ];
    let saved = Some([1, 2, 3, 4, 5, 6]);
    let mut frames = vec![TrueFrame {
        pc: rip,
        cfa: slots[0] + 8,
        kind: TrueKind::Top,
        saved,
    }];
    for (i, slot) in slots.iter().enumerate() {
        let altered = u64::from(i == 1);
        frames.push(TrueFrame {
            pc: word(region, *slot) + altered,
            cfa: slots.get(i + 1).map_or(0, |s| s + 8),
            kind: TrueKind::Call,
            saved: (i != 2).then_some([1, 2, 3, 4, 5, 6 + i as u64]),
        });
    }
    frames
}

/// Every kind of item, with every field used at least once.
pub(in crate::trace) fn everything() -> (Vec<Image>, Vec<Item<'static>>) {
    let images = vec![image("/usr/bin/program", 1), image("/usr/lib/libc.so.6", 2)];
    let mut items = vec![
        Item::Event(Event::Comm {
            pid: 100,
            tid: 100,
            name: "program".into(),
        }),
        Item::Event(map(100, 0x40_0000, Some(0))),
        Item::Event(map(100, 0x7f12_3456_7000, Some(1))),
    ];

    let base = 0x7ffe_ff00;
    // The stack grows by a word from sample to sample, so their windows overlap.
    for i in 0..4u64 {
        let region = stack(base - 8 * i, 200 + 8 * i as usize, &[20, 100 + i as usize]);
        let mut s = sample(10 + i, vec![region]);

        let frames = truth(&s.regions[0], s.regs.sampled.rip());
        s.truth = [
            Truth::Unknown,
            Truth::Known(frames.clone()),
            Truth::Complete(frames),
        ][(i % 3) as usize]
            .clone();

        if i >= 2 {
            // The first is `PERF_CONTEXT_USER`, -512 (`include/uapi/linux/perf_event.h`).
            let ips = vec![
                0xffff_ffff_ffff_fe00,
                0x40_1000 + i,
                0x40_2000,
                0x7f12_3456_8000,
            ];
            // gdb has no such markers.
            let gdb = RecordedChain {
                source: "gdb".into(),
                ips: ips[1..].to_vec(),
                request: None,
            };
            s.recorded = vec![
                RecordedChain {
                    source: "perf".into(),
                    ips,
                    request: (i > 2).then_some(CallchainRequest {
                        kernel: true,
                        user: true,
                        add_mark: true,
                        crosstask: false,
                        max_stack: 127 - i as u32,
                        cookie: (i > 2).then_some(0x3_0000_0001),
                    }),
                },
                gdb,
            ];
        }

        items.push(Item::Sample(s));
    }

    items.push(Item::Event(map(100, 0x7f99_0000_0000, None)));
    items.push(Item::Event(Event::Unmap {
        pid: 100,
        range: 0x40_0000..0x40_1000,
    }));
    // The second process starts with the mappings of the first.
    items.push(Item::Event(Event::Fork {
        pid: 101,
        tid: 101,
        parent_pid: 100,
    }));
    // Earlier than the samples before it, so the difference of their times is negative.
    items.push(Item::Sample(second_thread(base)));
    items.push(Item::Event(Event::Exec { pid: 101 }));
    items.push(Item::Event(Event::Exit { pid: 101, tid: 101 }));

    (images, items)
}

/// Fake registers, three regions, an interrupted frame, another thread, an earlier time.
fn second_thread(base: u64) -> Sample<'static> {
    let mut s = sample(
        5,
        vec![stack(base + 0x1000, 16, &[]), stack(base, 400, &[7])],
    );

    s.regions[0].role = RegionRole::OtherStack;
    // The other stack links to the sampled one.
    s.regions[0].next_sp = base;
    s.regions.push(Region {
        role: RegionRole::Data,
        bounds: 0..0,
        next_sp: 0,
        address: 0x40_4000,
        bytes: Cow::Owned(Vec::new()),
    });

    (s.pid, s.tid) = (101, 102);

    // perf leaves rflags 0 in the registers that it makes up.
    let mut fake = Regs::frame(0x40_1234, base, 0);
    fake.set(Reg::Rflags, 0);
    fake.set(Reg::Cs, 0x10);
    s.regs = SampleRegs {
        sampled: fake,
        fetch: Some(Regs::frame(1, 2, 3)),
        // Where the unwinder starts, because the sampled registers are made up.
        own: Some(Regs::frame(0x40_2222, base, base + 64)),
    };

    let inner = TrueFrame {
        pc: 0x40_2222,
        cfa: base,
        kind: TrueKind::Top,
        saved: None,
    };

    // rip in a signal frame (`gregs[REG_RIP]`): the pc of the frame that the signal interrupted.
    let word = word(&s.regions[1], base + 168);
    s.truth = Truth::Complete(vec![
        inner,
        TrueFrame {
            pc: 77,
            cfa: base + 8,
            kind: TrueKind::Call,
            saved: None,
        },
        TrueFrame {
            pc: word,
            cfa: 9,
            kind: TrueKind::Interrupted,
            saved: Some([9; 6]),
        },
    ]);

    s
}

//! Ring buffers, maps of maps and callbacks: the shipped `ring`, and small programs at the edges.
//! The running kernel is asked by `tests/bpf_events_kernel.rs` of the whole.

use unwind_sim_perf_model::bpf::maps::{Map, Ring, Storage, kind};
use unwind_sim_perf_model::bpf::{
    Context, Errno, Fault, FaultKind, Handlers, Insn, Limits, MapDef, Object, PerfEventData,
    PlainEnv,
};

const RING: &[u8] = include_bytes!("../corpus/bpf/ring.bpf.o");

fn def(kind: u32, sizes: [u32; 3]) -> MapDef {
    MapDef {
        name: "m".into(),
        kind,
        key_size: sizes[0],
        value_size: sizes[1],
        max_entries: sizes[2],
        flags: 0,
        initial: Vec::new(),
        inner: Vec::new(),
    }
}

fn ring_of<'m>(handlers: &'m mut Handlers, name: &str) -> &'m mut Ring {
    let index = handlers.maps.iter().position(|map| map.def.name == name);
    let map = handlers.maps.get_mut(index.expect("it is defined"));
    match &mut map.expect("it is there").storage {
        Storage::Ring(ring) => ring,
        other => panic!("{other:?}"),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[test]
fn the_shipped_handler_fills_the_ring_of_its_processor() {
    let object = Object::parse(RING).expect("it is what clang made");
    let rings = object.maps.iter().find(|map| map.name == "rings");
    let rings = rings.expect("it is defined");
    assert_eq!((rings.kind, rings.value_size), (kind::ARRAY_OF_MAPS, 4));
    let inner: Vec<_> = rings
        .inner
        .iter()
        .map(|(slot, map)| (*slot, object.maps[*map].name.as_str()))
        .collect();
    assert_eq!(inner, [(0, "first"), (1, "second")]);

    // Two ranges that overlap, so that an address may be in both.
    let mut handlers = Handlers::load(&object, Limits::default()).expect("it loads");
    let ranges = handlers
        .maps
        .iter()
        .position(|map| map.def.name == "ranges");
    let ranges = handlers
        .maps
        .get_mut(ranges.expect("defined"))
        .expect("there");
    for (key, (start, end)) in [(7u32, (0x1000u64, 0x2000u64)), (8, (0x1800, 0x9000))] {
        let value = [start.to_le_bytes(), end.to_le_bytes()].concat();
        ranges
            .update(&key.to_le_bytes(), &value, 0, 0)
            .expect("room");
    }
    let data = PerfEventData::new();
    let mut run = |cpu, stack: &[u64]| {
        let mut env = PlainEnv {
            cpu,
            user_stack: stack.to_vec(),
            ..PlainEnv::default()
        };
        env.task.pid = 42;
        let mut data = data;
        data.set_reg(unwind_sim_perf_data::regs::PERF_REG_X86_IP, 0x1234);
        let outcome = handlers.run(0, &mut env, Context::PerfEvent(&data));
        outcome.expect("no fault").value()
    };

    // The ring is chosen by the processor.
    assert_eq!(run(0, &[0x1234, 0x1900, 0x5000]), 1);
    assert_eq!(run(1, &[0x1234, 0xffff]), 1);
    // One frame is not deep, no frame is none, and the third processor has no ring.
    assert_eq!(run(1, &[0x1234]), 1);
    assert_eq!(run(0, &[]), 0);
    assert_eq!(run(2, &[0x1234, 0x1235]), 0);
    let first = ring_of(&mut handlers, "first").consume();
    assert_eq!(first.len(), 1);
    // In the first range are two of the frames, in the second two.
    let fields = |bytes: &[u8]| [0, 4, 8, 16, 20].map(|at| word(bytes, at));
    assert_eq!(fields(&first[0]), [42, 0, 0x1234, 3, 4]);

    // A record that is discarded takes its place, but is not read.
    let ring = ring_of(&mut handlers, "second");
    assert_eq!((ring.stats().submitted, ring.stats().discarded), (1, 1));
    let second = ring.consume();
    assert_eq!(second.len(), 1);
    assert_eq!(fields(&second[0]), [42, 1, 0x1234, 2, 1]);
    assert!(ring.consume().is_empty());
}

/// Runs instructions with one ring of a page; r0, and the ring.
fn with_ring(insns: &[Insn], turns: usize) -> (Result<u64, Fault>, Map) {
    let maps = [def(kind::RINGBUF, [0, 0, 4096])];
    let object = Object::from_insns("perf_event", insns, &maps);
    let mut handlers = Handlers::load(&object, Limits::default()).expect("it loads");
    let data = PerfEventData::new();
    let mut last = Ok(0);
    for _ in 0..turns {
        let mut env = PlainEnv::default();
        let outcome = handlers.run(0, &mut env, Context::PerfEvent(&data));
        last = outcome.map(|outcome| outcome.r0);
    }
    (last, handlers.maps.get(0).expect("it is there").clone())
}

const MAP: [Insn; 2] = [
    Insn {
        code: 0x18,
        dst: 1,
        src: 1,
        off: 0,
        imm: 0,
    },
    Insn {
        code: 0,
        dst: 0,
        src: 0,
        off: 0,
        imm: 0,
    },
];

/// Reserves so many bytes; r6 is the record. Goes on only if there is one.
fn reserve(size: i32) -> Vec<Insn> {
    let mut insns = MAP.to_vec();
    insns.extend([
        Insn::new(0xb7, 2, 0, 0, size),
        Insn::new(0xb7, 3, 0, 0, 0),
        Insn::new(0x85, 0, 0, 0, 131),
        Insn::new(0x55, 0, 0, 2, 0),
        Insn::new(0xb7, 0, 0, 0, 77),
        Insn::EXIT,
        Insn::new(0xbf, 6, 0, 0, 0),
    ]);
    insns
}

fn then(mut insns: Vec<Insn>, more: &[Insn]) -> Vec<Insn> {
    insns.extend_from_slice(more);
    insns.extend([Insn::new(0xb7, 0, 0, 0, 5), Insn::EXIT]);
    insns
}

const SUBMIT: [Insn; 3] = [
    Insn {
        code: 0xbf,
        dst: 1,
        src: 6,
        off: 0,
        imm: 0,
    },
    Insn {
        code: 0xb7,
        dst: 2,
        src: 0,
        off: 0,
        imm: 0,
    },
    Insn {
        code: 0x85,
        dst: 0,
        src: 0,
        off: 0,
        imm: 132,
    },
];

#[test]
fn a_ring_that_nobody_reads_is_full_at_its_size() {
    // 1016 bytes and a header: three fit, as the ring is never quite full.
    let program = then(reserve(1016), &SUBMIT);
    for (turns, result, lost) in [(3, 5, 0), (4, 77, 1), (9, 77, 6)] {
        let (last, map) = with_ring(&program, turns);
        assert_eq!(last.expect("no fault"), result);
        let Storage::Ring(ring) = &map.storage else {
            panic!("{map:?}")
        };
        assert_eq!((ring.stats().submitted, ring.stats().lost), (3, lost));
    }
    // Who reads makes room again.
    let (_, map) = with_ring(&program, 3);
    let Storage::Ring(mut ring) = map.storage else {
        panic!("no ring")
    };
    assert_eq!(ring.consume().len(), 3);
    let (last, _) = with_ring(&then(reserve(4088), &SUBMIT), 1);
    assert_eq!(last.expect("no fault"), 77, "all of it never fits");
    let (last, _) = with_ring(&then(reserve(4080), &SUBMIT), 1);
    assert_eq!(last.expect("no fault"), 5);
}

#[test]
fn what_the_verifier_refuses_is_a_fault() {
    let kind = |insns: &[Insn]| with_ring(insns, 1).0.expect_err("a fault").kind;

    // Neither submitted nor discarded.
    let kept = then(reserve(16), &[]);
    assert_eq!(kind(&kept), FaultKind::Unreleased(0));
    let (_, map) = with_ring(&kept, 3);
    let Storage::Ring(ring) = &map.storage else {
        panic!("{map:?}")
    };
    assert_eq!(ring.stats().discarded, 3, "the ring goes on");

    // Written behind its end, used after it was given away, given away twice, in its middle.
    let outside = then(reserve(16), &[Insn::new(0x7a, 6, 0, 16, 1)]);
    assert!(matches!(
        kind(&outside),
        FaultKind::OutOfBounds { length: 16, .. }
    ));
    let after = [&SUBMIT[..], &[Insn::new(0x7a, 6, 0, 0, 1)]].concat();
    let after = kind(&then(reserve(16), &after));
    assert!(matches!(after, FaultKind::OutOfBounds { length: 0, .. }));
    let argument = FaultKind::Argument {
        helper: "ringbuf_submit",
        argument: 1,
    };
    let twice = [SUBMIT, SUBMIT].concat();
    assert_eq!(kind(&then(reserve(16), &twice)), argument);
    let middle = [&[Insn::new(0x07, 6, 0, 0, 8)], &SUBMIT[..]].concat();
    assert_eq!(kind(&then(reserve(16), &middle)), argument);

    // Another kind of map, and a ring where another one belongs.
    let mut lookup = MAP.to_vec();
    lookup.extend([Insn::new(0xbf, 2, 10, 0, 0), Insn::new(0x85, 0, 0, 0, 1)]);
    assert!(matches!(
        kind(&then(lookup, &[])),
        FaultKind::MapKind { .. }
    ));
}

#[test]
fn rings_have_the_sizes_that_the_kernel_takes() {
    for (sizes, is_good) in [
        ([0, 0, 4096], true),
        ([0, 0, 1 << 20], true),
        ([0, 0, 0], false),
        ([0, 0, 2048], false),
        ([0, 0, 12288], false),
        ([4, 0, 4096], false),
        ([0, 8, 4096], false),
    ] {
        let object = Object::from_insns("perf_event", &[], &[def(kind::RINGBUF, sizes)]);
        let made = unwind_sim_perf_model::bpf::Maps::new(&object.maps, Limits::default());
        assert_eq!(made.is_ok(), is_good, "{sizes:?}");
    }
}

#[test]
fn maps_of_maps_take_maps_alone_and_within_their_size() {
    let maps = [
        def(kind::ARRAY_OF_MAPS, [4, 4, 2]),
        def(kind::HASH_OF_MAPS, [8, 4, 1]),
        def(kind::ARRAY, [4, 8, 1]),
    ];
    let mut maps = unwind_sim_perf_model::bpf::Maps::new(&maps, Limits::default()).expect("sizes");
    assert_eq!(maps.put_map(0, &1u32.to_le_bytes(), 2), Ok(()));
    assert_eq!(maps.put_map(0, &2u32.to_le_bytes(), 2), Err(Errno::E2big));
    assert_eq!(maps.put_map(0, &[0; 8], 2), Err(Errno::Einval));
    assert_eq!(maps.put_map(0, &[0; 4], 1), Err(Errno::Einval), "no deeper");
    assert_eq!(maps.put_map(0, &[0; 4], 9), Err(Errno::Enoent));
    assert_eq!(maps.put_map(2, &[0; 4], 2), Err(Errno::Einval));
    assert_eq!(maps.put_map(1, &[1; 8], 2), Ok(()));
    assert_eq!(maps.put_map(1, &[1; 8], 2), Ok(()), "again the same key");
    assert_eq!(maps.put_map(1, &[2; 8], 2), Err(Errno::E2big));
}

/// `loop(rounds, callback, r10, flags)` whose callback, a function at the end, says `stop` in its
/// round.
fn looping(rounds: i32, flags: i32, callback: &[Insn]) -> Result<u64, Fault> {
    let mut insns = vec![
        Insn::new(0xb7, 1, 0, 0, rounds),
        // The address of the function behind the exit.
        Insn::new(0x18, 2, 4, 0, 5),
        Insn::new(0, 0, 0, 0, 0),
        Insn::new(0xbf, 3, 10, 0, 0),
        Insn::new(0xb7, 4, 0, 0, flags),
        Insn::new(0x85, 0, 0, 0, 181),
        Insn::EXIT,
    ];
    insns.extend_from_slice(callback);
    let object = Object::from_insns("perf_event", &insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).expect("it loads");
    let data = PerfEventData::new();
    let outcome = handlers.run(0, &mut PlainEnv::default(), Context::PerfEvent(&data));
    outcome.map(|outcome| outcome.r0)
}

#[test]
fn a_loop_ends_when_its_callback_says_so() {
    let go_on = [Insn::new(0xb7, 0, 0, 0, 0), Insn::EXIT];
    let stop_at_3 = [
        Insn::new(0xb7, 0, 0, 0, 0),
        Insn::new(0x55, 1, 0, 1, 3),
        Insn::new(0xb7, 0, 0, 0, 1),
        Insn::EXIT,
    ];

    // As many rounds as asked for, or up to the first result that is not 0.
    assert_eq!(looping(10, 0, &go_on).expect("no fault"), 10);
    assert_eq!(looping(0, 0, &go_on).expect("no fault"), 0);
    assert_eq!(looping(10, 0, &stop_at_3).expect("no fault"), 4);
    assert_eq!(looping(3, 0, &stop_at_3).expect("no fault"), 3);
    let error = |result: Result<u64, Fault>| result.expect("no fault") as i64;
    assert_eq!(error(looping(1, 1, &go_on)), -22);
    assert_eq!(error(looping((8 << 20) + 1, 0, &go_on)), -7);
    // As many rounds as there are take the budget.
    let endless = looping(8 << 20, 0, &go_on)
        .expect_err("it takes too long")
        .kind;
    assert!(matches!(endless, FaultKind::Budget(_)));
    // A callback has arguments, and nothing else; its faults are its own.
    let fault = looping(2, 0, &[Insn::new(0xbf, 0, 3, 0, 0), Insn::EXIT]);
    let fault = fault.expect_err("r3 is no argument");
    assert_eq!(
        (fault.insn, fault.kind),
        (7, FaultKind::UninitialisedRegister(3))
    );
}

/// `map_lookup_percpu_elem(map 0, key at r10-4, cpu)`, then the value's first word, or 77.
fn of_cpu(cpu: i32, kind: u32) -> Result<u64, Fault> {
    // The key is 1, on the program's stack.
    let mut insns = vec![Insn::new(0x62, 10, 0, -4, 1)];
    insns.extend(MAP);
    insns.extend([
        Insn::new(0xbf, 2, 10, 0, 0),
        Insn::new(0x07, 2, 0, 0, -4),
        Insn::new(0xb7, 3, 0, 0, cpu),
        Insn::new(0x85, 0, 0, 0, 195),
        Insn::new(0x55, 0, 0, 2, 0),
        Insn::new(0xb7, 0, 0, 0, 77),
        Insn::EXIT,
        Insn::new(0x79, 0, 0, 0, 0),
        Insn::EXIT,
    ]);
    let object = Object::from_insns("perf_event", &insns, &[def(kind, [4, 8, 3])]);
    let limits = Limits {
        cpus: 4,
        ..Limits::default()
    };
    let mut handlers = Handlers::load(&object, limits).expect("it loads");
    let map = handlers.maps.get_mut(0).expect("it is there");

    // The value says for which key and processor it is.
    for key in [0u32, 2, 1] {
        for cpu in 0..4 {
            let value = u64::from(100 * key + cpu).to_le_bytes();
            map.update(&key.to_le_bytes(), &value, 0, cpu)
                .expect("room");
        }
    }

    // The context is not read by this program.
    let data = PerfEventData::new();
    let outcome = handlers.run(0, &mut PlainEnv::default(), Context::PerfEvent(&data));
    outcome.map(|outcome| outcome.r0)
}

#[test]
fn each_processor_has_a_value_of_its_own() {
    for kind in [kind::PERCPU_ARRAY, kind::PERCPU_HASH, kind::LRU_PERCPU_HASH] {
        for cpu in 0..4 {
            assert_eq!(of_cpu(cpu, kind).expect("no fault"), 100 + cpu as u64);
        }
        assert_eq!(of_cpu(4, kind).expect("no fault"), 77, "there are four");
    }
    let fault = of_cpu(0, kind::HASH).expect_err("its values are all processors'");
    assert!(matches!(fault.kind, FaultKind::MapKind { .. }));
}

#[test]
fn an_entry_that_takes_the_place_of_another_begins_with_zeros() {
    let maps = [def(kind::PERCPU_HASH, [4, 8, 2])];
    let limits = Limits {
        cpus: 2,
        ..Limits::default()
    };
    let mut maps = unwind_sim_perf_model::bpf::Maps::new(&maps, limits).expect("sizes");
    let map = maps.get_mut(0).expect("it is there");
    for cpu in 0..2 {
        map.update(&[1; 4], &[0xff; 8], 0, cpu).expect("room");
    }
    map.delete(&[1; 4]).expect("it was there");
    map.update(&[2; 4], &[7; 8], 0, 1).expect("room");
    let dumped = map.dump();
    assert_eq!(dumped, [(vec![2; 4], vec![&[0; 8][..], &[7; 8][..]])]);
}

/// `strncmp(text at r10-8, size, text at r10-16)`.
fn compared(one: &[u8; 8], size: i32, other: &[u8; 8]) -> i64 {
    let mut insns = Vec::new();
    for (at, text) in [(-8, one), (-16, other)] {
        let word = u64::from_le_bytes(*text);
        insns.push(Insn::new(0x18, 1, 0, 0, word as i32));
        insns.push(Insn::new(0, 0, 0, 0, (word >> 32) as i32));
        insns.push(Insn::new(0x7b, 10, 1, at, 0));
    }
    insns.extend([
        Insn::new(0xbf, 1, 10, 0, 0),
        Insn::new(0x07, 1, 0, 0, -8),
        Insn::new(0xb7, 2, 0, 0, size),
        Insn::new(0xbf, 3, 10, 0, 0),
        Insn::new(0x07, 3, 0, 0, -16),
        Insn::new(0x85, 0, 0, 0, 182),
        Insn::EXIT,
    ]);
    let object = Object::from_insns("perf_event", &insns, &[]);
    let mut handlers = Handlers::load(&object, Limits::default()).expect("it loads");
    let data = PerfEventData::new();
    let outcome = handlers.run(0, &mut PlainEnv::default(), Context::PerfEvent(&data));
    outcome.expect("no fault").r0 as i64
}

#[test]
fn texts_are_compared_up_to_their_end_or_the_size() {
    for (one, size, other, order) in [
        (b"abcdefg\0", 8, b"abcdefg\0", 0),
        (b"abcdefg\0", 3, b"abcxxxx\0", 0),
        (b"abc\0xxxx", 8, b"abc\0yyyy", 0),
        (b"abd\0\0\0\0\0", 8, b"abc\0\0\0\0\0", 1),
        (b"ab\0\0\0\0\0\0", 8, b"abc\0\0\0\0\0", -1),
        (b"\xff\0\0\0\0\0\0\0", 8, b"a\0\0\0\0\0\0\0", 1),
        (b"x\0\0\0\0\0\0\0", 0, b"y\0\0\0\0\0\0\0", 0),
    ] {
        assert_eq!(
            compared(one, size, other),
            order,
            "{one:?} {size} {other:?}"
        );
    }
}

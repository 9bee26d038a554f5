//! Compares helpers of handlers with the running kernel's: a program runs in the kernel at page
//! faults of this thread, and then here, and results and maps must be equal. One program asks for
//! stacks and for their ids under all flags; one fills a ring buffer.

use crate::common::skip::skip;
use std::io::Read;
use unwind_sim_host::bpf::{BpfError, KernelMap, KernelProgram, PageFaults, ProgramType};
use unwind_sim_perf_model::bpf::maps::{Storage, kind};
use unwind_sim_perf_model::bpf::stackmap::{FAST_STACK_CMP, REUSE_STACKID, USER_STACK};
use unwind_sim_perf_model::bpf::{
    Context, Handlers, Insn, Limits, MAX_STACK, MapDef, Object, PerfEventData, PlainEnv,
};

/// Maximum number of events recorded; later ones are ignored.
const RECORDS: u32 = 400;
/// Size of a chain in bytes.
const CHAIN: i32 = 8 * MAX_STACK as i32;

const GET_STACKID: i32 = 27;
const GET_STACK: i32 = 67;
const LOOKUP: i32 = 1;

/// The flags with which `get_stackid` is called at each event, in this order.
const ASKED: [u64; 12] = [
    USER_STACK,
    USER_STACK | FAST_STACK_CMP,
    USER_STACK | 1,
    USER_STACK | 2 | FAST_STACK_CMP,
    USER_STACK | 200,
    USER_STACK | 1 << 11,
    1 << 13,
    0,
    1,
    3 | FAST_STACK_CMP,
    USER_STACK | REUSE_STACKID,
    REUSE_STACKID | FAST_STACK_CMP,
];

/// Offset of the chains in a record: after the lengths of both and the ids.
const CHAINS: i32 = 8 * (2 + ASKED.len() as i32);
const RECORD: u32 = (CHAINS + 2 * CHAIN) as u32;

/// The names by which a program refers to its maps: the number of records, the records, and its
/// own.
type MapFds = [i32; 3];

fn number(dst: u8, value: u64) -> [Insn; 2] {
    let high = (value >> 32) as i32;
    [
        Insn::new(0x18, dst, 0, 0, value as i32),
        Insn::new(0, 0, 0, 0, high),
    ]
}

fn map(dst: u8, name: i32) -> [Insn; 2] {
    const MAP_FD: u8 = 1;
    [
        Insn::new(0x18, dst, MAP_FD, 0, name),
        Insn::new(0, 0, 0, 0, 0),
    ]
}

const fn mov(dst: u8, src: u8) -> Insn {
    Insn {
        code: 0xbf,
        dst,
        src,
        off: 0,
        imm: 0,
    }
}

fn call(helper: i32) -> Insn {
    Insn::new(0x85, 0, 0, 0, helper)
}

fn exit() -> [Insn; 2] {
    [Insn::new(0xb7, 0, 0, 0, 0), Insn::EXIT]
}

/// The start of every program: r6 is the context, r8 the number of the event from 1, r9 the event's
/// record. It ends when all records are used.
fn begin([count, records, _]: MapFds) -> Vec<Insn> {
    let mut insns = vec![mov(6, 1), Insn::new(0x62, 10, 0, -4, 0)];
    let lookup = |insns: &mut Vec<Insn>, name, into| {
        insns.extend(map(1, name));
        insns.extend([mov(2, 10), Insn::new(0x07, 2, 0, 0, -4), call(LOOKUP)]);
        // Zero: there is no such entry.
        insns.push(Insn::new(0x55, 0, 0, 2, 0));
        insns.extend(exit());
        insns.push(mov(into, 0));
    };
    lookup(&mut insns, count, 7);
    insns.extend([
        Insn::new(0x79, 8, 7, 0, 0),
        Insn::new(0x63, 10, 8, -4, 0),
        Insn::new(0x07, 8, 0, 0, 1),
        Insn::new(0x7b, 7, 8, 0, 0),
    ]);
    lookup(&mut insns, records, 9);
    insns
}

fn stacks(names: MapFds) -> Vec<Insn> {
    let mut insns = begin(names);
    for (place, flags) in [(0, USER_STACK), (1, 0)] {
        insns.extend([mov(1, 6), mov(2, 9)]);
        insns.push(Insn::new(0x07, 2, 0, 0, CHAINS + place * CHAIN));
        insns.push(Insn::new(0xb7, 3, 0, 0, CHAIN));
        insns.push(Insn::new(0xb7, 4, 0, 0, flags as i32));
        insns.push(call(GET_STACK));
        insns.push(Insn::new(0x7b, 9, 0, 8 * place as i16, 0));
    }
    for (place, flags) in (2..).zip(ASKED) {
        insns.push(mov(1, 6));
        insns.extend(map(2, names[2]));
        insns.extend(number(3, flags));
        insns.push(call(GET_STACKID));
        insns.push(Insn::new(0x7b, 9, 0, 8 * place, 0));
    }
    insns.extend(exit());
    insns
}

/// Writes a byte to fresh memory; each instance has its own code address.
#[inline(never)]
fn touch<const N: usize>(memory: &mut [u8]) {
    memory[4096 * N] = std::hint::black_box(N as u8);
}

/// Causes page faults in user mode at many addresses, and in the kernel at one, with repetitions.
fn make_faults() {
    const PLACES: [fn(&mut [u8]); 12] = [
        touch::<1>,
        touch::<2>,
        touch::<3>,
        touch::<4>,
        touch::<5>,
        touch::<6>,
        touch::<7>,
        touch::<8>,
        touch::<9>,
        touch::<10>,
        touch::<11>,
        touch::<12>,
    ];

    let mut zero = std::fs::File::open("/dev/zero").expect("it is always there");
    // Everything is kept, so that each allocation is fresh.
    let mut kept = Vec::new();

    for turn in 0..60_usize {
        let mut memory = vec![0_u8; 1 << 19];
        // Some places more often than others, so that stacks are met again between new ones.
        PLACES[turn * turn % 7 * 3 % PLACES.len()](&mut memory);
        PLACES[turn % PLACES.len()](&mut memory);
        if turn % 2 == 0 {
            // The kernel is the first to touch this page, when it copies the zeros.
            let page = &mut memory[4096 * 100..][..8];
            zero.read_exact(page).expect("zeros");
        }
        kept.push(memory);
    }

    std::hint::black_box(&kept);
}

fn def(name: &str, kind: u32, value_size: u32, max_entries: u32) -> MapDef {
    MapDef {
        name: name.to_owned(),
        kind,
        key_size: 4,
        value_size,
        max_entries,
        flags: 0,
        initial: Vec::new(),
        inner: Vec::new(),
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let bytes = bytes[8 * index..][..8].try_into();
    u64::from_le_bytes(bytes.expect("eight bytes"))
}

/// A chain in a record; empty if the kernel returned an error.
fn chain(record: &[u8], place: usize) -> Vec<u64> {
    let length = word(record, place) as i64;
    let words = usize::try_from(length).unwrap_or(0) / 8;
    let start = CHAINS as usize + place * CHAIN as usize;
    (0..words).map(|i| word(&record[start..], i)).collect()
}

/// What was seen, to check that the test tests something: ids, and errors by their number.
#[derive(Default, Debug)]
struct SeenErrors {
    ids: usize,
    errors: std::collections::BTreeMap<i64, usize>,
    kernel_chains: usize,
}

/// A program in the kernel, with its maps.
struct LoadedProgram {
    events: u32,
    records: KernelMap,
    map: KernelMap,
}

/// Runs a program in the kernel, at page faults of this thread.
fn there(
    program: impl Fn(MapFds) -> Vec<Insn>,
    size: u32,
    map: KernelMap,
) -> Result<LoadedProgram, BpfError> {
    let count = KernelMap::array(8, 1)?;
    let records = KernelMap::array(size, RECORDS)?;
    let names = [&count, &records, &map].map(KernelMap::descriptor);
    let bytes: Vec<_> = program(names).iter().map(|insn| insn.encode()).collect();
    let loaded = KernelProgram::load(ProgramType::PerfEvent, &bytes)?;
    let event = PageFaults::attach(&loaded)?;
    make_faults();
    drop(event);
    let events = count.lookup(0)?.map_or(0, |value| word(&value, 0));
    assert!(events >= 100, "only {events} page faults");
    let events = (events as u32).min(RECORDS);
    Ok(LoadedProgram {
        events,
        records,
        map,
    })
}

/// Loads the same program here.
fn here(program: impl Fn(MapFds) -> Vec<Insn>, size: u32, map: MapDef) -> Handlers {
    let maps = [
        def("count", kind::ARRAY, 8, 1),
        def("records", kind::ARRAY, size, RECORDS),
        map,
    ];
    let object = Object::from_insns("perf_event", &program([0, 1, 2]), &maps);
    Handlers::load(&object, Limits::default()).expect("it loads here too")
}

/// Runs the program once and returns the event's record.
fn record<'h>(handlers: &'h mut Handlers, env: &mut PlainEnv, index: u32) -> &'h [u8] {
    let data = PerfEventData::new();
    let outcome = handlers.run(0, env, Context::PerfEvent(&data));
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
    let records = handlers.maps.named("records").expect("it is defined");
    records.value(index).expect("an array has all")
}

fn words(bytes: &[u8], count: usize) -> Vec<i64> {
    (0..count).map(|i| word(bytes, i) as i64).collect()
}

/// Compares stacks and their ids, with a stack map of these sizes.
fn compare(value_size: u32, entries: u32, seen: &mut SeenErrors) -> Result<(), BpfError> {
    let there = there(stacks, RECORD, KernelMap::stacks(value_size, entries)?)?;
    // Both maps have the same sizes: they decide which stacks collide and how many frames are kept.
    let map = def("stacks", kind::STACK_TRACE, value_size, entries);
    let mut handlers = here(stacks, RECORD, map);

    for index in 0..there.events {
        let theirs = there.records.lookup(index)?.expect("an array has all");
        let mut env = PlainEnv {
            user_stack: chain(&theirs, 0),
            kernel_stack: chain(&theirs, 1),
            ..PlainEnv::default()
        };

        // Our handlers get the kernel's own chains, so only what they do with them can differ.
        let ours = record(&mut handlers, &mut env, index);
        let (a, b) = (
            words(ours, 2 + ASKED.len()),
            words(&theirs, 2 + ASKED.len()),
        );
        assert_eq!(a, b, "event {index}, {value_size} bytes, {entries} entries");
        assert_eq!(ours, theirs, "the chains of event {index}");

        seen.kernel_chains += usize::from(a[1] > 0);
        for result in &a[2..] {
            match result {
                0.. => seen.ids += 1,
                error => *seen.errors.entry(-error).or_default() += 1,
            }
        }
    }

    // The maps, too: ids alone could agree while the stacks behind them differ.
    let ours = handlers.maps.named("stacks").expect("it is defined");
    let Storage::Stacks(ours) = &ours.storage else {
        panic!("{:?}", ours.def)
    };
    // The kernel rounds the number of buckets up to a power of two (`kernel/bpf/stackmap.c`).
    for id in 0..entries.next_power_of_two() {
        let theirs = there.map.lookup(id)?;
        let ours = ours.get(id).map(|mut words| {
            words.resize(value_size as usize / 8, 0);
            words.iter().flat_map(|word| word.to_le_bytes()).collect()
        });
        assert_eq!(
            ours, theirs,
            "id {id}, {value_size} bytes, {entries} entries"
        );
    }

    // What is deleted from the kernel's map is gone.
    let used = ours.ids().next().expect("some stack was stored");
    assert!(there.map.delete(used)?, "id {used}");
    assert!(!there.map.delete(used)? && there.map.lookup(used)?.is_none());
    Ok(())
}

/// What goes into the ring at each event: bytes written, and bytes reserved and then submitted or,
/// at every other event, discarded.
struct RingTraffic {
    written: i32,
    flags: i32,
    reserved: i32,
}

impl RingTraffic {
    /// The record: the result of `output`, whether `reserve` returned memory, and five answers.
    fn program(&self, names: MapFds) -> Vec<Insn> {
        const OUTPUT: i32 = 130;
        const RESERVE: i32 = 131;
        const SUBMIT: i32 = 132;
        const DISCARD: i32 = 133;
        const QUERY: i32 = 134;

        let mut insns = begin(names);
        for at in (8..=64).step_by(8) {
            // 0x7a stores a number of 64 bits (`BPF_ST | BPF_MEM | BPF_DW`); r10 is the end of the
            // stack.
            insns.push(Insn::new(0x7a, 10, 0, -at, 7));
        }

        insns.extend(map(1, names[2]));
        insns.extend([mov(2, 10), Insn::new(0x07, 2, 0, 0, -64)]);
        insns.push(Insn::new(0xb7, 3, 0, 0, self.written));
        insns.extend([Insn::new(0xb7, 4, 0, 0, self.flags), call(OUTPUT)]);
        // 0x7b stores a register, here the call's result in r0.
        insns.push(Insn::new(0x7b, 9, 0, 0, 0));

        insns.extend(map(1, names[2]));
        insns.push(Insn::new(0xb7, 2, 0, 0, self.reserved));
        insns.extend([Insn::new(0xb7, 3, 0, 0, 0), call(RESERVE)]);
        insns.push(Insn::new(0x7a, 9, 0, 8, 0));
        // If nothing was reserved, skip nine instructions.
        insns.push(Insn::new(0x15, 0, 0, 9, 0));
        insns.extend([
            Insn::new(0x7a, 9, 0, 8, 1),
            mov(1, 0),
            Insn::new(0xb7, 2, 0, 0, 0),
        ]);

        // The verifier requires that a reservation is submitted or discarded; bit 0 of r8 decides.
        insns.extend([
            mov(3, 8),
            Insn::new(0x57, 3, 0, 0, 1),
            Insn::new(0x15, 3, 0, 2, 0),
        ]);
        insns.extend([call(SUBMIT), Insn::new(0x05, 0, 0, 1, 0), call(DISCARD)]);

        for what in 0..5 {
            insns.extend(map(1, names[2]));
            insns.extend([Insn::new(0xb7, 2, 0, 0, what), call(QUERY)]);
            insns.push(Insn::new(0x7b, 9, 0, 16 + 8 * what as i16, 0));
        }

        insns.extend(exit());
        insns
    }
}

/// Compares rings of `size` bytes that are never read.
fn compare_rings(size: u32, filling: &RingTraffic) -> Result<(), BpfError> {
    const SIZE: u32 = 56;
    let program = |names| filling.program(names);
    let there = there(program, SIZE, KernelMap::ring(size)?)?;
    let map = MapDef {
        key_size: 0,
        ..def("ring", kind::RINGBUF, 0, size)
    };
    let mut handlers = here(program, SIZE, map);
    for index in 0..there.events {
        let theirs = there.records.lookup(index)?.expect("an array has all");
        let ours = record(&mut handlers, &mut PlainEnv::default(), index);
        assert_eq!(
            words(ours, 7),
            words(&theirs, 7),
            "event {index}, {size} bytes"
        );
    }
    Ok(())
}

#[test]
fn rings_fill_as_they_do_in_the_kernel() {
    const TEST: &str = "rings_fill_as_they_do_in_the_kernel";
    let filling = |written, flags, reserved| RingTraffic {
        written,
        flags,
        reserved,
    };
    for (size, filling) in [
        (4096, filling(24, 0, 40)),
        (4096, filling(56, 1, 1000)),
        (4096, filling(1, 2, 4080)),
        (4096, filling(8, 0, 4088)),
        (4096, filling(8, 4, 17)),
        (1 << 20, filling(64, 3, 5000)),
        (1 << 16, filling(0, 0, 0)),
    ] {
        match compare_rings(size, &filling) {
            Ok(()) => {}
            Err(BpfError::Denied(_)) => return skip(TEST, "bpf() is not allowed here"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn ids_of_stacks_are_those_of_the_kernel() {
    const TEST: &str = "ids_of_stacks_are_those_of_the_kernel";
    let mut seen = SeenErrors::default();
    for (value_size, entries) in [(1016, 4096), (1016, 8), (1016, 5), (32, 4), (8, 2), (16, 1)] {
        match compare(value_size, entries, &mut seen) {
            Ok(()) => {}
            Err(BpfError::Denied(_)) => return skip(TEST, "bpf() is not allowed here"),
            Err(error) => panic!("{error}"),
        }
    }
    println!("{seen:?}");
    let [enomem, efault, eexist, einval] = [12, 14, 17, 22];
    for error in [enomem, efault, eexist, einval] {
        assert!(seen.errors.contains_key(&error), "{error}: {seen:?}");
    }
    assert!(seen.ids > 500 && seen.kernel_chains > 0, "{seen:?}");
}

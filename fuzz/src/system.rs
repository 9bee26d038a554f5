//! Runs random code in ring 0 of the emulated computer, over random changes of its tables.

use crate::input::Input;
use std::ops::Range;
use std::sync::LazyLock;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::boot::Entry;
use unwind_sim_emulator::system::devices::Unknown;
use unwind_sim_emulator::system::{Stopped, System, SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Executed, Observer, Processor, Vendor};

/// The code that fills all tables, of the cases of system mode. `corpus/system/environment.inc` says
/// what is where.
const ENVIRONMENT: &str = include_str!("../objects/environment.hex");
const HARNESS: u64 = 0x1_0000;
const STUBS: u64 = 0x1_2000;
const CODE: u64 = 0x2_0000;
const STACK: u64 = 0x3_1000;
const TABLES: u64 = 0x7_0000;
const USER_CODE: u64 = 0x21_0000;
const USER_STACK: u64 = 0x22_1000;
/// The end of memory is behind the stack of ring 3, so that the rest of its pages has none.
const MEMORY: u64 = 0x23_0000;
const PAGE: u64 = 4096;
/// Those of all page tables: the root first, and the next two levels.
const TABLE_PAGES: Range<u64> = 0x1000..0x6000;
/// Maximum size of the code, bytes.
const CODE_MAX: usize = 2 * PAGE as usize;
/// The instructions of the environment are fewer.
const ENVIRONMENT_MAX: u64 = 100_000;
/// Handlers go on one byte behind where they were entered, so that most inputs go on.
const HANDLER: &[u8] = b"\x48\xff\x04\x24\x48\xcf";
/// The same, where an error code lies above the address.
const HANDLER_WITH_CODE: &[u8] = b"\x48\x83\xc4\x08\x48\xff\x04\x24\x48\xcf";
const VECTORS_WITH_CODE: [u64; 9] = [8, 10, 11, 12, 13, 14, 17, 21, 29];
/// Maximum number of changes of memory.
const CHANGES_MAX: u8 = 16;
/// Maximum number of bytes that one of them changes.
const CHANGE_BYTES_MAX: u8 = 16;
/// Maximum number of turns, between which an NMI may come.
const TURNS_MAX: u8 = 16;
/// In a turn: an NMI comes before it.
const NMI: u8 = 0x80;
/// Maximum number of instructions.
const INSTRUCTIONS_MAX: u64 = 100;

/// An observer that looks away. It makes the machine decode in another way.
struct Watcher;

impl Observer for Watcher {
    fn before(&mut self, _: &Core, _: &Executed) {}
    fn after(&mut self, _: &Core, _: &Executed, _: u64) {}
}

impl SystemObserver for Watcher {
    fn entered(&mut self, _: &SystemEntry, _: &Core) {}
    fn returned(&mut self, _: &Preserved, _: &Core) {}
    fn left(&mut self, _: &Core) {}
}

/// Computers of both vendors in which the environment is about to start the code.
static COMPUTERS: LazyLock<[System; 2]> =
    LazyLock::new(|| [Vendor::Intel, Vendor::Amd].map(computer));

fn put(system: &mut System, at: u64, bytes: &[u8]) {
    system.memory_mut()[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn computer(vendor: Vendor) -> System {
    let mut system = System::new(MEMORY as usize, Processor::new(vendor), 0);
    let digits = ENVIRONMENT.chars().filter_map(|c| c.to_digit(16));
    let digits: Vec<u8> = digits.map(|digit| digit as u8).collect();
    let code: Vec<u8> = digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect();
    put(&mut system, HARNESS, &code);
    let tables = [TABLES + PAGE + 3, TABLES + 2 * PAGE + 3, 0x83];
    for (at, entry) in (TABLES..).step_by(PAGE as usize).zip(tables) {
        put(&mut system, at, &entry.to_le_bytes());
    }
    system.start(&Entry {
        rip: HARNESS,
        boot_params: 0,
        cr3: TABLES,
        rsp: 0,
        gdt: (0, 0),
    });
    for _ in 0..ENVIRONMENT_MAX {
        if system.machine.core.state.rip == CODE {
            break;
        }
        system.run(1, &mut ());
    }
    assert_eq!(system.machine.core.state.rip, CODE, "the environment ends");
    for vector in 0..256 {
        let has_code = VECTORS_WITH_CODE.contains(&vector);
        let handler = if has_code { HANDLER_WITH_CODE } else { HANDLER };
        put(&mut system, STUBS + 16 * vector, handler);
    }
    system
}

/// A value for a register: a number, or an address of something.
fn value(input: &mut Input<'_>) -> u64 {
    let tag = input.u8();
    let offset = u64::from(tag % 16) * 8;
    match tag / 16 {
        0 => offset / 8,
        1 => STACK - 128 + offset,
        2 => USER_STACK - 128 + offset,
        3 => CODE + offset,
        4 => USER_CODE + offset,
        5 => u64::from(tag % 16) * PAGE,
        6 => u64::from(input.u16()),
        7 => input.u64(),
        // MSRs of system calls and bases, or of the APIC.
        8 => 0xc000_0080 + u64::from(tag % 16),
        9 => 0xc000_0100 + u64::from(tag % 4),
        10 => 0x800 + u64::from(input.u8()),
        _ => i64::from(tag.cast_signed()).cast_unsigned(),
    }
}

/// What can be told of a computer.
#[derive(PartialEq, Eq, Debug)]
struct Outcome {
    stopped: Stopped,
    executed: u64,
    now: u64,
    state: String,
    output: Vec<u8>,
    unknown_registers: Vec<(u32, u64)>,
    unknown_accesses: Vec<(Unknown, u64)>,
}

/// How a turn is divided into runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Division {
    Whole,
    Single,
    /// Into few instructions each, now observed, now not: all decoded code is forgotten in between.
    Forgetful,
}

/// Runs the turns.
fn run(mut system: System, turns: &[u8], division: Division) -> (System, Outcome) {
    let end = system.executed() + INSTRUCTIONS_MAX;
    let mut stopped = Stopped::Limit;
    // The last turn goes to the end.
    for turn in turns.iter().copied().map(Some).chain([None]) {
        if turn.is_some_and(|turn| turn & NMI != 0) {
            system.devices().expect("in system mode").inject_nmi();
        }
        let length = turn.map_or(INSTRUCTIONS_MAX, |turn| u64::from(turn & !NMI));
        let turn_end = (system.executed() + length).min(end);
        let mut is_observed = false;
        while stopped == Stopped::Limit && system.executed() < turn_end {
            let left = turn_end - system.executed();
            let most = match division {
                Division::Whole => left,
                Division::Single => 1,
                Division::Forgetful => left.min(1 + system.executed() % 7),
            };
            stopped = match is_observed {
                false => system.run(most, &mut ()),
                true => system.run(most, &mut Watcher),
            };
            is_observed ^= division == Division::Forgetful;
        }
    }
    system.machine.core.state.single_iteration = false;
    let state = format!("{:?}", system.machine.core.state);
    let fx_image = system.machine.core.fx_image();
    let devices = system.devices().expect("in system mode");
    let output = devices.take_output();
    let unknown_accesses = devices.unknown().collect();
    let outcome = Outcome {
        stopped,
        executed: system.executed(),
        now: system.now(),
        state: format!("{state} {fx_image:?}"),
        output,
        unknown_registers: system.unknown_registers(),
        unknown_accesses,
    };
    (system, outcome)
}

/// Whether translations and the time depend on nothing but the instructions. A processor may use a
/// translation for some time after its entry has changed; so the pages of the tables must hold all tables,
/// and no other root may be loaded. The time stamp counter shows where blocks start.
fn is_exact(system: &System, data: &[u8]) -> bool {
    let is_elsewhere = |entry: u64| {
        let at = entry & 0xf_ffff_ffff_f000;
        let leads_on = entry & 1 != 0 && entry & 0x80 == 0;
        leads_on && at < MEMORY && !TABLE_PAGES.contains(&at)
    };
    let memory = system.memory();
    let tables = &memory[TABLE_PAGES.start as usize..][..3 * PAGE as usize];
    let mut entries = tables
        .chunks_exact(8)
        .filter_map(|bytes| bytes.try_into().ok());
    if entries.any(|bytes| is_elsewhere(u64::from_le_bytes(bytes))) {
        return false;
    }
    // `0f 22 d8` to `df` is mov to CR3, `0f 31` rdtsc, `0f 01 f9` rdtscp.
    !data.windows(3).any(|bytes| {
        matches!(
            bytes,
            [0x0f, 0x22, 0xd8..=0xdf] | [0x0f, 0x31, _] | [0x0f, 0x01, 0xf9]
        )
    })
}

/// The page tables without what the processor writes into them: accessed and dirty bits.
fn tables(system: &System) -> Vec<u8> {
    let memory = system.memory();
    let tables = &memory[TABLE_PAGES.start as usize..TABLE_PAGES.end as usize];
    let entry = tables.iter().enumerate();
    entry
        .map(|(at, &byte)| if at % 8 == 0 { byte & !0x60 } else { byte })
        .collect()
}

/// Runs the code twice: both runs must end in the same state. Where nothing else decides, runs
/// instruction by instruction must, too, and runs in which all decoded code is forgotten again and again.
pub fn system(data: &[u8]) {
    let mut input = Input::new(data);
    let mut system = COMPUTERS[usize::from(input.u8() % 2)].clone();
    for _ in 0..input.u8() % CHANGES_MAX {
        let at = u64::from(input.u32()) % (MEMORY - u64::from(CHANGE_BYTES_MAX));
        let bytes: Vec<u8> = (0..input.u8() % CHANGE_BYTES_MAX)
            .map(|_| input.u8())
            .collect();
        put(&mut system, at, &bytes);
    }
    for number in 0..16 {
        let value = value(&mut input);
        if value != 0 {
            system.machine.core.state.set_gpr(number, value);
        }
    }
    let turns: Vec<u8> = (0..input.u8() % TURNS_MAX).map(|_| input.u8()).collect();
    let code = input.rest();
    put(&mut system, CODE, &code[..code.len().min(CODE_MAX)]);

    let before = tables(&system);
    let (whole, expected) = run(system.clone(), &turns, Division::Whole);
    let is_exact = is_exact(&system, data) && tables(&whole) == before;
    let divisions = match is_exact {
        true => &[Division::Whole, Division::Single, Division::Forgetful][..],
        false => &[Division::Whole],
    };
    for &division in divisions {
        let (other, outcome) = run(system.clone(), &turns, division);
        assert_eq!(expected, outcome, "{division:?}");
        assert!(whole.memory() == other.memory(), "memory, {division:?}");
    }
}

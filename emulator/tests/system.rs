//! Compares short pieces of ring 0 code with the results of QEMU, Bochs and the Intel SDM.
//!
//! The cases are in `corpus/system`; `record.py` writes what the authorities do. All machines run the
//! same bytes: the environment, which records events, and the code of the case.

mod cases;

use cases::{Case, Expected};
use std::fs;
use std::path::{Path, PathBuf};
use unwind_sim_emulator::system::boot::Entry;
use unwind_sim_emulator::system::{Stopped, System};
use unwind_sim_emulator::{Processor, Vendor};

const MEMORY: usize = 16 << 20;
/// Where the environment, the code of a case, and the first page tables are.
const HARNESS: u64 = 0x1_0000;
const CODE: u64 = 0x2_0000;
const TABLES: u64 = 0x7_0000;
const PAGE: u64 = 4096;
/// The most instructions of a case; the environment needs about 40,000.
const INSTRUCTIONS_MAX: u64 = 1_000_000;

/// The code of a case of performance counters, which neither QEMU nor Bochs has.
const CODE_OF_COUNTER: &str = "\
    b91b000000b8000de0fe31d20f30b90f080000b8ff0100000f30b934080000b8000400000f30b986\
    010000b8c00052000f30b9c1000000b8f6ffffff0f3031c9ffc3ebfc";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/system")
}

fn put(memory: &mut [u8], at: u64, bytes: &[u8]) {
    memory[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

/// A computer with the environment and a case, before its first instruction.
fn load(environment: &[u8], case: &Case) -> System {
    let mut system = System::new(MEMORY, Processor::new(case.vendor), 0);
    let memory = system.memory_mut();
    put(memory, HARNESS, environment);
    put(memory, CODE, &case.code);

    // One large page is enough until the environment has made its own tables.
    let tables = [TABLES + PAGE + 3, TABLES + 2 * PAGE + 3, 0x83];
    for (at, entry) in (TABLES..).step_by(PAGE as usize).zip(tables) {
        put(memory, at, &entry.to_le_bytes());
    }
    system.start(&Entry {
        rip: HARNESS,
        boot_params: 0,
        cr3: TABLES,
        rsp: 0,
        gdt: (0, 0),
    });
    system
}

/// Runs a case to its end: the events, as the recorder writes them, and how the run ended if it ended
/// early.
fn run(system: &mut System) -> Vec<String> {
    let stopped = system.run(INSTRUCTIONS_MAX, &mut ());
    let output = system.devices().expect("in system mode").take_output();
    let output = String::from_utf8_lossy(&output).into_owned();
    let is_event = |line: &&str| line.starts_with("v=");
    let mut lines: Vec<String> = output
        .lines()
        .filter(is_event)
        .map(|line| line.trim_end().to_owned())
        .collect();
    let is_finished = output.lines().any(|line| line == ".");
    match stopped {
        Stopped::Halted if is_finished => {}
        Stopped::TripleFault { .. } => lines.push("triple-fault".to_owned()),
        Stopped::Limit | Stopped::WaitsForEver | Stopped::Halted => lines.push("hangs".to_owned()),
        other => lines.push(other.to_string()),
    }
    lines
}

/// The bytes of lines of hexadecimal digits.
fn environment() -> Vec<u8> {
    let path = corpus().join("environment.hex");
    let text = fs::read_to_string(path).expect("environment.hex");
    cases::bytes(&text).expect("hexadecimal digits")
}

fn cases_of(area: &str) -> Vec<Case> {
    let path = corpus().join("cases").join(area).with_extension("txt");
    let text = fs::read_to_string(&path).expect("the cases of an area");
    cases::parse(&text).unwrap_or_else(|error| panic!("{area}: {error}"))
}

/// Runs the cases of a file.
fn check(area: &str) {
    let cases = cases_of(area);
    let environment = environment();

    let mut failures = Vec::new();
    for case in &cases {
        let ours = run(&mut load(&environment, case));
        if !case.expected.iter().any(|right| right.is(&ours)) {
            let expected = case
                .expected
                .iter()
                .map(|right| right.events.join("\n    "));
            let expected: Vec<String> = expected.collect();
            let (ours, expected) = (ours.join("\n    "), expected.join("\n  or\n    "));
            let name = &case.name;
            failures.push(format!(
                "{name}\n  expected\n    {expected}\n  ours\n    {ours}"
            ));
        }
    }
    let (failed, all) = (failures.len(), cases.len());
    let failures = failures.join("\n");
    assert!(
        failures.is_empty(),
        "{area}: {failed} of {all} cases fail\n{failures}"
    );
}

macro_rules! areas {
    ($($area:ident)*) => {
        const AREAS: &[&str] = &[$(stringify!($area)),*];
        $(
            #[test]
            fn $area() {
                check(stringify!($area));
            }
        )*
    };
}

areas! {
    breakpoints exceptions paging privileged segments steps transfers
}

fn registers(system: &System) -> (u64, u64, [u64; 16]) {
    let state = &system.machine.core.state;
    let all = std::array::from_fn(|number| state.gpr(number));
    (state.rip, state.rflags(), all)
}

/// What a computer does again after it was restored: the same, in registers, memory and devices.
#[test]
fn a_restored_computer_does_the_same_again() {
    let environment = environment();
    for case in AREAS.iter().flat_map(|area| cases_of(area)).step_by(16) {
        let mut straight = load(&environment, &case);
        let expected = run(&mut straight);
        let all = straight.executed();
        // Before anything was accessed, while the environment writes code, and in the case.
        for point in [0, all / 3, all - all.min(40)] {
            let mut system = load(&environment, &case);
            system.run(point, &mut ());
            let (snapshot, memory) = (system.snapshot(), system.memory().to_vec());
            for round in 0..2 {
                assert_eq!(
                    run(&mut system),
                    expected,
                    "{}: {point}, {round}",
                    case.name
                );
                assert_eq!(registers(&system), registers(&straight), "{}", case.name);
                assert!(system.memory() == straight.memory(), "{}", case.name);
                assert_eq!(system.now(), straight.now());
                system.restore(&snapshot).expect("it is held");
                assert_eq!(system.executed(), point);
                assert!(system.memory() == memory, "{}: {point}", case.name);
            }
        }
    }
}

/// A counter of ten instructions interrupts as the local APIC says, with an NMI in front of the eleventh, whether
/// blocks are executed or single instructions.
#[test]
fn an_overflowing_counter_interrupts() {
    // The local APIC in x2APIC mode, enabled, with an NMI for counters; instructions of ring 0; -10.
    let text = "case counter
    wrmsr of IA32_APIC_BASE, SVR, LVT performance counter, IA32_PERFEVTSEL0, IA32_PMC0
    xor     %ecx, %ecx
1:  inc     %ebx
    jmp     1b
code CODE
both v=2";
    let text = text.replace("CODE", CODE_OF_COUNTER);
    let [case] = &cases::parse(&text).expect("complete")[..] else {
        panic!("one case");
    };
    let environment = environment();
    let start = |counters: bool| {
        let mut system = load(&environment, case);
        if counters {
            system.add_counters().expect("a Skylake");
        }
        system
    };
    // wrmsr counts itself, so xor is the second, and the other eight are four turns of the loop.
    let expected = "v=2 i=20040 c=8 f=2 s=31000 t=10 h=36fd8 A=fffffff6 B=4 C=0 D=0";
    assert_eq!(run(&mut start(true)), [expected]);

    let mut system = start(true);
    while system.executed() < INSTRUCTIONS_MAX && system.run(1, &mut ()) == Stopped::Limit {}
    assert_eq!(run(&mut system), [expected]);

    // Without counters the register does not exist.
    let events = run(&mut start(false));
    assert!(events[0].starts_with("v=d e=0 i=20030 "), "{events:?}");
    let mut other = System::new(MEMORY, Processor::new(Vendor::Amd), 0);
    assert!(other.add_counters().is_err());
}

#[test]
fn every_file_is_an_area() {
    let entries = fs::read_dir(corpus().join("cases")).expect("the cases");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    let mut areas = AREAS.to_vec();
    areas.sort_unstable();
    assert_eq!(names, areas);
}

/// Where the authorities differ, the case says which of them is right, and why.
#[test]
fn differences_have_reasons() {
    let case = "case a\n  nop\ncode 90\nqemu v=1\nbochs v=2\n";
    assert!(cases::parse(case).is_err());
    let case = format!("{case}right bochs: SDM 3A 6.8.1\n");
    let cases = cases::parse(&case).expect("complete");
    assert_eq!(cases[0].expected[0].events, ["v=2"]);
    assert_eq!(cases[0].authority, Expected::Bochs);
    assert_eq!(cases[0].vendor, Vendor::Intel);
}

//! Compares single instructions in the emulated machine with this machine's processor: random ones,
//! and those saved in `corpus/instructions`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "common/skip.rs"]
mod skip;

use iced_x86::{Code, Instruction, Register, RflagsBits};
use skip::skip;
use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unwind_sim_emulator::differences::{self, Bits, Case, End, Processors, Source, TABLE};
use unwind_sim_emulator::processor::Feature;
use unwind_sim_emulator::processor::host::host;
use unwind_sim_emulator::{Processor, Vendor};
use unwind_sim_emulator_compare::differential::{
    CaseFile, CaseResult, Emulated, Encodings, Failure, Fuzzer, Random, excluded, hold, supported,
};
use unwind_sim_emulator_native::single::{Native, NativeError};

/// Seed of the random cases; printed when they run.
const SEED: &str = "UNWIND_SIM_SEED";
/// Duration of the random cases in seconds.
const SECONDS: &str = "UNWIND_SIM_FUZZ_SECONDS";

fn allowed<T>(test: &str, made: Result<T, NativeError>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) if error.is_denied() => {
            skip(
                test,
                format_args!("single instructions are denied: {error}"),
            );
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("the variable is a number"),
        Err(_) => default,
    }
}

#[test]
fn random_instructions_do_what_the_processor_does() {
    let seed = number(SEED, 1);
    let time = Duration::from_secs(number(SECONDS, 2));
    let host = host();
    println!("{SEED}={seed} {SECONDS}={} {host}", time.as_secs());
    let test = "random_instructions_do_what_the_processor_does";
    let Some(mut fuzzer) = allowed(test, Fuzzer::new(seed, host.processor, |_| true)) else {
        return;
    };
    let begin = Instant::now();
    let mut cases = 0;
    while begin.elapsed() < time {
        let failures = fuzzer.batch().expect("the child can be made again");
        cases += Native::BATCH;
        if let Some(failure) = failures.first() {
            panic!(
                "{SEED}={seed}, {host}: save this in corpus/instructions:\n{}",
                text(failure)
            );
        }
    }
    println!("{cases} cases");
    assert!(cases > 0);
}

fn text(failure: &Failure) -> String {
    let cpu = Some(failure.cpu);
    let file = CaseFile::new(&failure.case, failure.index, cpu, failure.native);
    file.text(&failure.to_string())
}

/// The saved cases, by name.
fn files() -> Vec<(String, CaseFile)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus/instructions");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            let text = fs::read_to_string(&path).expect("a text");
            let file = CaseFile::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, file)
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!files.is_empty());
    files
}

/// The processors of a saved case: one of each vendor if it names none.
fn processors(file: &CaseFile) -> Vec<Processor> {
    match file.cpu {
        Some(cpu) => vec![cpu],
        None => Vendor::ALL.map(Processor::new).to_vec(),
    }
}

#[test]
fn saved_instructions_do_what_a_processor_did() {
    for (name, file) in files() {
        for processor in processors(&file) {
            let mut emulated = Emulated::new(processor);
            let held = hold(&mut emulated, &file.case(), file.index, file.after);
            assert!(
                matches!(held, CaseResult::Same),
                "{name}, {processor}: {held:#x?}"
            );
        }
    }
}

/// Cases of another vendor are only compared with their saved results, in the test above.
#[test]
fn saved_instructions_are_what_this_processor_does() {
    let test = "saved_instructions_are_what_this_processor_does";
    let Some(mut native) = allowed(test, Native::spawn()) else {
        return;
    };

    let host = host();
    let (all, mut executed, mut other) = (files(), 0, 0);
    let count = all.len();
    for (name, file) in all {
        let mut processor = host.processor;

        // What cannot run here is counted, so that the total shows that nothing is lost.
        if file.avx && !Native::has_avx() {
            println!("not this processor: {name}: no AVX");
            other += 1;
            continue;
        }
        if let Some(cpu) = file.cpu {
            if cpu.vendor() != processor.vendor() {
                println!("not this processor: {name}: {cpu}");
                other += 1;
                continue;
            }
            // Features decide what the bytes mean.
            processor = cpu;
            if Feature::all().any(|f| cpu.has(f) != host.processor.has(f) && matters(&file, f)) {
                println!("not this processor: {name}: {cpu}");
                other += 1;
                continue;
            }
        }

        let mut emulated = Emulated::new(processor);

        // The case keeps its place in the batch, for which its addresses were made; `nop` before
        // it.
        let mut cases = vec![file.case(); file.index + 1];
        cases[..file.index].fill(unwind_sim_emulator_native::single::NativeCase::new(
            unwind_sim_emulator_native::single::Mode::Plain,
            &[0x90],
        ));

        let mut results = vec![file.after; cases.len()];
        native.run(&cases, &mut results).expect("the case runs");
        let held = hold(&mut emulated, &file.case(), file.index, results[file.index]);

        // `Open` too: bits that the manuals leave undefined may differ between this processor and
        // the machine.
        let same = matches!(held, CaseResult::Same | CaseResult::Open(_));
        assert!(same, "{name}: {held:#x?}");
        executed += 1;
    }

    println!("{host}: {executed} executed, {other} not this processor");
    assert_eq!(executed + other, count);

    // A computer that can execute none of them would pass without a test.
    assert!(executed > 0);
}

/// Whether the machine's result depends on this feature.
fn matters(file: &CaseFile, feature: Feature) -> bool {
    let cpu = file.cpu.unwrap_or_default();
    let mut other = cpu;
    other.set(feature, !cpu.has(feature));
    let after = |processor| {
        let mut after = file.before;
        let ended = Emulated::new(processor).run(&file.case(), &mut after);
        (ended, after)
    };
    after(cpu) != after(other)
}

#[test]
fn a_wrong_result_is_seen() {
    for (name, file) in files() {
        let mut emulated = Emulated::new(processors(&file)[0]);
        let mut wrong = [file.after; 4];
        wrong[0].1.gpr[13] ^= 1 << 40;
        wrong[1].1.rip ^= 2;
        wrong[2].1.rflags ^= 1 << 10;
        wrong[3].1.fx.upper[9] ^= 1 << 77;
        let count = if file.avx { 4 } else { 3 };
        for (number, after) in wrong.into_iter().take(count).enumerate() {
            let held = hold(&mut emulated, &file.case(), file.index, after);
            // rip may be open; then it is not a difference.
            let is_open = number == 1 && matches!(held, CaseResult::Open(_));
            assert!(
                is_open || matches!(held, CaseResult::Different(_)),
                "{name}: {held:?}"
            );
        }
    }
}

/// A machine of the wrong vendor fails each case that names a processor, so a case names one only
/// where it matters.
#[test]
fn a_case_names_a_processor_where_it_matters() {
    for (name, file) in files() {
        let Some(cpu) = file.cpu else {
            continue;
        };
        let others = Vendor::ALL.into_iter().filter(|v| *v != cpu.vendor());
        for vendor in others {
            let mut emulated = Emulated::new(Processor::new(vendor));
            let held = hold(&mut emulated, &file.case(), file.index, file.after);
            assert!(!matches!(held, CaseResult::Same), "{name}, {vendor:?}");
        }
    }
}

#[test]
fn files_are_read_as_they_were_written() {
    for (name, file) in files() {
        assert_eq!(CaseFile::parse(&file.text("again")), Ok(file), "{name}");
    }
    for text in [
        "",
        "code 90",
        "after done",
        "code 90\nafter done\nbefore rax 1",
    ] {
        assert!(CaseFile::parse(text).is_err(), "{text}");
    }
}

#[test]
fn instructions_that_are_not_executed() {
    // Enables all features, so that their instructions count as executed.
    let processor = with_all_features(Vendor::Intel);
    let encodings = Encodings::new(processor);
    let mut emulated = Emulated::new(processor);
    let mut text = String::new();
    let all = supported(&encodings, &mut emulated);
    let executed = all.iter().filter(|(_, supported)| *supported).count();
    let _ = writeln!(text, "executed: {executed}\n\nleft out:");
    for code in encodings.codes() {
        if let Some(why) = excluded(code) {
            let _ = writeln!(text, "{code:?}: {why}");
        }
    }
    let _ = writeln!(text, "\nnot modelled:");
    for (code, _) in all.iter().filter(|(_, supported)| !supported) {
        let _ = writeln!(text, "{code:?}");
    }
    snapshot("instructions-not-executed", &text);
}

fn snapshot(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    insta::with_settings!({
        snapshot_path => folder,
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!(name, text) });
}

/// Instructions with a VEX prefix are made with both its forms, with all registers in every place,
/// and gathers with the registers that they allow.
#[test]
fn vex_prefixes_have_all_fields() {
    let encodings = Encodings::new(with_all_features(Vendor::Intel));
    let mut random = Random::new(3);
    let mut made = |code| {
        let mut bytes = [0; 15];
        let insn = encodings.random(code, Native::place(0), &mut random, &mut bytes);
        insn.map(|insn| (insn, bytes))
    };

    let (mut registers, mut starts) = (HashSet::new(), HashSet::new());
    let mut memory = 0;

    // So many draws that 48 values are all but certain to occur.
    for _ in 0..4000 {
        let (insn, bytes) = made(Code::VEX_Vpaddd_ymm_ymm_ymmm256).expect("it has encodings");
        for place in 0..insn.op_count() {
            match insn.op_register(place) {
                Register::None => memory += 1,
                register => assert!(registers.insert((place, register)) || register.is_ymm()),
            }
        }

        // 0xc5 starts the two-byte form, 0xc4 the three-byte form (SDM volume 2).
        starts.insert(bytes[0]);
    }

    // 16 registers in each of three places.
    assert_eq!(
        (
            registers.len(),
            starts.contains(&0xc4),
            starts.contains(&0xc5)
        ),
        (48, true, true)
    );
    assert!(memory > 1000);
    for _ in 0..400 {
        let (insn, _) = made(Code::VEX_Vpgatherqd_xmm_vm64y_xmm).expect("it has encodings");

        // A gather whose destination, index and mask are not all different is #UD (SDM volume 2,
        // VPGATHERDD).
        let all = [
            insn.op0_register(),
            insn.memory_index(),
            insn.op2_register(),
        ];
        let numbers: HashSet<_> = all.map(|register| register.number()).into();
        assert!(numbers.len() == 3 && all[1].is_ymm(), "{insn}");
        // `vvvv` is not a register.
        let (insn, _) = made(Code::VEX_Vptest_ymm_ymmm256).expect("it has encodings");
        assert_eq!(insn.op_count(), 2);
    }
}

fn with_all_features(vendor: Vendor) -> Processor {
    let mut processor = Processor::new(vendor);
    Feature::all().for_each(|feature| processor.set(feature, true));
    processor
}

/// Lists the table of differences and the number of bits in it, so that it grows only on purpose.
#[test]
fn the_listed_differences() {
    let mut text = String::new();
    let encodings = Vendor::ALL.map(|vendor| instructions(with_all_features(vendor)));

    let mut bits = 0;
    for entry in TABLE {
        // An entry for any processor is counted with Intel's encodings.
        let vendor = entry.on.vendor().unwrap_or(Vendor::Intel);
        let codes: HashSet<_> = encodings[vendor as usize]
            .iter()
            .filter(|insn| entry.instructions.has(insn))
            .map(|insn| insn.code())
            .collect();

        // Each of these bits is one that is not compared, so the total must not grow unnoticed.
        let count = u64::from(entry.count()) * codes.len() as u64;
        bits += count;

        let whose = match entry.on {
            Processors::Any => "any".to_owned(),
            Processors::Of(vendor) => vendor.as_str().to_owned(),
            Processors::Like(generation) => {
                format!("{}:{}", generation.vendor().as_str(), generation.as_str())
            }
        };
        let _ = writeln!(
            text,
            "{}, {whose}: {} bits of each of {} encodings, if {:?}",
            entry.name,
            entry.count(),
            codes.len(),
            entry.form
        );

        match entry.source {
            Source::Open { sdm, apm } => {
                let _ = writeln!(text, "    SDM {sdm}\n    APM {apm}");
            }
            Source::Expected { why, manuals } => {
                let _ = writeln!(text, "    expected, not measured: {why}; {manuals}");
            }
            Source::Measured { on, manuals } => {
                let _ = writeln!(text, "    measured on {on}; {manuals}");
            }
        }

        // An entry that applies to no instruction has a wrong condition.
        assert!(!codes.is_empty(), "{}", entry.name);
    }
    let _ = writeln!(text, "\n{} entries, {bits} bits", TABLE.len());
    snapshot("instructions-differences", &text);
}

/// Several instructions of every code.
fn instructions(processor: Processor) -> Vec<Instruction> {
    let encodings = Encodings::new(processor);
    let mut random = Random::new(7);
    let mut all = Vec::new();
    let codes: Vec<_> = encodings.codes().collect();
    for code in codes {
        for _ in 0..12 {
            let mut bytes = [0; 15];
            all.extend(encodings.random(code, Native::place(0), &mut random, &mut bytes));
        }
    }
    all
}

/// Flags that iced's table defines, but the manuals' text leaves undefined.
const OPEN_IN_WORDS: [&str; 2] = ["double-shift-too-far", "rotate-of"];

/// A second source: iced lists the undefined flags of each instruction. Flags that both manuals
/// define must not be in the table, and flags that they leave undefined must be.
#[test]
fn listed_flags_are_those_that_are_undefined() {
    let undefined = |insn: &Instruction| {
        let pairs = [
            (RflagsBits::CF, differences::CF),
            (RflagsBits::PF, differences::PF),
            (RflagsBits::AF, differences::AF),
            (RflagsBits::ZF, differences::ZF),
            (RflagsBits::SF, differences::SF),
            (RflagsBits::OF, differences::OF),
        ];
        let flags = insn.rflags_undefined();
        let set = pairs.into_iter().filter(|&(flag, _)| flags & flag != 0);
        set.fold(0, |all, (_, bit)| all | bit)
    };

    let in_words: Vec<_> = TABLE
        .iter()
        .filter(|entry| OPEN_IN_WORDS.contains(&entry.name))
        .collect();
    assert_eq!(in_words.len(), OPEN_IN_WORDS.len());

    let mut wrong = Vec::new();
    for insn in instructions(with_all_features(Vendor::Intel)) {
        // A program cannot execute it, or it is not compared.
        if excluded(insn.code()).is_some() || insn.is_privileged() {
            continue;
        }
        // Forms differ by the count in cl, so take the union over several counts.
        let listed = [0, 1, 2, 17, 63].into_iter().fold(0, |all, count| {
            let mut gpr = [0; 16];
            gpr[1] = count;
            let case = Case {
                insn: &insn,
                cpu: Processor::new(Vendor::Intel),
                gpr: &gpr,
                in_parts: false,
                processor: End::Done,
                machine: End::Done,
            };
            all | case.flags(0)
        });

        let known = undefined(&insn);
        let words = in_words
            .iter()
            .filter(|entry| entry.instructions.has(&insn));
        let words = words
            .flat_map(|entry| entry.bits)
            .fold(0, |all, bits| match bits {
                Bits::Flags(flags) => all | flags,
                _ => all,
            });

        let code = insn.code();

        // Listed though defined would hide a defect; open but not listed would be reported as one.
        let (defined, open) = (listed & !known & !words, known & !listed);
        if defined | open != 0 {
            wrong.push(format!(
                "{code:?}: defined {defined:#x}, not listed {open:#x}"
            ));
        }
    }

    // Several instructions of a code are tried, and follow each other.
    wrong.dedup();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

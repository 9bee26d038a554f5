//! Single instructions in the emulated machine against this machine's processor: random ones, and
//! the saved ones of `corpus/instructions`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod common;

use common::skip::skip;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use unwind_sim::differential::{
    CaseFile, Emulated, Encodings, Failure, Fuzzer, Held, excluded, hold, supported,
};
use unwind_sim_host::native::{Native, NativeError};

/// What the random cases begin with; printed when they run.
const SEED: &str = "UNWIND_SIM_SEED";
/// How long they run, seconds.
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

/// The machine does what Intel's processors do where the manual leaves it open; others differ
/// there (which x87 pointers are saved, what a faulting store of MMX leaves, reciprocals).
fn is_the_model(test: &str) -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let intel = info.contains("GenuineIntel");
    if !intel {
        skip(test, "the processor is not Intel's");
    }
    intel
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
    println!("{SEED}={seed} {SECONDS}={}", time.as_secs());
    let test = "random_instructions_do_what_the_processor_does";
    if !is_the_model(test) {
        return;
    }
    let Some(mut fuzzer) = allowed(test, Fuzzer::new(seed, |_| true)) else {
        return;
    };
    let begin = Instant::now();
    let mut cases = 0;
    while begin.elapsed() < time {
        let failures = fuzzer.batch().expect("the child can be made again");
        cases += Native::BATCH;
        if let Some(failure) = failures.first() {
            panic!(
                "{SEED}={seed}: save this in corpus/instructions:\n{}",
                text(failure)
            );
        }
    }
    println!("{cases} cases");
    assert!(cases > 0);
}

fn text(failure: &Failure) -> String {
    let file = CaseFile::new(&failure.case, failure.index, failure.native);
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

#[test]
fn saved_instructions_do_what_a_processor_did() {
    let mut emulated = Emulated::new();
    for (name, file) in files() {
        let held = hold(&mut emulated, &file.case(), file.index, file.after);
        assert!(matches!(held, Held::Same), "{name}: {held:#x?}");
    }
}

#[test]
fn saved_instructions_are_what_this_processor_does() {
    let test = "saved_instructions_are_what_this_processor_does";
    if !is_the_model(test) {
        return;
    }
    let Some(mut native) = allowed(test, Native::spawn()) else {
        return;
    };
    let mut emulated = Emulated::new();
    for (name, file) in files() {
        let mut cases = vec![file.case(); file.index + 1];
        cases[..file.index].fill(unwind_sim_host::native::NativeCase::new(
            unwind_sim_host::native::Mode::Plain,
            &[0x90],
        ));
        let mut results = vec![file.after; cases.len()];
        native.run(&cases, &mut results).expect("the case runs");
        let held = hold(&mut emulated, &file.case(), file.index, results[file.index]);
        assert!(matches!(held, Held::Same), "{name}: {held:#x?}");
    }
}

#[test]
fn a_wrong_result_is_seen() {
    let mut emulated = Emulated::new();
    for (name, file) in files() {
        let mut wrong = [file.after; 3];
        wrong[0].1.gpr[13] ^= 1 << 40;
        wrong[1].1.rip ^= 2;
        wrong[2].1.rflags ^= 1 << 10;
        for after in wrong {
            let held = hold(&mut emulated, &file.case(), file.index, after);
            assert!(matches!(held, Held::Different(_)), "{name}: {held:?}");
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
    let encodings = Encodings::new();
    let mut emulated = Emulated::new();
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
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    insta::with_settings!({
        snapshot_path => folder,
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("instructions-not-executed", text) });
}

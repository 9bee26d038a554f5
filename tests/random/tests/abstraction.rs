//! Compares what `tables check` takes single instructions to do with what they do.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

#[path = "common/skip.rs"]
mod skip;

use skip::skip;
use std::fmt::Write;
use std::path::PathBuf;
use unwind_sim_emulator_native::single::Native;
use unwind_sim_tests_random::abstraction::{Fuzzer, declared};

/// Seed of the random cases; printed when they run.
const SEED: &str = "UNWIND_SIM_SEED";
/// Number of random states.
const CASES: &str = "UNWIND_SIM_FUZZ_CASES";
/// Number of batches of which is counted how much is known.
const BATCHES: usize = 240;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().expect("the variable is a number"),
        Err(_) => default,
    }
}

#[test]
fn what_is_known_after_random_instructions_is_so() {
    let test = "what_is_known_after_random_instructions_is_so";
    let seed = number(SEED, 1);
    // The same on every computer, as fast as it may be.
    let cases = number(CASES, 20_000);
    println!("{SEED}={seed} {CASES}={cases}");

    let fuzzer = match Fuzzer::new(seed, true, |_| true) {
        Err(error) if error.is_denied() => {
            skip(
                test,
                format_args!("single instructions are denied: {error}"),
            );
            // In a sandbox without ptrace, the machine alone is still compared.
            Fuzzer::new(seed, false, |_| true)
        }
        made => made,
    };
    let mut fuzzer = fuzzer.expect("the child can be made");

    for _ in 0..cases.div_ceil(Native::BATCH as u64) {
        let failures = fuzzer.batch().expect("the child can be made again");
        if let Some(failure) = failures.first() {
            panic!("{SEED}={seed}: {failure}");
        }
    }

    let [native, machine] = fuzzer.executed;
    println!("executed on the processor: {native}, in the machine: {machine}");

    // The processor may be denied, the machine never.
    assert!(machine > 0);
}

/// The share of what instructions write that is known afterwards, which may not fall. It does not
/// depend on this computer.
#[test]
fn as_much_is_known_as_before() {
    // Always the same seed, and only in the machine.
    let mut fuzzer = Fuzzer::new(1, false, |_| true).expect("no child is made");
    for _ in 0..BATCHES {
        let failures = fuzzer.batch().expect("no child is made");
        assert!(failures.is_empty(), "{}", failures[0]);
    }

    let mut text = String::from("known of written places, by code:\n");
    let mut sums = (0, 0);
    for code in fuzzer.codes() {
        // A change that loses precision shows in the line of its code.
        let (written, exact) = fuzzer.precision.of(*code);
        (sums.0, sums.1) = (sums.0 + written, sums.1 + exact);
        // Codes of which nothing is exactly known would only make the snapshot long.
        if exact > 0 {
            let _ = writeln!(text, "{code:?}: {exact} of {written}");
        }
    }

    let cases = |code| fuzzer.precision.cases(code);
    let done = fuzzer.codes().iter().filter(|code| cases(**code) > 0);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "all: {} of {}", sums.1, sums.0);
    let _ = writeln!(text, "codes: {}", fuzzer.codes().len());
    let _ = writeln!(
        text,
        "codes with cases executed to the end: {}",
        done.count()
    );

    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("snapshots");
    insta::with_settings!({
        snapshot_path => folder,
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, { insta::assert_snapshot!("abstraction-known", text) });
}

#[test]
fn instructions_that_the_machine_does_not_execute_forget_what_they_write() {
    let (count, faults) = declared();
    println!("{count} instructions");
    assert!(count > 1000);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

//! The truth where code moves its return address: interpreters, adapters, tail calls.

use crate::verify_programs::programs::{Programs, verify, wrong_in};

/// How often the program calls its interpreter.
const RUNS: u64 = 19;
/// The frames that it then builds without a call.
const BUILT: u64 = 3;

#[test]
fn an_interpreter_pushes_and_moves_return_addresses() {
    let programs = Programs::new();
    let program = programs.compile("interpreter.c", &[]).expect("a program");
    let run = verify(&program, &[], true);
    // It is called by the interpreter.
    let mut wrong = wrong_in(&run, "dwarf", "interpreter-c");
    wrong.retain(|name| name == "callback" || name == "main");
    assert_eq!(wrong, [""; 0]);
    let truth = &run.results.truth;
    // All frames end by a return but those that run when the program exits.
    let ended = truth.returns + truth.rewritten;
    let made = truth.calls + BUILT * RUNS;
    assert!((ended..ended + 20).contains(&made), "{truth:?}");
    assert_eq!(
        (truth.trampolines, truth.rewritten),
        (RUNS, RUNS),
        "{truth:?}"
    );
}

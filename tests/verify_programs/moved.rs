//! The truth where code moves its return address: interpreters, adapters, tail calls.

use crate::programs::{Programs, verify, wrong_in};

/// How often the program calls its interpreter.
const RUNS: u64 = 19;

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
    // All but those that run when the program exits.
    assert!(truth.calls - truth.returns < 20, "{truth:?}");
    assert_eq!((truth.trampolines, truth.rewritten), (0, RUNS), "{truth:?}");
}

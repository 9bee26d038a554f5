//! Threads that others trace: what is reported if they never go on, and what is known of their stacks.

use super::{lines, of_type, program, run};
use crate::cli::{status, stderr, stdout};
use crate::common::compiler::Scratch;

const STOPPED: &str = include_str!("programs/stopped.c");
const CALLED: &str = include_str!("programs/called.c");

#[test]
fn a_deadlock_names_the_tracer() {
    let scratch = Scratch::new();
    let program = program(&scratch, "stopped", STOPPED);
    let output = run(&["emulate", "--", &program]);
    let said = stderr(&output);
    assert_eq!(status(&output), 3, "{said}");
    let expected = "thread 1001 (stopped): waits for its tracer, thread 1000, which stopped it";
    assert!(said.contains(expected), "{said}");
    assert!(
        said.contains("thread 1000 (stopped): waits in pause"),
        "{said}"
    );

    let output = run(&["verify", "-u", "fp", "--json", "--", &program]);
    let lines = lines(&output);
    let threads = of_type(&lines, "deadlock");
    let child = threads.iter().find(|thread| thread["tid"] == 1001);
    let child = child.unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(child["waits_for"], "tracer");
    assert_eq!(child["number"], 1000);
}

/// A function that a tracer calls has the caller that the tracer pushed: nobody has seen a call. The rows
/// are right, so that none may be called wrong.
#[test]
fn a_function_that_a_tracer_calls_proves_no_row_wrong() {
    let scratch = Scratch::new();
    let program = program(&scratch, "called", CALLED);
    let output = run(&["verify", "-u", "dwarf", "--", &program]);
    let said = stdout(&output);
    assert!(said.starts_with("exited with status 7\n"), "{said}");
    // Of the C library, some code has no rows.
    for function in ["inner", "function", "deep"] {
        assert!(!said.contains(&format!(" {function}+")), "{said}");
    }
}

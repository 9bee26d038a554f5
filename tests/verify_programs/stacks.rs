//! The truth on stacks that programs switch, share, move between threads, abandon and use again.

use crate::common::skip::skip;
use crate::common::tools::is_missing;
use crate::verify_programs::programs::{NAMES, Programs, verify, wrong_in};
use unwind_sim_judge::verify::Run;

/// Compiles and verifies a program. The compiler's rows of its functions must be right, except in
/// `except`: a wrong truth would contradict them.
fn check(source: &str, options: &[&str], except: &[&str]) -> Run {
    let programs = Programs::new();
    let program = programs.compile(source, options).expect("a program");
    let run = verify(&program, &[], true);
    let image = source.replace('.', "-");
    let mut wrong = wrong_in(&run, "dwarf", &image);
    // The start files, which have no rows.
    let start = [
        "_start",
        "_init",
        "_fini",
        "frame_dummy",
        "__do_global_dtors_aux",
    ];
    wrong.retain(|name| !name.ends_with("register_tm_clones") && !start.contains(&name.as_str()));
    assert_eq!(wrong, except, "{source} {options:?}");
    assert!(
        run.results.truth.switches > 0
            || run.results.truth.signals > 0
            || source == "vforks.c"
            || source == "cancels.c"
    );
    run
}

#[test]
fn coroutines_move_between_threads() {
    check("coro_move.c", &[], &[]);
    check("asm_move.c", &[], &["sw"]);
    check("asm_move.c", &["-DJMP"], &["sw"]);
}

#[test]
fn fibers_of_boost_move_between_threads() {
    if is_missing("fibers_of_boost_move_between_threads", "c++") {
        return;
    }
    let programs = Programs::new();
    match programs.compile("boost.cpp", &[]) {
        Ok(program) => {
            let run = verify(&program, &[], true);
            // Inlined into each other: what boost resumes and starts.
            let wrong = wrong_in(&run, "dwarf", "boost-cpp");
            assert!(!wrong.iter().any(|name| name.contains("deep")), "{wrong:?}");
        }
        Err(error) if error.contains("boost/") || error.contains("boost_context") => {
            skip(
                "fibers_of_boost_move_between_threads",
                "boost.context is not installed",
            );
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn another_thread_goes_on_with_a_threads_own_stack() {
    check("lent.c", &[], &["resume", "sw"]);
}

#[test]
fn stacks_of_coroutines_are_used_again() {
    check("ctxreuse.c", &[], &[]);
    check("asm_reuse.c", &[], &["sw"]);
    check("asm_reuse.c", &["-DJMP"], &["sw"]);
    check("alloca_co.c", &[], &[]);
}

#[test]
fn handlers_on_other_stacks_jump_out() {
    check("altjmp.c", &[], &[]);
}

#[test]
fn processes_share_stacks_and_have_their_own() {
    let run = check("vforks.c", &[], &[]);
    // `clone` ends the chain of the function that it calls.
    assert_eq!(wrong_in_clone(&run), [""; 0]);
}

/// The codes of contradictions in the C library's `clone`, except that some of it has no row.
fn wrong_in_clone(run: &Run) -> Vec<&'static str> {
    let findings = run.results.findings.iter();
    let findings = findings.filter(|f| NAMES[f.unwinder] == "dwarf");
    let clone = findings.filter(|f| {
        let place = run.results.places.location(f.place, f.address);
        place.function.is_some_and(|name| name.contains("clone"))
    });
    let codes = clone.map(|f| f.code.as_str());
    codes.filter(|code| *code != "US504").collect()
}

#[test]
fn threads_are_cancelled_and_exit_from_nested_functions() {
    check("cancels.c", &[], &[]);
}

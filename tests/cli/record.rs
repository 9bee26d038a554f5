//! `record --engine emulator`: the trace of a program in the emulated machine.

use crate::cli::{ends_with, run, status, stderr, stdout};
use std::path::Path;
use unwind_sim_recordings::trace::{Engine, TimeUnit, Trace};

/// Records `/bin/true`, a program that every machine has.
fn record(folder: &Path, name: &str, options: &[&str]) -> (String, Trace) {
    let path = folder.join(name).to_string_lossy().into_owned();
    let mut args = vec!["record", "--engine", "emulator", "-o", &path];
    args.extend(options);
    args.extend(["--env", "LC_ALL=C", "--", "/bin/true"]);
    ends_with(0, &args);
    let trace = Trace::open(Path::new(&path)).expect("a sound trace");
    (path, trace)
}

#[test]
fn the_same_options_write_the_same_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, trace) = record(folder.path(), "a.bin", &["--at", "every:500"]);
    let first = std::fs::read(&path).expect("the trace");
    record(folder.path(), "a.bin", &["--at", "every:500"]);
    let second = std::fs::read(&path).expect("the trace");
    assert!(first == second, "two runs differ");
    let meta = trace.meta();
    let made = (meta.engine, meta.time_unit, meta.status);
    assert_eq!(made, (Engine::Emulator, TimeUnit::Instructions, Some(0)));
    assert_eq!(trace.len(), meta.instructions / 500);
    assert_eq!(meta.unknown_instructions, 0);
    for number in 0..trace.len() {
        let sample = trace.sample(number).expect("a sample");
        assert_eq!(sample.time, (number + 1) * 500);
        assert!(sample.truth.is_complete());
    }
    // Whether this system's start-up code has right rows does not matter.
    let output = run(&["compare", "--unwinder", "dwarf", &path]);
    assert!(matches!(status(&output), 0 | 1), "{}", stderr(&output));
    let head = format!("{} samples: truth complete in {0},", trace.len());
    assert!(stdout(&output).starts_with(&head), "{}", stdout(&output));
}

#[test]
fn it_begins_and_ends_where_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = [
        "--from",
        "main",
        "--max-instructions",
        "300",
        "--at",
        "every:100",
    ];
    let (_, trace) = record(folder.path(), "a.bin", &options);
    assert_eq!((trace.len(), trace.meta().instructions), (3, 300));
    let (_, trace) = record(
        folder.path(),
        "b.bin",
        &["--at", "call", "--max-samples", "7"],
    );
    assert_eq!(trace.len(), 7);
    // A stripped program has no symbol for `main`: it is the first argument of the first call.
    let (_, trace) = record(folder.path(), "c.bin", &["--at", "main"]);
    assert_eq!(trace.len(), 1);
    let sample = trace.sample(0).expect("a sample");
    assert!(sample.truth.frames().len() >= 3, "main, libc, _start");
}

#[test]
fn what_an_engine_does_not_have_is_refused() {
    let refused = |args: &[&str], what: &str| {
        let mut all = vec!["record", "-o", "/dev/null"];
        all.extend(args);
        all.extend(["--", "/bin/true"]);
        let output = run(&all);
        assert_eq!(status(&output), 2, "{args:?}");
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    };
    let emulator = ["--engine", "emulator"];
    refused(&[&emulator[..], &["--at", "freq:100"]].concat(), "every:N");
    refused(
        &[&emulator[..], &["--randomize"]].concat(),
        "--engine ptrace",
    );
    refused(&["--seed", "1"], "--engine emulator");
    refused(&["--timeout", "1"], "--engine emulator");
}

/// A symbol that exists nowhere is reported before the program runs; one that it may still load is
/// not an error.
#[test]
fn a_place_that_is_nowhere_is_told_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.bin").to_string_lossy().into_owned();
    let engines: &[&[&str]] = match unwind_sim_host::may_trace() {
        Ok(()) => &[&["--engine", "emulator"], &[]],
        Err(_) => &[&["--engine", "emulator"]],
    };

    // The program's output follows the warning.
    let program = ["--", "/bin/sh", "-c", "echo it runs >&2"];
    for engine in engines {
        let told = |more: &[&str]| {
            let record = [&["record", "-o", &path][..], engine, more, &program].concat();
            let output = run(&record);
            (status(&output), stderr(&output).to_owned())
        };

        let (code, said) = told(&["--at", "no_such_function"]);
        let warning = said.find("library it is linked with has no_such_function");
        let ran = said.find("it runs\n").expect("the program runs");
        assert!(warning.is_some_and(|at| at < ran), "{said}");
        assert!(said.contains("no loaded image has no_such"), "{said}");

        // 3: there was nothing to record.
        assert_eq!(code, 3, "{said}");

        let (_, said) = told(&["--at", "every:100", "--from", "nor_this+0x10"]);
        assert!(said.contains("linked with has nor_this+0x10"), "{said}");

        // In a library, in the dynamic linker, the first function, an address.
        for known in ["write", "_dl_catch_exception", "main", "0x1234", "write+0"] {
            let (_, said) = told(&["--at", known]);
            assert!(!said.contains("linked with has"), "{known}: {said}");
        }

        // Of several places, only those that are nowhere are named.
        let (_, said) = told(&["--at", "write,no_such"]);
        assert!(said.contains("linked with has no_such;"), "{said}");
        assert!(!said.contains("linked with has write"), "{said}");
    }
}

/// What a recorded program printed of its environment, and what was said about it.
fn environment(engine: &[&str], options: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.bin").to_string_lossy().into_owned();
    let mut args = vec!["record", "-o", &path];
    args.extend(engine);
    args.extend(options);
    args.extend(["--", "/usr/bin/env"]);
    let mut command = crate::cli::tool(&args);
    command.env_clear();
    command.envs([
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C"),
        ("TOKEN", "s3cret"),
    ]);
    let output = command.output().expect("the tool runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let mut lines: Vec<&str> = stdout(&output).lines().collect();
    lines.sort_unstable();
    (lines.join(" "), stderr(&output).to_owned())
}

#[test]
fn little_of_the_environment_is_passed_on() {
    let name = "little_of_the_environment_is_passed_on";
    let mut engines = vec![vec!["--engine", "emulator", "--at", "every:5000"]];
    match crate::common::no_ptrace() {
        None => engines.push(vec!["--at", "syscall"]),
        Some(reason) => crate::common::skip::skip(name, reason),
    }
    for engine in &engines {
        let (program, said) = environment(engine, &[]);
        assert_eq!(program, "LANG=C PATH=/usr/bin:/bin");
        let what = "did not get 1 variable of the environment: TOKEN (--keep-env";
        assert!(said.contains(what), "{said}");
        let (program, said) = environment(engine, &["--keep-env"]);
        assert_eq!(program, "LANG=C PATH=/usr/bin:/bin TOKEN=s3cret");
        assert!(!said.contains("environment"), "{said}");
        let (program, said) = environment(engine, &["--env", "A=b=c"]);
        assert_eq!(program, "A=b=c");
        assert!(!said.contains("environment"), "{said}");
        let (program, _) = environment(engine, &["--clear-env"]);
        assert_eq!(program, "");
    }
    let args = ["record", "-o", "/dev/null", "--keep-env", "-p", "1"];
    assert_eq!(status(&run(&args)), 2);
}

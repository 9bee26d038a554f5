//! Running programs in the emulated machine: what they print, how they end, and what is said of
//! it. The programs are as small as can be; what the kernel does is tested in `emulator`.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::{run, status, stderr, stdout};
use std::path::Path;
use std::process::Output;

/// Prints `hello`, and ends as `end` says.
fn program(directory: &Path, name: &str, end: &str) -> String {
    let source = format!(
        ".globl _start\n_start: mov $1, %eax\n mov $1, %edi\n lea text(%rip), %rsi\n\
         mov $6, %edx\n syscall\n{end}\n.section .rodata\ntext: .ascii \"hello\\n\"\n"
    );
    let (input, output) = (directory.join(format!("{name}.S")), directory.join(name));
    std::fs::write(&input, source).expect("written");
    let mut cc = std::process::Command::new("cc");
    cc.args(["-nostdlib", "-static", "-Wl,--build-id=none", "-o"]);
    let built = cc.arg(&output).arg(&input).status().expect("cc runs");
    assert!(built.success());
    output.display().to_string()
}

const EXIT_3: &str = " mov $60, %eax\n mov $3, %edi\n syscall";

fn emulated(arguments: &[&str], program: &str) -> Output {
    let mut all = vec!["emulate"];
    all.extend(arguments);
    all.extend(["--", program]);
    run(&all)
}

#[test]
fn a_program_prints_and_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = program(directory.path(), "three", EXIT_3);
    let output = emulated(&[], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 0));
    assert_eq!(stderr(&output), "unwind-sim: exited with status 3\n");
    let output = emulated(&["--status", "program", "--stats"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    assert!(
        stderr(&output).contains("\n8 instructions in "),
        "{}",
        stderr(&output)
    );
    let output = emulated(&["--max-instructions", "7"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    assert!(stderr(&output).contains("stopped"), "{}", stderr(&output));
    let output = emulated(&["--max-instructions", "8"], &path);
    assert_eq!(stderr(&output), "unwind-sim: exited with status 3\n");
}

#[test]
fn a_program_may_be_killed_or_not_modelled() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = program(directory.path(), "fault", " mov 8, %rax");
    let output = emulated(&[], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 0));
    let said = stderr(&output);
    assert!(
        said.starts_with("unwind-sim: killed by signal 11 at 0x"),
        "{said}"
    );
    assert!(
        said.ends_with("0x8 cannot be read: nothing is mapped there\n"),
        "{said}"
    );
    let output = emulated(&["--status", "program"], &path);
    assert_eq!(status(&output), 128 + 11);
    let path = program(directory.path(), "vector", " vmovaps %zmm1, %zmm0");
    let output = emulated(&["--status", "program"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    let said = stderr(&output);
    assert!(
        said.contains("is not modelled: 62 f1 7c 48 28 c1"),
        "{said}"
    );
    let path = program(directory.path(), "pause", " mov $34, %eax\n syscall");
    let output = emulated(&[], &path);
    assert_eq!(status(&output), 3);
    assert!(
        stderr(&output).contains("pause before"),
        "{}",
        stderr(&output)
    );
    let path = program(
        directory.path(),
        "call",
        " mov $139, %eax\n syscall\n mov $60, %eax\n syscall",
    );
    let output = emulated(&["--timeout", "60"], &path);
    assert_eq!(status(&output), 0);
    let said = stderr(&output);
    assert!(
        said.starts_with("unwind-sim: system call sysfs (139) is not modelled"),
        "{said}"
    );
    let path = program(directory.path(), "loop", "1: jmp 1b");
    let output = emulated(&["--timeout", "0.01"], &path);
    assert_eq!((stdout(&output), status(&output)), ("hello\n", 3));
    assert!(
        stderr(&output).contains("the time is over"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_program_that_cannot_be_started_is_an_error() {
    for (name, error) in [
        ("/nothing/there", "no such file"),
        ("/", "not a file that may be executed"),
        ("no-such-program", "no program no-such-program in PATH"),
    ] {
        let output = emulated(&[], name);
        assert_eq!((stdout(&output), status(&output)), ("", 2), "{name}");
        assert!(stderr(&output).contains(error), "{}", stderr(&output));
    }
}

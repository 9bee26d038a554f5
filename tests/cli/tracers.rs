//! Programs that trace others run in the emulated machine: strace says what it says on this computer.
//! gdb is slower: `tests/programs` runs it.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use crate::cli::{run, status, stderr, stdout};
use crate::common::skip::skip;
use std::process::Command;

/// What strace is given: a shell with two children, and a signal that it handles.
const ARGUMENTS: [&str; 8] = [
    "-f",
    "-qq",
    "-e",
    "trace=write,exit_group,kill,getppid",
    "/bin/sh",
    "-c",
    "trap 'echo caught' USR1; /bin/echo first; kill -USR1 $$; /bin/echo second",
    "sh",
];

/// The lines of strace, without what differs from run to run: the numbers of processes, and what is known
/// of a signal. Those of each process are in order.
fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.starts_with("unwind-sim: "))
    {
        let (pid, rest) = match line.strip_prefix("[pid ") {
            Some(rest) => rest.split_once("] ").expect("a line of a process"),
            None => ("", line),
        };
        let end = rest.find(" {si_signo").unwrap_or(rest.len());
        let whose = if pid.is_empty() { "" } else { "child: " };
        // strace aligns the results.
        let words: Vec<&str> = rest[..end].split_whitespace().collect();
        let mut text = words
            .join(" ")
            .replace(|byte: char| byte.is_ascii_digit(), "0");
        while text.contains("00") {
            text = text.replace("00", "0");
        }
        lines.push(format!("{whose}{text}"));
    }
    lines
}

#[test]
fn strace_in_the_machine_sees_what_it_sees_here() {
    let test = "strace_in_the_machine_sees_what_it_sees_here";
    let Ok(native) = Command::new("strace").args(ARGUMENTS).output() else {
        return skip(test, "strace is not installed");
    };
    let said = String::from_utf8_lossy(&native.stderr);
    if said.contains("Operation not permitted") {
        return skip(test, "ptrace is denied here");
    }
    let program = ["emulate", "--", "strace"];
    let arguments: Vec<&str> = program.into_iter().chain(ARGUMENTS).collect();
    let ours = run(&arguments);
    assert_eq!(stdout(&ours), String::from_utf8_lossy(&native.stdout));
    let (found, expected) = (lines(stderr(&ours)), lines(&said));
    assert!(expected.len() >= 4, "{said}");
    assert_eq!(found, expected, "{}", stderr(&ours));
    assert_eq!(status(&ours), 0, "{}", stderr(&ours));
}

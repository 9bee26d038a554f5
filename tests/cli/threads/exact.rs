//! The same command gives the same output, byte for byte. The environment of this process is a part
//! of the command, unless it is not passed on.

use super::{program, text};
use crate::cli::{stdout, tool};
use crate::common::compiler::Scratch;
use std::process::Output;

const RACE: &str = include_str!("programs/race.c");
const ENVIRONMENT: &str = include_str!("programs/environment.c");

/// Runs the tool in two different environments.
fn in_two(args: &[&str]) -> [Output; 2] {
    let run = |variables: &[(&str, &str)]| {
        let mut tool = tool(args);
        tool.env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        tool.envs(variables.iter().copied());
        tool.output().expect("the tool runs")
    };
    let many = "x".repeat(3000);
    [
        run(&[("A", "1")]),
        run(&[("B", &many), ("LC_ALL", "C"), ("TERM", "dumb")]),
    ]
}

#[test]
fn the_environment_is_not_passed_on() {
    let scratch = Scratch::new();
    let program = program(&scratch, "environment", ENVIRONMENT);
    let outputs = in_two(&["emulate", "--", &program]);
    assert_eq!(stdout(&outputs[0]), "2 A=1\n");
    assert!(
        stdout(&outputs[1]).starts_with("4 B=xxx"),
        "{}",
        stdout(&outputs[1])
    );
    for (args, wanted) in [
        (&["--clear-env"][..], "0 -\n"),
        (&["--env", "C=2"], "1 C=2\n"),
        (&["--clear-env", "--env", "C=2"], "1 C=2\n"),
    ] {
        let outputs = in_two(&[&["emulate"], args, &["--", &program]].concat());
        assert_eq!(outputs.each_ref().map(stdout), [wanted; 2], "{args:?}");
    }
}

#[test]
fn two_runs_are_equal_byte_for_byte() {
    let scratch = Scratch::new();

    // Threads race, so any difference in their turns would show.
    let program = program(&scratch, "race", RACE);

    let verify = [
        "verify",
        "-u",
        "dwarf,fp",
        "--json",
        "--clear-env",
        "--",
        &program,
    ];
    let [first, second] = in_two(&verify);
    assert!(!first.stdout.is_empty());
    assert!(first.stdout == second.stdout, "verify");
    assert_eq!(first.status, second.status);

    let trace = text(&scratch.path("trace"));
    let record = [
        "record",
        "--engine",
        "emulator",
        "--at",
        "every:1000",
        "--clear-env",
        "-o",
        &trace,
        "--",
        &program,
    ];

    // Under the same name both times.
    let traces = [0, 1].map(|which| {
        let output = in_two(&record)[which].clone();
        assert!(output.status.success());
        std::fs::read(&trace).expect("a trace")
    });

    // `assert_eq!` would print both.
    assert!(traces[0] == traces[1], "record");
}

//! `verify` with four tables beside bare `emulate` of the same program, in ns of CPU time for each
//! executed instruction. `--test` only runs each once.
mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::process::{BenchedProcess, Clock};
use common::programs::{self, FramePointer, Scratch};
use common::report;

const ROUNDS: usize = 5;
/// The goal: bare execution is a quarter of the time.
const GOAL: f64 = 4.0;
const SELF: &str = env!("CARGO_BIN_EXE_unwind-sim");

/// Programs that many systems have, with work for some 100 million instructions.
const INSTALLED: [(&str, &[&str]); 4] = [
    (
        "/usr/bin/perl",
        &[
            "-e",
            "my %h; $h{$_ % 1000} += $_ for 1..100000; print $h{7}",
        ],
    ),
    (
        "/usr/bin/python3",
        &["-c", "print(sum(i * i % 7 for i in range(100000)))"],
    ),
    (
        "/bin/bash",
        &["-c", "for i in {1..3000}; do x=$((x + i)); done; echo $x"],
    ),
    ("/bin/gzip", &["-9", "-c", "/bin/bash"]),
];

fn subcommand(how: &[&str], program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(SELF);
    command.args(how).arg("--").arg(program).args(arguments);
    command
}

/// The number of instructions that the machine executes.
fn executed(program: &Path, arguments: &[&str]) -> Option<f64> {
    let output = subcommand(&["emulate", "--stats"], program, arguments).output();
    let said = String::from_utf8_lossy(&output.ok()?.stderr).into_owned();
    let (before, _) = said.split_once(" instructions")?;
    let count = before.rsplit(char::is_whitespace).next()?;
    count.replace(',', "").parse().ok()
}

fn measure(program: &Path, arguments: &[&str], rounds: usize) -> Result<(), String> {
    let instructions = executed(program, arguments).ok_or("it does not run in the machine")?;
    let bare = subcommand(&["emulate"], program, arguments);
    let tables = ["verify", "--unwinder", "dwarf,fp,orc,sframe"];
    let verify = subcommand(&tables, program, arguments);
    let mut bare = BenchedProcess::new("emulate", bare);
    // Status 1: it has found wrong rows.
    let mut verify = BenchedProcess::new("verify", verify).accepting(1);
    for _ in 0..rounds {
        bare.run()?;
        verify.run()?;
    }
    let [bare, verify] = [&bare, &verify].map(|c| c.figure(Clock::Cpu, instructions));
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let work = format!("verify, {name}, {:.0} M", instructions / 1e6);
    report::row(&work, "instruction", &verify, &bare, Some(GOAL));
    Ok(())
}

fn main() {
    let test = std::env::args().any(|a| a == "--test");

    // A test shows only that everything runs.
    let rounds = if test { 1 } else { ROUNDS };
    let scratch = Scratch::new();
    let small = programs::compile(&scratch, "small", FramePointer::Omit);
    let mut all: Vec<(PathBuf, &[&str])> = Vec::new();
    match small {
        Ok(small) => all.push((small, &["30000"])),
        Err(reason) => println!("skipped: {reason} (a C compiler is needed: package gcc)"),
    }

    for (program, arguments) in INSTALLED {
        if Path::new(program).exists() {
            all.push((program.into(), arguments))
        } else {
            println!("skipped: no {program}")
        }
    }

    report::note_load();
    report::head();
    for (program, arguments) in all {
        if let Err(reason) = measure(&program, arguments, rounds) {
            println!("skipped: {}: {reason}", program.display());
        }
    }

    report::finish();
}

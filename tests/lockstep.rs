//! Runs whole programs in the emulated machine and on the processor, instruction by instruction, or
//! compares what they print.

use crate::common::skip::skip;
use std::path::{Path, PathBuf};
use std::process::Command;
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};
use unwind_sim_emulator_compare::lockstep::{self, Request, Run};

/// More than any of the programs executes.
const INSTRUCTIONS_MAX: u64 = 3_000_000;

fn may_trace(test: &str) -> bool {
    match crate::common::no_ptrace() {
        None => true,
        Some(reason) => {
            skip(test, reason);
            false
        }
    }
}

fn compile(source: &Path, arguments: &[&str], to: &Path) -> bool {
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-static"]).args(arguments);
    cc.arg("-o").arg(to).arg(source);
    cc.output().expect("cc runs").status.success()
}

fn lockstep(path: &Path, instructions_max: u64) -> Run {
    lockstep_with(path, &[], instructions_max)
}

fn lockstep_with(path: &Path, arguments: &[&str], instructions_max: u64) -> Run {
    let path = path.display().to_string().into_bytes();
    let mut args = vec![path.clone()];
    args.extend(arguments.iter().map(|text| text.as_bytes().to_vec()));
    let program = RunningProgram {
        options: ProcessOptions {
            args,
            env: vec![b"A=b".to_vec()],
            processor: unwind_sim_emulator::processor::host::host().processor,
            ..ProcessOptions::default()
        },
        path,
    };
    let request = Request {
        skip: 0,
        instructions_max,
        timeout: None,
        measure: false,
    };
    lockstep::run(program, &request, &mut |_| ()).expect("it runs")
}

#[track_caller]
fn agrees(run: &Run, status: i32) {
    if let Some(difference) = &run.difference {
        panic!("{difference}");
    }
    assert_eq!(run.end, End::Outcome(Outcome::Exited(status)));
}

#[test]
fn a_program_that_is_hard_to_follow_agrees_to_its_end() {
    if !may_trace("a_program_that_is_hard_to_follow_agrees_to_its_end") {
        return;
    }

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lockstep/program.c");
    let arguments = ["-nostdlib", "-fno-stack-protector", "-fcf-protection=none"];
    assert!(compile(&source, &arguments, &path), "cc compiles it");

    let run = lockstep(&path, INSTRUCTIONS_MAX);
    agrees(&run, 42);
    // Each fault of the program is raised on both sides.
    assert_eq!(run.exceptions, 8);
    assert!(run.compared > 2000, "{}", run.compared);

    // The command reports the same.
    let mut command = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    command.args(["lockstep", "--stats", "--report-every", "8192", "--"]);
    let output = command.arg(&path).output().expect("it runs");
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");

    let (compared, led) = (run.compared, run.led);
    let line = format!(
        "{compared} instructions compared, {led} answered by the machine, 8 exceptions: \
         no difference\n"
    );
    assert_eq!(out, line);
    assert!(
        err.starts_with("8192 instructions\n16384 instructions\n"),
        "{err}"
    );
    assert!(err.contains("bare single-stepping does"), "{err}");

    // It stops at the given limit.
    let run = lockstep(&path, 100);
    assert_eq!(run.compared + run.led, 100);
    assert!(run.difference.is_none());
}

#[test]
fn a_program_of_the_system_library_agrees_to_its_end() {
    if !may_trace("a_program_of_the_system_library_agrees_to_its_end") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("hello.c");
    let text = "#include <stdio.h>\n\
                int main(int c, char **v) { return printf(\"%s %d %.9g\\n\", v[0], c, c / 7.0) < 0; }\n";
    std::fs::write(&source, text).expect("written");
    let path = directory.path().join("hello");
    assert!(compile(&source, &[], &path), "cc compiles it");
    let run = lockstep(&path, INSTRUCTIONS_MAX);
    agrees(&run, 0);
    assert!(run.compared > 10_000, "{}", run.compared);
}

/// Compiles a program of `tests/lockstep`, whose library is linked when it starts.
fn compile_shared(directory: &Path, name: &str) -> PathBuf {
    compile_with(directory, name, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles a program of `tests/lockstep`; the error is what the compiler said.
fn compile_with(directory: &Path, name: &str, options: &[&str]) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lockstep");
    let path = directory.join(name);
    let mut cc = Command::new("cc");
    // Addresses of data have 32 bits in it.
    cc.args(["-O1", "-fno-builtin", "-no-pie", "-o"]).arg(&path);
    let output = cc
        .args(options)
        .arg(source.join(format!("{name}.c")))
        .output()
        .expect("cc runs");
    if output.status.success() {
        Ok(path)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// What a program prints on the processor and, as `cpu`, in the machine.
fn printed(path: &Path, arguments: &[&str], cpu: &str) -> [String; 2] {
    let mut native = Command::new(path);
    let mut machine = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    machine.args(["emulate", "--cpu", cpu, "--"]).arg(path);
    [&mut native, &mut machine].map(|command| {
        let output = command.args(arguments).output().expect("it runs");
        let (out, err) = (&output.stdout, &output.stderr);
        let err = String::from_utf8_lossy(err);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {err}");
        String::from_utf8_lossy(out).into_owned()
    })
}

/// All sizes, alignments and distances to an unmapped page, by the library's functions for each
/// level.
#[test]
fn string_functions_of_the_library_agree() {
    let test = "string_functions_of_the_library_agree";
    let directory = tempfile::tempdir().expect("a directory");
    let path = compile_shared(directory.path(), "strings");
    for cpu in ["v1", "v2", "v3", "host"] {
        let [native, machine] = printed(&path, &["2003"], cpu);
        assert_eq!(native, machine, "{cpu}");
    }
    if !may_trace(test) {
        return;
    }
    let run = lockstep_with(&path, &["20011"], INSTRUCTIONS_MAX);
    agrees(&run, 0);
    if has_avx2() {
        assert!(run.vex > 1000, "{} of {}", run.vex, run.compared);
    }
}

/// Each group of instructions that this computer's processor has.
#[test]
fn groups_of_instructions_agree() {
    let test = "groups_of_instructions_agree";
    let directory = tempfile::tempdir().expect("a directory");
    // What links a library is executed by `strings`.
    let path = compile_with(directory.path(), "groups", &["-static"])
        .unwrap_or_else(|_| compile_shared(directory.path(), "groups"));
    let [native, machine] = printed(&path, &["64"], "host");
    for (native, machine) in native.lines().zip(machine.lines()) {
        assert_eq!(native, machine);
    }
    assert_eq!(native, machine);
    if !may_trace(test) {
        return;
    }
    // Each instruction once: all registers and stores are compared behind it, so that the program has
    // nothing to hash and to print.
    let run = lockstep_with(&path, &["0"], INSTRUCTIONS_MAX);
    agrees(&run, 0);
    if has_avx2() {
        assert!(run.vex > 3000, "{} of {}", run.vex, run.compared);
        assert!(run.exceptions > 5, "{}", run.exceptions);
    }
}

fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

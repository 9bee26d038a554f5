//! 1,000 threads, processes and executed programs at the same time, in little memory of the host,
//! with `emulate` and with `verify` and four unwinders. A small number runs always.

use crate::common::compiler::Scratch;
use crate::common::skip::skip;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = include_str!("thousand/tasks.c");
/// Memory that the tool may use at most for 1,000 of them, KiB.
const MEMORY_MAX: u64 = 4 << 20;

/// Runs the program in the machine with so much memory; `how` is the subcommand with its options.
fn run(how: &str, program: &Path, arguments: &[&str], memory: u64) {
    // `ulimit -v` limits the address space, in KiB.
    let output = Command::new("sh")
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\""])
        .arg(memory.to_string())
        .arg(env!("CARGO_BIN_EXE_unwind-sim"))
        .args(how.split(' '))
        .arg("--")
        .arg(program)
        .args(arguments)
        .output()
        .expect("sh runs");

    let [said, errors] = [output.stdout, output.stderr];
    let (said, errors) = (
        String::from_utf8_lossy(&said),
        String::from_utf8_lossy(&errors),
    );

    // `verify` keeps what the program writes to itself. It may have found something in the tables of
    // this computer's libraries.
    let is_verify = how.starts_with("verify");
    let wanted = if is_verify {
        "truth unknown at 0, self-check failures 0".to_owned()
    } else {
        format!("{} {}", arguments[0], arguments[1])
    };

    assert!(
        said.lines().any(|line| line.ends_with(&wanted)),
        "{how} {arguments:?}: {said}{errors}"
    );

    let status = output.status.code();
    assert!(
        status == Some(0) || is_verify && status == Some(1),
        "{how} {arguments:?}: {status:?} {errors}"
    );
}

/// Reads its input to the end, as `cat` does, which executes 100,000 instructions before.
const READER: &str = "#include <unistd.h>\nint main(void) { char byte; \
                      while (read(0, &byte, 1) > 0); return 0; }\n";

/// With `program`, the processes execute it; otherwise one that only reads.
fn all(count: &str, memory: u64, program: Option<&str>) -> Result<(), String> {
    let scratch = Scratch::new();
    let reader = match program {
        Some(path) => path.into(),
        None => scratch
            .cc("reader.c", READER, &["-O1", "-static"])
            .or_else(|_| scratch.cc("reader.c", READER, &["-O1"]))?,
    };
    let reader = reader.to_str().ok_or("a path that is not UTF-8")?;
    let program = scratch.cc("tasks.c", SOURCE, &["-O1", "-pthread"])?;
    for how in ["emulate", "verify -u dwarf,sframe,orc,fp"] {
        for kind in ["threads", "processes"] {
            run(how, &program, &[kind, count], memory);
        }
        run(how, &program, &["programs", count, reader], memory);
    }
    Ok(())
}

#[test]
fn a_few_tasks_at_the_same_time() {
    if let Err(why) = all("20", MEMORY_MAX / 4, None) {
        skip("a_few_tasks_at_the_same_time", why);
    }
}

#[test]
fn a_thousand_tasks_at_the_same_time() {
    let name = "a_thousand_tasks_at_the_same_time";
    if std::env::var_os("UNWIND_SIM_SLOW").is_none() {
        return skip(name, "slow; set UNWIND_SIM_SLOW=1");
    }
    if let Err(why) = all("1000", MEMORY_MAX, Some("/bin/cat")) {
        skip(name, why);
    }
}

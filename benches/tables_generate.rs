//! Compares `unwind-sim tables generate --to orc` with objtool: whole processes, in turn, on one
//! object with many functions, which the compiler makes here. The ratio is of the time for each byte
//! of text, which is the same text.
//!
//! `cargo bench --bench tables_generate`; with `--test` nothing is measured. objtool is taken from
//! `UNWIND_SIM_OBJTOOL` or `PATH`; Debian has it in `linux-kbuild-*`.
mod common;

use common::process::{BenchedProcess, Clock};
use common::report;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUNDS: usize = 9;
/// The time of objtool that we may take: twenty times as fast.
const GOAL: f64 = 0.05;
/// The number of functions of the object.
const FUNCTIONS: usize = 4_000;

/// A function of the object: saved registers, branches, a loop, calls.
fn source() -> String {
    let mut out = String::from("long outside(long, long);\n");
    for number in 0..FUNCTIONS {
        let _ = writeln!(
            out,
            "long f{number}(long a, long b, long *p) {{ long s = outside(a, {number});
             if (s < 0) return b; for (long i = 0; i < a; i++) {{ s += outside(p[i], b) * p[i];
             if (s == {number}) s ^= outside(s, i); }} return s + outside(s, a) + p[a]; }}"
        );
    }
    out
}

fn object(folder: &Path) -> Result<PathBuf, String> {
    let (input, output) = (folder.join("many.c"), folder.join("many.o"));
    std::fs::write(&input, source()).map_err(|error| error.to_string())?;
    let flags = [
        "-c",
        "-O2",
        "-mno-red-zone",
        "-mcmodel=kernel",
        "-fno-pic",
        "-fcf-protection=none",
        "-fno-asynchronous-unwind-tables",
        "-fno-stack-protector",
        "-o",
    ];
    let mut command = Command::new("cc");
    let status = command.args(flags).arg(&output).arg(&input).status();
    if status.map_err(|error| format!("cc: {error}"))?.success() {
        Ok(output)
    } else {
        Err("cc makes no object".to_owned())
    }
}

/// The size of the object's text, bytes.
fn text_len(path: &Path) -> Result<u64, String> {
    use object::{Object as _, ObjectSection as _};
    let data = std::fs::read(path).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*data).map_err(|error| error.to_string())?;
    let text = file
        .sections()
        .filter(|s| s.kind() == object::SectionKind::Text);
    Ok(text.map(|section| section.size()).sum())
}

fn measure(folder: &Path, test: bool) -> Result<(), String> {
    let object = object(folder)?;
    let bytes = text_len(&object)?;

    let tool = std::env::var_os("UNWIND_SIM_OBJTOOL").unwrap_or_else(|| "objtool".into());
    let mut theirs = Command::new(tool);
    // Without this, the second run would find a table.
    theirs.args(["--orc", "--dry-run"]).arg(&object);
    let mut ours = Command::new(env!("CARGO_BIN_EXE_unwind-sim"));
    ours.args(["tables", "generate", "--to", "orc:5.12"])
        .arg(&object);
    ours.arg("-o").arg(folder.join("out.o"));

    let mut ours = BenchedProcess::new("ours", ours);
    ours.run()?;
    let mut theirs = BenchedProcess::new("objtool", theirs);
    // The first run also says whether objtool is installed.
    let is_there = theirs.run();
    println!("{FUNCTIONS} functions, {bytes} bytes of text");

    if test {
        return Ok(());
    }
    if let Err(reason) = &is_there {
        println!("only ours is measured: {reason} (package linux-kbuild-*, or UNWIND_SIM_OBJTOOL)");
    }

    for _ in 0..ROUNDS {
        ours.run()?;

        // In turn, so that a change of the machine's speed meets both.
        if is_there.is_ok() {
            theirs.run()?;
        }
    }

    for (clock, name) in [(Clock::Cpu, "CPU"), (Clock::Wall, "wall")] {
        // Without objtool, ours stands alone.
        let mut figures = vec![ours.figure(clock, bytes as f64)];
        if is_there.is_ok() {
            figures.push(theirs.figure(clock, bytes as f64));
        }
        report::print(name, "byte of text", &figures, figures.last());
        if let [ours, theirs] = &figures[..] {
            let work = format!("tables generate, {name}");
            report::head();
            report::row(&work, "byte", ours, theirs, Some(GOAL));
        }
    }

    report::note_load();
    Ok(())
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let done = tempfile::tempdir()
        .map_err(|error| error.to_string())
        .and_then(|folder| measure(folder.path(), test));
    if let Err(reason) = done {
        println!("skipped: {reason}");
    }
    report::finish();
}

//! `cargo test-all`: runs every test of the workspace, also behind one that fails, and ends with one
//! line that says how many passed, failed and were skipped, and why.
//!
//! `cargo test-all ARGS` passes its arguments on to `cargo test`, such as `--release` or
//! `-p PACKAGE`; without a package it is the whole workspace. `cargo test-all --skips FILE` only sums
//! up the skips that tests wrote into FILE, and `cargo test-all --list` builds the test programs and
//! prints for each its package's folder, a tab and its path.
//! With `UNWIND_SIM_ALL_TOOLS=1`, as in `.ci/run`, a skip fails whose class says that its tools are
//! there. Not here: deciding that a test cannot run (`tests/common/skip.rs`).

mod counts;
mod skips;

use counts::Counts;
use skips::{Classes, Skip};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The file that tests append their skips to.
const SKIPS: &str = "UNWIND_SIM_SKIPS";

/// Set where every tool that the tests use was installed.
const ALL_TOOLS: &str = "UNWIND_SIM_ALL_TOOLS";

/// The repository's top folder.
fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("--skips") if args.len() == 2 => sum_up(&args.remove(1)),
        Some("--skips") => Err("--skips takes one file".into()),
        Some("--list") => list(&args[1..]),
        _ => run(&args),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn classes() -> Result<Classes, String> {
    let path = top().join("tests/skips.txt");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Classes::parse(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Sums up the skips of tests that somebody else ran; whether all may be.
fn sum_up(file: &str) -> Result<bool, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let classes = classes()?;
    let skips = skips::read(&text);
    println!("skipped: {}", classes.sum_up(&skips));
    Ok(report_unexpected(&classes, &skips))
}

/// Lists the skips that should not be; whether there is none.
fn report_unexpected(classes: &Classes, skips: &[Skip]) -> bool {
    let all_tools = std::env::var_os(ALL_TOOLS).is_some();
    let unexpected = classes.unexpected(skips, all_tools);
    for skip in &unexpected {
        println!(
            "skipped, but not for a reason in tests/skips.txt: {}: {}",
            skip.name, skip.reason
        );
    }
    unexpected.is_empty()
}

/// Builds and runs all tests; whether none failed.
fn run(args: &[String]) -> Result<bool, String> {
    let classes = classes()?;

    // A file of the caller's is kept, since its other steps read it, too.
    let own = std::env::temp_dir().join(format!("unwind-sim-skips-{}", std::process::id()));
    let (file, is_own) = match std::env::var_os(SKIPS) {
        Some(file) => (PathBuf::from(file), false),
        None => (own, true),
    };
    let before = std::fs::read_to_string(&file).map_or(0, |text| text.len());

    let mut counts = Counts::default();
    let outcome = run_all(args, &file, &mut counts);

    // The first skip makes the file.
    let text = std::fs::read_to_string(&file).unwrap_or_default();
    if is_own {
        // It may not exist: a test that is skipped makes it.
        let _ = std::fs::remove_file(&file);
    }
    outcome?;

    let skips = skips::read(text.get(before..).unwrap_or_default());
    for failed in &counts.failed_tests {
        println!("failed: {failed}");
    }
    let is_expected = report_unexpected(&classes, &skips);
    println!("{}", counts.last_line(&classes, &skips));
    Ok(counts.is_good() && is_expected)
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn chooses(args: &[String], options: &[&str]) -> bool {
    args.iter().any(|arg| options.contains(&arg.as_str()))
}

/// The argument for all packages, if `args` choose none.
fn everything(args: &[String]) -> &'static [&'static str] {
    if chooses(args, &["-p", "--package"]) {
        &[]
    } else {
        &["--workspace"]
    }
}

/// Prints the test programs.
fn list(args: &[String]) -> Result<bool, String> {
    for (folder, program) in programs(args)? {
        println!("{folder}\t{program}");
    }
    Ok(true)
}

/// Builds the test programs; the folders of their packages, and the programs.
fn programs(args: &[String]) -> Result<Vec<(String, String)>, String> {
    let mut build = Command::new(cargo());
    build
        .args([
            "test",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ])
        .args(everything(args))
        .args(args)
        .current_dir(top())
        .stdout(Stdio::piped());
    let mut build = build.spawn().map_err(|e| format!("cargo: {e}"))?;
    let mut programs = Vec::new();

    // Cargo says in JSON which programs it built.
    for line in BufReader::new(build.stdout.take().expect("it is piped")).lines() {
        let line = line.map_err(|e| format!("cargo: {e}"))?;
        programs.extend(counts::program(&line));
    }
    let built = build.wait().map_err(|e| format!("cargo: {e}"))?;

    // After the output, since a pipe that nobody reads would stop cargo.
    if !built.success() {
        return Err("the tests do not build".into());
    }
    if programs.is_empty() {
        return Err("cargo built no test program".into());
    }

    Ok(programs)
}

/// Runs the test programs one after the other, then the examples in documentation.
fn run_all(args: &[String], skips: &Path, counts: &mut Counts) -> Result<(), String> {
    for (folder, program) in programs(args)? {
        println!("     Running {program}");
        let mut command = Command::new(&program);
        // As Cargo runs it.
        command
            .current_dir(&folder)
            .env("CARGO_MANIFEST_DIR", &folder)
            .env("CARGO", cargo());
        counts.run(&program, &mut command, skips)?;
    }

    // Cargo refuses --doc beside a choice of test programs.
    if chooses(
        args,
        &["--lib", "--bins", "--tests", "--test", "--examples"],
    ) {
        return Ok(());
    }
    println!("     Running examples in documentation");
    let mut examples = Command::new(cargo());
    examples
        .args(["test", "--doc", "--no-fail-fast"])
        .args(everything(args))
        .args(args)
        .current_dir(top());
    counts.run("examples in documentation", &mut examples, skips)
}

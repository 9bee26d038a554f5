//! Recordings of a program with secrets, by every engine that this machine allows.

use super::{Secrets, compared, found, has_text};
use crate::common::compiler::Scratch;
use crate::common::no_ptrace;
use crate::common::skip::skip;
use crate::common::tools::is_missing;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program with secrets.
struct Program {
    secrets: Secrets,
    scratch: Scratch,
    path: PathBuf,
}

impl Program {
    /// The program, whose secrets are those of a seed; `None`, and a skip, without a compiler.
    fn new(name: &str, seed: u64) -> Option<Program> {
        let scratch = Scratch::new();
        let source = include_str!("secrets.c");
        let path = match scratch.cc("secrets.c", source, &["-O1", "-g0"]) {
            Ok(path) => path,
            Err(_) => {
                skip(name, "no C compiler");
                return None;
            }
        };
        let secrets = Secrets::new(seed);
        std::fs::write(scratch.path("file"), secrets.file()).expect("the folder is writable");
        Some(Program {
            secrets,
            scratch,
            path,
        })
    }

    fn file(&self, name: &str) -> String {
        self.scratch.path(name).to_string_lossy().into_owned()
    }

    /// A command with the secrets in its environment.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
        command.envs(self.secrets.variables());
        command.env("SECRETS", self.scratch.path("file"));
        command
    }

    /// The tool, with the secrets in its environment.
    fn tool(&self, args: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_unwind-sim"));
        command.args(args).output().expect("the tool runs")
    }

    /// The program and its arguments.
    fn words(&self, rounds: &str) -> Vec<String> {
        let mut words = vec![self.path.to_string_lossy().into_owned(), rounds.to_owned()];
        words.extend(self.secrets.arguments().iter().cloned());
        words
    }

    /// Records with the given options.
    fn record(&self, options: &[&str]) -> String {
        let file = self.file("recorded.bin");
        let mut args = vec!["record", "--keep-env", "-o", &file];
        args.extend(options);
        args.push("--");
        let words = self.words("1");
        args.extend(words.iter().map(String::as_str));
        let output = self.tool(&args);
        assert!(output.status.success(), "{output:?}");
        file
    }

    /// Scrubs a recording. Nothing of any secret is left, and every unwinder gives what it gave.
    fn scrubbed(&self, file: &str, options: &[&str]) -> String {
        let out = self.file("scrubbed.bin");
        let args = [&["scrub", file, "-o", &out], options].concat();
        let output = self.tool(&args);
        assert!(output.status.success(), "{output:?}");
        let left = found(&self.secrets, Path::new(&out));
        assert!(left.is_empty(), "{} secrets left: {left:?}", left.len());
        if options.is_empty() {
            let tool = |args: &[&str]| self.tool(args);
            assert_eq!(compared(tool, file), compared(tool, &out));
        }
        if options.contains(&"--names") {
            // The folder's name is drawn at random, and the program and its file lie in it.
            let folder = self.path.parent().and_then(Path::file_name);
            let folder = folder.expect("a folder").to_string_lossy();
            assert!(has_text(&folder, Path::new(file)));
            assert!(!has_text(&folder, Path::new(&out)), "{folder} is left");
        }
        out
    }
}

/// The arguments, variables and lines of which the recording must have some.
fn assert_planted(program: &Program, file: &str, least: [usize; 3]) {
    let found = found(&program.secrets, Path::new(file));
    let places = program.secrets.by_place(&found);
    let enough = places
        .iter()
        .zip(least)
        .all(|(found, least)| *found >= least);
    assert!(enough, "found {places:?}, expected {least:?}");
}

const EMULATOR: [&str; 8] = [
    "--engine",
    "emulator",
    "--from",
    "with_registers",
    "--at",
    "every:61",
    "--max-samples",
    "30",
];

#[test]
fn no_secret_is_left_of_what_the_machine_records() {
    let Some(program) = Program::new("no_secret_is_left_of_what_the_machine_records", 1) else {
        return;
    };
    let file = program.record(&EMULATOR);
    assert_planted(&program, &file, [200, 200, 150]);
    program.scrubbed(&file, &[]);
    program.scrubbed(&file, &["--names"]);
    let once = program.file("once.bin");
    std::fs::rename(program.file("scrubbed.bin"), &once).expect("it is there");
    let again = program.scrubbed(&once, &[]);
    let out = program.file("sample.bin");
    let args = ["extract", &file, "--scrub", "-o", &out];
    assert!(program.tool(&args).status.success());
    assert!(found(&program.secrets, Path::new(&out)).is_empty());
    assert!(Path::new(&again).is_file());
}

#[test]
fn no_secret_is_left_of_what_ptrace_records() {
    let name = "no_secret_is_left_of_what_ptrace_records";
    let Some(program) = Program::new(name, 2) else {
        return;
    };
    if let Some(reason) = no_ptrace() {
        return skip(name, reason);
    }
    let file = program.record(&["--at", "tick", "--max-samples", "60"]);
    assert_planted(&program, &file, [200, 200, 150]);
    program.scrubbed(&file, &[]);
}

#[test]
fn no_secret_is_left_of_what_perf_records() {
    let name = "no_secret_is_left_of_what_perf_records";
    let Some(program) = Program::new(name, 3) else {
        return;
    };
    if is_missing(name, "perf") {
        return;
    }

    let is_slow = std::env::var_os("UNWIND_SIM_SLOW").is_some();

    // With stack copies, compressed, and with chains only, which hold no memory.
    for (number, options) in [
        &["--call-graph", "dwarf,32768"][..],
        &["--call-graph", "dwarf,32768", "-z"],
        &["--call-graph", "fp"],
    ]
    .iter()
    .enumerate()
    {
        let file = program.file(&format!("perf-{number}.data"));
        let recorded = program
            .command("perf")
            .args([
                "record",
                "-q",
                "-e",
                "cpu-clock:u",
                "-F",
                "2000",
                "-o",
                &file,
            ])
            .args(*options)
            .arg("--")
            .args(program.words("500"))
            .output();

        let is_there = recorded.is_ok_and(|o| o.status.success()) && Path::new(&file).is_file();
        // perf may be there and yet not be allowed to sample, or have sampled nothing.
        let report = program.tool(&["replay", &file, "--limit", "1"]);
        if !is_there || number < 2 && report.stdout.is_empty() {
            return skip(name, "perf record does not work here");
        }

        // Secrets must be in the recording first, or it would prove nothing that they are gone.
        if number < 2 {
            assert_planted(&program, &file, [200, 0, 100]);
        }

        program.scrubbed(&file, &[]);
        // Names are the same in all three.
        if number == 1 || is_slow {
            program.scrubbed(&file, &["--names"]);
        }
    }
}

#[test]
fn no_secret_is_left_of_a_core() {
    let name = "no_secret_is_left_of_a_core";
    let Some(program) = Program::new(name, 4) else {
        return;
    };
    if is_missing(name, "gdb") {
        return;
    }
    if let Some(reason) = no_ptrace() {
        return skip(name, reason);
    }

    let file = program.file("core");
    let core = program
        .command("gdb")
        .args(["-q", "-nx", "-batch"])
        .args([
            "-ex",
            "set startup-with-shell off",
            "-ex",
            "break tick",
            "-ex",
            "run",
        ])
        .args(["-ex", &format!("generate-core-file {file}"), "-ex", "kill"])
        .arg("--args")
        .args(program.words("1"))
        .output();

    // gdb and ptrace are there, so a core that is missing is a failure, not a skip.
    if !Path::new(&file).is_file() {
        panic!("gdb wrote no core: {core:?}");
    }

    let bytes = std::fs::read(&file).expect("the core");
    // The core must hold the secrets at first, or that they are gone would say nothing.
    let planted: Vec<usize> = program.secrets.found(&bytes).into_iter().collect();
    assert_eq!(program.secrets.by_place(&planted), [200, 200, 600]);
    program.scrubbed(&file, &[]);
}

/// Recordings of every kind: with missing files, without registers, cut, compressed, to a pipe, with
/// deferred chains, of a kernel.
#[test]
fn every_kind_of_recording_in_the_corpus_can_be_scrubbed() {
    let scratch = Scratch::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));

    let mut files = Vec::new();
    for folder in ["corpus/perfdata", "corpus/traces"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let is_recording = path.extension().is_some_and(|e| e == "data" || e == "bin");
            // These two take longer than all others together, for what others have, too.
            let is_long = path.ends_with("throws.bin") || path.ends_with("kernel-frames.data");
            if is_recording && !is_long {
                files.push(path);
            }
        }
    }

    // One of a kernel, and a core.
    files.push(root.join("corpus/kernel/6.1-unwinds.bin"));
    let core = std::fs::read(root.join("corpus/cores/threads.core.zst")).expect("a core");
    std::fs::write(
        scratch.path("core"),
        zstd::decode_all(&core[..]).expect("zstd"),
    )
    .expect("it");
    files.push(scratch.path("core"));

    assert!(files.len() > 25, "{}", files.len());

    let out = scratch.path("out").to_string_lossy().into_owned();
    for file in &files {
        let file = file.to_string_lossy();
        let all = [&[][..], &["--names"]];
        // `--names` does what is done without it, too, and here that takes longest.
        let is_core = file.ends_with("/core");
        for options in if is_core { &all[1..] } else { &all[..] } {
            let output = Command::new(env!("CARGO_BIN_EXE_unwind-sim"))
                .args(["scrub", &file, "-o", &out])
                .args(*options)
                .output()
                .expect("the tool runs");
            // 3: none of its samples can be used.
            let is_done = matches!(output.status.code(), Some(0 | 3));
            assert!(is_done, "{file} {options:?}: {output:?}");
            std::fs::remove_file(&out).expect("the output");
            if file.contains("perfdata") {
                break;
            }
        }
    }
}

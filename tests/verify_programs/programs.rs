//! Compiles and verifies the programs in `programs/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use unwind_sim_emulator::linux::{End, RunningProgram};
use unwind_sim_emulator::linux::{Outcome, ProcessOptions};
use unwind_sim_judge::engine::{Engine, Setting};
use unwind_sim_judge::verify::{self, Check, Request, Run, groups};
use unwind_sim_judge::{check::Class, spec};
use unwind_sim_view::verification;

/// More than any of the programs executes.
const INSTRUCTIONS_MAX: u64 = 20_000_000;
/// The unwinders of a run.
pub(crate) const NAMES: [&str; 4] = ["dwarf", "sframe", "orc", "fp"];

pub(crate) struct Programs(TempDir);

impl Programs {
    pub(crate) fn new() -> Programs {
        Programs(TempDir::new().expect("a temporary directory"))
    }

    /// Compiles a source; the error is what the compiler said.
    pub(crate) fn compile(&self, source: &str, options: &[&str]) -> Result<PathBuf, String> {
        let output = self.0.path().join(source.replace('.', "-"));
        let folder = Path::new("tests/verify_programs/programs");
        let (compiler, last) = match source.rsplit('.').next() {
            Some("cpp") => ("c++", "-lboost_context"),
            _ => ("cc", "-lpthread"),
        };
        let mut command = Command::new(compiler);
        command.args(["-O2", "-g", "-w", "-o"]);
        command.arg(&output).arg(folder.join(source));
        let done = command.args(options).arg(last).output();
        let done = done.map_err(|error| error.to_string())?;
        if done.status.success() {
            Ok(output)
        } else {
            Err(String::from_utf8_lossy(&done.stderr).into_owned())
        }
    }
}

fn engines() -> Vec<Engine> {
    let engine = |name: &&str| spec::engine(name).expect("an unwinder");
    NAMES.iter().map(engine).collect()
}

/// Runs a program under `verify`, until it exits with status 0. Checks that the truth is known at
/// all instructions, that returns confirm it, and that our own checks agree.
pub(crate) fn verify(program: &Path, args: &[&str], elide: bool) -> Run {
    let path = program.as_os_str().as_encoded_bytes().to_vec();
    let args = args.iter().map(|arg| arg.as_bytes().to_vec());
    let running = RunningProgram {
        path: path.clone(),
        options: ProcessOptions {
            args: std::iter::once(path).chain(args).collect(),
            ..ProcessOptions::default()
        },
    };

    // With each finding by itself, so that the test can say which ones it expects.
    let engines = engines();
    let request = Request {
        engines: &engines,
        setting: Setting::default(),
        elide,
        each: true,
        tables_from: None,
        instructions_max: INSTRUCTIONS_MAX,
        timeout: None,
    };

    let run = verify::run(running, &request, &mut |_| {}).expect("it starts");
    let name = program.display();
    assert_eq!(run.end, End::Outcome(Outcome::Exited(0)), "{name}");

    // The truth was known at every instruction, and no return contradicted it.
    let truth = &run.results.truth;
    assert_eq!((truth.unknown, truth.failures()), (0, 0), "{name}");
    assert_eq!(run.results.disagreements, [], "{name}");
    run
}

/// The functions of an image whose rows are wrong for `unwinder`, by instruction or call.
pub(crate) fn wrong_in(run: &Run, unwinder: &str, image: &str) -> Vec<String> {
    let which = NAMES.iter().position(|name| *name == unwinder);
    let findings = run.results.findings.iter();
    let mine = findings.filter(|f| Some(f.unwinder) == which);
    // The row at a return address is not the caller's if the call does not return.
    let mine = mine.filter(|f| matches!(f.check, Check::Instruction | Check::InsideCall));
    let wrong = mine.filter(|f| f.contradiction.class() == Class::Wrong);
    let places = wrong.map(|f| groups::location(f, &run.results.places));
    let inside = places.filter(|place| place.image.as_deref().is_some_and(|i| i.contains(image)));
    let mut names: Vec<String> = inside.filter_map(|place| place.function).collect();
    names.sort();
    names.dedup();
    names
}

pub(crate) fn text(run: &Run) -> String {
    verification::text(&verification::Subject {
        names: &NAMES.map(str::to_owned),
        results: &run.results,
        coverage: &[],
        again: &|_, address| format!("--only {address:#x}"),
        all: true,
    })
}

//! `perf run`: runs a scenario, or the schedule of a seed.

use std::path::{Path, PathBuf};
use unwind_sim_recordings::printable::PrintableName as _;

use unwind_sim_perf_lbr::Storage;
use unwind_sim_perf_model::{
    SCENARIO_BYTES_MAX, Scenario, ScenarioError, Schedule, World, bless, output,
};
use unwind_sim_recordings::output_file;

use super::sources::{self, StackError};
use unwind_sim_recordings::input_file::InputFile;

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioFileError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.printable())]
    Io {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// It is not a valid scenario, or asks for something impossible.
    #[error("{}: {source}", path.printable())]
    Scenario {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: ScenarioError,
    },
    /// A stack cannot be obtained from its source.
    #[error("{}: line {line}: {source}", path.printable())]
    Stack {
        /// The scenario's file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The reason.
        source: Box<StackError>,
    },
}

/// The output of a scenario, and the output that its file expects.
pub struct Outcome {
    /// The output.
    pub output: String,
    /// The `=` lines of its file.
    pub expected: String,
    /// The finished run.
    pub world: World,
}

/// Runs a scenario file.
///
/// # Errors
/// If the file cannot be read, or is not a valid scenario.
pub fn run(
    file: &InputFile,
    cpus: Option<u16>,
    lbr_storage: Option<Storage>,
) -> Result<Outcome, ScenarioFileError> {
    let (_, scenario) = read(file, cpus, lbr_storage)?;
    run_read(file.path(), &scenario)
}

/// Runs a scenario file and writes its output into it.
///
/// # Errors
/// As [`run`]; and if the file cannot be written, as one that came through a pipe, or with its output
/// would be too long to be read again.
pub fn run_and_bless(file: &InputFile) -> Result<Outcome, ScenarioFileError> {
    let path = file.path();
    if file.is_piped() {
        let what = "a pipe cannot be blessed; name the scenario's file";
        return Err(io(path)(std::io::Error::other(what)));
    }
    let (text, scenario) = read(file, None, None)?;
    let outcome = run_read(path, &scenario)?;
    let blessed = bless(&text, &outcome.output);
    // Else it could not be read any more.
    if blessed.len() > SCENARIO_BYTES_MAX {
        let what = format!(
            "with its output it would have {} bytes, and a scenario has at most {SCENARIO_BYTES_MAX}; it is \
             unchanged: make it shorter",
            blessed.len()
        );
        return Err(io(path)(std::io::Error::other(what)));
    }
    output_file::rewrite(path, blessed.as_bytes()).map_err(io(path))?;
    Ok(outcome)
}

/// Runs the schedule of a seed; returns it as a scenario with its output, and the finished run.
///
/// # Errors
/// If it asks for something impossible, which would be a defect of the generator.
pub fn run_seed(seed: u64, actions: usize) -> Result<(String, World), ScenarioError> {
    let text = Schedule::random(seed, actions, None).text();
    let world = Scenario::parse(&text)?.run()?;
    Ok((bless(&text, &output(&world)), world))
}

/// Runs a scenario file with actions that a seed inserts between its steps ([`Schedule::varied`]);
/// returns the result as a scenario with its output, and the finished run.
///
/// # Errors
/// As [`run`].
pub fn run_varied(file: &InputFile, seed: u64) -> Result<(String, World), ScenarioFileError> {
    let path = file.path();
    let (_, mut scenario) = read(file, None, None)?;
    // Run the original first, so that errors name the file's lines.
    scenario.run().map_err(wrong(path))?;
    scenario.schedule = scenario.schedule.varied(seed);
    let world = scenario.run().map_err(wrong(path))?;
    let text = scenario.schedule.text();
    Ok((bless(&text, &output(&world)), world))
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> ScenarioFileError {
    move |source| ScenarioFileError::Io {
        path: path.into(),
        source,
    }
}

fn read(
    file: &InputFile,
    cpus: Option<u16>,
    lbr_storage: Option<Storage>,
) -> Result<(String, Scenario), ScenarioFileError> {
    let path = file.path();
    // One byte more than allowed: the reader of scenarios says that it is too long.
    let text = file.text(SCENARIO_BYTES_MAX as u64 + 1).map_err(io(path))?;

    let mut scenario = Scenario::parse(&text).map_err(wrong(path))?;
    // The command line counts more than the file.
    let setup = &mut scenario.schedule.setup;
    setup.cpus = cpus.unwrap_or(setup.cpus);
    setup.lbr_storage = lbr_storage.unwrap_or(setup.lbr_storage);

    // Paths in a scenario are relative to it, so that it can be run from anywhere.
    let folder = path.parent().unwrap_or(Path::new(""));
    let stacks = sources::supply(&mut scenario, folder);
    let all = stacks.and_then(|()| sources::supply_objects(&mut scenario, folder));

    // What the model refuses is an error of the scenario, with its own line; the others get the
    // line of the request.
    all.map_err(|(line, source)| match source {
        StackError::Scenario(source) => wrong(path)(source),
        source => ScenarioFileError::Stack {
            path: path.into(),
            line,
            source: Box::new(source),
        },
    })?;
    Ok((text, scenario))
}

fn wrong(path: &Path) -> impl Fn(ScenarioError) -> ScenarioFileError {
    move |source| ScenarioFileError::Scenario {
        path: path.into(),
        source,
    }
}

fn run_read(path: &Path, scenario: &Scenario) -> Result<Outcome, ScenarioFileError> {
    let world = scenario.run().map_err(wrong(path))?;
    Ok(Outcome {
        output: output(&world),
        expected: scenario.expected.clone(),
        world,
    })
}

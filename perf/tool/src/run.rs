//! `perf run`: a scenario, or the schedule of a seed, and what comes out of it.

use std::path::{Path, PathBuf};

use unwind_sim_perf_model::lbr::Storage;
use unwind_sim_perf_model::{
    SCENARIO_BYTES_MAX, Scenario, ScenarioError, Schedule, World, bless, output,
};
use unwind_sim_recordings::output_file;

use super::sources::{self, StackError};

/// Why a scenario cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioFileError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no scenario, or it asks for what cannot be.
    #[error("{}: {source}", path.display())]
    Scenario {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ScenarioError,
    },
    /// A stack cannot be had from where it says.
    #[error("{}: line {line}: {source}", path.display())]
    Stack {
        /// Which scenario.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// Why.
        source: Box<StackError>,
    },
}

/// What a scenario printed, and what its file says.
pub struct Outcome {
    /// What it printed.
    pub output: String,
    /// The `=` lines of its file.
    pub expected: String,
    /// The finished run.
    pub world: World,
}

/// Runs a scenario's file.
///
/// # Errors
/// If it cannot be read, or is no scenario.
pub fn run(
    path: &Path,
    cpus: Option<u16>,
    lbr_storage: Option<Storage>,
) -> Result<Outcome, ScenarioFileError> {
    let (_, scenario) = read(path, cpus, lbr_storage)?;
    run_read(path, &scenario)
}

/// Runs a scenario's file and writes what it prints into it.
///
/// # Errors
/// As [`run`]; and if the file cannot be written.
pub fn run_and_bless(path: &Path) -> Result<Outcome, ScenarioFileError> {
    let (text, scenario) = read(path, None, None)?;
    let outcome = run_read(path, &scenario)?;
    output_file::write(path, bless(&text, &outcome.output).as_bytes()).map_err(io(path))?;
    Ok(outcome)
}

/// Runs the schedule of a seed: the scenario that it is, with what it prints; and the finished
/// run.
///
/// # Errors
/// If it asks for what cannot be, which would be a defect of ours.
pub fn run_seed(seed: u64, actions: usize) -> Result<(String, World), ScenarioError> {
    let text = Schedule::random(seed, actions, None).text();
    let world = Scenario::parse(&text)?.run()?;
    Ok((bless(&text, &output(&world)), world))
}

/// Runs a scenario's file with what a seed puts between its steps ([`Schedule::varied`]): the
/// scenario that this is, with what it prints; and the finished run.
///
/// # Errors
/// As [`run`].
pub fn run_varied(path: &Path, seed: u64) -> Result<(String, World), ScenarioFileError> {
    let (_, mut scenario) = read(path, None, None)?;
    // What is refused is told by the line of the file.
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
    path: &Path,
    cpus: Option<u16>,
    lbr_storage: Option<Storage>,
) -> Result<(String, Scenario), ScenarioFileError> {
    use std::io::Read;
    let file = std::fs::File::open(path).map_err(io(path))?;
    let mut text = String::new();
    // One byte more than a scenario may have, so that a longer one is known for it.
    let mut file = file.take(SCENARIO_BYTES_MAX as u64 + 1);
    file.read_to_string(&mut text).map_err(io(path))?;
    let mut scenario = Scenario::parse(&text).map_err(wrong(path))?;
    let setup = &mut scenario.schedule.setup;
    setup.cpus = cpus.unwrap_or(setup.cpus);
    setup.lbr_storage = lbr_storage.unwrap_or(setup.lbr_storage);
    let folder = path.parent().unwrap_or(Path::new(""));
    let stacks = sources::supply(&mut scenario, folder);
    let all = stacks.and_then(|()| sources::supply_objects(&mut scenario, folder));
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

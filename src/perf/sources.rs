//! Stacks for scenarios, from a trace's samples or from programs in the emulated machine.

use std::io::Read;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::printable::PrintableName as _;

use unwind_sim_perf_model::{
    OBJECT_BYTES_MAX, PROGRAM_INSTRUCTIONS_MAX, Pointers, Scenario, ScenarioError, StackFrom,
    UserMemory, UserStack,
};
use unwind_sim_recordings::model::{RegionRole, Sample};
use unwind_sim_recordings::trace::{Meta, Trace, TraceError, TraceWriter, WriteError};
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::start::Variant;

use unwind_sim_emulator::linux::RunningProgram;
use unwind_sim_judge::engine::Setting;
use unwind_sim_judge::input::{FileKind, Input};
use unwind_sim_judge::run::RunError;
use unwind_sim_judge::spec::{self, SpecError};
use unwind_sim_record::emulator::{self, EmulatorOptions, Lbr, RecordError};
use unwind_sim_record::{At, Plan, TraceRecorder};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::open::{self, NotAFile};
use unwind_sim_recordings::view::Filter;

/// Number of bytes of a program's stack to copy, for handlers that read it.
const STACK_BYTES: u64 = 4096;

/// Why a stack is not available.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The file cannot be read.
    #[error("{}: {source}", path.printable())]
    Io {
        /// The file, as written.
        path: String,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The trace cannot be read.
    #[error("{}: {source}", path.printable())]
    Trace {
        /// The file, as written.
        path: String,
        /// The reason.
        source: Box<RunError>,
    },
    /// The file is not a trace.
    #[error("{}: not a trace", path.printable())]
    NotATrace {
        /// The file, as written.
        path: String,
    },
    /// The trace has no true chain for the sample.
    #[error("{}: sample {number} has no true chain; name an unwinder with `by`", path.printable())]
    NoTruth {
        /// The file, as written.
        path: String,
        /// The sample's number.
        number: u64,
    },
    /// There is no such unwinder, or scenarios cannot use it.
    #[error(transparent)]
    Unwinder(#[from] SpecError),
    /// The unwinder is a command.
    #[error("a scenario does not run commands")]
    Command,
    /// The program cannot be started, or its stacks cannot be recorded.
    #[error("{}: {source}", path.printable())]
    Program {
        /// The file, as written.
        path: String,
        /// The reason.
        source: RecordError,
    },
    /// The program ended too early.
    #[error("{}: ended after {instructions} instructions: {end}", path.printable())]
    Ended {
        /// The file, as written.
        path: String,
        /// Number of instructions it executed.
        instructions: u64,
        /// How it ended.
        end: String,
    },
    /// The model does not accept the stacks.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// Reads all stacks of a scenario that come from files; paths are relative to `folder`.
///
/// # Errors
/// The line, and why it has no stack.
pub(super) fn supply(scenario: &mut Scenario, folder: &Path) -> Result<(), (usize, StackError)> {
    for index in 0..scenario.requests().len() {
        let request = scenario.requests()[index].clone();
        let path = folder.join(&request.path);
        let stacks = match &request.from {
            StackFrom::Sample { number, unwinder } => {
                sample(&request.path, &path, *number, unwinder.as_deref()).map(|stack| vec![stack])
            }
            StackFrom::Program { every, times } => program(&request.path, &path, *every, *times),
        };
        let supplied = stacks.and_then(|stacks| Ok(scenario.supply(index, stacks)?));
        supplied.map_err(|error| (request.line, error))?;
    }
    Ok(())
}

/// Reads all object files of a scenario; paths are relative to `folder`.
///
/// # Errors
/// The line, and why it has no program.
pub(super) fn supply_objects(
    scenario: &mut Scenario,
    folder: &Path,
) -> Result<(), (usize, StackError)> {
    for index in 0..scenario.objects().len() {
        let request = scenario.objects()[index].clone();
        let bytes = object(&folder.join(&request.path)).map_err(|source| StackError::Io {
            path: request.path.clone(),
            source,
        });
        let supplied = bytes.and_then(|bytes| Ok(scenario.supply_object(index, &bytes)?));
        supplied.map_err(|error| (request.line, error))?;
    }
    Ok(())
}

/// Reads an object file, up to one byte more than allowed, to detect files that are too long.
fn object(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (file, _) = open::file(path)?;
    file.take(OBJECT_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The chain of a trace's sample.
fn sample(
    name: &str,
    path: &Path,
    number: u64,
    unwinder: Option<&str>,
) -> Result<UserStack, StackError> {
    let trace = |source: RunError| StackError::Trace {
        path: name.to_owned(),
        source: Box::new(source),
    };

    // A scenario may be of somebody else, and must not run a program of its choice.
    if unwinder.is_some_and(|unwinder| unwinder.contains("cmd:")) {
        return Err(StackError::Command);
    }
    // Before the file is opened: a wrong name is the scenario's error, whatever the file is.
    let engine = unwinder.map(spec::engine).transpose()?;

    // The scenario names this file, not the user, so special files are not opened for it.
    let file = match InputFile::named_by_input(path) {
        Ok(file) => Some(file),
        Err(error) if NotAFile::of(&error).is_some() => None,
        Err(source) => {
            let path = name.to_owned();
            return Err(StackError::Io { path, source });
        }
    };
    let Some(file) = file.filter(|file| file.kind() == FileKind::Trace) else {
        return Err(StackError::NotATrace {
            path: name.to_owned(),
        });
    };

    let opened = Trace::read(&file).map_err(|error: TraceError| trace(error_of(error)))?;
    let input = Input::from_trace(opened);
    let filter = Filter {
        sample: Some(number),
        ..Filter::default()
    };

    let mut stack = UserStack::default();
    let taken = input.for_each(&filter, &mut |view| {
        stack = stack_of(view.sample);
        if let Some(engine) = &engine {
            let setting = Setting::default();
            // perf samples user registers as the interrupt found them.
            let outcome = engine.examine(view, Variant::Hardware, &setting, &mut Cache::new());
            let frames = outcome.chain.frames.iter();
            stack.frames = frames.map(|frame| frame.pc.value()).collect();
        }
        Ok(())
    });

    taken.map_err(trace)?;
    // Without an unwinder, the frames are those of the recorded truth.
    if stack.frames.is_empty() && engine.is_none() {
        return Err(StackError::NoTruth {
            path: name.to_owned(),
            number,
        });
    }

    Ok(stack)
}

/// The true stack of a sample, with the copy of it.
fn stack_of(sample: &Sample<'_>) -> UserStack {
    let register = |reg| sample.regs.sampled.get(reg);
    let copy = sample
        .regions
        .iter()
        .find(|region| region.role == RegionRole::Stack);
    let memory = copy.map(|copy| UserMemory {
        pointers: Pointers {
            sp: register(Reg::Rsp).unwrap_or(0),
            bp: register(Reg::Rbp).unwrap_or(0),
        },
        address: copy.address,
        bytes: copy.bytes.to_vec(),
    });
    UserStack {
        frames: sample.truth.frames().iter().map(|frame| frame.pc).collect(),
        memory,
    }
}

fn error_of(error: TraceError) -> RunError {
    RunError::Input(error.into())
}

/// The true stacks of a program, every `every` instructions.
fn program(name: &str, path: &Path, every: u64, times: u64) -> Result<Vec<UserStack>, StackError> {
    let failed = |source: RecordError| StackError::Program {
        path: name.to_owned(),
        source,
    };

    // The machine has a working folder of its own, so a relative path would lead elsewhere.
    let path: PathBuf = path.canonicalize().map_err(|source| StackError::Io {
        path: name.to_owned(),
        source,
    })?;

    let program = RunningProgram::alone(&path);
    let root = program.options.root.clone();
    let options = EmulatorOptions {
        plan: Plan {
            // A scenario may be of somebody else, so its program cannot run without end.
            max_instructions: Some(PROGRAM_INSTRUCTIONS_MAX),
            max_samples: Some(times),
            stack_bytes: STACK_BYTES,
            ..Plan::new(At::Every(every))
        },
        lbr: Lbr::default(),
        timeout: None,
    };

    // The trace is only kept in memory.
    let written = |error: WriteError| failed(error.into());
    let mut writer = TraceWriter::new(Vec::new(), &Meta::default()).map_err(written)?;
    let mut recorder = TraceRecorder::new(&mut writer, emulator::finder_options(&root));
    let summary = emulator::record(program, &options, &mut recorder).map_err(failed)?;

    // A program that ends early does not have the stacks that the scenario asks for.
    if summary.samples < times {
        return Err(StackError::Ended {
            path: name.to_owned(),
            instructions: summary.instructions,
            end: summary.end.to_string(),
        });
    }

    let bytes = writer.finish().map_err(written)?;
    let trace = |error| StackError::Trace {
        path: name.to_owned(),
        source: Box::new(error_of(error)),
    };
    let recorded = Trace::from_bytes(bytes).map_err(trace)?;

    let stack = |number| {
        let sample = recorded.sample(number).map_err(trace)?;
        Ok(stack_of(&sample))
    };
    (0..times).map(stack).collect()
}

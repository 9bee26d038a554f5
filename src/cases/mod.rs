//! The corpus of cases: build, run, sample, judge, and hold against what the files say.
//!
//! `docs/case-format.md` describes the files. A case is assembled by the system's `cc` and runs
//! with a shadow stack, on this machine's processor under ptrace and in the emulated machine; a
//! kernel in small only in the latter. The author's chains, the shadow stacks, the claims and the generated expectation have to agree.

mod bless;
mod build;
mod claims;
mod emulated;
mod engines;
mod inject;
mod kernel;
mod matrix;
mod native;
mod run;
mod sample;

pub use bless::{Blessed, bless};
pub use build::{Program, ToolError};
pub use matrix::{expectation_of, matrix_of, setting_of};
pub use sample::Recorded;

use crate::shell::quoted_path;
use std::path::{Path, PathBuf};
use unwind_sim_corpus::case::{Case, CaseError, Machine, Matrix};
use unwind_sim_corpus::trace::Trace;
use unwind_sim_emulator::Processor;

/// Why a case fails.
#[derive(Debug, thiserror::Error)]
pub enum CaseFailure {
    /// The file is malformed.
    #[error(transparent)]
    Malformed(#[from] Box<CaseError>),
    /// The file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It does not build.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// It does not run, or not as it should.
    #[error("{name}: {what}")]
    Run {
        /// The case.
        name: String,
        /// What went wrong.
        what: String,
    },
    /// What was found is not what the file says.
    #[error("{name}:\n{differences}")]
    Differs {
        /// The case.
        name: String,
        /// Line by line.
        differences: String,
    },
}

impl From<CaseError> for CaseFailure {
    fn from(error: CaseError) -> Self {
        CaseFailure::Malformed(Box::new(error))
    }
}

/// Reads the case at `path`.
///
/// # Errors
/// If it cannot be read, or is malformed.
pub fn read(path: &Path) -> Result<Case, CaseFailure> {
    let text = std::fs::read_to_string(path).map_err(|source| CaseFailure::Io {
        path: path.into(),
        source,
    })?;
    Ok(Case::parse(&path.to_string_lossy(), &text)?)
}

/// Assembles and links the case at `path`; with `defect`, with the wrong tables that its header
/// names.
///
/// # Errors
/// If it is malformed, no program but a kernel, or the tools fail.
pub fn build_case(path: &Path, defect: bool) -> Result<Program, CaseFailure> {
    let case = read(path)?;
    if case.header.machine == Machine::Kernel {
        let what = "it is a kernel, not a program; `cases`, `replay` and `compare` take it";
        return Err(run::failure(&case, what));
    }
    Ok(build::build(&case, path, defect)?)
}

/// All case files below `folder`, sorted by path.
///
/// # Errors
/// If a folder cannot be read.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>, CaseFailure> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let io = |source| CaseFailure::Io {
            path: folder.clone(),
            source,
        };
        for entry in std::fs::read_dir(&folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "s") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// What executes a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// This machine's processor, under ptrace.
    Ptrace,
    /// The emulated machine.
    Emulator,
}

impl Engine {
    /// Those that this machine has, the highest authority first.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub const HERE: &[Engine] = &[Engine::Ptrace, Engine::Emulator];
    /// Those that this machine has.
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    pub const HERE: &[Engine] = &[Engine::Emulator];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Engine::Ptrace => "ptrace",
            Engine::Emulator => "emulator",
        }
    }
}

/// A case that was built.
#[derive(Debug)]
pub struct Built {
    /// The case.
    pub case: Case,
    /// Its file.
    path: PathBuf,
    program: Program,
    /// The same with the injected defect.
    defect: Option<Program>,
    /// What the emulated machine is.
    pub processor: Processor,
}

impl Built {
    /// Reads and builds the case at `path`, also with its defect if it injects one.
    ///
    /// # Errors
    /// If it is malformed, or the tools fail.
    pub fn new(path: &Path) -> Result<Built, CaseFailure> {
        let mut built = Built::without_defect(path)?;
        if built.case.header.inject.is_some() {
            built.defect = Some(build::build(&built.case, path, true)?);
        }
        Ok(built)
    }

    fn without_defect(path: &Path) -> Result<Built, CaseFailure> {
        let case = read(path)?;
        let program = build::build(&case, path, false)?;
        Ok(Built {
            path: path.to_owned(),
            case,
            program,
            defect: None,
            processor: Processor::default(),
        })
    }

    /// The engines of this machine that the case can run on.
    pub fn engines(&self) -> &'static [Engine] {
        let header = &self.case.header;
        let emulator = Engine::HERE.len() - 1;
        match header.machine {
            Machine::Kernel => &Engine::HERE[emulator..],
            Machine::Process if header.not_emulated.is_some() => &Engine::HERE[..emulator],
            Machine::Process => Engine::HERE,
        }
    }

    /// Runs it and samples it at its points.
    ///
    /// # Errors
    /// If it cannot be run or sampled, or the shadow stack lost the truth more often than the
    /// header allows.
    pub fn record(&self, engine: Engine) -> Result<Recorded, CaseFailure> {
        Recorded::new(self, engine, false)
    }

    /// Runs it on one engine and holds everything against the file.
    ///
    /// # Errors
    /// All that is not as the file says.
    pub fn check(&self, engine: Engine) -> Result<Recorded, CaseFailure> {
        let recorded = self.record(engine)?;
        let mut differences = recorded.truth_differences();
        let matrix = matrix_of(&recorded);
        differences.extend(claims::differences(&recorded, &matrix));
        match &self.case.expected {
            Some(expected) => {
                let found = expectation_of(&recorded, &matrix);
                differences.extend(matrix::differences(expected, &found, engine));
            }
            None => differences.push("it was never blessed".to_owned()),
        }
        differences.extend(inject::differences(self, engine)?);
        if differences.is_empty() {
            return Ok(recorded);
        }
        // What the file expects is the default's.
        let path = quoted_path(&self.path);
        differences.push(match self.processor == Processor::default() {
            true => format!("if this is right: unwind-sim cases bless {path}"),
            false => format!(
                "again: unwind-sim cases run --cpu {} {path}",
                self.processor
            ),
        });
        Err(self.differ(&differences))
    }

    /// Holds what two engines made of it against each other: frames, their kinds and their
    /// registers, wherever the program and its stack lie in each.
    ///
    /// # Errors
    /// All that differs.
    pub fn check_same(&self, one: &Recorded, other: &Recorded) -> Result<(), CaseFailure> {
        let differences = engines::differences(one, other);
        if differences.is_empty() {
            return Ok(());
        }
        Err(self.differ(&differences))
    }

    fn differ(&self, differences: &[String]) -> CaseFailure {
        CaseFailure::Differs {
            name: self.case.name.clone(),
            differences: differences.join("\n"),
        }
    }
}

/// The trace of the case at `path`: its sample points, in the order of the file.
///
/// # Errors
/// If it cannot be built, run or sampled.
pub fn trace_of(path: &Path) -> Result<Trace, CaseFailure> {
    let built = Built::without_defect(path)?;
    built.record(built.engines()[0])?.to_trace()
}

/// What unwinders make of the case at `path` in the emulated machine, which is the same on every
/// processor.
///
/// # Errors
/// If it cannot be built or run, or its chains are not as it states.
pub fn matrix(path: &Path) -> Result<Matrix, CaseFailure> {
    let built = Built::without_defect(path)?;
    let engines = built.engines();
    let recorded = built.record(engines[engines.len() - 1])?;
    let differences = recorded.truth_differences();
    match differences.is_empty() {
        true => Ok(matrix_of(&recorded)),
        false => Err(built.differ(&differences)),
    }
}

/// Runs the case at `path` on every engine of this machine that it can run on, and holds
/// everything against the file.
///
/// # Errors
/// All that is not as the file says, or differs between engines.
pub fn check(path: &Path) -> Result<(), CaseFailure> {
    check_on(path, Processor::default())
}

/// As [`check`], the emulated machine being `processor`.
///
/// # Errors
/// As [`check`].
pub fn check_on(path: &Path, processor: Processor) -> Result<(), CaseFailure> {
    let mut built = Built::new(path)?;
    built.processor = processor;
    let mut first: Option<Recorded> = None;
    for &engine in built.engines() {
        let recorded = built.check(engine)?;
        match &first {
            Some(first) => built.check_same(first, &recorded)?,
            None => first = Some(recorded),
        }
    }
    Ok(())
}

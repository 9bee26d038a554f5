//! A case that was read and assembled, and the engines that can execute it.

use super::build::{self, BuiltCase};
use super::carried;
use super::failure::CaseFailure;
use crate::case::{Case, Machine};
use std::path::{Path, PathBuf};
use unwind_sim_emulator::Processor;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::input_file::InputFile;

/// Maximum size of the source of a case, bytes.
const CASE_BYTES_MAX: u64 = 64 << 20;

/// An engine that executes a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    /// This machine's processor, under ptrace.
    Ptrace,
    /// The emulated machine.
    Emulator,
}

impl Engine {
    /// The engines of this machine, the most authoritative first.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub const HERE: &[Engine] = &[Engine::Ptrace, Engine::Emulator];
    /// The engines of this machine.
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

/// The file name of a case that came through a pipe.
pub(super) const PIPED: &str = "piped.s";

/// Opens the case at `path`: a file, or one that the program carries.
///
/// # Errors
/// If the file cannot be opened.
pub fn open(path: &Path) -> Result<InputFile, CaseFailure> {
    if let Some(file) = carried::input(path) {
        return Ok(file);
    }
    InputFile::open(path).map_err(|source| CaseFailure::Io {
        path: path.into(),
        source,
    })
}

/// Reads the case at `path`.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn read(path: &Path) -> Result<Case, CaseFailure> {
    case_of(&open(path)?)
}

/// Reads a case that is open.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn case_of(file: &InputFile) -> Result<Case, CaseFailure> {
    let text = file
        .text(CASE_BYTES_MAX)
        .map_err(|source| CaseFailure::Io {
            path: file.path().into(),
            source,
        })?;
    let path = file.path().to_string_lossy();
    let name = if file.is_piped() { PIPED } else { &path };
    Ok(Case::parse_named(name, &path, &text)?)
}

/// A case that was built.
#[derive(Debug)]
pub struct Built {
    /// The case.
    pub case: Case,
    /// Its file.
    pub(super) path: PathBuf,
    pub(super) program: BuiltCase,
    /// The program with the injected defect.
    pub(super) defect: Option<BuiltCase>,
    /// The processor that is emulated.
    pub processor: Processor,
    /// How far it runs.
    pub limits: CaseLimits,
}

impl Built {
    /// Reads and builds the case at `path`, and builds it again with its defect if it has one.
    ///
    /// # Errors
    /// If the case is malformed, or the tools fail.
    pub fn new(path: &Path) -> Result<Built, CaseFailure> {
        let file = open(path)?;
        let mut built = Built::without_defect(&file, &CaseLimits::default())?;
        if built.case.header.inject.is_some() {
            built.defect = Some(build::build(&built.case, &file, true)?);
        }
        Ok(built)
    }

    pub(super) fn without_defect(
        file: &InputFile,
        limits: &CaseLimits,
    ) -> Result<Built, CaseFailure> {
        let case = case_of(file)?;
        let program = build::build(&case, file, false)?;
        Ok(Built {
            path: file.path().to_owned(),
            case,
            program,
            defect: None,
            processor: Processor::default(),
            limits: *limits,
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
}

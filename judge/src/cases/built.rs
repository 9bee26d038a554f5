//! A case that was read and assembled, and what can execute it.

use super::build::{self, BuiltCase};
use super::failure::CaseFailure;
use crate::case::{Case, Machine};
use std::path::{Path, PathBuf};
use unwind_sim_emulator::Processor;

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

/// A case that was built.
#[derive(Debug)]
pub struct Built {
    /// The case.
    pub case: Case,
    /// Its file.
    pub(super) path: PathBuf,
    pub(super) program: BuiltCase,
    /// The same with the injected defect.
    pub(super) defect: Option<BuiltCase>,
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

    pub(super) fn without_defect(path: &Path) -> Result<Built, CaseFailure> {
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
}

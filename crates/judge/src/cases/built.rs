//! A case that was read and assembled, and the engines that can execute it.

use super::build::{self, BuiltCase};
use super::carried;
use super::failure::CaseFailure;
use crate::case::{Case, Machine};
use std::path::{Path, PathBuf};
use unwind_sim_emulator::Processor;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::open;

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

/// Reads the case at `path`.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub fn read(path: &Path) -> Result<Case, CaseFailure> {
    let name = path.to_string_lossy();
    if let Some(text) = carried::text(path) {
        return Ok(Case::parse(&name, text)?);
    }
    let text = open::read_text(path, CASE_BYTES_MAX).map_err(|source| CaseFailure::Io {
        path: path.into(),
        source,
    })?;
    Ok(Case::parse(&name, &text)?)
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
        let mut built = Built::without_defect(path, &CaseLimits::default())?;
        if built.case.header.inject.is_some() {
            built.defect = Some(build::build(&built.case, path, true)?);
        }
        Ok(built)
    }

    pub(super) fn without_defect(path: &Path, limits: &CaseLimits) -> Result<Built, CaseFailure> {
        let case = read(path)?;
        let program = build::build(&case, path, false)?;
        Ok(Built {
            path: path.to_owned(),
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

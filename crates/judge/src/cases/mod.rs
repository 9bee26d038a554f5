//! The corpus of cases: builds, runs, samples and judges them, and compares the results with the
//! files.
//!
//! `docs/case-format.md` describes the files. A case is assembled by the system's `cc` and runs
//! with a shadow stack, on this machine's processor under ptrace and in the emulated machine; a
//! small kernel runs only in the latter. The author's chains, the shadow stacks, the claims and the
//! generated expectation must agree.

mod bless;
mod build;
mod built;
pub mod carried;
mod claims;
mod emulated;
mod engines;
mod failure;
mod inject;
mod kernel;
mod limits;
mod matrix;
mod native;
mod run;
mod sample;

pub use bless::{Blessed, bless};
pub use build::{BuiltCase, ToolError};
pub use built::{Built, Engine, case_of, open, read};
pub use failure::CaseFailure;
pub use matrix::{expectation_of, matrix_of, setting_of, unwinders_of};
pub use sample::Recorded;

use crate::case::{Machine, Matrix};
use crate::engine::Setting;
use crate::shell::quoted_path;
use std::path::{Path, PathBuf};
use unwind_sim_emulator::Processor;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::file_kind::is_case;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::trace::Trace;

/// Assembles and links the case at `path`, with the wrong tables that its header names if `defect`
/// is set.
///
/// # Errors
/// If the case is malformed, is a kernel and not a program, or the tools fail.
pub fn build_case(path: &Path, defect: bool) -> Result<BuiltCase, CaseFailure> {
    build_opened(&open(path)?, defect)
}

/// [`build_case`] of a case that is open.
///
/// # Errors
/// See [`build_case`].
pub fn build_opened(file: &InputFile, defect: bool) -> Result<BuiltCase, CaseFailure> {
    let case = case_of(file)?;
    if case.header.machine == Machine::Kernel {
        let what = "it is a kernel, not a program; `cases`, `replay` and `compare` take it";
        return Err(CaseFailure::run(&case, what));
    }
    Ok(build::build(&case, file, defect)?)
}

/// All case files below `folder`, sorted by path; those that the program carries if it is their folder.
///
/// # Errors
/// If a folder cannot be read.
pub fn find(folder: &Path) -> Result<Vec<PathBuf>, CaseFailure> {
    if let Some(carried) = carried::find(folder) {
        return Ok(carried);
    }
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
            } else if is_case(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Runs the case and compares the results with its file.
impl Built {
    /// Runs the case and samples it at its points.
    ///
    /// # Errors
    /// If the case cannot be run or sampled, or the shadow stack lost the truth more often than the
    /// header allows.
    pub fn record(&self, engine: Engine) -> Result<Recorded, CaseFailure> {
        Recorded::new(self, engine, false)
    }

    /// Runs the case on one engine and compares everything with the file.
    ///
    /// # Errors
    /// Everything that differs from the file.
    pub fn check(&self, engine: Engine) -> Result<Recorded, CaseFailure> {
        let recorded = self.record(engine)?;
        let matrix = matrix_of(&recorded);

        // What blessing cannot change.
        let mut authors = recorded.truth_differences();
        authors.extend(claims::differences(&recorded, &matrix));

        let mut differences = Vec::new();
        match &self.case.expected {
            Some(expected) => {
                let found = expectation_of(&recorded, &matrix);
                differences.extend(matrix::differences(expected, &found, engine));
            }
            None => differences.push("it was never blessed".to_owned()),
        }

        differences.extend(inject::differences(self, engine)?);

        // What the author has to correct comes first: blessing does not help before that.
        let may_bless = authors.is_empty();
        differences.splice(0..0, authors);

        if differences.is_empty() {
            return Ok(recorded);
        }

        // The file's expectation is for the default processor.
        let path = quoted_path(&self.path);
        differences.push(match (may_bless, self.processor == Processor::default()) {
            (false, _) => {
                "blessing does not change chains and claims; correct them, or the code".to_owned()
            }
            (true, true) => format!("if this is right: unwind-sim cases bless {path}"),
            (true, false) => {
                format!(
                    "again: unwind-sim cases run --cpu {} {path}",
                    self.processor
                )
            }
        });

        Err(CaseFailure::differs(&self.case, &differences))
    }

    /// Compares the results of two engines: frames, their kinds and their registers, independent of
    /// the addresses of the program and its stack.
    ///
    /// # Errors
    /// Everything that differs.
    pub fn check_same(&self, one: &Recorded, other: &Recorded) -> Result<(), CaseFailure> {
        let differences = engines::differences(one, other);
        if differences.is_empty() {
            return Ok(());
        }
        Err(CaseFailure::differs(&self.case, &differences))
    }
}

/// The trace of a case, its sample points in the order of the file, and how its walks are set.
///
/// # Errors
/// If it cannot be built, run or sampled.
pub fn trace_of(file: &InputFile, limits: &CaseLimits) -> Result<(Trace, Setting), CaseFailure> {
    let built = Built::without_defect(file, limits)?;
    let trace = built.record(built.engines()[0])?.to_trace()?;
    Ok((trace, setting_of(&built.case)))
}

/// Like [`trace_of`], but run in the emulated machine, which gives the same on every computer; a case
/// that it cannot run, on this one's processor.
///
/// # Errors
/// See [`trace_of`].
pub fn emulated_trace_of(file: &InputFile, limits: &CaseLimits) -> Result<Trace, CaseFailure> {
    in_machine(&Built::without_defect(file, limits)?)?.to_trace()
}

fn in_machine(built: &Built) -> Result<Recorded, CaseFailure> {
    let engines = built.engines();
    built.record(engines[engines.len() - 1])
}

/// The case at `path`, run like [`emulated_trace_of`].
///
/// # Errors
/// If the case cannot be built or run, or its chains are not as stated.
pub fn emulate(path: &Path, limits: &CaseLimits) -> Result<Recorded, CaseFailure> {
    let built = Built::without_defect(&open(path)?, limits)?;
    let recorded = in_machine(&built)?;
    let differences = recorded.truth_differences();
    if differences.is_empty() {
        Ok(recorded)
    } else {
        Err(CaseFailure::differs(&built.case, &differences))
    }
}

/// The matrix of the case at `path` in the emulated machine.
///
/// # Errors
/// See [`emulate`].
pub fn matrix(path: &Path) -> Result<Matrix, CaseFailure> {
    Ok(matrix_of(&emulate(path, &CaseLimits::default())?))
}

/// Runs the case at `path` on every engine of this machine that it can run on, and compares
/// everything with the file.
///
/// # Errors
/// Everything that differs from the file or between engines.
pub fn check(path: &Path) -> Result<(), CaseFailure> {
    check_on(path, Processor::default(), &CaseLimits::default())
}

/// Like [`check`], with `processor` as the emulated processor, and each run within `limits`.
///
/// # Errors
/// Like [`check`].
pub fn check_on(path: &Path, processor: Processor, limits: &CaseLimits) -> Result<(), CaseFailure> {
    let mut built = Built::new(path)?;
    built.processor = processor;
    built.limits = *limits;
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

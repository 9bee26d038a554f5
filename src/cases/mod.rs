//! The corpus of cases: build, run, sample, judge, and hold against what the files say.
//!
//! `docs/case-format.md` describes the files. A case is assembled by the system's `cc` and runs
//! under ptrace with a shadow stack; the author's chains, the shadow stack, the claims and the
//! generated expectation have to agree.

mod bless;
mod build;
mod claims;
mod inject;
mod matrix;
mod native;
mod sample;

pub use bless::{Blessed, bless};
pub use build::{Program, ToolError};
pub use matrix::{COLUMNS, matrix_of, setting_of};
pub use sample::{Recorded, trace_of};

use std::path::{Path, PathBuf};
use unwind_sim_corpus::case::{Case, CaseError};

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

/// Assembles and links the case at `path`.
///
/// # Errors
/// If it is malformed, or the tools fail.
pub fn build_case(path: &Path) -> Result<Program, CaseFailure> {
    Ok(build::build(&read(path)?, path, false)?)
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

/// Runs the case at `path` and holds everything against the file.
///
/// # Errors
/// All that is not as the file says.
pub fn check(path: &Path) -> Result<(), CaseFailure> {
    let case = read(path)?;
    let recorded = Recorded::new(&case, path, false)?;
    let mut differences = recorded.truth_differences();
    let matrix = matrix_of(&recorded);
    differences.extend(claims::differences(&recorded, &matrix));
    match &case.expected {
        Some(expected) if *expected == matrix => {}
        Some(expected) => differences.extend(matrix::differences(expected, &matrix)),
        None => differences.push("it was never blessed".to_owned()),
    }
    if case.header.inject.is_some() {
        differences.extend(inject::differences(&case, path)?);
    }
    if differences.is_empty() {
        return Ok(());
    }
    let hint = format!("if this is right: unwind-sim cases bless {}", case.name);
    differences.push(hint);
    Err(CaseFailure::Differs {
        name: case.name,
        differences: differences.join("\n"),
    })
}

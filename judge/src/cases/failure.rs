//! Why a case fails.

use super::build::ToolError;
use crate::case::{Case, CaseError};
use std::path::PathBuf;

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

impl CaseFailure {
    /// `case` did not run, or not as it should.
    pub(super) fn run(case: &Case, what: impl ToString) -> CaseFailure {
        CaseFailure::Run {
            name: case.name.clone(),
            what: what.to_string(),
        }
    }

    /// What was found in `case` is not what its file says: line by line.
    pub(super) fn differs(case: &Case, differences: &[String]) -> CaseFailure {
        CaseFailure::Differs {
            name: case.name.clone(),
            differences: differences.join("\n"),
        }
    }
}

impl From<CaseError> for CaseFailure {
    fn from(error: CaseError) -> Self {
        CaseFailure::Malformed(Box::new(error))
    }
}

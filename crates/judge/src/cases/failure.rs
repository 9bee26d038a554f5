//! Why a case fails.

use super::build::ToolError;
use crate::case::{Case, CaseError};
use std::path::PathBuf;
use unwind_sim_recordings::printable::PrintableName as _;

/// Why a case fails.
#[derive(Debug, thiserror::Error)]
pub enum CaseFailure {
    /// The file is malformed.
    #[error(transparent)]
    Malformed(#[from] Box<CaseError>),
    /// The file cannot be read or written.
    #[error("{}: {source}", path.printable())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The case does not build.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The case does not run as it should.
    #[error("{}: {what}", name.printable())]
    Run {
        /// The case.
        name: String,
        /// What went wrong.
        what: String,
    },
    /// The results differ from what the file says.
    #[error("{}:\n{differences}", name.printable())]
    Differs {
        /// The case.
        name: String,
        /// The differences, one per line.
        differences: String,
    },
}

impl CaseFailure {
    /// The failure of a case that did not run as it should.
    pub(super) fn run(case: &Case, what: impl ToString) -> CaseFailure {
        CaseFailure::Run {
            name: case.name.clone(),
            what: what.to_string(),
        }
    }

    /// Whether the case was built and run, so that it is the case that is not as it says. Otherwise
    /// nothing is known of it.
    #[must_use]
    pub fn is_judged(&self) -> bool {
        matches!(self, CaseFailure::Run { .. } | CaseFailure::Differs { .. })
    }

    /// The failure of a case whose results differ from its file.
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

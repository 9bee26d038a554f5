//! What is wrong with a scenario, and where.

use super::SCENARIO_BYTES_MAX;
use crate::bpf::{LoadError, ObjectError};
use crate::refused::Refused;
use crate::setup::Refusal;
use thiserror::Error;

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScenarioErrorKind {
    /// Longer than [`SCENARIO_BYTES_MAX`].
    #[error("the scenario is longer than {SCENARIO_BYTES_MAX} bytes")]
    TooLong,
    /// No such directive.
    #[error("unknown directive")]
    Unknown,
    /// A word is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A word too many.
    #[error("unexpected word after the end of the directive")]
    Extra,
    /// Not what belongs there.
    #[error("expected {0}")]
    Not(&'static str),
    /// A name that is taken.
    #[error("a {0} of this name already exists")]
    Taken(&'static str),
    /// More than the model bears.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// What there is must come before what happens.
    #[error("this must come before the first action")]
    Late,
    /// The kernel refuses the event.
    #[error("{}: {}", .0.errno(), .0.description())]
    Refusal(Refusal),
    /// The action cannot happen there.
    #[error("{}", .0.description())]
    Refused(Refused),
    /// A stack comes from a file, and nobody supplied it.
    #[error("this comes from a file, and files are not read here")]
    NotSupplied,
    /// The object file is malformed.
    #[error("{0}")]
    Object(ObjectError),
    /// A program of the object file cannot be run.
    #[error("{0}")]
    Load(LoadError),
}

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct ScenarioError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, bytes.
    pub column: usize,
    /// What.
    pub kind: ScenarioErrorKind,
}

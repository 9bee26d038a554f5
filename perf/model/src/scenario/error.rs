//! Errors in scenarios.

use super::SCENARIO_BYTES_MAX;
use crate::bpf::{LoadError, ObjectError};
use crate::refused::Refused;
use crate::setup::Refusal;
use thiserror::Error;

/// The kinds of [`ScenarioError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScenarioErrorKind {
    /// The scenario is longer than [`SCENARIO_BYTES_MAX`].
    #[error("the scenario is longer than {SCENARIO_BYTES_MAX} bytes")]
    TooLong,
    /// No such directive.
    #[error("unknown directive")]
    Unknown,
    /// A word is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// There is a word too many.
    #[error("unexpected word after the end of the directive")]
    Extra,
    /// A word is not what is expected here.
    #[error("expected {0}")]
    Not(&'static str),
    /// The name is already taken.
    #[error("a {0} of this name already exists")]
    Taken(&'static str),
    /// There are more than the model supports.
    #[error("too many {0}")]
    TooMany(&'static str),
    /// A directive of the setup comes after the first action.
    #[error("this must come before the first action")]
    Late,
    /// The kernel refuses the event.
    #[error("{}: {}", .0.errno(), .0.description())]
    Refusal(Refusal),
    /// The action cannot happen at this point.
    #[error("{}", .0.description())]
    Refused(Refused),
    /// A stack or a program from a file was not supplied.
    #[error("this comes from a file, and files are not read here")]
    NotSupplied,
    /// The object file is malformed.
    #[error("{0}")]
    Object(ObjectError),
    /// A program of the object file cannot be loaded.
    #[error("{0}")]
    Load(LoadError),
}

/// Errors in scenarios.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct ScenarioError {
    /// Line number, from 1.
    pub line: usize,
    /// Column, from 1, in bytes.
    pub column: usize,
    /// What is wrong.
    pub kind: ScenarioErrorKind,
}

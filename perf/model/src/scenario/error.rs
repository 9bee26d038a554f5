//! What is wrong with a scenario, and where.

use super::SCENARIO_BYTES_MAX;
use crate::bpf::{LoadError, ObjectError};
use crate::refused::Refused;
use crate::setup::Refusal;
use std::fmt;

/// What is wrong with a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScenarioErrorKind {
    /// Longer than [`SCENARIO_BYTES_MAX`].
    TooLong,
    /// No such directive.
    Unknown,
    /// A word is missing.
    Missing(&'static str),
    /// A word too many.
    Extra,
    /// Not what belongs there.
    Not(&'static str),
    /// A name that is taken.
    Taken(&'static str),
    /// More than the model bears.
    TooMany(&'static str),
    /// What there is must come before what happens.
    Late,
    /// The kernel refuses the event.
    Refusal(Refusal),
    /// The action cannot happen there.
    Refused(Refused),
    /// A stack comes from a file, and nobody supplied it.
    NotSupplied,
    /// The object file is malformed.
    Object(ObjectError),
    /// A program of the object file cannot be run.
    Load(LoadError),
}

/// What is wrong with a scenario, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScenarioError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, bytes.
    pub column: usize,
    /// What.
    pub kind: ScenarioErrorKind,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.line, self.column)?;
        match &self.kind {
            ScenarioErrorKind::TooLong => {
                write!(f, "the scenario is longer than {SCENARIO_BYTES_MAX} bytes")
            }
            ScenarioErrorKind::Unknown => write!(f, "no such directive"),
            ScenarioErrorKind::Missing(what) => write!(f, "{what} is missing"),
            ScenarioErrorKind::Extra => write!(f, "nothing more belongs here"),
            ScenarioErrorKind::Not(what) => write!(f, "not {what}"),
            ScenarioErrorKind::Taken(what) => write!(f, "there is a {what} of this name already"),
            ScenarioErrorKind::TooMany(what) => write!(f, "too many {what}"),
            ScenarioErrorKind::Late => {
                write!(f, "this belongs before the first thing that happens")
            }
            ScenarioErrorKind::Refusal(refusal) => {
                write!(f, "{}: {}", refusal.errno(), refusal.description())
            }
            ScenarioErrorKind::Refused(refused) => write!(f, "{}", refused.description()),
            ScenarioErrorKind::Object(error) => error.fmt(f),
            ScenarioErrorKind::Load(error) => error.fmt(f),
            ScenarioErrorKind::NotSupplied => {
                write!(f, "this comes from a file, which is not read here")
            }
        }
    }
}

impl std::error::Error for ScenarioError {}

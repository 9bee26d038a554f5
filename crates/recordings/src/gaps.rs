//! What a recording lacks: the end of a file that was cut short, damaged parts, samples that cannot
//! be used.

use crate::import::{ImportError, Imported, Skip};
use crate::trace::{Trace, TraceError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a part of a recording could not be read. The rest of it is used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Problem {
    /// A trace was cut short.
    #[error(transparent)]
    Trace(#[from] Arc<TraceError>),
    /// A recording of another tool is cut short or damaged.
    #[error(transparent)]
    Import(#[from] ImportError),
}

impl Problem {
    /// Whether the file was cut short, as opposed to damaged.
    pub fn is_cut(&self) -> bool {
        match self {
            Problem::Trace(_) => true,
            Problem::Import(error) => error.is_cut(),
        }
    }
}

/// What a recording lacks, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    /// Why parts of it cannot be read, as far as that was known before its first sample was read.
    /// This includes a file that was cut short.
    pub problems: Vec<Problem>,
    /// The problems met while it was read.
    pub later: Vec<Problem>,
    /// Number of samples and records that were left out, by reason. Empty until the recording was
    /// read to its end.
    pub skipped: BTreeMap<Skip, u64>,
}

impl Gaps {
    /// The gaps that are known before the first sample is read.
    pub fn known(problems: impl IntoIterator<Item = ImportError>) -> Gaps {
        let mut gaps = Gaps::default();
        for problem in problems {
            if gaps.is_new(&problem) {
                gaps.problems.push(problem.into());
            }
        }
        gaps
    }

    /// The gaps of a trace.
    pub fn of_trace(trace: &Trace) -> Gaps {
        Gaps {
            problems: trace
                .cut()
                .cloned()
                .map(Problem::from)
                .into_iter()
                .collect(),
            ..Gaps::default()
        }
    }

    /// Adds a problem met while the recording was read, unless it is known.
    pub fn add(&mut self, problem: ImportError) {
        if self.is_new(&problem) {
            self.later.push(problem.into());
        }
    }

    fn is_new(&self, problem: &ImportError) -> bool {
        let is_known = |p: &Problem| matches!(p, Problem::Import(known) if known == problem);
        !self.problems.iter().chain(&self.later).any(is_known)
    }

    /// Adds what a pass over the recording met. One that `ended` early has not seen all.
    pub(crate) fn pass(&mut self, imported: Imported, ended: bool) {
        for problem in imported.problems {
            self.add(problem);
        }
        if !ended {
            self.skipped = imported.skipped;
        }
    }
}

impl From<Imported> for Gaps {
    /// The gaps of a recording that was imported as a whole.
    fn from(imported: Imported) -> Gaps {
        Gaps {
            skipped: imported.skipped,
            ..Gaps::known(imported.problems)
        }
    }
}

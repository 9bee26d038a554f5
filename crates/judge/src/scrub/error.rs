//! Why a recording cannot be scrubbed.

use super::scrubber::Differs;
use crate::input::InputError;
use crate::run::RunError;
use crate::spec::SpecError;
use std::io;
use std::path::PathBuf;
use unwind_sim_perf_data::PerfError;
use unwind_sim_recordings::convert::ImportError;
use unwind_sim_recordings::import;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::trace::{TraceError, WriteError};

/// Why a recording cannot be scrubbed.
#[derive(Debug, thiserror::Error)]
pub enum ScrubError {
    /// It cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It cannot be read.
    #[error("cannot read the recording: {0}")]
    Read(io::Error),
    /// It cannot be converted.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// A record of the perf.data cannot be read.
    #[error(transparent)]
    Perf(#[from] import::ImportError),
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A run ends before a state.
    #[error("there is no state {0}: the run ends before it")]
    NoState(u64),
    /// The output cannot be written.
    #[error("cannot write {}: {source}", path.printable())]
    Output {
        /// The output.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The temporary file cannot be written.
    #[error("cannot write a temporary file: {0}")]
    Temporary(io::Error),
    /// The unwinders cannot be run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The unwinders cannot be made.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// An unwinder gives another result.
    #[error("{0}; nothing was written, please report this")]
    Differs(Differs),
    /// The output has another number of samples.
    #[error(
        "the scrubbed file has {number} samples instead of {expected}; nothing was written, please \
         report this"
    )]
    Samples {
        /// Samples in the output.
        number: u64,
        /// Samples in the recording.
        expected: u64,
    },
    /// `doctor` says something else.
    #[error(
        "doctor says `{before}` of the recording, but `{after}` of the scrubbed file; nothing was \
         written, please report this"
    )]
    Doctor {
        /// What it says of the recording.
        before: String,
        /// What it says of the output.
        after: String,
    },
}

impl ScrubError {
    pub(super) fn perf(error: import::ImportError) -> ScrubError {
        ScrubError::Perf(error)
    }

    pub(super) fn perf_data(error: PerfError) -> ScrubError {
        ScrubError::Perf(import::ImportError::Perf(error))
    }
}

impl From<Differs> for ScrubError {
    fn from(differs: Differs) -> ScrubError {
        ScrubError::Differs(differs)
    }
}

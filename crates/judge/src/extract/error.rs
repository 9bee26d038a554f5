//! Why a sample cannot be written as a case.

use crate::case::FILE_BYTES_MAX;
use crate::cases::CaseFailure;
use crate::spec::SpecError;

/// Why a sample cannot be written as a case.
#[derive(Debug, thiserror::Error)]
pub enum NotWritable {
    /// There is not exactly one sample.
    #[error("a case is made from one sample; choose it with --sample N")]
    NotOne,
    /// The true chain is not known.
    #[error("the sample has no truth, so its case could claim nothing; record with --truth")]
    NoTruth,
    /// The sample has fake registers.
    #[error("a sample with fake registers cannot be written as a case; extract it to a trace")]
    Fake,
    /// A frame cannot be reproduced.
    #[error("frame {frame}, {place}: {what}; extract the sample to a trace instead")]
    Frame {
        /// The number of the frame in the true chain.
        frame: usize,
        /// The place of its pc.
        place: String,
        /// What a case cannot express.
        what: String,
    },
    /// No unwinder has that name.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The folder to try the case in cannot be created.
    #[error("cannot make a temporary file: {0}")]
    Folder(std::io::Error),
    /// The case does not assemble or run.
    #[error(
        "the case made from the sample does not run: {error}; extract the sample to a trace instead"
    )]
    DoesNotRun {
        /// The error.
        error: Box<CaseFailure>,
    },
    /// The case runs, but its results differ from the recording.
    #[error(
        "the case made from the sample does not reproduce the recording: {differs}; name the \
         unwinders that it is for with --unwinder, or extract the sample to a trace instead"
    )]
    NotReproduced {
        /// The unwinders that differ, with both cells.
        differs: String,
    },
    /// The case would be too long.
    #[error("the case would have {bytes} bytes; the limit is {FILE_BYTES_MAX}")]
    TooLarge {
        /// The length of the case.
        bytes: usize,
    },
}

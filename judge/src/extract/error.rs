//! Why a sample cannot be written as a case.

use crate::case::FILE_BYTES_MAX;
use crate::cases::CaseFailure;
use crate::spec::SpecError;

/// A sample that cannot be written as a case.
#[derive(Debug, thiserror::Error)]
pub enum NotWritable {
    /// There is not exactly one.
    #[error("a case is made of one sample; name it by --sample N")]
    NotOne,
    /// Nobody knows the true chain.
    #[error("the sample has no truth, so its case could claim nothing; record with --truth")]
    NoTruth,
    /// It was started with fake registers.
    #[error("a sample with fake registers cannot be written as a case; extract it to a trace")]
    Fake,
    /// A frame of it cannot be made.
    #[error("frame {frame}, {place}: {what}; extract the sample to a trace instead")]
    Frame {
        /// Its number in the true chain.
        frame: usize,
        /// Where its pc is.
        place: String,
        /// What a case cannot say.
        what: String,
    },
    /// No unwinder has that name.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// There is no place to try it.
    #[error("cannot make a temporary file: {0}")]
    Folder(std::io::Error),
    /// It was written, and does not assemble or run.
    #[error(
        "the case made of the sample does not run: {error}; extract the sample to a trace instead"
    )]
    DoesNotRun {
        /// Why not.
        error: Box<CaseFailure>,
    },
    /// It runs, and shows something else than the recording.
    #[error(
        "the case made of the sample does not show what the recording does: {differs}; name the \
         unwinders that it is for with --unwinder, or extract the sample to a trace instead"
    )]
    NotReproduced {
        /// Which unwinders, with both cells.
        differs: String,
    },
    /// It would be longer than a case may be.
    #[error(
        "the case would have {bytes} bytes, more than the {FILE_BYTES_MAX} that a case may have"
    )]
    TooLarge {
        /// Its length.
        bytes: usize,
    },
}

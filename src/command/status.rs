//! The exit status.

use std::process::ExitCode;
use unwind_sim_emulator::linux::Notice;

/// What a command ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Something was judged, and all is as expected.
    AsExpected,
    /// A difference or contradiction.
    Difference,
    /// Not modelled, or nothing could be judged.
    NothingJudged,
    /// The status of the program that was run.
    Program(u8),
}

impl Status {
    /// Of a run in the emulated machine: a program that was told that something is not modelled may
    /// do otherwise from there on than on Linux. A difference that was found is one; nothing else is
    /// as expected.
    pub(crate) fn of_machine(self, notices: &[Notice]) -> Status {
        match self {
            Status::Difference => Status::Difference,
            _ if !notices.is_empty() => Status::NothingJudged,
            status => status,
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(match status {
            Status::AsExpected => 0,
            Status::Difference => 1,
            Status::NothingJudged => 3,
            Status::Program(code) => code,
        })
    }
}

/// The status for usage, I/O and malformed input.
pub(crate) const FAILED: u8 = 2;

//! How a run ended.

use super::files::Refusal;
use super::limit::Limit;
use super::turns::Misfit;
use super::unsupported::Unsupported;
use crate::stop::Exception;
use std::fmt;

/// Why [`super::Kernel::run`] returned.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The program exited with this status.
    Exited(i32),
    /// A signal killed it.
    Killed {
        /// The signal's number.
        signal: u8,
        /// The next instruction, or the instruction that faulted.
        rip: u64,
        /// Where the signal came from.
        why: SignalOrigin,
    },
    /// The requested number of instructions was executed; the process can continue.
    Limit,
    /// The instruction at `rip` is not modelled.
    Unsupported {
        /// Its address.
        rip: u64,
        /// Up to 15 bytes at that address.
        bytes: Vec<u8>,
    },
    /// It waits for something that cannot happen.
    Blocked {
        /// The address after the system call.
        rip: u64,
        /// The name of the call.
        call: &'static str,
    },
    /// The schedule that was given does not fit the program.
    Misfit(Misfit),
    /// A stream of this process was not ready before [`super::ProcessOptions::deadline`], or
    /// before [`super::ProcessOptions::stream_stop`].
    StreamTimeout {
        /// The address after the system call.
        rip: u64,
        /// The name of the call.
        call: &'static str,
    },
    /// It used more pages than [`super::Limits::pages`].
    OutOfPages {
        /// The instruction that needed another page.
        rip: u64,
    },
    /// It kept asking for more threads or processes than [`super::Limits::tasks`].
    OutOfTasks {
        /// The address after the system call.
        rip: u64,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Exited(status) => write!(f, "exited with status {status}"),
            Outcome::Killed { signal, rip, why } => {
                write!(f, "killed by signal {signal} at {rip:#x}: {why}")
            }
            Outcome::Limit => write!(f, "stopped at the limit of instructions"),
            Outcome::Unsupported { rip, bytes } => Unsupported::of(*rip, bytes).fmt(f),
            // rip is after the `syscall`, so the call is before it.
            Outcome::Blocked { rip, call } => {
                write!(
                    f,
                    "{call} before {rip:#x} waits for something that cannot happen"
                )
            }
            Outcome::Misfit(misfit) => misfit.fmt(f),
            Outcome::StreamTimeout { rip, call } => write!(
                f,
                "stopped: timeout while {call} before {rip:#x} waits for a standard stream"
            ),
            Outcome::OutOfPages { rip } => {
                write!(f, "the instruction at {rip:#x}: {}", Limit::Memory)
            }
            Outcome::OutOfTasks { rip } => {
                write!(
                    f,
                    "the call before {rip:#x}, after many that failed: {}",
                    Limit::Tasks
                )
            }
        }
    }
}

/// The origin of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignalOrigin {
    /// The processor raised an exception.
    Exception(Exception),
    /// A page past the end of a mapped file was accessed.
    BehindFile {
        /// The address accessed.
        address: u64,
    },
    /// The program sent it to itself, or a timer did, or its pipe has no reader.
    Sent,
    /// A handler's frame could not be written to the stack, or there was no restorer.
    Frame,
    /// `rt_sigreturn` found no frame that the kernel could have written.
    Return,
}

impl fmt::Display for SignalOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignalOrigin::Exception(Exception::InvalidOpcode) => write!(
                f,
                "an invalid instruction, or one that the emulated processor does not have (--cpu)"
            ),
            SignalOrigin::Exception(exception) => write!(f, "{exception}"),
            SignalOrigin::BehindFile { address } => {
                write!(f, "{address:#x} is past the end of the mapped file")
            }
            SignalOrigin::Sent => write!(f, "it was sent"),
            SignalOrigin::Frame => write!(f, "the frame for its handler could not be written"),
            SignalOrigin::Return => write!(f, "rt_sigreturn without a frame written by the kernel"),
        }
    }
}

/// Something that is not modelled, for which the program got an error. From then on it may behave
/// differently than on Linux.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Notice {
    /// A system call: its number, and its name if it has one.
    Call(u64, Option<&'static str>),
    /// A part of a system call.
    Part(&'static str),
    /// A limit of the machine, for which the program got the error of Linux.
    Limit(Limit),
    /// A file system of the host that the program must not see.
    FileSystem(Refusal),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Call(number, Some(name)) => {
                write!(f, "system call {name} ({number}) is not modelled: ENOSYS")
            }
            Notice::Call(number, None) => write!(f, "there is no system call {number}: ENOSYS"),
            Notice::Limit(limit) => write!(f, "the program got an error: {limit}"),
            Notice::Part(what) => write!(f, "not modelled, the program got an error: {what}"),
            Notice::FileSystem(refusal) => {
                write!(f, "not shown to the program, which got an error: {refusal}")
            }
        }
    }
}

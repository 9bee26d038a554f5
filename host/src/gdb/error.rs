//! What can go wrong with a stub.

use super::packet::PacketProblem;
use std::io;

/// Why a stub could not be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GdbError {
    /// Nobody is there.
    #[error("cannot connect to the gdb stub {address}: {error}")]
    Connect {
        /// Where.
        address: String,
        /// `connect`'s error.
        error: io::Error,
    },
    /// No answer in time.
    #[error("the gdb stub has not answered `{asked}` within {ms} ms")]
    Silent {
        /// The packet that was sent.
        asked: String,
        /// How long it had.
        ms: u128,
    },
    /// The connection ended.
    #[error("the gdb stub has closed the connection at `{asked}`")]
    Closed {
        /// The packet that was sent.
        asked: String,
    },
    /// The connection failed.
    #[error("the connection to the gdb stub failed at `{asked}`: {error}")]
    Io {
        /// The packet that was sent.
        asked: String,
        /// The error.
        error: io::Error,
    },
    /// What arrived is no packet.
    #[error("the gdb stub's answer to `{asked}` is bad: {problem}")]
    Packet {
        /// The packet that was sent.
        asked: String,
        /// Why.
        problem: PacketProblem,
    },
    /// It is a packet, but not an answer.
    #[error("the gdb stub's answer to `{asked}` is no answer to that: `{answer}`")]
    Unexpected {
        /// The packet that was sent.
        asked: String,
        /// The begin of what arrived.
        answer: String,
    },
    /// It says no.
    #[error("the gdb stub refuses `{asked}`: {code}")]
    Refused {
        /// The packet that was sent.
        asked: String,
        /// `E01`, or that it does not know the packet.
        code: String,
    },
    /// Its registers are not those of x86-64.
    #[error("the gdb stub has no register {0}: this is not x86-64")]
    NoRegister(&'static str),
    /// The machine behind the stub ended.
    #[error("the machine behind the gdb stub has ended: `{0}`")]
    Ended(String),
}

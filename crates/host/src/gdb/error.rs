//! Errors of a connection to a stub.

use super::packet::PacketProblem;
use std::io;

/// Why a request to a stub failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GdbError {
    /// The connection could not be made.
    #[error("cannot connect to the gdb stub {address}: {error}")]
    Connect {
        /// The address.
        address: String,
        /// `connect`'s error.
        error: io::Error,
    },
    /// There was no answer in time.
    #[error("the gdb stub did not answer `{asked}` within {ms} ms")]
    Silent {
        /// The packet that was sent.
        asked: String,
        /// The timeout in milliseconds.
        ms: u128,
    },
    /// The stub closed the connection.
    #[error("the gdb stub closed the connection before it answered `{asked}`")]
    Closed {
        /// The packet that was sent.
        asked: String,
    },
    /// The connection failed.
    #[error("the connection to the gdb stub failed at `{asked}`: {error}")]
    Io {
        /// The packet that was sent.
        asked: String,
        /// The I/O error.
        error: io::Error,
    },
    /// What arrived is not a valid packet.
    #[error("the gdb stub's answer to `{asked}` is not a valid packet: {problem}")]
    Packet {
        /// The packet that was sent.
        asked: String,
        /// What is wrong with it.
        problem: PacketProblem,
    },
    /// A packet arrived, but not an answer to the request.
    #[error("the gdb stub gave an unexpected answer to `{asked}`: `{answer}`")]
    Unexpected {
        /// The packet that was sent.
        asked: String,
        /// The start of what arrived.
        answer: String,
    },
    /// The stub refused the request.
    #[error("the gdb stub refused `{asked}`: {code}")]
    Refused {
        /// The packet that was sent.
        asked: String,
        /// The stub's error code, or that it does not support the packet.
        code: String,
    },
    /// The stub's registers are not those of x86-64.
    #[error("the gdb stub has no register {0}: this is not x86-64")]
    NoRegister(&'static str),
    /// The machine behind the stub ended.
    #[error("the machine behind the gdb stub ended: `{0}`")]
    Ended(String),
}

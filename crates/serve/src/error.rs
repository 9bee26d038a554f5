//! Why a debugger cannot be served.

use unwind_sim_judge::input::InputError;

/// Why a debugger cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The recording cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// There is no first state.
    #[error("there is no state {0} to begin with")]
    NoState(u64),
    /// The port cannot be listened on.
    #[error("cannot listen on this port of 127.0.0.1: {0}; port 0 is any that is free")]
    Listen(std::io::Error),
    /// The connection is broken.
    #[error("the connection to the debugger is broken: {0}")]
    Connection(#[from] std::io::Error),
    /// Where the next message of an editor starts is not known.
    #[error("the messages of the editor cannot be read any more: {0}")]
    Message(String),
    /// No thread can be started for the connection.
    #[error("no thread can be started to read from the debugger: {0}")]
    Thread(std::io::Error),
}

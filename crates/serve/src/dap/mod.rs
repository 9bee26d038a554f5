//! The Debug Adapter Protocol of editors, as <https://microsoft.github.io/debug-adapter-protocol/>
//! specifies it.
//!
//! The call-stack panel of an editor is the comparison: the first thread is the truth, and each
//! unwinder is a thread beside it, with its own chain. [`Session`] answers messages and does no I/O;
//! [`serve`] connects it.

mod breakpoints;
mod chains;
mod code;
mod connection;
mod launch;
mod messages;
mod session;
mod stepping;
mod variables;

pub use connection::{Open, serve};
pub use launch::{Launch, Subject};
pub use messages::{MESSAGE_BYTES_MAX, Received, Unframer, framed};
pub use session::Session;

//! gdb's remote serial protocol, as gdb's manual describes it (appendix E, "GDB Remote Serial
//! Protocol"). The packets themselves are read and answered by the crate `gdbstub`.
//!
//! [`Session`] answers packets and does no I/O; [`serve`] and [`listen`] connect it.

mod arch;
mod connection;
mod files;
mod listener;
mod monitor;
mod packets;
mod session;
mod stepping;
mod target;

pub use connection::serve;
pub use listener::{Once, listen};
pub use packets::{Event, PACKET_BYTES_MAX, Unframer, framed};
pub use session::{End, Session};

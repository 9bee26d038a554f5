//! A client of the gdb remote serial protocol: registers, memory, breakpoints and single steps of
//! whatever a stub (QEMU's, a kernel's kgdb, gdbserver) has stopped.
//!
//! The stub is not trusted: packets are bounded, every wait ends, and an invalid answer is an error
//! that names the request. Source: "Debugging with GDB", appendix E (Remote Protocol) and G (Target
//! Descriptions).
//!
//! Not here: symbols, the meaning of memory.

mod client;
mod error;
mod packet;
mod registers;
#[cfg(test)]
mod tests;

pub use client::{Client, ClientOptions, OtherThreads, Stop};
pub use error::GdbError;
pub use packet::{Decoder, Frame, PACKET_MAX, PacketProblem, encode};
pub use registers::{Layout, Registers};

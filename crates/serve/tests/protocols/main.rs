//! Scripted clients of both protocols, over pairs of sockets in this process.
#![cfg(unix)]

mod common;
mod dap;
mod gdb;

//! Scripted clients of both protocols, over pairs of sockets in this process.
#![cfg(unix)]

mod common;
mod dap;
#[path = "../common/dap_schema.rs"]
mod dap_schema;
mod gdb;

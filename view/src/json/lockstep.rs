//! The lines of `lockstep`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

use schemars::JsonSchema;
use serde::Serialize;

/// Where the machine and the processor differ.
#[derive(Serialize, JsonSchema)]
pub struct DifferenceLine {
    pub schema: &'static str,
    /// Instructions before this one.
    pub number: u64,
    pub rip: String,
    /// The instruction's bytes, in hex; empty with `late`.
    pub bytes: String,
    pub instruction: String,
    /// It shows only when all memory is compared: an earlier instruction did it.
    pub late: bool,
    /// What differs, memory apart.
    pub values: Vec<ValueLine>,
    pub memory: Vec<BytesLine>,
}

/// A value that differs.
#[derive(Serialize, JsonSchema)]
pub struct ValueLine {
    /// A register, or `ended`.
    pub name: String,
    pub machine: String,
    pub processor: String,
}

/// Memory that differs.
#[derive(Serialize, JsonSchema)]
pub struct BytesLine {
    pub address: String,
    /// Bytes in hex.
    pub machine: String,
    pub processor: String,
}

/// The last line of `lockstep`.
#[derive(Serialize, JsonSchema)]
pub struct LockstepLine {
    pub schema: &'static str,
    /// How the program ended; absent if there was a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Instructions that both executed, and of which all was compared.
    pub compared: u64,
    /// Instructions of which the processor was told what they do, such as system calls.
    pub led: u64,
    /// Exceptions that both raised.
    pub exceptions: u64,
    pub differences: u64,
    /// The command that gives the same again.
    pub command: String,
}

//! The lines of `lockstep`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// Where the machine and the processor differ.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DifferenceLine {
    pub schema: &'static str,
    /// The number of instructions before this one.
    pub number: u64,
    pub rip: String,
    /// The instruction's bytes, in hex; empty with `late`.
    pub bytes: String,
    pub instruction: String,
    /// Only the comparison of all memory shows the difference: an earlier instruction caused it.
    pub late: bool,
    /// The values that differ, except memory.
    pub values: Vec<ValueLine>,
    pub memory: Vec<BytesLine>,
}

/// A value that differs.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ValueLine {
    /// A register, or `ended`.
    pub name: String,
    pub machine: String,
    pub processor: String,
}

/// Memory that differs.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct BytesLine {
    pub address: String,
    /// Bytes in hex.
    pub machine: String,
    pub processor: String,
}

/// The last line of `lockstep`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct LockstepLine {
    pub schema: &'static str,
    /// How the program ended; absent if there was a difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// Instructions that both executed and that were compared completely.
    pub compared: u64,
    /// Instructions that the machine answered for the processor, such as system calls.
    pub led: u64,
    /// Exceptions that both raised.
    pub exceptions: u64,
    pub differences: u64,
    /// The command that reproduces this output.
    pub command: String,
}

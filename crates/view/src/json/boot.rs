//! The lines of a kernel that is booted.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// A line that the kernel wrote to its console.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConsoleLine {
    pub schema: &'static str,
    /// The line without its end. Bytes that are not UTF-8 are replaced.
    pub text: String,
}

/// The last line of a kernel that was booted.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct BootLine {
    pub schema: &'static str,
    /// Why the run ended: `halted`, `reset` or `triple-fault` if the kernel ended; else `unmodelled`,
    /// `waits-for-ever`, `exception-loop`, `limit` or `timeout`.
    pub end: &'static str,
    /// The same in words.
    pub text: String,
    /// The instruction at which it ended, with `triple-fault`, `unmodelled` and `exception-loop`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rip: Option<String>,
    /// The function of that instruction, and the offset in it, if the kernel has symbols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    pub instructions: u64,
    /// The kernel's time at the end, nanoseconds.
    pub time: u64,
    /// The console's last lines.
    pub console: Vec<String>,
    /// Model-specific registers that were asked for and do not exist, and accesses to ports and
    /// addresses without a device: the first different ones.
    pub unknown: Vec<UnknownLine>,
}

/// What was asked for and is not there.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct UnknownLine {
    /// `register`, `port-read`, `port-write`, `memory-read` or `memory-write`.
    pub kind: &'static str,
    pub address: String,
    /// How often.
    pub count: u64,
}

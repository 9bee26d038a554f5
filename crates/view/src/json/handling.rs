//! The lines of `perf bpf`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// What a handler wrote for user space.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct HandlerOutputLine {
    pub schema: &'static str,
    /// The time of the sample, in nanoseconds.
    pub time: u64,
    pub cpu: u32,
    pub map: String,
    /// `ring` for a ring buffer, `perf` for a sample of an event.
    pub by: &'static str,
    /// The bytes, in hexadecimal.
    pub data: String,
}

/// What a handler printed.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct HandlerPrintLine {
    pub schema: &'static str,
    pub text: String,
}

/// An entry of a map at the end.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MapEntryLine {
    pub schema: &'static str,
    pub map: String,
    /// Bytes in hexadecimal.
    pub key: String,
    /// One value, or one for each processor.
    pub values: Vec<String>,
}

/// A stack of a map of stacks at the end.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MapStackLine {
    pub schema: &'static str,
    pub map: String,
    pub id: u32,
    /// Innermost first.
    pub frames: Vec<MapFrameLine>,
}

/// A frame of such a stack.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MapFrameLine {
    pub address: String,
    /// The function's name. Absent without symbols, or if processes have different names at this
    /// address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What a map did not accept or did not keep.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MapLossLine {
    pub map: String,
    /// The reason, as one word.
    pub what: &'static str,
    pub count: u64,
}

/// The last line of `perf bpf`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct HandlingLine {
    pub schema: &'static str,
    pub program: String,
    pub section: String,
    pub samples: u64,
    pub kept: u64,
    pub dropped: u64,
    /// Samples in which the program did something that the kernel would reject.
    pub faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_fault: Option<String>,
    pub losses: Vec<MapLossLine>,
    /// The command that reproduces this output.
    pub command: String,
}

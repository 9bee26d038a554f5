//! The lines of `perf bpf`.

use schemars::JsonSchema;
use serde::Serialize;

/// What a handler wrote for user space.
#[derive(Serialize, JsonSchema)]
pub struct HandlerOutputLine {
    pub(crate) schema: &'static str,
    /// Of the sample, nanoseconds.
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    pub(crate) map: String,
    /// `ring`: by a ring buffer; `perf`: as a sample of an event.
    pub(crate) by: &'static str,
    /// The bytes, in hexadecimal.
    pub(crate) data: String,
}

/// What a handler printed.
#[derive(Serialize, JsonSchema)]
pub struct HandlerPrintLine {
    pub(crate) schema: &'static str,
    pub(crate) text: String,
}

/// An entry of a map at the end.
#[derive(Serialize, JsonSchema)]
pub struct MapEntryLine {
    pub(crate) schema: &'static str,
    pub(crate) map: String,
    /// Bytes in hexadecimal.
    pub(crate) key: String,
    /// One, or one for each processor.
    pub(crate) values: Vec<String>,
}

/// A stack of a map of stacks at the end.
#[derive(Serialize, JsonSchema)]
pub struct MapStackLine {
    pub(crate) schema: &'static str,
    pub(crate) map: String,
    pub(crate) id: u32,
    /// Innermost first.
    pub(crate) frames: Vec<MapFrameLine>,
}

/// A frame of such a stack.
#[derive(Serialize, JsonSchema)]
pub struct MapFrameLine {
    pub(crate) address: String,
    /// Absent without symbols, and where processes have different names there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// What a map did not take, or did not keep.
#[derive(Serialize, JsonSchema)]
pub struct MapLossLine {
    pub(crate) map: String,
    /// The reason, in a word.
    pub(crate) what: &'static str,
    pub(crate) count: u64,
}

/// The last line of `perf bpf`.
#[derive(Serialize, JsonSchema)]
pub struct HandlingLine {
    pub(crate) schema: &'static str,
    pub(crate) program: String,
    pub(crate) section: String,
    pub(crate) samples: u64,
    pub(crate) kept: u64,
    pub(crate) dropped: u64,
    /// Samples in which the program did what the kernel would have refused.
    pub(crate) faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_fault: Option<String>,
    pub(crate) losses: Vec<MapLossLine>,
    /// The command that gives the same again.
    pub(crate) command: String,
}

//! The lines of `perf stitch`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

use schemars::JsonSchema;
use serde::Serialize;

/// A sample whose user frames were recorded later, or should have been.
#[derive(Serialize, JsonSchema)]
pub struct StitchedSampleLine {
    pub schema: &'static str,
    pub tid: i32,
    /// Nanoseconds; 0 for none.
    pub time: u64,
    /// What names the stay in the kernel; absent if the recording has no cookies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// How it came by its user frames, or why it has none.
    pub how: &'static str,
    /// The way it is compared with.
    pub like: &'static str,
    /// What is to be said of the chain that this way gives.
    pub judgement: &'static str,
    /// The chain, innermost first, with context markers: ours, or with `--like` that of this way.
    pub callchain: Vec<String>,
}

/// A name and how often it stands.
#[derive(Serialize, JsonSchema)]
pub struct NamedCountLine {
    pub name: &'static str,
    pub count: u64,
}

/// The last line of `perf stitch`.
#[derive(Serialize, JsonSchema)]
pub struct StitchingLine {
    pub schema: &'static str,
    pub samples: u64,
    /// Samples whose user frames were to come later.
    pub deferred: u64,
    /// Of these, those that have them, late ones included.
    pub stitched: u64,
    /// Of these, those that came after the record.
    pub late: u64,
    /// Samples whose record is of a moment later in user space.
    pub moved: u64,
    /// Samples whose record is empty.
    pub empty: u64,
    /// Samples without user frames, by reason.
    pub missing: Vec<NamedCountLine>,
    /// Records with user frames.
    pub records: u64,
    pub empty_records: u64,
    /// Records that no sample used.
    pub orphans: u64,
    /// Of these, those with the cookie of another thread's sample.
    pub foreign: u64,
    pub duplicates: u64,
    /// Records that contradict one before.
    pub conflicts: u64,
    /// Records or samples lost, as the recording says.
    pub lost: u64,
    /// The way that is compared with.
    pub like: &'static str,
    /// Its chains of the deferred samples, by what is to be said of them.
    pub judgements: Vec<NamedCountLine>,
    /// Samples that it gives out after a later one.
    pub out_of_order: u64,
    /// The command that gives the same again.
    pub command: String,
}

//! The lines of `perf stitch`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// A sample whose user frames were recorded later, or should have been.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StitchedSampleLine {
    pub schema: &'static str,
    pub tid: i32,
    /// Nanoseconds; 0 for none.
    pub time: u64,
    /// The cookie of the stay in the kernel; absent if the recording has no cookies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie: Option<String>,
    /// How it got its user frames, or why it has none.
    pub how: &'static str,
    /// The way of stitching that it is compared with.
    pub like: &'static str,
    /// The judgement on the chain of that way.
    pub judgement: &'static str,
    /// The chain, innermost first, with context markers: ours, or with `--like` that of the other
    /// way.
    pub callchain: Vec<String>,
}

/// A name with a count.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct NamedCountLine {
    pub name: &'static str,
    pub count: u64,
}

/// The last line of `perf stitch`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct StitchingLine {
    pub schema: &'static str,
    pub samples: u64,
    /// Samples whose user frames were deferred.
    pub deferred: u64,
    /// The number of deferred samples that have user frames, including late ones.
    pub stitched: u64,
    /// The number of stitched samples that came after the record.
    pub late: u64,
    /// Samples whose record is from a later moment in user space.
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
    /// The number of orphans with the cookie of another thread's sample.
    pub foreign: u64,
    pub duplicates: u64,
    /// Records that contradict an earlier one.
    pub conflicts: u64,
    /// Records or samples that the recording reports as lost.
    pub lost: u64,
    /// The way of stitching that the result is compared with.
    pub like: &'static str,
    /// The number of deferred samples with each judgement on the chain of that way.
    pub judgements: Vec<NamedCountLine>,
    /// Samples that this way emits after a later one.
    pub out_of_order: u64,
    /// The command that reproduces this output.
    pub command: String,
}

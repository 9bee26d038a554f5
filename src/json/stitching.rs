//! The lines of `perf stitch`.

use schemars::JsonSchema;
use serde::Serialize;

/// A sample whose user frames were recorded later, or should have been.
#[derive(Serialize, JsonSchema)]
pub struct StitchedSampleLine {
    pub(crate) schema: &'static str,
    pub(crate) tid: i32,
    /// Nanoseconds; 0 for none.
    pub(crate) time: u64,
    /// What names the stay in the kernel; absent if the recording has no cookies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cookie: Option<String>,
    /// How it came by its user frames, or why it has none.
    pub(crate) how: &'static str,
    /// The way it is compared with.
    pub(crate) like: &'static str,
    /// What is to be said of the chain that this way gives.
    pub(crate) judgement: &'static str,
    /// The chain, innermost first, with context markers: ours, or with `--like` that of this way.
    pub(crate) callchain: Vec<String>,
}

/// A name and how often it stands.
#[derive(Serialize, JsonSchema)]
pub struct NamedCountLine {
    pub(crate) name: &'static str,
    pub(crate) count: u64,
}

/// The last line of `perf stitch`.
#[derive(Serialize, JsonSchema)]
pub struct StitchingLine {
    pub(crate) schema: &'static str,
    pub(crate) samples: u64,
    /// Samples whose user frames were to come later.
    pub(crate) deferred: u64,
    /// Of these, those that have them, late ones included.
    pub(crate) stitched: u64,
    /// Of these, those that came after the record.
    pub(crate) late: u64,
    /// Samples whose record is of a moment later in user space.
    pub(crate) moved: u64,
    /// Samples whose record is empty.
    pub(crate) empty: u64,
    /// Samples without user frames, by reason.
    pub(crate) missing: Vec<NamedCountLine>,
    /// Records with user frames.
    pub(crate) records: u64,
    pub(crate) empty_records: u64,
    /// Records that no sample used.
    pub(crate) orphans: u64,
    /// Of these, those with the cookie of another thread's sample.
    pub(crate) foreign: u64,
    pub(crate) duplicates: u64,
    /// Records that contradict one before.
    pub(crate) conflicts: u64,
    /// Records or samples lost, as the recording says.
    pub(crate) lost: u64,
    /// The way that is compared with.
    pub(crate) like: &'static str,
    /// Its chains of the deferred samples, by what is to be said of them.
    pub(crate) judgements: Vec<NamedCountLine>,
    /// Samples that it gives out after a later one.
    pub(crate) out_of_order: u64,
    /// The command that gives the same again.
    pub(crate) command: String,
}

//! The lines of `tables convert` and `tables merge`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

use super::generating::GenerationComparisonLine;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// What a function lost for one reason when its table was converted.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConversionLossLine {
    pub schema: &'static str,
    /// The name of the function; absent if it has no symbol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Its first address.
    pub start: String,
    /// The first address after it.
    pub end: String,
    pub reason: &'static str,
    /// Whether rows are missing from the new table; if not, only parts of them are.
    pub costs_rows: bool,
    /// The number of rows; 0 if the whole function is concerned.
    pub rows: u64,
    /// The number of addresses.
    pub bytes: u64,
    /// The first address concerned.
    pub first: String,
}

/// A section that was written.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SectionLine {
    pub name: &'static str,
    pub address: String,
    /// Size, bytes.
    pub size: u64,
}

/// The losses for one reason.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct LossCountLine {
    pub reason: &'static str,
    /// Whether rows are missing from the new table; if not, only parts of them are.
    pub costs_rows: bool,
    pub functions: u64,
    pub rows: u64,
    /// The number of addresses.
    pub bytes: u64,
}

/// The last line of `tables convert`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConversionLine {
    pub schema: &'static str,
    pub file: String,
    /// The table that was read.
    pub from: &'static str,
    /// The format that was written.
    pub to: &'static str,
    pub functions_read: u64,
    pub rows_read: u64,
    /// Functions written; one that was divided counts more than once.
    pub functions_written: u64,
    pub rows_written: u64,
    /// Addresses at which both tables say the same.
    pub bytes_equal: u64,
    pub sections: Vec<SectionLine>,
    pub losses: Vec<LossCountLine>,
    /// With `tables generate --compare`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comparison: Option<GenerationComparisonLine>,
    /// With `tables generate`: the sections with code in no function, which got no row.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<OutsideLine>,
    /// The command that reproduces this output.
    pub command: String,
}

/// Code of a section in no function.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct OutsideLine {
    pub section: String,
    /// All bytes of the section.
    pub section_bytes: u64,
    /// Bytes in no function.
    pub bytes: u64,
    /// How many of them are neither padding nor zeros.
    pub code_bytes: u64,
    /// The address of the first of these.
    pub first: String,
}

/// The last line of `tables merge`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct MergeLine {
    pub schema: &'static str,
    pub file: String,
    /// The version of the merged table.
    pub version: u8,
    pub tables: u64,
    pub functions: u64,
    pub rows: u64,
    /// Functions of the first table, which is all that readers found before.
    pub functions_found_before: u64,
    /// Functions left out: the same start and rows as another one.
    pub duplicates: u64,
    /// The starts of functions left out: the same start as another one, but other rows.
    pub conflicts: Vec<String>,
    /// Functions left out: no code is there.
    pub dead: u64,
    /// Functions that lost their end to one that starts inside.
    pub clipped: u64,
    /// Functions left out: no row at their start.
    pub empty: u64,
    pub sections: Vec<SectionLine>,
    /// The command that reproduces this output.
    pub command: String,
}

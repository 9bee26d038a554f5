//! The lines of `tables generate`; its last line is that of `tables convert`.
#![allow(missing_docs, reason = "doc comments become the schema's descriptions")]

#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;

/// A rule of the kernel that code breaks, as objtool would warn of it.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GenerationWarningLine {
    pub schema: &'static str,
    pub file: String,
    /// The name of the function; absent if it has no symbol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The address of the instruction.
    pub address: String,
    /// Its distance from the function's start, bytes.
    pub offset: u64,
    /// The rule.
    pub rule: &'static str,
    /// objtool's words.
    pub message: String,
}

/// A range where the generated table and that of the file differ, with `--compare`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GenerationDifferenceLine {
    pub schema: &'static str,
    /// How they differ.
    pub class: &'static str,
    /// The first address.
    pub start: String,
    /// The first address after it.
    pub end: String,
    /// The section; absent in a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The offset of the first address in the section, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_offset: Option<u64>,
    /// The name of the function; absent if it has no symbol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// What the file's table says at the first address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// What the generated table says there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// How the generated table compares with that of the file.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GenerationComparisonLine {
    /// The number of addresses compared.
    pub addresses: u64,
    /// The share at which both say the same, of those whose rows the code shows.
    pub share: f64,
    pub classes: Vec<GenerationClassLine>,
}

/// The addresses of one class.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct GenerationClassLine {
    pub class: &'static str,
    pub addresses: u64,
    /// How many ranges were listed; the rest are only counted.
    pub listed: u64,
}

//! Errors in case files: what is wrong, where, and how to correct it.
//!
//! This module has the text of every message; the parser finds the errors.

use std::fmt;
use unwind_sim_unwind::printable::{Printable, printable};

/// An error in a case file.
///
/// `Display` writes `PATH:LINE:COLUMN: what is wrong` and a second line with help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The path that was given to [`Case::parse`](super::Case::parse).
    pub path: String,
    /// The line, counted from 1. An error of the whole file is at line 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub kind: CaseErrorKind,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            Printable::new(&self.path),
            self.line,
            self.column,
            printable(&self.kind.to_string())
        )?;
        write!(f, "\n  help: {}", self.kind.help())
    }
}

impl std::error::Error for CaseError {}

/// What is wrong with a case file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseErrorKind {
    /// The file is larger than [`FILE_BYTES_MAX`](super::FILE_BYTES_MAX).
    #[error("the file has {bytes} bytes, which is too large for a case")]
    TooLarge {
        /// The size of the file, in bytes.
        bytes: usize,
    },
    /// The file's name is not kebab-case or does not end in `.s`.
    #[error("`{name}` is not a name for a case")]
    Name {
        /// The offending file name.
        name: String,
    },
    /// A `#!`, `#@` or `#=` mark does not start in column 1.
    #[error("the mark `{mark}` does not start in column 1")]
    Indented {
        /// The mark.
        mark: &'static str,
    },
    /// A header line is not of the form `key: value`.
    #[error("a header line without `key: value`")]
    NoColon,
    /// A header key does not exist.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key as written.
        key: String,
    },
    /// A key that may appear only once appears twice.
    #[error("the key `{key}` appears twice")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// A key has nothing after the colon.
    #[error("the key `{key}` has no value")]
    EmptyValue {
        /// The key.
        key: &'static str,
    },
    /// A required key is absent.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key, or the alternative keys.
        key: &'static str,
    },
    /// The claim is not a sentence.
    #[error("the claim is not one sentence that ends with a full stop")]
    ClaimNotASentence,
    /// A value is not one of the allowed values.
    #[error("`{value}` is not a value for `{key}`")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The offending part of the value.
        value: String,
        /// The allowed values.
        allowed: &'static str,
    },
    /// A word is not a reason code.
    #[error("`{code}` is not a reason code")]
    BadCode {
        /// The text as written.
        code: String,
    },
    /// A claim under `wrong:` has no reason code, or one under `right:` has one.
    #[error("`{item}` {what}")]
    BadClaim {
        /// The offending item.
        item: String,
        /// What is wrong with it.
        what: &'static str,
        /// The form it should have.
        form: &'static str,
    },
    /// One unwinder is claimed right and wrong at the same point.
    #[error("`{unwinder}` is claimed right and wrong at the same sample point")]
    ClaimedBoth {
        /// The unwinder.
        unwinder: String,
    },
    /// No line of the file defines a label.
    #[error("no line of the file defines the label `{label}`")]
    UnknownLabel {
        /// The label.
        label: String,
    },
    /// A sample point is referred to that is not in the file.
    #[error("there is no sample point `{key}`")]
    UnknownPoint {
        /// The key of the point.
        key: String,
    },
    /// The file has no sample point.
    #[error("the file has no sample point")]
    NoSample,
    /// A sample line cannot be read.
    #[error("{what}")]
    BadSample {
        /// What is wrong.
        what: &'static str,
    },
    /// Two sample lines name the same point.
    #[error("the sample point `{key}` appears twice")]
    DuplicateSample {
        /// The key of the point.
        key: String,
    },
    /// A frame of a true chain cannot be read.
    #[error("`{frame}` is not a frame")]
    BadFrame {
        /// The text as written.
        frame: String,
    },
    /// There is a fake start variant without a fake sample point, or the other way round.
    #[error("{what}")]
    FakeMismatch {
        /// Which side is missing.
        what: &'static str,
    },
    /// Something that needs a kernel is used without one, or something that a kernel does not allow
    /// is used with one.
    #[error("{what}")]
    MachineMismatch {
        /// What conflicts.
        what: &'static str,
    },
    /// A number cannot be read or is out of range.
    #[error("`{text}` is not {expected}")]
    BadNumber {
        /// The text as written.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// An operand of `memory:` or `set:` cannot be read.
    #[error("`{text}` is not an operand")]
    BadOperand {
        /// The text as written.
        text: String,
    },
    /// A `memory:`, `set:` or `forget:` line has the wrong form.
    #[error("this is not a valid `{key}` line")]
    BadCorruption {
        /// `memory`, `set` or `forget`.
        key: &'static str,
        /// The form it should have.
        form: &'static str,
    },
    /// There is an `inject` key without an `.ifdef DEFECT` block, or the other way round.
    #[error("{what}")]
    DefectMismatch {
        /// Which side is missing.
        what: &'static str,
    },
    /// A `#=` line is not in one block at the end of the file.
    #[error("a line after the expectation")]
    AfterExpectation,
    /// The expectation's first row does not name its columns.
    #[error("the expectation does not start with `#= sample COLUMN..`")]
    NoColumns,
    /// A column name cannot be read or appears twice.
    #[error("`{column}` is not a column, or appears twice")]
    BadColumn {
        /// The column.
        column: String,
    },
    /// A row has too few or too many cells.
    #[error("cells in this row: {cells}; columns in the first row: {columns}")]
    RowLength {
        /// The number of cells found.
        cells: usize,
        /// The number of columns in the header row.
        columns: usize,
    },
    /// A block to the right of another has other sample points.
    #[error("the sample points of this block are not those of the first one")]
    BlockRows,
    /// A cell is not a verdict.
    #[error("`{cell}` is not a verdict")]
    BadCell {
        /// The text as written.
        cell: String,
    },
}

impl CaseErrorKind {
    /// How to correct the error.
    pub fn help(&self) -> String {
        let blessed = "remove the `#=` lines and run `unwind-sim cases bless`";
        match self {
            Self::TooLarge { .. } => format!("keep it below {} bytes", super::FILE_BYTES_MAX),
            Self::Name { .. } => {
                "name the file for what it proves: `[a-z0-9]+(-[a-z0-9]+)*.s`".into()
            }
            Self::Indented { .. } => "move it to the start of the line".into(),
            Self::NoColon => "write `#! key: value`".into(),
            Self::UnknownKey { .. } => format!("the keys are: {}", super::header::KEYS.join(", ")),
            Self::DuplicateKey { .. } => {
                "keep one; only source, memory, set and forget may be repeated".into()
            }
            Self::EmptyValue { .. } => "give it a value or remove the line".into(),
            Self::MissingKey { .. } => {
                format!("add it; these are required: {}", super::header::REQUIRED)
            }
            Self::ClaimNotASentence => "say what the case proves, in one line".into(),
            Self::BadValue { allowed, .. } => format!("allowed: {allowed}"),
            Self::BadCode { .. } => "`unwind-sim explain --list` lists the codes".into(),
            Self::BadClaim { form, .. } => format!("write {form}"),
            Self::ClaimedBoth { .. } => "name the sample points: `right: fp(at LABEL)`".into(),
            Self::UnknownLabel { .. } => {
                "define it with `LABEL:` at the start of a line, or correct its name".into()
            }
            Self::UnknownPoint { .. } => "add its `#@` line, or correct its name".into(),
            Self::NoSample => "add `#@ LABEL: innermost < .. < root`".into(),
            Self::BadSample { .. } => {
                "write `#@ LABEL [#N | each] [fake own=LABEL]: innermost < .. < root`".into()
            }
            Self::DuplicateSample { .. } => {
                "keep one, or number the visits: `#@ LABEL #2: ..`".into()
            }
            Self::BadFrame { .. } => {
                "a frame is `SYMBOL`, `SYMBOL*COUNT`, `[IMAGE]`, `<signal>`, or `...` at the end"
                    .into()
            }
            Self::FakeMismatch { .. } => {
                "a variant in `regs: fake:..` needs a `#@ LABEL fake own=LABEL: ..` line".into()
            }
            Self::MachineMismatch { .. } => {
                "remove it, or correct `machine:`; docs/case-format.md has a section on kernels"
                    .into()
            }
            Self::BadNumber { .. } => "correct the number".into(),
            Self::BadOperand { .. } => {
                "an operand is a number, REGISTER[+N], or SYMBOL[+N] (N may be negative)".into()
            }
            Self::BadCorruption { form, .. } => format!("write it as in `#! {form}`"),
            Self::DefectMismatch { .. } => {
                "write `#! inject: KIND at LABEL` and an `.ifdef DEFECT` block".into()
            }
            Self::AfterExpectation => "`#=` lines are one block at the end of the file".into(),
            // Only `bless` writes these lines, so nobody should correct them by hand.
            Self::NoColumns
            | Self::BadColumn { .. }
            | Self::RowLength { .. }
            | Self::BlockRows
            | Self::BadCell { .. } => blessed.into(),
        }
    }
}

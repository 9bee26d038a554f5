//! What can be wrong with a case file, where, and what its author should do.
//!
//! Responsible for the words of every message; not for finding the mistakes.

use std::fmt;

/// A mistake in a case file: the place and what is wrong with it.
///
/// `Display` gives `PATH:LINE:COLUMN: what is wrong` and, on a second line, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaseError {
    /// The path as it was given to [`Case::parse`](super::Case::parse).
    pub path: String,
    /// Line, counted from 1. A mistake of the whole file stands at line 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub kind: CaseErrorKind,
}

impl fmt::Display for CaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}:{}: {}",
            self.path, self.line, self.column, self.kind
        )?;
        write!(f, "\n  help: {}", self.kind.help())
    }
}

impl std::error::Error for CaseError {}

/// Everything that can be wrong with a case file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseErrorKind {
    /// The file is larger than [`FILE_BYTES_MAX`](super::FILE_BYTES_MAX).
    #[error("the file has {bytes} bytes, more than a case may have")]
    TooLarge {
        /// Size of the text in bytes.
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
    /// A header line has no `key: value`.
    #[error("a header line without `key: value`")]
    NoColon,
    /// A header key that does not exist.
    #[error("unknown key `{key}`")]
    UnknownKey {
        /// The key as written.
        key: String,
    },
    /// A key that may stand once stands twice.
    #[error("the key `{key}` stands twice")]
    DuplicateKey {
        /// The key.
        key: &'static str,
    },
    /// A key with nothing behind the colon.
    #[error("the key `{key}` has no value")]
    EmptyValue {
        /// The key.
        key: &'static str,
    },
    /// A required key is absent.
    #[error("the key `{key}` is missing")]
    MissingKey {
        /// The key, or the alternatives.
        key: &'static str,
    },
    /// The claim is not a sentence.
    #[error("the claim is not one sentence that ends with a full stop")]
    ClaimNotASentence,
    /// A value is not one of a closed set.
    #[error("`{value}` is not a value for `{key}`")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The offending part of the value.
        value: String,
        /// What may stand there.
        allowed: &'static str,
    },
    /// Not a reason code.
    #[error("`{code}` is not a reason code")]
    BadCode {
        /// What stood there.
        code: String,
    },
    /// A claim of `wrong:` has no reason code, or one of `right:` has one.
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
    /// A label that no line of the file defines.
    #[error("no line of the file defines the label `{label}`")]
    UnknownLabel {
        /// The label.
        label: String,
    },
    /// A reference to a sample point that is not in the file.
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
    #[error("the sample point `{key}` stands twice")]
    DuplicateSample {
        /// The key of the point.
        key: String,
    },
    /// A frame of a true chain cannot be read.
    #[error("`{frame}` is not a frame")]
    BadFrame {
        /// What stood there.
        frame: String,
    },
    /// A fake start variant without a fake sample point, or the other way round.
    #[error("{what}")]
    FakeMismatch {
        /// Which side is missing.
        what: &'static str,
    },
    /// What is only for a kernel without one, or what is not for a kernel with one.
    #[error("{what}")]
    MachineMismatch {
        /// What does not go together.
        what: &'static str,
    },
    /// A number that cannot be read or is out of range.
    #[error("`{text}` is not {expected}")]
    BadNumber {
        /// What stood there.
        text: String,
        /// What was expected.
        expected: &'static str,
    },
    /// An operand of `memory:` or `set:` cannot be read.
    #[error("`{text}` is not an operand")]
    BadOperand {
        /// What stood there.
        text: String,
    },
    /// A `memory:` or `set:` line has not the form it should have.
    #[error("this is no line for `{key}`")]
    BadCorruption {
        /// `memory` or `set`.
        key: &'static str,
        /// The form.
        form: &'static str,
    },
    /// The defect key and the `.ifdef DEFECT` block do not come together.
    #[error("{what}")]
    DefectMismatch {
        /// Which side is missing.
        what: &'static str,
    },
    /// A `#=` line is not in one block at the end of the file.
    #[error("a line behind the expectation")]
    AfterExpectation,
    /// The expectation's first row does not name its columns.
    #[error("the expectation does not begin with `#= sample COLUMN..`")]
    NoColumns,
    /// A column name that cannot be read or stands twice.
    #[error("`{column}` is not a column, or stands twice")]
    BadColumn {
        /// The column.
        column: String,
    },
    /// A row with too few or too many cells.
    #[error("cells in this row: {cells}; columns in the first row: {columns}")]
    RowLength {
        /// Cells found.
        cells: usize,
        /// Columns of the header row.
        columns: usize,
    },
    /// A cell that is not a verdict.
    #[error("`{cell}` is not a verdict")]
    BadCell {
        /// What stood there.
        cell: String,
    },
}

impl CaseErrorKind {
    /// What the author should do about it.
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
            Self::BadCode { .. } => "the codes are listed by `unwind-sim explain`".into(),
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
                "a frame is `SYMBOL`, `SYMBOL*COUNT`, `[IMAGE]`, `<signal>`, or a last `...`".into()
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
                "an injected defect is `#! inject: KIND at LABEL` and an `.ifdef DEFECT` block"
                    .into()
            }
            Self::AfterExpectation => "`#=` lines are one block at the end of the file".into(),
            Self::NoColumns
            | Self::BadColumn { .. }
            | Self::RowLength { .. }
            | Self::BadCell { .. } => blessed.into(),
        }
    }
}

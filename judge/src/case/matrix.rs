//! The expectation of a case: a matrix of sample points and unwinders, with a verdict in each cell.
//!
//! This module reads and writes the text of the matrix and its cells.

use std::fmt;
use std::fmt::Write as _;

use super::error::CaseErrorKind;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::verdict::Verdict;

/// The maximum number of columns and of rows.
pub const MATRIX_SIDE_MAX: usize = 512;

/// Reads a code in its exact form, such as `US203`.
pub(crate) fn parse_code(text: &str) -> Option<Code> {
    Code::from_name(text).filter(|code| code.as_str() == text)
}

/// The expectation of a column at a sample point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// `-`: the column does not apply to this point.
    NotApplicable,
    /// `*`: code of the system, such as its C library, is involved, and no claim says that the
    /// unwinder is right. Another system may give another verdict, so none is expected.
    Open,
    /// A verdict with its reason, if one is known: `t@2/US203`.
    Judged {
        /// The verdict, written in its short form.
        verdict: Verdict,
        /// The reason; absent if the verdict is [`Verdict::Ok`].
        code: Option<Code>,
    },
}

impl Cell {
    /// Reads a cell such as `.`, `m1@1`, `t@2/US203`.
    ///
    /// # Errors
    /// [`CaseErrorKind::BadCell`] if the text is not a cell.
    pub fn parse(text: &str) -> Result<Self, CaseErrorKind> {
        let bad = || CaseErrorKind::BadCell {
            cell: text.to_owned(),
        };
        if text == "-" {
            return Ok(Self::NotApplicable);
        }
        if text == "*" {
            return Ok(Self::Open);
        }
        let (verdict, code) = match text.split_once('/') {
            Some((verdict, code)) => (verdict, Some(parse_code(code).ok_or_else(bad)?)),
            None => (text, None),
        };
        let verdict = parse_verdict(verdict).ok_or_else(bad)?;
        if verdict == Verdict::Ok && code.is_some() {
            return Err(bad());
        }
        Ok(Self::Judged { verdict, code })
    }

    /// The verdict, if there is one.
    pub fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Judged { verdict, .. } => Some(verdict),
            Self::NotApplicable | Self::Open => None,
        }
    }

    /// The reason, if there is one.
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Judged { code, .. } => code,
            Self::NotApplicable | Self::Open => None,
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplicable => f.write_str("-"),
            Self::Open => f.write_str("*"),
            Self::Judged {
                verdict,
                code: None,
            } => write!(f, "{verdict}"),
            Self::Judged {
                verdict,
                code: Some(code),
            } => write!(f, "{verdict}/{code}"),
        }
    }
}

/// The inverse of the short form that [`Verdict`] displays.
fn parse_verdict(text: &str) -> Option<Verdict> {
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let no_zero_in_front = digits == "0" || !digits.starts_with('0');
        if plain && no_zero_in_front {
            digits.parse::<u32>().ok()
        } else {
            None
        }
    };
    let counted = |rest: &str| {
        let (count, at) = rest.split_once('@')?;
        let count = number(count).filter(|&count| count > 0)?;
        Some((count, number(at)?))
    };
    let placed = |rest: &str| number(rest.strip_prefix('@')?);
    Some(
        match (text.chars().next()?, text.get(1..).unwrap_or_default()) {
            ('.', "") => Verdict::Ok,
            ('~', "") => Verdict::OkUnproven,
            ('r', "") => Verdict::Refused,
            ('l', "") => Verdict::Looped,
            ('u', "") => Verdict::Unsupported,
            ('?', "") => Verdict::Unjudged,
            ('m', rest) => counted(rest).map(|(count, at)| Verdict::Missing { count, at })?,
            ('x', rest) => counted(rest).map(|(count, at)| Verdict::Extra { count, at })?,
            ('w', rest) => Verdict::Wrong { at: placed(rest)? },
            ('t', rest) => Verdict::Truncated { at: placed(rest)? },
            _ => return None,
        },
    )
}

/// One row: a sample point's key and its cells, in the order of the columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixRow {
    /// [`SamplePoint::key`](super::SamplePoint::key).
    pub point: String,
    /// One cell for each column.
    pub cells: Vec<Cell>,
}

/// The whole expectation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matrix {
    /// `UNWINDER[@START]`, in the order of the cells.
    pub columns: Vec<String>,
    /// One row for each sample point.
    pub rows: Vec<MatrixRow>,
}

impl Matrix {
    /// The cell of a point in a column.
    pub fn cell(&self, point: &str, column: &str) -> Option<Cell> {
        let index = self.columns.iter().position(|name| name == column)?;
        let row = self.rows.iter().find(|row| row.point == point)?;
        row.cells.get(index).copied()
    }

    /// Reads `#=` lines, including their marks. Empty lines are not allowed.
    ///
    /// # Errors
    /// The index of the offending line, counted from 0, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, CaseErrorKind)> {
        let mut matrix = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line
                .strip_prefix("#=")
                .ok_or((index, CaseErrorKind::AfterExpectation))?;
            let words: Vec<&str> = line.split_whitespace().collect();
            if index == 0 {
                matrix.columns = parse_columns(&words).map_err(|kind| (index, kind))?;
            } else {
                let row = parse_row(&words, &matrix).map_err(|kind| (index, kind))?;
                matrix.rows.push(row);
            }
        }
        if matrix.columns.is_empty() {
            Err((0, CaseErrorKind::NoColumns))
        } else {
            Ok(matrix)
        }
    }

    /// The `#=` lines with aligned columns, each ending with a newline and without trailing blanks.
    pub fn format(&self) -> String {
        let mut lines: Vec<Vec<String>> = Vec::with_capacity(self.rows.len() + 1);
        let head = std::iter::once("sample".to_owned());
        lines.push(head.chain(self.columns.iter().cloned()).collect());
        for row in &self.rows {
            let head = std::iter::once(row.point.clone());
            lines.push(head.chain(row.cells.iter().map(Cell::to_string)).collect());
        }
        let sides = lines.iter().map(Vec::len).max().unwrap_or(0);
        let width = |side: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(side))
                .map(String::len)
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..sides).map(width).collect();
        let mut text = String::new();
        for line in &lines {
            let mut out = String::from("#=");
            for (word, width) in line.iter().zip(&widths) {
                let _ = write!(out, " {word:<width$}");
            }
            text.push_str(out.trim_end());
            text.push('\n');
        }
        text
    }
}

fn parse_columns(words: &[&str]) -> Result<Vec<String>, CaseErrorKind> {
    let Some((&"sample", columns)) = words.split_first() else {
        return Err(CaseErrorKind::NoColumns);
    };
    if columns.is_empty() || columns.len() > MATRIX_SIDE_MAX {
        return Err(CaseErrorKind::NoColumns);
    }
    for (index, &column) in columns.iter().enumerate() {
        let plain = column
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"@:+().-_".contains(&b));
        if !plain || columns[..index].contains(&column) {
            return Err(CaseErrorKind::BadColumn {
                column: column.to_owned(),
            });
        }
    }
    Ok(columns.iter().map(|&column| column.to_owned()).collect())
}

fn parse_row(words: &[&str], matrix: &Matrix) -> Result<MatrixRow, CaseErrorKind> {
    let (&point, cells) = words.split_first().ok_or(CaseErrorKind::NoColumns)?;
    let columns = matrix.columns.len();
    if cells.len() != columns {
        return Err(CaseErrorKind::RowLength {
            cells: cells.len(),
            columns,
        });
    }
    if matrix.rows.len() >= MATRIX_SIDE_MAX || matrix.rows.iter().any(|row| row.point == point) {
        return Err(CaseErrorKind::DuplicateSample {
            key: point.to_owned(),
        });
    }
    let cells = cells
        .iter()
        .map(|cell| Cell::parse(cell))
        .collect::<Result<_, _>>()?;
    Ok(MatrixRow {
        point: point.to_owned(),
        cells,
    })
}

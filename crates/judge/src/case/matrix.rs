//! The expectation of a case: a matrix of sample points and unwinders, with a verdict in each cell.
//!
//! This module reads and writes the text of the matrix and its cells.

use std::fmt;
use std::fmt::Write as _;

use super::COLUMNS_MAX;
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
        // A number has one spelling, so that what is read is written the same way.
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let no_zero_in_front = digits == "0" || !digits.starts_with('0');
        if plain && no_zero_in_front {
            digits.parse::<u32>().ok()
        } else {
            None
        }
    };

    // `m2@1`: two frames, of which the first has index 1.
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

    /// Reads `#=` lines, including their marks. Empty lines are not allowed. A matrix with many
    /// columns is written as several blocks; each starts with a line of columns, and all have the
    /// same sample points.
    ///
    /// # Errors
    /// The index of the offending line, counted from 0, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, (usize, CaseErrorKind)> {
        let mut whole: Option<Self> = None;
        let mut block = Self::default();
        let mut last = 0;

        for (index, line) in text.lines().enumerate() {
            let line = line
                .strip_prefix("#=")
                .ok_or((index, CaseErrorKind::AfterExpectation))?;

            let words: Vec<&str> = line.split_whitespace().collect();

            // A first line that is not a head is reported as such by `parse_columns`.
            if index == 0 || is_head(&words) {
                // Another head starts a block with further columns.
                let columns = parse_columns(&words).map_err(|kind| (index, kind))?;
                let rows = Vec::new();
                let above = std::mem::replace(&mut block, Self { columns, rows });
                if index > 0 {
                    whole = Some(join(whole, above).map_err(|kind| (last, kind))?);
                }
            } else {
                let row = parse_row(&words, &block).map_err(|kind| (index, kind))?;
                block.rows.push(row);
            }

            last = index;
        }

        if block.columns.is_empty() {
            return Err((0, CaseErrorKind::NoColumns));
        }

        join(whole, block).map_err(|kind| (last, kind))
    }

    /// The `#=` lines with aligned columns, each ending with a newline and without trailing blanks,
    /// in blocks of at most [`COLUMNS_MAX`] columns of text.
    pub fn format(&self) -> String {
        let points = self.rows.iter().map(|row| row.point.as_str());
        let points: Vec<&str> = std::iter::once("sample").chain(points).collect();
        let mut columns = (0..self.columns.len())
            .map(|index| self.column(index))
            .peekable();
        let mut text = String::new();
        while columns.peek().is_some() {
            let mut lines = vec!["#=".to_owned(); points.len()];
            append(&mut lines, &points);
            let narrow = lines[0].len();
            while let Some(column) = columns.next_if(|column| {
                lines[0].len() == narrow || lines[0].len() + 1 + width(column) <= COLUMNS_MAX
            }) {
                append(&mut lines, &column);
            }
            for line in lines {
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        text
    }

    /// The name of a column, and its cells.
    fn column(&self, index: usize) -> Vec<String> {
        let cells = self.rows.iter().map(|row| row.cells[index].to_string());
        std::iter::once(self.columns[index].clone())
            .chain(cells)
            .collect()
    }
}

fn width(words: &[impl AsRef<str>]) -> usize {
    words
        .iter()
        .map(|word| word.as_ref().len())
        .max()
        .unwrap_or(0)
}

/// Adds a column to lines of the same length.
fn append(lines: &mut [String], words: &[impl AsRef<str>]) {
    let width = width(words);
    for (line, word) in lines.iter_mut().zip(words) {
        let _ = write!(line, " {:<width$}", word.as_ref());
    }
}

/// Whether these words are the first line of a block. A sample point may be called `sample` too.
fn is_head(words: &[&str]) -> bool {
    words.first() == Some(&"sample") && words.get(1).is_some_and(|word| Cell::parse(word).is_err())
}

/// The blocks above, with another one to their right.
fn join(above: Option<Matrix>, block: Matrix) -> Result<Matrix, CaseErrorKind> {
    let Some(mut whole) = above else {
        return Ok(block);
    };

    // The blocks are parts of one matrix: no column comes twice, and all have the same rows.
    if let Some(column) = block
        .columns
        .iter()
        .find(|name| whole.columns.contains(name))
    {
        let column = column.clone();
        return Err(CaseErrorKind::BadColumn { column });
    }

    let points = |matrix: &Matrix| -> Vec<String> {
        matrix.rows.iter().map(|row| row.point.clone()).collect()
    };
    if points(&whole) != points(&block) {
        return Err(CaseErrorKind::BlockRows);
    }

    // Each block alone is within the limit; all together need not be.
    if whole.columns.len() + block.columns.len() > MATRIX_SIDE_MAX {
        return Err(CaseErrorKind::NoColumns);
    }

    whole.columns.extend(block.columns);
    for (row, more) in whole.rows.iter_mut().zip(block.rows) {
        row.cells.extend(more.cells);
    }

    Ok(whole)
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
        // A block's first line is told from a row by its second word.
        let is_cell = Cell::parse(column).is_ok();
        if !plain || is_cell || columns[..index].contains(&column) {
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

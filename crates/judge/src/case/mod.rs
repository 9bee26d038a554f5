//! The case format: an assembler file that states its true call chains.
//!
//! This module reads `corpus/cases/**/NAME.s` (`docs/case-format.md` has the grammar) and rewrites
//! the generated part. Assembling, running and judging are in [`cases`](crate::cases).

mod error;
mod folded;
mod header;
mod matrix;
mod operand;
mod sample;
#[cfg(test)]
mod tests;

pub use error::{CaseError, CaseErrorKind};
pub use folded::fold;
pub use header::{Claim, ClaimArg, Defect, Delivery, Header, Inject, KEYS, Machine, Table, View};
pub use matrix::{Cell, MATRIX_SIDE_MAX, Matrix, MatrixRow};
pub use operand::{Base, Corruption, Forgotten, Operand, Target};
pub use sample::{CHAIN_FRAMES_MAX, Chain, Frame, PointKey, SamplePoint, VISIT_MAX};

use unwind_sim_unwind::start::Variant;

/// The value with which cases fill stack that is not in use (`corpus/cases/prelude.inc`).
pub const POISON: u64 = 0x0bad_0bad_0bad_0bad;

/// The maximum width of a written line, in columns.
pub const COLUMNS_MAX: usize = 100;

/// The maximum size of a case file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// A case that was read and is consistent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The claim in kebab-case: the file name without `.s`.
    pub name: String,
    /// The path that was given to [`Case::parse`].
    pub path: String,
    /// The header.
    pub header: Header,
    /// The sample points, in the order of the file; at least one.
    pub samples: Vec<SamplePoint>,
    /// The generated expectation; absent in a case that was never blessed.
    pub expected: Option<Matrix>,
    text: String,
    /// Where the generated expectation starts in `text`, bytes.
    author_bytes: usize,
}

impl Case {
    /// Reads a case. `path` gives the name and appears in messages; nothing is opened.
    ///
    /// # Errors
    /// The first error, with its place and help.
    pub fn parse(path: &str, text: &str) -> Result<Self, CaseError> {
        Case::parse_named(path, path, text)
    }

    /// [`Case::parse`] of a text whose path says no name: that is the one of the file `name`.
    ///
    /// # Errors
    /// See [`Case::parse`].
    pub fn parse_named(name: &str, path: &str, text: &str) -> Result<Self, CaseError> {
        let fail = |line, column, kind| CaseError {
            path: path.to_owned(),
            line,
            column,
            kind,
        };

        // Before anything reads the text: its size is not trusted.
        if text.len() > FILE_BYTES_MAX {
            return Err(fail(1, 1, CaseErrorKind::TooLarge { bytes: text.len() }));
        }

        let name = case_name(name).map_err(|kind| fail(1, 1, kind))?;
        let mut reader = Reader::default();

        // The expectation is the end of the file, from the first line with `#=`; the text above it
        // is the author's.
        let mut author_bytes = text.len();
        let mut expectation_line = 0;
        let mut start = 0;
        let mut lines = Vec::new();
        for (index, line) in text.split_inclusive('\n').enumerate() {
            if line.starts_with("#=") {
                author_bytes = start;
                expectation_line = index + 1;
                break;
            }
            lines.push(line.trim_end_matches(['\n', '\r']));
            start += line.len();
        }

        for line in folded::unfold(&lines) {
            reader
                // A folded line is read as one; the offset of an error becomes a place in the file
                // again.
                .line(&line.text, line.number())
                .map_err(|(at, kind)| {
                    let (number, column) = line.place(&lines, at);
                    fail(number, column, kind)
                })?;
        }

        let (author_text, generated) = text.split_at(author_bytes);
        reader
            .check(author_text)
            .map_err(|(line, kind)| fail(line, 1, kind))?;

        let mut case = Self {
            name,
            path: path.to_owned(),
            header: reader.header,
            samples: reader.samples,
            expected: None,
            text: text.to_owned(),
            author_bytes,
        };

        // Last, because its rows must be sample points of the author's part.
        if !generated.is_empty() {
            let matrix = Matrix::parse(generated)
                .and_then(|matrix| case.check_rows(matrix))
                .map_err(|(index, kind)| fail(expectation_line + index, 1, kind))?;
            case.expected = Some(matrix);
        }

        Ok(case)
    }

    /// The point with this key.
    pub fn sample(&self, key: &PointKey) -> Option<&SamplePoint> {
        self.samples.iter().find(|sample| sample.key == *key)
    }

    /// The whole file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file without its `#=` lines, exactly as the author wrote it.
    pub fn author_text(&self) -> &str {
        &self.text[..self.author_bytes]
    }

    /// The whole file with `matrix` as its expectation. No line of the author is changed,
    /// except that a missing newline at the end of the last one is added.
    pub fn with_expectations(&self, matrix: &Matrix) -> String {
        let author = self.author_text();
        let newline = if author.ends_with('\n') { "" } else { "\n" };
        format!("{author}{newline}{}", matrix.format())
    }

    /// Checks that every row is a sample point of the file.
    fn check_rows(&self, matrix: Matrix) -> Result<Matrix, (usize, CaseErrorKind)> {
        let known = |key: &str| {
            let key = PointKey::parse(key);
            key.is_ok_and(|key| self.samples.iter().any(|sample| sample.is_of(&key)))
        };
        match matrix.rows.iter().position(|row| !known(&row.point)) {
            Some(index) => {
                let key = matrix.rows[index].point.clone();
                Err((index + 1, CaseErrorKind::UnknownPoint { key }))
            }
            None => Ok(matrix),
        }
    }
}

fn case_name(path: &str) -> Result<String, CaseErrorKind> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let plain = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    match file.strip_suffix(".s") {
        Some(name) if name.split('-').all(plain) => Ok(name.to_owned()),
        _ => Err(CaseErrorKind::Name {
            name: file.to_owned(),
        }),
    }
}

/// The marks that start a line of the case format.
const MARKS: [&str; 3] = ["#!", "#@", "#="];

#[derive(Default)]
struct Reader {
    header: Header,
    key_lines: Vec<(&'static str, usize)>,
    samples: Vec<SamplePoint>,
}

impl Reader {
    /// Reads one line of the author's part. Errors carry a byte offset into the line.
    fn line(&mut self, line: &str, number: usize) -> Result<(), (usize, CaseErrorKind)> {
        let body = line.trim_start();
        let indent = line.len() - body.len();
        let Some(mark) = MARKS.into_iter().find(|mark| body.starts_with(mark)) else {
            return Ok(());
        };
        if indent > 0 {
            return Err((indent, CaseErrorKind::Indented { mark }));
        }
        match mark {
            "#!" => self.header_line(line, number),
            "#@" => {
                let sample = SamplePoint::parse(&line[2..], number)
                    .map_err(|(offset, kind)| (2 + offset, kind))?;
                if self.samples.iter().any(|other| other.key == sample.key) {
                    return Err((2, CaseErrorKind::DuplicateSample { key: sample.key() }));
                }
                self.samples.push(sample);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn header_line(&mut self, line: &str, number: usize) -> Result<(), (usize, CaseErrorKind)> {
        // The line begins with `#!`.
        let (name, value) = line[2..]
            .split_once(':')
            .ok_or((2, CaseErrorKind::NoColon))?;

        let key_at = 2 + name.len() - name.trim_start().len();
        let name = name.trim();

        let key = KEYS.into_iter().find(|key| *key == name).ok_or_else(|| {
            (
                key_at,
                CaseErrorKind::UnknownKey {
                    key: name.to_owned(),
                },
            )
        })?;

        // A second line of another key would replace the first one unnoticed.
        let may_repeat = matches!(key, "source" | "memory" | "set" | "forget");
        if !may_repeat && self.key_lines.iter().any(|(other, _)| *other == key) {
            return Err((key_at, CaseErrorKind::DuplicateKey { key }));
        }

        // `value` reaches to the end of the line, so its length gives its offset.
        let value_at = line.len() - value.trim_start().len();
        let value = value.trim();
        if value.is_empty() {
            return Err((key_at, CaseErrorKind::EmptyValue { key }));
        }

        self.header
            .set(key, value)
            .map_err(|kind| (value_at, kind))?;
        self.key_lines.push((key, number));
        Ok(())
    }

    /// Checks what can only be checked after everything was read. Errors carry a line number.
    fn check(&self, text: &str) -> Result<(), (usize, CaseErrorKind)> {
        let line_of = |key: &str| {
            self.key_lines
                .iter()
                .find(|(name, _)| *name == key)
                .map_or(1, |(_, line)| *line)
        };

        if let Some(key) = self.header.missing() {
            return Err((1, CaseErrorKind::MissingKey { key }));
        }
        if self.samples.is_empty() {
            return Err((1, CaseErrorKind::NoSample));
        }

        let is_kernel = self.header.machine == Machine::Kernel;
        for sample in &self.samples {
            if sample.each && !is_kernel {
                let what = "`each` without `machine: kernel`";
                return Err((sample.line, CaseErrorKind::MachineMismatch { what }));
            }
            // The labels of a kernel are in the file that its cases include.
            if is_kernel {
                continue;
            }

            // A fake sample has two labels: where its registers are fetched, and the unwinder's
            // own.
            for label in std::iter::once(&sample.key.label).chain(&sample.key.own) {
                defined(text, label).map_err(|kind| (sample.line, kind))?;
            }
        }

        // What claims and corruptions name must be points of this case.
        for (key, claims) in [("right", &self.header.right), ("wrong", &self.header.wrong)] {
            let points = claims
                .iter()
                .flat_map(|claim| &claim.args)
                .filter_map(|arg| arg.at.as_ref());
            self.known(points).map_err(|kind| (line_of(key), kind))?;
        }

        // A corruption of a point that does not exist would silently be left out.
        for corruption in &self.header.corruptions {
            let key = match corruption.target {
                Target::Memory(_) => "memory",
                Target::Register(_) | Target::Sampled(_) => "set",
            };
            self.known([&corruption.point])
                .map_err(|kind| (line_of(key), kind))?;
        }

        let forgotten = self
            .header
            .forgotten
            .iter()
            .map(|forgotten| &forgotten.point);
        self.known(forgotten)
            .map_err(|kind| (line_of("forget"), kind))?;

        self.check_claims()
            .map_err(|kind| (line_of("wrong"), kind))?;
        self.check_starts()
            .map_err(|kind| (line_of("regs"), kind))?;

        if let Some(what) = self.header.machine_mismatch() {
            // It is shown at the last of the lines that it is about.
            let keys = ["machine", "interrupt", "nmi"];
            let line = keys.map(line_of).into_iter().max().unwrap_or(1);
            return Err((line, CaseErrorKind::MachineMismatch { what }));
        }

        self.check_defect(text)
            .map_err(|kind| (line_of("inject"), kind))
    }

    fn known<'a>(&self, keys: impl IntoIterator<Item = &'a PointKey>) -> Result<(), CaseErrorKind> {
        for key in keys {
            if !self.samples.iter().any(|sample| sample.is_of(key)) {
                return Err(CaseErrorKind::UnknownPoint {
                    key: key.to_string(),
                });
            }
        }
        Ok(())
    }

    fn check_claims(&self) -> Result<(), CaseErrorKind> {
        let starts_meet =
            |a: Option<Variant>, b: Option<Variant>| a.is_none() || b.is_none() || a == b;
        for right in &self.header.right {
            // A claim without points is about all of them, so any `wrong` contradicts it.
            let all_right = right.args.is_empty();
            let meets = |wrong: &&Claim| {
                wrong.unwinder == right.unwinder && starts_meet(wrong.start, right.start)
            };
            for wrong in self.header.wrong.iter().filter(meets) {
                let same = |arg: &ClaimArg| {
                    arg.at.is_some() && right.args.iter().any(|other| other.at == arg.at)
                };
                if all_right || wrong.args.iter().any(same) {
                    let unwinder = right.unwinder.clone();
                    return Err(CaseErrorKind::ClaimedBoth { unwinder });
                }
            }
        }
        Ok(())
    }

    fn check_starts(&self) -> Result<(), CaseErrorKind> {
        let fake_point = self.samples.iter().any(SamplePoint::is_fake);
        let fake_start = self
            .header
            .regs
            .iter()
            .any(|start| *start != Variant::Hardware);
        let what = match (fake_start, fake_point) {
            (true, false) => "a fake start without a fake sample point",
            (false, true) => "a fake sample point without a fake start in `regs:`",
            _ => return Ok(()),
        };
        Err(CaseErrorKind::FakeMismatch { what })
    }

    fn check_defect(&self, text: &str) -> Result<(), CaseErrorKind> {
        // A case may have conditions on other symbols, such as `FRAME_POINTER` in a kernel.
        let block = text.lines().any(|line| {
            let mut words = line.split_whitespace();
            matches!(words.next(), Some(".ifdef" | ".ifndef")) && words.next() == Some("DEFECT")
        });
        match (&self.header.inject, block) {
            (Some(inject), true) => defined(text, &inject.label),
            (Some(_), false) => Err(CaseErrorKind::DefectMismatch {
                what: "there is an `inject` key, but no `.ifdef DEFECT` block",
            }),
            (None, true) => Err(CaseErrorKind::DefectMismatch {
                what: "there is an `.ifdef DEFECT` block, but no `inject` key",
            }),
            (None, false) => Ok(()),
        }
    }
}

/// Checks that a line starts with `LABEL:`, or defines the label with one of the prelude's macros.
fn defined(text: &str, label: &str) -> Result<(), CaseErrorKind> {
    let found = text.lines().any(|line| {
        let line = line.trim_start();

        // The macros of `prelude.inc` that define a function have its label as their first
        // argument.
        let macro_name = ["FUNC ", "FUNC_NO_CFI "]
            .into_iter()
            .find_map(|name| line.strip_prefix(name));
        match macro_name {
            Some(rest) => {
                rest.split([' ', '\t', ',', '#'])
                    .find(|word| !word.is_empty())
                    == Some(label)
            }
            None => line
                .strip_prefix(label)
                .is_some_and(|rest| rest.starts_with(':')),
        }
    });

    if found {
        Ok(())
    } else {
        Err(CaseErrorKind::UnknownLabel {
            label: label.to_owned(),
        })
    }
}

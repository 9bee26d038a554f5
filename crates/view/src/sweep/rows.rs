//! The rows of one file as JSON Lines, and their sums.

use super::list::ListedFile;
use super::run::{SweepOutput, SweepResult};
use crate::json::{CountLine, Line, OfFile, SweptLine, UnreadableLine};
use crate::tables::proof::{ListedFunctions, lines};
use unwind_sim_judge::SCHEMA;
use unwind_sim_tables::check::Report;

/// Numbers of files and functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// Files, with those that could not be checked.
    pub files: u64,
    /// Files that could not be checked.
    pub unreadable: u64,
    pub(crate) all: CountLine,
    pub(crate) proven: CountLine,
    pub(crate) contradicted: CountLine,
    pub(crate) unproven: CountLine,
    pub(crate) rows_proven: u64,
    /// Findings about the indexes of tables.
    pub(crate) index: u64,
}

impl Sums {
    /// A file that could not be checked.
    pub(crate) const UNREADABLE: Sums = {
        const NONE: CountLine = CountLine {
            functions: 0,
            rows: 0,
            bytes: 0,
        };
        Sums {
            files: 1,
            unreadable: 1,
            all: NONE,
            proven: NONE,
            contradicted: NONE,
            unproven: NONE,
            rows_proven: 0,
            index: 0,
        }
    };

    /// The numbers of a file's report.
    pub(crate) fn of(report: &Report) -> Sums {
        let totals = report.totals();
        Sums {
            files: 1,
            unreadable: 0,
            all: totals.all.into(),
            proven: totals.proven.into(),
            contradicted: totals.contradicted.into(),
            unproven: totals.unproven.into(),
            rows_proven: totals.rows_proven,
            index: report.index.len() as u64,
        }
    }

    /// The number of functions.
    pub fn functions(&self) -> u64 {
        self.all.functions
    }

    /// The number of functions with a contradicted row.
    pub fn contradicted(&self) -> u64 {
        self.contradicted.functions
    }

    /// The number of findings about the indexes of tables.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Adds the numbers of other files. Numbers in a damaged part may be anything.
    pub fn add(&mut self, other: &Sums) {
        let pairs = [
            (&mut self.files, other.files),
            (&mut self.unreadable, other.unreadable),
            (&mut self.rows_proven, other.rows_proven),
            (&mut self.index, other.index),
        ];
        for (mine, theirs) in pairs {
            *mine = mine.saturating_add(theirs);
        }
        let counts = [
            (&mut self.all, other.all),
            (&mut self.proven, other.proven),
            (&mut self.contradicted, other.contradicted),
            (&mut self.unproven, other.unproven),
        ];
        for (mine, theirs) in counts {
            mine.functions = mine.functions.saturating_add(theirs.functions);
            mine.rows = mine.rows.saturating_add(theirs.rows);
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
        }
    }

    /// The last line of a part.
    pub fn line(&self) -> Vec<u8> {
        let line = Line::Swept(SweptLine {
            schema: SCHEMA,
            files: self.files,
            unreadable: self.unreadable,
            all: self.all,
            proven: self.proven,
            contradicted: self.contradicted,
            unproven: self.unproven,
            rows_proven: self.rows_proven,
            index: self.index,
        });
        let mut text = Vec::new();
        line.write(&mut text)
            .expect("writing to memory does not fail");
        text
    }
}

/// The rows of a file.
#[derive(Debug)]
pub struct JsonRows {
    text: Vec<u8>,
    sums: Sums,
}

impl JsonRows {
    /// The JSON Lines of the file.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The file's numbers.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }
}

impl SweepOutput for JsonRows {
    fn new(entry: &ListedFile, swept: &SweepResult) -> JsonRows {
        let of = OfFile::listed(entry.bytes(), entry.package());
        let mut text = Vec::new();
        let (written, sums) = match swept {
            SweepResult::Checked(checked) => {
                let (file, report) = &**checked;
                let of = of.opened(file);
                let written = lines(&of, file, report, ListedFunctions::All, &mut text);
                (written, Sums::of(report))
            }
            SweepResult::Unreadable(why) => {
                let line = UnreadableLine::new(of, why.cause.as_str(), why.error.clone());
                let written = Line::Unreadable(line).write(&mut text);
                (written, Sums::UNREADABLE)
            }
        };
        written.expect("writing to memory does not fail");
        JsonRows { text, sums }
    }

    fn bytes(&self) -> usize {
        self.text.len()
    }
}

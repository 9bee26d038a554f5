//! Wrong rows of `tables check` by cause, author and what is known of them.
//!
//! A function belongs to the group of its first wrong row: what follows there is often a consequence.

mod known;
mod writers;

pub use known::{KNOWN, Known};
pub use writers::{Evidence, Kind, Writer, Writers};
pub(crate) use writers::{is_assembler, is_assembly};

use known::Seen;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_tables::blame::{Cause, CodeContext, cause_of};
use unwind_sim_tables::check::{Checked, Report};
use unwind_sim_tables::file::File;
use unwind_sim_unwind::reason::Code;

/// What is to blame for a function's wrong rows.
#[derive(Clone)]
pub struct Blame {
    /// The code of the first one.
    pub code: Code,
    /// Its cause.
    pub cause: Cause,
    /// Who wrote the function.
    pub writer: Writer,
    /// The class that it looks like.
    pub known: Option<&'static Known>,
}

impl Blame {
    /// The identity of a group. A person's source files are no groups of their own.
    fn key(&self) -> Key {
        let known = self.known.map_or("", |known| known.id);
        let Writer {
            kind,
            tools,
            evidence,
            ..
        } = &self.writer;
        let writer = (*kind, tools.clone(), *evidence);
        (self.cause, self.code.as_str(), writer, known)
    }
}

type Key = (
    Cause,
    &'static str,
    (Kind, Vec<String>, Evidence),
    &'static str,
);

/// Finds what is to blame.
pub struct Judge<'f> {
    file: &'f File,
    files: FinderOptions,
    /// Read when it is first asked for.
    writers: Option<Writers>,
}

/// Functions whose first wrong rows have the same cause and author.
pub struct Group<'r> {
    /// What they have in common.
    pub blame: Blame,
    /// The source files, if they are assembly.
    pub sources: BTreeSet<String>,
    /// The functions, by address.
    pub functions: Vec<&'r Checked>,
    /// Their wrong claims.
    pub contradictions: usize,
}

impl<'f> Judge<'f> {
    /// One for the wrong rows of a file.
    pub fn new(file: &'f File) -> Judge<'f> {
        Judge {
            file,
            files: FinderOptions::system(),
            writers: None,
        }
    }

    /// What is to blame for a function's wrong rows; `None` if it has none.
    pub fn blame(&mut self, checked: &Checked) -> Option<Blame> {
        let wrong = checked.verdict.contradictions.first()?;
        let (file, start) = (self.file, checked.range.start);

        // A file without wrong rows is never asked who wrote it: that takes its debug information.
        let writers = &mut self.writers;
        let writers = writers.get_or_insert_with(|| Writers::read(file, &self.files));
        let writer = writers.at(file, wrong.pc);

        let around = CodeContext::of(file, start, wrong);
        let cause = cause_of(file, wrong, &around);

        let seen = Seen {
            file,
            start,
            entry: checked.entry,
            convention: checked.convention,
            rows: checked.verdict.rows,
            wrong,
            around: &around,
            cause,
            writer: &writer,
        };

        let known = seen.known();
        Some(Blame {
            code: wrong.code(),
            cause,
            writer,
            known,
        })
    }

    /// All groups of a report: first what is not known, then by the number of functions.
    pub fn groups<'r>(&mut self, report: &'r Report) -> Vec<Group<'r>> {
        let mut groups: Vec<Group<'r>> = Vec::new();
        let mut by_key = BTreeMap::new();

        for checked in &report.functions {
            let Some(blame) = self.blame(checked) else {
                continue;
            };

            let next = groups.len();
            let at = *by_key.entry(blame.key()).or_insert(next);
            let source = blame.writer.source.clone();
            if at == next {
                groups.push(Group {
                    blame,
                    sources: BTreeSet::new(),
                    functions: Vec::new(),
                    contradictions: 0,
                });
            }

            groups[at].sources.extend(source);
            groups[at].functions.push(checked);
            groups[at].contradictions += checked.verdict.contradictions.len();
        }

        // A stable sort: groups of the same size stay in the order of their first function.
        groups.sort_by_key(|g| (g.blame.known.is_some(), Reverse(g.functions.len())));
        groups
    }
}

#[cfg(test)]
mod tests;

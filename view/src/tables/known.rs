//! `tables check --baseline`: wrong rows that an earlier run found.

use super::names::Names;
use crate::json::WrongRowLine;
use serde_json::Value;
use std::collections::HashSet;
use unwind_sim_recordings::names::file_name;
use unwind_sim_tables::check::{Checked, Report};
use unwind_sim_tables::file::File;
use unwind_sim_tables::index::Finding;
use unwind_sim_tables::proof::verdict::Contradiction;

/// What identifies a wrong row in another build of the same program: the file's name, the function,
/// the distance from its start, the table, the code and the register.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Key([String; 6]);

/// The wrong rows of an earlier run.
#[derive(Debug, Default)]
pub struct KnownRows {
    keys: HashSet<Key>,
}

/// Why a baseline cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KnownError {
    /// A line that is not a line of this tool.
    #[error("line {line} is not a line of `unwind-sim tables check --json`")]
    Line {
        /// Its number, from 1.
        line: usize,
    },
    /// There is no summary: the run that wrote it did not end, or it is of another command.
    #[error("it has no line of type check; make it with `unwind-sim tables check --json ELF..`")]
    NoSummary,
}

impl KnownRows {
    /// Reads the lines of an earlier `--json`.
    ///
    /// # Errors
    /// If they are not lines of `tables check`, or it did not end.
    pub fn read(text: &str) -> Result<KnownRows, KnownError> {
        let mut known = KnownRows::default();
        let mut sums = 0;
        for (number, line) in text.lines().enumerate() {
            let wrong = KnownError::Line { line: number + 1 };
            let line: Value = serde_json::from_str(line).map_err(|_| wrong.clone())?;
            match line.get("type").and_then(Value::as_str) {
                Some("wrong_row") => known.keys.insert(Key::of_line(&line).ok_or(wrong)?),
                Some("index") => known.keys.insert(Key::of_index_line(&line).ok_or(wrong)?),
                Some("unproven" | "function" | "unreadable" | "sweep" | "summary") => true,
                Some("check") => {
                    sums += 1;
                    true
                }
                _ => return Err(wrong),
            };
        }
        match sums {
            0 => Err(KnownError::NoSummary),
            _ => Ok(known),
        }
    }

    /// Takes the known wrong rows out of a report.
    pub fn take_out(&self, file: &File, report: &mut Report) {
        let mut names = Names::new(file);
        report.take_out(|checked, wrong| {
            self.keys
                .contains(&Key::of(file, &mut names, checked, wrong))
        });
        report.index.retain(|finding| {
            !self
                .keys
                .contains(&Key::of_index(file, &mut names, finding))
        });
    }
}

impl Key {
    fn of(file: &File, names: &mut Names<'_>, checked: &Checked, wrong: &Contradiction) -> Key {
        let name = names
            .function(checked.range.start)
            .map(|(name, _)| name.to_owned());
        Key([
            file_name(file.name()).to_owned(),
            name.unwrap_or_else(|| format!("{:#x}", checked.range.start)),
            format!("{:#x}", wrong.pc.wrapping_sub(checked.range.start)),
            wrong.table.as_str().to_owned(),
            wrong.code().as_str().to_owned(),
            WrongRowLine::register(wrong.subject).to_owned(),
        ])
    }

    /// A flaw of an index, by the function whose rows are lost or, without one, the place.
    fn of_index(file: &File, names: &mut Names<'_>, finding: &Finding) -> Key {
        let code = finding.code.as_ref();
        let name = code.and_then(|code| Some(names.function(code.start)?.0.to_owned()));
        Key([
            file_name(file.name()).to_owned(),
            name.unwrap_or_else(|| format!("{:#x}", finding.offset)),
            String::new(),
            finding.section.to_owned(),
            finding.flaw.as_str().to_owned(),
            String::new(),
        ])
    }

    fn of_index_line(line: &Value) -> Option<Key> {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        Some(Key([
            file_name(text("file")?).to_owned(),
            text("function").or(text("offset"))?.to_owned(),
            String::new(),
            text("section")?.to_owned(),
            text("flaw")?.to_owned(),
            String::new(),
        ]))
    }

    fn of_line(line: &Value) -> Option<Key> {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let number = |key: &str| u64::from_str_radix(text(key)?.strip_prefix("0x")?, 16).ok();
        let start = text("function_start")?;
        let distance = number("address")?.wrapping_sub(number("function_start")?);
        Some(Key([
            file_name(text("file")?).to_owned(),
            text("function").unwrap_or(start).to_owned(),
            format!("{distance:#x}"),
            text("table")?.to_owned(),
            text("code")?.to_owned(),
            text("register")?.to_owned(),
        ]))
    }
}

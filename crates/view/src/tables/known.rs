//! `tables check --baseline`: wrong rows that an earlier run found.

use super::names::Names;
use crate::json::WrongRowLine;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use unwind_sim_recordings::names::file_name;
use unwind_sim_tables::blame::shape;
use unwind_sim_tables::check::{Checked, Report};
use unwind_sim_tables::file::File;
use unwind_sim_tables::index::Finding;
use unwind_sim_tables::proof::claim::Subject;
use unwind_sim_tables::proof::verdict::Contradiction;
use unwind_sim_unwind::row::TableKind;

/// What identifies a function in another build of the same program.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Identity {
    /// Its name, demangled. Several functions may have it.
    pub(crate) name: Option<String>,
    /// The hash of its instructions, without addresses.
    pub(crate) shape: u64,
}

impl Identity {
    pub(crate) fn of(file: &File, names: &mut Names<'_>, checked: &Checked) -> Identity {
        let name = names.function(checked.range.start);
        Identity {
            name: name.map(|(name, _)| name.to_owned()),
            shape: shape(file, &checked.range),
        }
    }

    /// Its name or, where it has none, the hash: addresses change from build to build.
    pub(crate) fn text(&self) -> String {
        match &self.name {
            Some(name) => name.clone(),
            None => format!("code-{:016x}", self.shape),
        }
    }
}

/// What identifies a wrong row in another build of the same program: the file's name, the function,
/// the distance from its start, the table, the code and the register. A second function of the same
/// name has the same keys.
#[derive(PartialEq, Eq, Hash, Debug)]
struct WrongRowKey([String; 6]);

/// The wrong rows of an earlier run.
#[derive(Debug, Default)]
pub struct KnownRows {
    /// By key, the hash of each function that has it, as far as it is known.
    keys: HashMap<WrongRowKey, Vec<Option<String>>>,
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
            // A baseline is compared with what is found now, so a line that is not read would be a
            // new row.
            let line: Value = serde_json::from_str(line).map_err(|_| wrong.clone())?;

            match line.get("type").and_then(Value::as_str) {
                Some("wrong_row") => {
                    // A line without the fields that make the key is not one of a version that can
                    // be compared.
                    let key = WrongRowKey::of_line(&line).ok_or(wrong)?;
                    let hash = line.get("function_hash").and_then(Value::as_str);
                    known
                        .keys
                        .entry(key)
                        .or_default()
                        .push(hash.map(str::to_owned));
                    true
                }

                // A flaw of an index has no function's hash, so its key is all there is.
                Some("index") => {
                    let key = WrongRowKey::of_index_line(&line).ok_or(wrong)?;
                    known.keys.entry(key).or_default();
                    true
                }
                // Lines of the same commands, without a wrong row.
                Some("unproven" | "function" | "unreadable" | "sweep" | "summary") => true,
                Some("check") => {
                    sums += 1;
                    true
                }
                _ => return Err(wrong),
            };
        }

        // Without the sums, the earlier run may have ended before it had found all.
        match sums {
            0 => Err(KnownError::NoSummary),
            _ => Ok(known),
        }
    }

    /// Takes the known wrong rows out of a report. Of rows of functions with one name, as many are known
    /// as the earlier run had: first those of functions with the same instructions.
    pub fn take_out(&self, file: &File, report: &mut Report) {
        let mut names = Names::new(file);

        // How many of each key are left to take, with the hashes of their functions.
        let mut left: HashMap<&WrongRowKey, Vec<Option<String>>> = HashMap::new();
        let mut rows: Vec<(&WrongRowKey, String, RowPlace)> = Vec::new();

        for checked in &report.functions {
            if checked.verdict.contradictions.is_empty() {
                continue;
            }

            let identity = Identity::of(file, &mut names, checked);
            for wrong in &checked.verdict.contradictions {
                // Earlier versions named a function without a name by its address.
                let keys = [identity.text(), format!("{:#x}", checked.range.start)];
                let keys = keys.map(|function| WrongRowKey::of(file, function, checked, wrong));

                let known = keys.iter().find_map(|key| self.keys.get_key_value(key));
                if let Some((key, known)) = known {
                    left.entry(key).or_insert_with(|| known.clone());
                    rows.push((key, hash(identity.shape), RowPlace::of(checked, wrong)));
                }
            }
        }

        // In the first round only rows of functions with the same instructions, so that a changed
        // one does not take their place.
        let mut known = HashSet::new();
        for is_same in [true, false] {
            rows.retain(|(key, hash, place)| {
                let Some(left) = left.get_mut(key) else {
                    return true;
                };
                let found = left
                    .iter()
                    .position(|l| !is_same || l.as_ref() == Some(hash));
                if let Some(at) = found {
                    left.remove(at);
                    known.insert(*place);
                }
                found.is_none()
            });
        }

        report.take_out(|checked, wrong| known.contains(&RowPlace::of(checked, wrong)));
        report.index.retain(|finding| {
            !self
                .keys
                .contains_key(&WrongRowKey::of_index(file, &mut names, finding))
        });
    }
}

/// A claim of a report: where the function and the row start, the claim's address and what it is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RowPlace(u64, u64, u64, TableKind, Subject);

impl RowPlace {
    fn of(checked: &Checked, wrong: &Contradiction) -> RowPlace {
        let (function, row) = (checked.range.start, wrong.row.start);
        RowPlace(function, row, wrong.pc, wrong.table, wrong.subject)
    }
}

/// The hash as text.
pub(crate) fn hash(shape: u64) -> String {
    format!("{shape:016x}")
}

impl WrongRowKey {
    fn of(file: &File, function: String, checked: &Checked, wrong: &Contradiction) -> WrongRowKey {
        WrongRowKey([
            file_name(file.name()).to_owned(),
            function,
            format!("{:#x}", wrong.pc.wrapping_sub(checked.range.start)),
            wrong.table.as_str().to_owned(),
            wrong.code().as_str().to_owned(),
            WrongRowLine::register(wrong.subject).to_owned(),
        ])
    }

    /// A flaw of an index, by the function whose rows are lost or, without one, the place.
    fn of_index(file: &File, names: &mut Names<'_>, finding: &Finding) -> WrongRowKey {
        let code = finding.code.as_ref();
        let name = code.and_then(|code| Some(names.function(code.start)?.0.to_owned()));
        WrongRowKey([
            file_name(file.name()).to_owned(),
            name.unwrap_or_else(|| format!("{:#x}", finding.offset)),
            String::new(),
            finding.section.to_owned(),
            finding.flaw.as_str().to_owned(),
            String::new(),
        ])
    }

    fn of_index_line(line: &Value) -> Option<WrongRowKey> {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        Some(WrongRowKey([
            file_name(text("file")?).to_owned(),
            text("function").or(text("offset"))?.to_owned(),
            String::new(),
            text("section")?.to_owned(),
            text("flaw")?.to_owned(),
            String::new(),
        ]))
    }

    fn of_line(line: &Value) -> Option<WrongRowKey> {
        let text = |key: &str| line.get(key).and_then(Value::as_str);
        let number = |key: &str| u64::from_str_radix(text(key)?.strip_prefix("0x")?, 16).ok();
        let start = text("function_start")?;
        let unnamed = match text("function_hash") {
            Some(hash) => format!("code-{hash}"),
            None => start.to_owned(),
        };
        let distance = number("address")?.wrapping_sub(number("function_start")?);
        Some(WrongRowKey([
            file_name(text("file")?).to_owned(),
            text("function").map_or(unnamed, str::to_owned),
            format!("{distance:#x}"),
            text("table")?.to_owned(),
            text("code")?.to_owned(),
            text("register")?.to_owned(),
        ]))
    }
}

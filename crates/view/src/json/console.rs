//! The lines of the log of a kernel's console in `compare`.

use super::Line;
use crate::console::{EntryCounts, LogReport, Matched};
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::kernel::{EntryTruth, is_confirmed, logged_entries};
use unwind_sim_recordings::console::ConsoleLine;

/// A stack.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConsoleTraceLine {
    schema: &'static str,
    /// The line of the log, from 1.
    line: usize,
    /// Entries that the kernel's unwinder found.
    confirmed: u64,
    /// Entries behind a question mark.
    questioned: u64,
    /// What was recorded of it, if it is in the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<RecordedTraceLine>,
}

/// What was recorded of a stack.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RecordedTraceLine {
    sample: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    /// `complete`, `known` to a depth, or `unknown`.
    truth: &'static str,
    /// Whether the model prints the same lines.
    model_same: bool,
    entries: Vec<ConsoleEntryLine>,
    /// True callers that were not printed.
    missing: Vec<String>,
}

/// An entry.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConsoleEntryLine {
    place: String,
    confirmed: bool,
    /// Whether it is a true caller, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<bool>,
}

/// The last line of the log of a console.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ConsoleLogLine {
    schema: &'static str,
    traces: u64,
    /// How many are in the recording.
    recorded: u64,
    truth_complete: u64,
    truth_known: u64,
    /// How many the model prints line by line as the kernel did.
    model_same: u64,
    confirmed: EntryCountsLine,
    questioned: EntryCountsLine,
    /// The command that reproduces this output.
    command: String,
}

/// Entries by what is true of them.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct EntryCountsLine {
    callers: u64,
    no_callers: u64,
    unknown: u64,
}

impl From<EntryCounts> for EntryCountsLine {
    fn from(counts: EntryCounts) -> EntryCountsLine {
        EntryCountsLine {
            callers: counts.callers,
            no_callers: counts.others,
            unknown: counts.unknown,
        }
    }
}

/// Writes all lines of the log of a console.
///
/// # Errors
/// Those of `out`.
pub fn write_console_log(
    report: &LogReport<'_>,
    command: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    for trace in &report.traces {
        Line::ConsoleTrace(Box::new(line_of(trace))).write(out)?;
    }
    Line::ConsoleLog(Box::new(ConsoleLogLine {
        schema: SCHEMA,
        traces: report.traces.len() as u64,
        recorded: report.found(),
        truth_complete: report.known(Some(true)),
        truth_known: report.known(Some(false)),
        model_same: report.modelled(),
        confirmed: report.entries(true).into(),
        questioned: report.entries(false).into(),
        command: command.to_owned(),
    }))
    .write(out)
}

fn line_of(trace: &Matched<'_>) -> ConsoleTraceLine {
    let (confirmed, questioned) = logged_entries(trace.logged);
    let recorded = trace.printed.map(|printed| {
        let entry = |(number, line): (usize, &ConsoleLine)| {
            Some(ConsoleEntryLine {
                confirmed: is_confirmed(line)?,
                place: printed.places[number].clone().unwrap_or_default(),
                caller: match printed.entries[number]? {
                    EntryTruth::Caller => Some(true),
                    EntryTruth::NoCaller => Some(false),
                    EntryTruth::Unknown => None,
                },
            })
        };
        RecordedTraceLine {
            sample: printed.sample,
            task: printed.task.clone(),
            truth: match printed.known {
                None => "unknown",
                Some(false) => "known",
                Some(true) => "complete",
            },
            model_same: printed.model.is_none(),
            entries: printed.lines.iter().enumerate().filter_map(entry).collect(),
            missing: printed.missing.clone(),
        }
    });
    ConsoleTraceLine {
        schema: SCHEMA,
        line: trace.logged.line,
        confirmed,
        questioned,
        recorded,
    }
}

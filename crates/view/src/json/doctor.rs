//! The lines of `doctor --json`.

use super::crash::CrashedLine;
#[cfg(test)]
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use unwind_sim_judge::SCHEMA;
use unwind_sim_judge::doctor::{Author, Complaint, Report};
use unwind_sim_judge::hex::hex;

/// What broke stacks in one file in one way.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ComplaintLine {
    schema: &'static str,
    /// The unwinder whose chains are broken; `perf` for the recorded ones.
    unwinder: String,
    /// Whether the stacks are known to be broken, or it is not known: `broken` or `unknown`.
    end: &'static str,
    /// What broke them, or why it is not known: `no-frame-pointer`, `copy-too-short`, `below-copy`, `no-table`, `no-row`,
    /// `wrong-row`, `no-file`, `no-note`, `unreadable-file`, `jit`, `not-recorded`, `branch-records`,
    /// `chain-cut`, `endless-recursion`, `frame-limit`, `overwritten-return`, `bad-jump`,
    /// `unmapped-code`, `cut-core`, `other`, `start-code`, `start-file`, `plt`, `signal-trampoline`,
    /// `unreachable-row`, `not-elf`, `exec`, `coroutine-end`; `unclear-frame-pointer`, `stack-end`, `guessed` or
    /// `other-file`.
    kind: &'static str,
    /// The path of the file to blame, or the kernel's name for the memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    stacks: u64,
    /// The known frames that the stacks lack, where they are known.
    lost_frames: u64,
    /// The number of stacks for which that is known.
    lost_known: u64,
    /// The functions, those with the most stacks first; at most 100.
    functions: Vec<FunctionCountLine>,
    /// The number of an example's sample.
    sample: u64,
    /// The reason code of the example.
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<PlacedRowLine>,
    /// What the row gave and what is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<String>,
    /// Who wrote the code: `compiler`, `assembly`, `linker`, `kernel`, `jit` or `unknown`.
    author: &'static str,
    /// The source file, or the compilers that the file names.
    author_text: String,
    /// The compiler or assembler, as the debug information of the function names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    producer: Option<String>,
    /// What else is known of the example or the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    advice: String,
}

/// Where a row is.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct PlacedRowLine {
    table: &'static str,
    /// Offset of the row in its section.
    offset: String,
    /// The first address that the row covers, in the image.
    start: String,
    /// The end of the addresses that the row covers, excluded.
    end: String,
}

/// A function, and its number of broken stacks.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct FunctionCountLine {
    function: String,
    stacks: u64,
}

/// How stacks turned out for one unwinder.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct SubjectLine {
    unwinder: String,
    whole: u64,
    broken: u64,
    /// Those of the broken ones that lack nothing but what runs before `main`.
    start_code: u64,
    /// Stacks of which it is not known whether they are whole.
    unknown: u64,
}

/// The last line of `doctor`.
#[derive(Serialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct DoctorLine {
    schema: &'static str,
    samples: u64,
    unwinders: Vec<SubjectLine>,
    /// The thread that crashed, if a core says which.
    #[serde(skip_serializing_if = "Option::is_none")]
    crashed: Option<CrashedLine>,
    /// The longest stack copy, bytes.
    copied: u64,
    /// Frames that the code proves, of all samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    proven_frames: Option<u64>,
    /// Why proven chains end, with numbers of samples.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    proof_ended: BTreeMap<&'static str, u64>,
    /// What the proofs rest on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    assumptions: Vec<&'static str>,
    command: String,
}

/// The maximum number of functions in a line.
const FUNCTIONS_MAX: usize = 100;

/// All lines of a report.
pub fn doctor(report: &Report, command: &str) -> Vec<super::Line> {
    let complaints = report.complaints.iter();
    let mut lines: Vec<super::Line> = complaints
        .map(|complaint| super::Line::Complaint(Box::new(line(report, complaint))))
        .collect();

    let (proof, crashed) = (report.proof.as_ref(), report.crashed);
    let mut proof_ended = BTreeMap::new();

    // Several endings may have one name, so they are summed by it.
    for (ending, count) in proof.iter().flat_map(|p| &p.endings) {
        *proof_ended.entry(ending.as_str()).or_default() += count;
    }
    let assumptions = proof.map(|p| p.assumptions.iter().map(|a| a.as_str()).collect());

    // The summary is the last line, so that a reader notices output that was cut short.
    lines.push(super::Line::Doctor(DoctorLine {
        schema: SCHEMA,
        samples: report.samples,
        unwinders: report
            .subjects
            .iter()
            .map(|subject| SubjectLine {
                unwinder: subject.name.clone(),
                whole: subject.whole,
                broken: subject.broken,
                start_code: subject.start_code,
                unknown: subject.unknown,
            })
            .collect(),
        crashed: crashed.map(|(sample, crash)| CrashedLine::new(sample, crash)),
        copied: report.copied,
        proven_frames: proof.map(|p| p.frames),
        proof_ended,
        assumptions: assumptions.unwrap_or_default(),
        command: command.to_owned(),
    }));
    lines
}

fn line(report: &Report, complaint: &Complaint) -> ComplaintLine {
    let example = &complaint.example;
    let functions = complaint.functions_by_count();

    // Stacks without a named function are in the sum only.
    let named = functions.into_iter().filter(|(name, _)| !name.is_empty());
    ComplaintLine {
        schema: SCHEMA,
        unwinder: report.subjects[complaint.subject].name.clone(),
        end: if complaint.is_known {
            "broken"
        } else {
            "unknown"
        },
        kind: complaint.kind.as_str(),
        image: Some(complaint.image.clone()).filter(|image| !image.is_empty()),
        stacks: complaint.stacks,
        lost_frames: complaint.lost.0,
        lost_known: complaint.lost.1,
        // Functions are ordered by count, so the bound leaves out the rarest.
        functions: named
            .take(FUNCTIONS_MAX)
            .map(|(function, stacks)| FunctionCountLine {
                function: function.to_owned(),
                stacks,
            })
            .collect(),
        sample: example.sample,
        code: example.code.as_str(),
        row: example.row.as_ref().map(|row| PlacedRowLine {
            table: row.table.as_str(),
            offset: hex(row.row_offset),
            start: hex(row.start),
            end: hex(row.end),
        }),
        values: example.values.clone(),
        author: example.author.as_str(),
        author_text: match &example.author {
            Author::Assembly(file) | Author::Compiler(file) => file.clone(),
            Author::Unknown(producers) => producers.join("; "),
            _ => String::new(),
        },
        producer: example.producer.clone(),
        notes: complaint.notes.clone(),
        advice: complaint.advice.clone(),
    }
}

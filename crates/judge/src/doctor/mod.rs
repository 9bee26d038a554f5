//! Which code broke how many stacks of a recording, and what to do about it.
//!
//! The chains that perf recorded and those of the given unwinders are judged by the recorded truth,
//! or else by what [`whole`](crate::whole) says of them. Broken stacks are gathered by kind and file.
//! Which row is to blame is found as `compare` finds it, where the cause is not clear with the frames
//! that the code proves.

mod advice;
mod author;
mod explanation;
mod fault;
mod gather;
mod generated;
mod jump;
mod kind;
mod origin;
mod place;
mod proven_row;
mod recorded;
mod refine;
mod stack;

pub use kind::Kind;
pub use origin::Author;

use crate::ground::{ProofTally, Proofs, with_truth};
use crate::input::Input;
use crate::run::{Frames, Run, RunError};
use fault::{Judged, Reading};
use gather::{Gathered, Source};
use std::collections::BTreeMap;
use unwind_sim_recordings::crash::Crash;
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_tables::ground::FileArena;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::row::RowSource;

/// The name of the chains that perf recorded.
pub const PERF: &str = "perf";

/// How the stacks turned out for one unwinder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// The unwinder; [`PERF`] for the recorded chains.
    pub name: String,
    /// Stacks that have all their frames.
    pub whole: u64,
    /// Stacks that lack frames, or have wrong ones.
    pub broken: u64,
    /// Stacks that lack nothing but what the C library runs before `main`. Among the chains that perf
    /// recorded by frame pointers, which most C libraries do not keep, they count as whole; among
    /// walks as broken.
    pub start_code: u64,
    /// Stacks of which it is not known whether they lack frames.
    pub unknown: u64,
}

impl Subject {
    /// The number of stacks that were walked.
    pub const fn stacks(&self) -> u64 {
        self.whole + self.broken + self.unknown
    }
}

/// What broke stacks in one file in one way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    /// The unwinder: the index in [`Report::subjects`].
    pub subject: usize,
    /// What broke them.
    pub kind: Kind,
    /// Whether they are known to be broken. If not, `kind` says why it is not known.
    pub is_known: bool,
    /// The path of the file, or the kernel's name for the memory; empty if no place is to blame.
    pub image: String,
    /// The number of stacks.
    pub stacks: u64,
    /// How far above rsp the words are at which walks ended beyond their copies, bytes: the nearest
    /// and the farthest.
    pub needed: Option<(u64, u64)>,
    /// The known frames that they lack, and the number of stacks for which that is known.
    pub lost: (u64, u64),
    /// The number of stacks that lack nothing but the caller of the innermost function.
    pub leaves: u64,
    /// The functions, with numbers of stacks.
    pub functions: BTreeMap<String, u64>,
    /// The example: a stack of the function with the most.
    pub example: Example,
    /// What else is known: of the example, and of the file.
    pub notes: Vec<String>,
    /// What to do.
    pub advice: String,
}

impl Complaint {
    /// The functions with their numbers of stacks, those with the most first.
    pub fn functions_by_count(&self) -> Vec<(&str, u64)> {
        let functions = self.functions.iter();
        let mut all: Vec<(&str, u64)> = functions.map(|(name, &n)| (name.as_str(), n)).collect();
        all.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
        all
    }
}

/// One broken stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Example {
    /// The number of its sample.
    pub sample: u64,
    /// When it was taken, by the recording's clock, ns; 0 if it has no times.
    pub time: u64,
    /// The reason code.
    pub code: Code,
    /// The function to blame.
    pub function: String,
    /// The row to blame.
    pub row: Option<RowSource>,
    /// What the row gave and what is true.
    pub values: Option<String>,
    /// Who wrote the row, or the code.
    pub author: Author,
    /// The compiler of the function, as its debug information names it.
    pub producer: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The number of samples.
    pub samples: u64,
    /// The unwinders; the first is the one whose stacks a profile shows.
    pub subjects: Vec<Subject>,
    /// What broke stacks, most first within each subject.
    pub complaints: Vec<Complaint>,
    /// The longest stack copy, bytes.
    pub copied: u64,
    /// The sample of the thread that crashed, if a core says which.
    pub crashed: Option<(u64, Crash)>,
    /// How the recording was made.
    pub made: Made,
    /// How far the code proves the chains of the stacks for which that was asked.
    pub proof: Option<ProofTally>,
}

impl Report {
    /// The subject whose stacks a profile shows: perf's chains if there are any, or else the first
    /// unwinder that walked one.
    pub fn main(&self) -> Option<usize> {
        self.main_of(0)
    }

    /// The first subject from number `first` onwards that has a stack.
    pub fn main_of(&self, first: usize) -> Option<usize> {
        let mut numbered = self.subjects.iter().enumerate().skip(first);
        numbered.find_map(|(index, s)| (s.stacks() > 0).then_some(index))
    }

    /// The complaints about one subject.
    pub fn of(&self, subject: usize) -> impl Iterator<Item = &Complaint> {
        self.complaints.iter().filter(move |c| c.subject == subject)
    }
}

/// The largest text of a file that is proven, bytes: a compiler's, not that of LLVM's library.
const TEXT_MAX: u64 = 32 << 20;
/// How many functions are asked again with what the code proves.
const PROVEN_MAX: usize = 24;

/// Examines the samples that pass `filter`. Calls `tell` with the number of samples so far.
///
/// # Errors
/// If the recording cannot be read.
pub fn examine(
    input: &Input,
    filter: &Filter,
    run: &Run,
    tell: &mut dyn FnMut(u64),
) -> Result<Report, RunError> {
    let shelf = FileArena::default();
    let mut proofs = Proofs::new(&shelf, input.files());
    examine_with(input, filter, run, &mut proofs, tell)
}

/// [`examine`], with proofs that others use, too.
pub(crate) fn examine_with(
    input: &Input,
    filter: &Filter,
    run: &Run,
    proofs: &mut Proofs<'_>,
    tell: &mut dyn FnMut(u64),
) -> Result<Report, RunError> {
    let (mut report, mut gathered) = pass(input, filter, run, proofs, tell)?;
    if !input.has_truth() {
        let text_max = proofs.set_text_max(TEXT_MAX);
        let proof = prove(input, filter, run, (&mut report, &mut gathered), proofs);
        proofs.set_text_max(text_max);
        report.proof = proof?;
    }
    // Files are opened when they are first needed.
    let source = Source {
        files: input.files(),
        problems: input.file_problems(),
    };
    report.complaints = gathered.finish(&report, &source);
    Ok(report)
}

/// Judges all stacks once.
fn pass(
    input: &Input,
    filter: &Filter,
    run: &Run,
    proofs: &mut Proofs<'_>,
    tell: &mut dyn FnMut(u64),
) -> Result<(Report, Gathered), RunError> {
    let dwarf = Dwarf::new();
    let mut cache = Cache::new();
    let named = |name: &str| Subject {
        name: name.to_owned(),
        ..Subject::default()
    };

    // The chains that perf recorded come first, so an unwinder's subject is its column and one.
    let mut report = Report {
        subjects: std::iter::once(named(PERF))
            .chain(run.column_names().iter().map(|n| named(n)))
            .collect(),
        made: input.made(),
        ..Report::default()
    };
    let made = report.made.clone();
    let columns = run.columns();

    let mut gathered = Gathered::default();
    let mut last = None;
    run.for_each_with(
        input,
        filter,
        Frames::Kept,
        proofs,
        &mut |view, column, outcome| {
            // Each sample comes once for every column; what is counted by sample is counted at the
            // first.
            if last.replace(view.number) != Some(view.number) {
                report.samples += 1;
                tell(report.samples);
                // The longest copy counts: those of stacks that end earlier are shorter than what
                // was asked for.
                let copied = view.sample.regions.first().map_or(0, |r| r.bytes.len());
                report.copied = report.copied.max(copied as u64);
                let crash = view.sample.crash();
                report.crashed = report.crashed.or(crash.map(|crash| (view.number, crash)));
                if let Some(judged) = recorded::judge(view, &made, &dwarf, &mut cache) {
                    gathered.count(&mut report.subjects[0], 0, view, judged);
                }
            }

            let name = run.engines[columns[column].engine].name();
            let reading = Reading::of(name, &made);
            let judged = fault::judge(view, outcome, reading, &dwarf, &mut cache);
            let index = column + 1;
            gathered.count(&mut report.subjects[index], index, view, judged);
            Ok(())
        },
    )?;

    Ok((report, gathered))
}

/// Asks again about stacks whose cause is not clear, one for each function that may be to blame, now
/// with the frames that the code proves.
fn prove(
    input: &Input,
    filter: &Filter,
    run: &Run,
    (report, gathered): (&mut Report, &mut Gathered),
    proofs: &mut Proofs<'_>,
) -> Result<Option<ProofTally>, RunError> {
    let unclear = gathered.unclear(PROVEN_MAX);
    // Without a question, the recording is not read a second time.
    if unclear.is_empty() {
        return Ok(None);
    }

    let (dwarf, columns) = (Dwarf::new(), run.columns());
    let mut tally = ProofTally::default();
    let mut cache = Cache::new();

    input.for_each(filter, &mut |view| {
        let asked: Vec<_> = unclear.iter().filter(|u| u.sample == view.number).collect();
        if asked.is_empty() {
            return Ok::<(), RunError>(());
        }

        // For this sample, the frames that the code proves stand in for the truth.
        let proven = proofs.prove(view, &run.setting);
        tally.add(&proven);
        let sample = with_truth(view.sample, proven.truth);
        let view = &View {
            sample: &sample,
            ..*view
        };

        for unclear in asked {
            // Subject 0 is what perf recorded, which no unwinder can walk again.
            let Some(column) = unclear.subject.checked_sub(1).map(|index| columns[index]) else {
                continue;
            };

            let engine = &run.engines[column.engine];
            let variant = column.variant_for(view);
            let outcome = engine.examine(view, variant, &run.setting, &mut cache);
            let reading = Reading {
                proof_ended: proven.ending,
                ..Reading::of(engine.name(), &report.made)
            };
            // The proof says which registers the code lost on the way; frame pointers have no row
            // to blame for it.
            let by_row = if reading.is_by_frame_pointer {
                None
            } else {
                fault::of_lost(view, &outcome, &proven.lost, (&dwarf, &mut cache))
            };

            let judged = match by_row {
                Some(fault) => Judged::Broken(Box::new(fault)),
                None => fault::judge(view, &outcome, reading, &dwarf, &mut cache),
            };

            // The cause that the proof gives takes the place of the one that was gathered before.
            if let Judged::Broken(fault) = judged {
                gathered.replace(&mut report.subjects[unclear.subject], unclear, view, *fault);
            }
        }
        Ok(())
    })?;

    Ok(Some(tally))
}

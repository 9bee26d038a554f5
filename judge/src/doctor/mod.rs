//! Which code broke how many stacks of a recording, and what to do about it.
//!
//! The chains that perf recorded and those of the given unwinders are judged by the recorded truth,
//! or else by the frames that the code proves; where neither reaches, by why they end. Broken
//! stacks are gathered by kind and file. Which row is to blame is found as `compare` finds it.

mod author;
mod fault;
mod kind;
mod recorded;

pub use author::Author;
pub use kind::Kind;

use crate::ground::ProofTally;
use crate::input::Input;
use crate::run::{Against, Run, RunError};
use fault::{Fault, Judged};
use std::collections::BTreeMap;
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_unwind::address::CodeAddress;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::dwarf::Dwarf;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::row::RowSource;

/// The maximum number of functions that are counted apart in one complaint.
const FUNCTIONS_MAX: usize = 1 << 16;
/// The name of the chains that perf recorded.
pub const PERF: &str = "perf";

/// How the stacks turned out for one unwinder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Subject {
    /// The unwinder; [`PERF`] for the recorded chains.
    pub name: String,
    /// Stacks in which nothing is known to be wrong.
    pub whole: u64,
    /// Stacks that lack frames, or have wrong ones.
    pub broken: u64,
}

/// What broke stacks in one file in one way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Complaint {
    /// The unwinder: the index in [`Report::subjects`].
    pub subject: usize,
    /// What broke them.
    pub kind: Kind,
    /// The path of the file, or the kernel's name for the memory; empty if no place is to blame.
    pub image: String,
    /// The number of stacks.
    pub stacks: u64,
    /// The known frames that they lack, and the number of stacks for which that is known.
    pub lost: (u64, u64),
    /// The functions, with numbers of stacks.
    pub functions: BTreeMap<String, u64>,
    /// The example: a stack of the function with the most.
    pub example: Example,
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
    /// How far the code proves the chains, if there was no truth.
    pub proof: Option<ProofTally>,
}

impl Report {
    /// The subject whose stacks a profile shows: perf's chains if there are any, or else the first
    /// unwinder that walked one.
    pub fn main(&self) -> Option<usize> {
        self.subjects.iter().position(|s| s.whole + s.broken > 0)
    }

    /// The complaints about one subject.
    pub fn of(&self, subject: usize) -> impl Iterator<Item = &Complaint> {
        self.complaints.iter().filter(move |c| c.subject == subject)
    }
}

/// Complaints as they grow: by subject, kind and file, each with an example of each function.
type Gathered = BTreeMap<(usize, Kind, String), (Complaint, BTreeMap<String, Example>)>;

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
    let dwarf = Dwarf::new();
    let mut cache = Cache::new();
    let named = |name: &str| Subject {
        name: name.to_owned(),
        ..Subject::default()
    };
    let mut report = Report {
        subjects: std::iter::once(named(PERF))
            .chain(run.column_names().iter().map(|n| named(n)))
            .collect(),
        ..Report::default()
    };
    let columns = run.columns();
    let mut gathered = Gathered::new();
    let mut last = None;
    run.for_each(input, filter, &mut |view, column, outcome| {
        if last.replace(view.number) != Some(view.number) {
            report.samples += 1;
            tell(report.samples);
            let copied = view.sample.regions.first().map_or(0, |r| r.bytes.len());
            report.copied = report.copied.max(copied as u64);
            if let Some(judged) = recorded::judge(view, &dwarf, &mut cache) {
                count(&mut report.subjects[0], 0, view, judged, &mut gathered);
            }
        }
        let name = run.engines[columns[column].engine].name();
        let by_frame_pointer = name == "fp" || name.starts_with("fp:");
        let judged = fault::judge(view, outcome, by_frame_pointer, &dwarf, &mut cache);
        let index = column + 1;
        count(
            &mut report.subjects[index],
            index,
            view,
            judged,
            &mut gathered,
        );
        Ok(())
    })?;
    if let Against::Proof(proof) = &run.against {
        report.proof = Some(proof.tally());
    }
    report.complaints = finish(gathered);
    Ok(report)
}

fn count(
    subject: &mut Subject,
    index: usize,
    view: &View<'_>,
    judged: Judged,
    gathered: &mut Gathered,
) {
    match judged {
        Judged::Whole => subject.whole += 1,
        Judged::NotWalked => {}
        Judged::Broken(fault) => {
            subject.broken += 1;
            gather(index, view, fault, gathered);
        }
    }
}

fn gather(subject: usize, view: &View<'_>, fault: Fault, gathered: &mut Gathered) {
    let (image, function) = match fault.kind.has_place() {
        true => kind::place(view.space, fault.pc),
        false => (String::new(), String::new()),
    };
    let key = (subject, fault.kind, image.clone());
    let kind = fault.kind;
    let new_example = || Example {
        sample: view.number,
        code: fault.code,
        function: function.clone(),
        row: fault.row,
        values: fault.values.clone(),
        author: match kind.has_place() {
            true => author_at(view, fault.pc),
            false => Author::Unknown(Vec::new()),
        },
    };
    let (complaint, examples) = gathered.entry(key).or_insert_with(|| {
        let complaint = Complaint {
            subject,
            kind,
            image,
            stacks: 0,
            lost: (0, 0),
            functions: BTreeMap::new(),
            example: new_example(),
        };
        (complaint, BTreeMap::new())
    });
    complaint.stacks += 1;
    if let Some(lost) = fault.lost {
        complaint.lost.0 += lost;
        complaint.lost.1 += 1;
    }
    if complaint.functions.len() < FUNCTIONS_MAX || complaint.functions.contains_key(&function) {
        *complaint.functions.entry(function.clone()).or_default() += 1;
        if !examples.contains_key(&function) {
            examples.insert(function.clone(), new_example());
        }
    }
}

fn author_at(view: &View<'_>, pc: CodeAddress) -> Author {
    let at = pc.symbol_address();
    Author::of(view.space.find(at), at)
}

/// The complaints, with the example of the function that broke the most stacks.
fn finish(gathered: Gathered) -> Vec<Complaint> {
    let mut complaints: Vec<Complaint> = gathered
        .into_values()
        .map(|(mut complaint, mut examples)| {
            let functions = complaint.functions.iter();
            let most = functions.max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)));
            if let Some(example) = most.and_then(|(name, _)| examples.remove(name)) {
                complaint.example = example;
            }
            complaint
        })
        .collect();
    complaints.sort_by(|a, b| {
        let key = |c: &Complaint| (c.subject, std::cmp::Reverse(c.stacks), c.kind);
        key(a).cmp(&key(b)).then_with(|| a.image.cmp(&b.image))
    });
    complaints
}

//! Gathers broken stacks into complaints, and says at the end who wrote the code and what to do.

use super::advice::{Situation, advice};
use super::author::{Author, Origin, Spot};
use super::fault::{Fault, Judged};
use super::kind::{self, Kind};
use super::proven_row::{Checker, ProvenRow};
use super::{Complaint, Example, Report, Subject};
use std::collections::BTreeMap;
use unwind_sim_recordings::files::{FileProblem, FileProblemKind, FinderOptions};
use unwind_sim_recordings::view::View;

/// The maximum number of functions that are counted apart in one complaint.
const FUNCTIONS_MAX: usize = 1 << 16;

/// The files behind a recording.
pub(super) struct Source {
    /// Where to look for them.
    pub(super) files: FinderOptions,
    /// What was wrong with them.
    pub(super) problems: Vec<FileProblem>,
}

impl Source {
    /// Why the file of a mapping was not used.
    fn problem(&self, name: &str) -> Option<&FileProblem> {
        let mut of_file = self.problems.iter().filter(|p| p.path == name);
        of_file.find(|p| !p.kind.is_doubt())
    }

    /// Why the file of a mapping may be another one than was mapped.
    fn doubt(&self, name: &str) -> Option<&FileProblem> {
        let mut of_file = self.problems.iter().filter(|p| p.path == name);
        of_file.find(|p| p.kind.is_doubt())
    }
}

/// The unwinder's number, what broke its stacks, and in which file.
type Key = (usize, Kind, String);
/// An example of each function.
type Examples = BTreeMap<String, Found>;

/// Complaints as they grow: by subject, kind and file, each with an example of each function.
#[derive(Default)]
pub(super) struct Gathered {
    complaints: BTreeMap<Key, (Complaint, Examples)>,
}

/// A broken stack, before it is known who wrote the code.
struct Found {
    example: Example,
    spot: Option<Spot>,
    note: Option<String>,
    if_proven: Option<String>,
}

impl Gathered {
    /// Adds one stack of subject number `index`.
    pub(super) fn count(
        &mut self,
        subject: &mut Subject,
        index: usize,
        view: &View<'_>,
        judged: Judged,
    ) {
        match judged {
            Judged::Whole => subject.whole += 1,
            Judged::NotWalked => {}
            Judged::Broken(fault) => {
                subject.broken += 1;
                self.gather(index, view, *fault);
            }
        }
    }

    fn gather(&mut self, subject: usize, view: &View<'_>, fault: Fault) {
        let kind = fault.kind;
        let at = fault.pc.symbol_address();
        let mapping = view.space.find(at);
        // Where a jump led is no place to blame; where it came from is.
        let has_place = kind.has_place() && (kind != Kind::BadJump || mapping.is_some());
        let (image, function) = match has_place {
            true => kind::place(view.space, fault.pc),
            false => (String::new(), String::new()),
        };
        let key = (subject, kind, image.clone());
        let new_example = || Example {
            sample: view.number,
            code: fault.code,
            function: function.clone(),
            row: fault.row,
            values: fault.values.clone(),
            author: Author::Unknown(Vec::new()),
            producer: None,
        };
        let (complaint, examples) = self.complaints.entry(key).or_insert_with(|| {
            let complaint = Complaint {
                subject,
                kind,
                image,
                stacks: 0,
                lost: (0, 0),
                leaves: 0,
                functions: BTreeMap::new(),
                example: new_example(),
                notes: Vec::new(),
                advice: String::new(),
            };
            (complaint, BTreeMap::new())
        });
        complaint.stacks += 1;
        complaint.leaves += u64::from(fault.is_leaf);
        if let Some(lost) = fault.lost {
            complaint.lost.0 += lost;
            complaint.lost.1 += 1;
        }
        let functions = &mut complaint.functions;
        if functions.len() < FUNCTIONS_MAX || functions.contains_key(&function) {
            *functions.entry(function.clone()).or_default() += 1;
            examples.entry(function.clone()).or_insert_with(|| {
                let mapping = mapping.filter(|_| has_place);
                Found {
                    example: new_example(),
                    spot: mapping.map(|mapping| Spot::of(mapping, at)),
                    note: fault.note.clone(),
                    if_proven: fault.if_proven.clone(),
                }
            });
        }
    }

    /// Whether most of the walks by frame pointers that broke ended with the stack copy.
    fn is_fp_cut(&self, report: &Report) -> bool {
        let mut subjects = report.subjects.iter();
        let Some(fp) = subjects.position(|s| s.name.split('@').next() == Some("fp")) else {
            return false;
        };
        let of_fp = self.complaints.iter().filter(|(key, _)| key.0 == fp);
        let cut = of_fp.filter(|(key, _)| key.1 == Kind::CopyTooShort);
        let stacks: u64 = cut.map(|(_, (complaint, _))| complaint.stacks).sum();
        stacks * 2 > report.subjects[fp].broken
    }

    /// The complaints, each with the example of the function that broke the most stacks.
    pub(super) fn finish(self, report: &Report, source: &Source) -> Vec<Complaint> {
        let mut checker = Checker::new(source.files.clone());
        let is_fp_cut = self.is_fp_cut(report);
        let all = self.complaints.into_values();
        let mut complaints: Vec<Complaint> = all
            .map(|(complaint, examples)| {
                finish(complaint, examples, report, source, is_fp_cut, &mut checker)
            })
            .collect();
        complaints.sort_by(|a, b| {
            let key = |c: &Complaint| (c.subject, std::cmp::Reverse(c.stacks), c.kind);
            key(a).cmp(&key(b)).then_with(|| a.image.cmp(&b.image))
        });
        complaints
    }
}

fn finish(
    mut complaint: Complaint,
    mut examples: Examples,
    report: &Report,
    source: &Source,
    is_fp_cut: bool,
    checker: &mut Checker,
) -> Complaint {
    let functions = complaint.functions.iter();
    let most = functions.max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)));
    let found = most.and_then(|(name, _)| examples.remove(name));
    let (mut spot, mut note, mut if_proven) = (None, None, None);
    if let Some(found) = found {
        complaint.example = found.example;
        (spot, note, if_proven) = (found.spot, found.note, found.if_proven);
    }
    let problem = source.problem(&complaint.image);
    let problem = problem.filter(|_| matches!(complaint.kind, Kind::NoFile | Kind::NoTable));
    if problem.is_some() {
        // Of a missing file, a core may have a part without table.
        complaint.kind = Kind::NoFile;
    }
    let is_there =
        |p: &FileProblem| matches!(p.kind, FileProblemKind::Io(_) | FileProblemKind::Elf(_));
    if problem.is_some_and(is_there) {
        complaint.kind = Kind::UnreadableFile;
    }
    let unknown = || Origin::by(Author::Unknown(Vec::new()));
    let origin = spot
        .as_ref()
        .map_or_else(unknown, |spot| spot.origin(checker, &source.files));
    let image = spot.and_then(|spot| spot.image);
    let row = complaint.example.row.as_ref();
    let row = image
        .zip(row)
        .and_then(|(image, row)| checker.ask(&image, row));
    if row == Some(ProvenRow::Proven) && if_proven.is_some() {
        complaint.kind = Kind::OverwrittenReturn;
        note = if_proven;
    }
    let doubt = source.doubt(&complaint.image);
    complaint.advice = advice(&Situation {
        kind: complaint.kind,
        image: &complaint.image,
        made: &report.made,
        copied: report.copied,
        origin: &origin,
        only_leaves: complaint.leaves == complaint.stacks,
        problem,
        is_doubtful: doubt.is_some(),
        row,
        is_fp_cut,
        subjects: &report.subjects,
        subject: complaint.subject,
    });
    let is_news = |p: &&FileProblem| p.kind != FileProblemKind::NotFound;
    let of_file = problem.filter(is_news).or(doubt);
    complaint.notes = note
        .into_iter()
        .chain(of_file.map(|p| format!("the file: {}", p.kind)))
        .collect();
    complaint.example.author = origin.author;
    complaint.example.producer = origin.producer;
    complaint
}

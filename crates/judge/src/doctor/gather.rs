//! Gathers broken stacks into complaints, and says at the end who wrote the code and what to do.

use super::advice::{Needed, Situation, advice};
use super::author::Spot;
use super::fault::{Fault, Judged, Lack};
use super::generated::Generator;
use super::kind::{self, Kind};
use super::origin::{Author, Origin};
use super::proven_row::{Checker, ProvenRow};
use super::refine::{self, Known};
use super::{Complaint, Example, Report, Subject, place};
use std::collections::BTreeMap;
use std::sync::Arc;
use unwind_sim_recordings::files::{FileProblem, FileProblemKind, FinderOptions};
use unwind_sim_recordings::runtime;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::dwarf::unfound;
use unwind_sim_unwind::reason::Code;

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
        let of_file = self.problems.iter().filter(|p| p.path == name);
        let doubts = of_file.filter(|p| p.kind.is_doubt());
        // What is certain counts before what is likely.
        doubts.max_by_key(|p| matches!(p.kind, FileProblemKind::OtherStart { .. }))
    }
}

/// The unwinder's number, whether its stacks are known to be broken, by what, and in which file.
type Key = (usize, bool, Kind, String);
/// An example of each function.
type Examples = BTreeMap<String, Found>;

/// Complaints as they grow: by subject, kind and file, each with an example of each function.
#[derive(Default)]
pub(super) struct Gathered {
    complaints: BTreeMap<Key, (Complaint, Examples)>,
}

/// A stack whose cause is not clear: an example of a function's.
pub(super) struct Unclear {
    pub(super) subject: usize,
    pub(super) sample: u64,
    key: Key,
    function: String,
}

/// A broken stack, before it is known who wrote the code.
struct Found {
    example: Example,
    spot: Option<Spot>,
    note: Option<String>,
    if_proven: Option<String>,
    generator: Generator,
    is_generated: bool,
    lack: Option<Lack>,
}

impl Gathered {
    /// Examples of the functions, those with the most stacks first, that may be to blame, but of which
    /// only the end of the chain speaks.
    pub(super) fn unclear(&self, most: usize) -> Vec<Unclear> {
        // These kinds say only how the chain ended, which a proof may explain.
        const KINDS: [Kind; 5] = [
            Kind::StackEnd,
            Kind::Other,
            Kind::WrongRow,
            Kind::NotRecorded,
            Kind::OverwrittenReturn,
        ];

        let unclear = self
            .complaints
            .iter()
            .filter(|(key, _)| KINDS.contains(&key.2));

        let mut all: Vec<(u64, Unclear)> = unclear
            .flat_map(|(key, (complaint, examples))| {
                complaint.functions.iter().filter_map(|(function, count)| {
                    let found = examples.get(function)?;
                    let unclear = Unclear {
                        subject: key.0,
                        sample: found.example.sample,
                        key: key.clone(),
                        function: function.clone(),
                    };
                    Some((*count, unclear))
                })
            })
            .collect();

        // The number of the sample makes the order of equal counts the same in every run.
        all.sort_by_key(|(count, unclear)| (std::cmp::Reverse(*count), unclear.sample));

        // A proof takes long, so it is spent on the functions that break the most stacks.
        all.into_iter()
            .take(most)
            .map(|(_, unclear)| unclear)
            .collect()
    }

    /// Counts the stacks of a function under what was found out about its example.
    pub(super) fn replace(
        &mut self,
        subject: &mut Subject,
        unclear: &Unclear,
        view: &View<'_>,
        fault: Fault,
    ) {
        let Some((complaint, examples)) = self.complaints.get_mut(&unclear.key) else {
            return;
        };
        let Some(count) = complaint.functions.remove(&unclear.function) else {
            return;
        };
        examples.remove(&unclear.function);
        // `gather` below counts these stacks again, under another key.
        complaint.stacks -= count;
        if complaint.stacks == 0 {
            self.complaints.remove(&unclear.key);
        }
        // It was counted as unknown until now.
        if !unclear.key.1 {
            subject.unknown -= count;
            subject.broken += count;
        }
        self.gather(unclear.subject, view, fault, count);
    }

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
            Judged::ToMain => {
                subject.whole += 1;
                subject.start_code += 1;
            }
            Judged::NotWalked => {}
            Judged::Broken(fault) => {
                subject.broken += 1;
                subject.start_code += u64::from(fault.kind == Kind::StartCode);
                self.gather(index, view, *fault, 1);
            }
            Judged::Unknown(fault) => {
                subject.unknown += 1;
                self.gather(index, view, *fault, 1);
            }
        }
    }

    fn gather(&mut self, subject: usize, view: &View<'_>, fault: Fault, stacks: u64) {
        let kind = fault.kind;
        let at = fault.pc.symbol_address();
        let mapping = view.space.find(at);

        // The target of a jump or return is not to blame; where it came from is.
        let is_led = matches!(
            kind,
            Kind::BadJump | Kind::OverwrittenReturn | Kind::UnmappedCode
        );
        let has_place = kind.has_place() && (!is_led || mapping.is_some());
        let (image, function) = if has_place {
            kind::place(view.space, fault.pc)
        } else {
            (String::new(), String::new())
        };

        let is_known = fault.code != Code::EndUnknown;
        // What is broken for certain is never counted together with what only may be.
        let key = (subject, is_known, kind, image.clone());

        // The author is found out at the end, and only for the example that is shown.
        let new_example = || Example {
            sample: view.number,
            time: view.sample.time,
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
                is_known,
                image,
                stacks: 0,
                needed: None,
                lost: (0, 0),
                leaves: 0,
                functions: BTreeMap::new(),
                example: new_example(),
                notes: Vec::new(),
                advice: String::new(),
            };
            (complaint, BTreeMap::new())
        });

        complaint.stacks += stacks;
        complaint.leaves += u64::from(fault.is_leaf) * stacks;

        // The range of what would have been needed: a longer copy may help some stacks and not
        // others.
        if let Some(needed) = fault.needed {
            let (least, most) = complaint.needed.unwrap_or((needed, needed));
            complaint.needed = Some((least.min(needed), most.max(needed)));
        }
        // A sum, and the number of stacks behind it: of some it is not known.
        if let Some(lost) = fault.lost {
            complaint.lost.0 += lost;
            complaint.lost.1 += 1;
        }

        // The names are those of the program, and may be any number.
        let functions = &mut complaint.functions;
        if functions.len() < FUNCTIONS_MAX || functions.contains_key(&function) {
            *functions.entry(function.clone()).or_default() += stacks;
            // The first stack of a function stands for all of its stacks.
            examples.entry(function.clone()).or_insert_with(|| {
                let mapping = mapping.filter(|_| has_place);
                Found {
                    example: new_example(),
                    spot: mapping.map(|mapping| Spot::of(mapping, at)),
                    note: fault.note.clone(),
                    if_proven: fault.if_proven.clone(),
                    lack: fault.lack,
                    generator: Generator {
                        is_on_stack: mapping.is_some_and(|m| m.range.contains(&view.live().rsp())),
                        ..Generator::of(view)
                    },
                    is_generated: mapping.is_some_and(|m| runtime::generated(m).is_some()),
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
        let is_cut = |kind| matches!(kind, Kind::CopyTooShort | Kind::NotRecorded);
        let cut = of_fp.filter(|(key, _)| is_cut(key.2));
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
        merge_equal(&mut complaints);
        complaints.sort_by(|a, b| {
            let key = |c: &Complaint| (c.subject, !c.is_known, std::cmp::Reverse(c.stacks), c.kind);
            key(a).cmp(&key(b)).then_with(|| a.image.cmp(&b.image))
        });
        complaints
    }
}

/// Joins what turned out to be of one kind in one file; the example is that of the larger one.
fn merge_equal(complaints: &mut Vec<Complaint>) {
    let key = |c: &Complaint| (c.subject, c.is_known, c.kind, c.image.clone());
    complaints.sort_by_key(|c| (key(c), std::cmp::Reverse(c.stacks)));
    complaints.dedup_by(|smaller, larger| {
        let is_equal = key(smaller) == key(larger);
        if is_equal {
            larger.stacks += smaller.stacks;
            larger.leaves += smaller.leaves;
            larger.lost.0 += smaller.lost.0;
            larger.lost.1 += smaller.lost.1;
            for (function, count) in &smaller.functions {
                *larger.functions.entry(function.clone()).or_default() += count;
            }
        }
        is_equal
    });
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
    // The function with the most stacks stands for all; of equal ones, the first by name.
    let most = functions.max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)));
    let found = most.and_then(|(name, _)| examples.remove(name));

    let (mut spot, mut note, mut if_proven) = (None, None, None);
    let (mut generator, mut is_generated, mut lack) = (Generator::default(), false, None);

    if let Some(found) = found {
        (generator, is_generated, lack) = (found.generator, found.is_generated, found.lack);
        complaint.example = found.example;
        (spot, note, if_proven) = (found.spot, found.note, found.if_proven);
    }

    let problem = source.problem(&complaint.image);
    // A memfd that holds an ELF file is not generated code.
    if complaint.kind == Kind::Jit && problem.is_some_and(|p| !p.build_id.is_empty()) {
        complaint.kind = Kind::NoFile;
    }

    let lacks_code = lack == Some(Lack::Code);
    let problem =
        problem.filter(|_| lacks_code || matches!(complaint.kind, Kind::NoFile | Kind::NoTable));
    if problem.is_some() {
        // Of a missing file, a core may have a part without table.
        complaint.kind = Kind::NoFile;
    }

    match problem.map(|p| &p.kind) {
        Some(FileProblemKind::Io(_) | FileProblemKind::Elf(_)) => {
            complaint.kind = Kind::UnreadableFile;
        }
        Some(kind) if kind.is_not_elf() => complaint.kind = Kind::NotElf,
        _ => {}
    }

    // Of an image that is only in memory, the core may have a part without table.
    let is_named = complaint.image.starts_with(['/', '[']);
    let lacks_file = matches!(complaint.kind, Kind::NoFile | Kind::NoTable);
    if report.made.lacks_file_list && lacks_file && !is_named {
        complaint.kind = Kind::NoNote;
    }

    let unknown = || Origin::by(Author::Unknown(Vec::new()));
    // This may read a whole file and its debug file, so it is not done for each stack.
    let origin = spot
        .as_ref()
        .map_or_else(unknown, |spot| spot.origin(checker, &source.files));

    let place = spot.as_ref().and_then(Spot::place);
    let image = spot.and_then(|spot| spot.image);
    let is_doubtful = image.as_ref().is_some_and(|image| image.doubt().is_some());

    // Without a contradiction that names it, the row is that of the place.
    let is_blamed = complaint.kind == Kind::WrongRow || if_proven.is_some();
    if is_blamed && complaint.example.row.is_none() {
        let found = place
            .as_ref()
            .and_then(|(image, svma)| place::row(image, *svma));
        complaint.example.row = found.map(|row| row.source);
    }

    // The code may prove the row: then something else is to blame.
    let row = complaint.example.row.as_ref();
    let row = image
        .zip(row)
        .and_then(|(image, row)| checker.ask(&image, row));

    let refined = refine::refined(Known {
        kind: complaint.kind,
        image: &complaint.image,
        function: &complaint.example.function,
        language: origin.language,
        is_proven: row == Some(ProvenRow::Proven),
        is_contradicted: row == Some(ProvenRow::Contradicted),
        if_proven,
        has_runtime: generator.runtime.is_some(),
        made: &report.made,
    });
    if let Some((kind, what)) = refined {
        complaint.kind = kind;
        note = what.or(note);
    }

    // Whatever the linker calls its stubs.
    if complaint.kind == Kind::NoRow && origin.author == Author::Linker {
        complaint.kind = Kind::Plt;
    }

    // Start files, which have no rows, and rows that the search index hides are mended in other
    // ways than functions whose author wrote no row.
    if complaint.kind == Kind::NoRow
        && let Some((image, svma)) = &place
    {
        // The recording may have only parts of the code.
        let whole = checker.whole(image);
        if unfound(image, *svma).is_some() {
            complaint.kind = Kind::Unreachable;
        } else if image.symbol(*svma).is_none() && place::is_start_file(&whole, *svma, "") {
            complaint.kind = Kind::StartFile;
        }
    }

    let has_row =
        |(image, svma): &(Arc<unwind_sim_unwind::image::Image>, u64)| place::has_row(image, *svma);
    // A file that was used, but may not be the one that was mapped.
    let doubt = source.doubt(&complaint.image);

    // Last: each step above may change the kind, which the advice depends on.
    complaint.advice = advice(&Situation {
        kind: complaint.kind,
        image: &complaint.image,
        made: &report.made,
        copied: report.copied,
        origin: &origin,
        only_leaves: complaint.leaves == complaint.stacks,
        problem,
        is_doubtful,
        row,
        has_row: place.as_ref().is_none_or(has_row),
        is_fp_cut,
        function: &complaint.example.function,
        lack,
        generator,
        is_generated,
        needed: complaint.needed.map(|(least, most)| Needed { least, most }),
        subjects: &report.subjects,
        subject: complaint.subject,
    });

    // That a file was not found is the complaint itself.
    let is_news = |p: &&FileProblem| p.kind != FileProblemKind::NotFound;
    let of_file = problem.filter(is_news).or(doubt);
    let lacks_rows = matches!(complaint.kind, Kind::NoRow | Kind::NoTable);
    let linked = origin.debug_file.as_ref().filter(|_| lacks_rows);
    complaint.notes = note
        .into_iter()
        .chain(of_file.map(|p| format!("the file: {}", p.kind)))
        .chain(linked.map(|name| {
            format!(
                "its debug information is in {name} (.gnu_debuglink), which was not found and may have \
                 the rows"
            )
        }))
        .collect();

    complaint.example.author = origin.author;
    complaint.example.producer = origin.producer;
    complaint
}

//! Runs an unwinder of your own on a folder of recordings, in your own `cargo test`.
//!
//! See [`Unwinder`] and `docs/own-unwinders.md`.

use crate::engine::{Outcome, Setting, examine};
use crate::ground::{Proofs, with_truth};
use crate::input::{FileKind, Input, open_file};
use crate::run::{Column, RunError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::import;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_tables::ground::FileArena;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::Owner;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::Unwinder;
use unwind_sim_unwind::verdict::Verdict;

/// Why a folder cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder cannot be listed.
    #[error("cannot read {}: {source}", path.printable())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The folder has nothing to check.
    #[error(
        "{path} holds neither a case (.s) nor a recording: a trace, a perf.data or an ELF core",
        path = path.printable()
    )]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
}

/// A chain that differs from the true one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The recording.
    pub file: PathBuf,
    /// The number of the sample in the recording, from 0.
    pub sample: u64,
    /// The start variant of the walk.
    pub start: Variant,
    /// What is wrong.
    pub verdict: Verdict,
    /// The cause, as far as it can be determined from outside the unwinder.
    pub cause: Option<Code>,
    /// The function of the true frame that is to blame.
    pub place: Option<Location>,
    /// The number of frames that the unwinder found.
    pub found: usize,
    /// The number of true frames.
    pub truth: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sample {} from {}: {} {} ({} found, {} true)",
            self.file.printable(),
            self.sample,
            self.start.as_str(),
            self.verdict.as_str(),
            self.verdict,
            counted(self.found, "frame"),
            self.truth
        )?;
        if let Some(code) = self.cause {
            write!(f, ", {code} {}", code.description())?;
        }
        if let Some(place) = &self.place {
            write!(f, " in {place}")?;
        }
        Ok(())
    }
}

/// Wrong chains that have their verdict and their cause in common.
#[derive(Clone, Debug)]
pub struct Cause<'r> {
    /// The number of chains.
    pub chains: usize,
    /// The recordings that they are in.
    pub files: BTreeSet<&'r Path>,
    /// The first of them.
    pub first: &'r Wrong,
}

impl fmt::Display for Cause<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.first;
        write!(f, "  {:>8} {:<10}", self.chains, first.verdict.as_str())?;
        match first.cause {
            Some(code) => write!(f, " {code} {}", code.description())?,
            None => f.write_str(" no cause is known")?,
        }
        write!(f, ", in {}", counted(self.files.len(), "file"))?;
        write!(
            f,
            "\n           first: {} sample {}",
            first.file.printable(),
            first.sample
        )?;
        if let Some(place) = &first.place {
            write!(f, ", in {place}")?;
        }
        Ok(())
    }
}

/// What fits on a screen of 24 lines: causes, of two lines each, and unread files.
const CAUSES_SHOWN: usize = 8;
const UNREAD_SHOWN: usize = 3;

/// A recording that could not be read to its end.
#[derive(Debug)]
pub struct Unread {
    /// The recording.
    pub file: PathBuf,
    /// The error.
    pub error: RunError,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// The unwinder.
    pub unwinder: String,
    /// The number of recordings read.
    pub files: usize,
    /// The number of samples given to the unwinder.
    pub samples: u64,
    /// The number of samples with a known truth that could be started.
    pub judged: u64,
    /// The number of stacks that are not judged, because the unwinder is not for them: there is no
    /// table that it reads (US102), or it finds no caller in a kernel's stack and gives no reason.
    pub not_for: u64,
    /// The number of samples without a recorded truth, which are judged by the frames that the code
    /// proves.
    pub by_proof: u64,
    /// The wrong chains, in the order of files and samples.
    pub wrong: Vec<Wrong>,
    /// Recordings that could not be read.
    pub unread: Vec<Unread>,
}

impl Report {
    /// Whether something was judged, all chains were right, and every file was read.
    pub fn is_ok(&self) -> bool {
        self.judged > 0 && self.wrong.is_empty() && self.unread.is_empty()
    }

    /// Fails the test unless [`Report::is_ok`].
    ///
    /// # Panics
    /// With the report, unless [`Report::is_ok`].
    #[track_caller]
    pub fn assert_ok(&self) {
        assert!(self.is_ok(), "{self}");
    }

    /// The wrong chains by verdict and cause, those with the most first.
    pub fn causes(&self) -> Vec<Cause<'_>> {
        let mut groups: BTreeMap<(char, Option<Code>), Cause<'_>> = BTreeMap::new();
        for wrong in &self.wrong {
            let key = (wrong.verdict.letter(), wrong.cause);
            let group = groups.entry(key).or_insert(Cause {
                chains: 0,
                files: BTreeSet::new(),
                first: wrong,
            });
            group.chains += 1;
            group.files.insert(&wrong.file);
        }
        let mut causes: Vec<Cause<'_>> = groups.into_values().collect();
        // Stable: causes of the same number are in the order of their verdicts and codes.
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.chains));
        causes
    }

    /// The report without the wrong chains that are `expected`, for what an unwinder cannot know.
    #[must_use]
    pub fn except(mut self, expected: impl Fn(&Wrong) -> bool) -> Report {
        self.wrong.retain(|wrong| !expected(wrong));
        self
    }
}

impl fmt::Display for Report {
    /// At most a screen: the counts, and the wrong chains by cause, those with the most first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wrong, judged) = (self.wrong.len(), self.judged);
        writeln!(
            f,
            "{}: {wrong} of {judged} chains wrong, in {} with {}",
            self.unwinder,
            counted(self.files, "file"),
            counted(self.samples, "sample")
        )?;

        // These stacks are neither right nor wrong, but the sum of samples has to make sense.
        if self.not_for > 0 {
            let stacks = counted(self.not_for, "stack");
            writeln!(f, "  not judged: {stacks}, which it is not for")?;
        }

        // A proof may end before the root, so it says less than a truth.
        if self.by_proof > 0 {
            let samples = counted(self.by_proof, "sample");
            writeln!(
                f,
                "  {samples} without truth, judged by the frames that the code proves"
            )?;
        }

        // Causes with the most chains come first; the others are only summed up.
        let causes = self.causes();
        for cause in causes.iter().take(CAUSES_SHOWN) {
            writeln!(f, "{cause}")?;
        }
        if let Some(more) = causes.get(CAUSES_SHOWN..).filter(|more| !more.is_empty()) {
            let chains: usize = more.iter().map(|cause| cause.chains).sum();
            writeln!(
                f,
                "  and {} by {}",
                counted(chains, "chain"),
                counted(more.len(), "other cause")
            )?;
        }

        for unread in self.unread.iter().take(UNREAD_SHOWN) {
            writeln!(f, "  {}: {}", unread.file.printable(), unread.error)?;
        }
        if let Some(more) = self.unread.len().checked_sub(UNREAD_SHOWN + 1) {
            writeln!(
                f,
                "  and {} that could not be read",
                counted(more + 1, "more file")
            )?;
        }

        // `0 of 0 chains wrong` would read like a success.
        if judged == 0 {
            writeln!(f, "  nothing could be judged")?;
        }

        Ok(())
    }
}

/// The folder of recordings with known truth that comes with this package (`cases`, `traces` and
/// more), for [`check_dir`].
#[cfg(feature = "corpus")]
pub fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus"))
}

/// Runs `unwinder` on every case (`.s`, which is assembled and run), trace, perf.data and ELF core at
/// or below `path`, and judges its chains by the recorded truth, or, in a recording without truth, by
/// the frames that the code proves. Samples start from the registers they were taken with, and all
/// recorded memory is visible. These are skipped: files of other kinds, dumps of a kernel's memory,
/// assembly without a case's header (`#!`), and cases that are malformed on purpose, whose message is
/// in a `.txt` of the same name.
///
/// A stack is not judged if there is no table that the unwinder reads (US102), in a kernel or for the
/// innermost frame. Neither is a kernel's stack in which it finds no caller and gives no reason.
///
/// In a test of your own:
///
/// ```
/// use unwind_sim_judge::check_dir;
/// use unwind_sim_unwind::dwarf::Dwarf;
///
/// let report = check_dir("corpus/traces/seed-004.bin", &Dwarf::new()).unwrap();
/// assert_eq!((report.judged, report.wrong.len()), (3, 0));
/// report.assert_ok();
/// ```
///
/// [`Report::except`] removes what an unwinder cannot know and may get wrong:
///
/// ```
/// use unwind_sim_judge::check_dir;
/// use unwind_sim_unwind::fp::FramePointer;
///
/// let report = check_dir("corpus/traces/seed-004.bin", &FramePointer).unwrap();
/// assert!(!report.is_ok());
/// let report = report.except(|wrong| wrong.file.ends_with("seed-004.bin"));
/// report.assert_ok();
/// ```
///
/// # Errors
/// If a folder cannot be read, or there is nothing to check. A recording that cannot be read is not
/// an error, but the report is then not ok.
pub fn check_dir(path: impl AsRef<Path>, unwinder: &dyn Unwinder) -> Result<Report, CheckError> {
    let path = path.as_ref();
    let files = recordings(path)?;
    if files.is_empty() {
        return Err(CheckError::Nothing { path: path.into() });
    }
    let mut report = Report {
        unwinder: unwinder.name().to_owned(),
        ..Report::default()
    };
    let shelf = FileArena::default();
    let mut proofs = Proofs::new(&shelf, FinderOptions::system());
    for file in files {
        match check_file(&file, unwinder, &mut proofs, &mut report) {
            Ok(()) => report.files += 1,
            Err(error) => report.unread.push(Unread { file, error }),
        }
    }
    Ok(report)
}

/// The cases and recordings at or below `path`, sorted.
fn recordings(path: &Path) -> Result<Vec<PathBuf>, CheckError> {
    if path.is_file() {
        return Ok(vec![path.into()]);
    }

    let mut found = Vec::new();
    let mut folders = vec![path.to_path_buf()];

    while let Some(folder) = folders.pop() {
        let io = |source| CheckError::Io {
            path: folder.clone(),
            source,
        };

        for entry in std::fs::read_dir(&folder).map_err(io)? {
            let entry = entry.map_err(io)?;
            let path = entry.path();
            // Links are not followed, since they may form a cycle.
            let is_folder = entry.file_type().map_err(io)?.is_dir();
            if is_folder {
                folders.push(path);
            } else if entry.file_type().map_err(io)?.is_file() && is_recording(&path) {
                found.push(path);
            }
        }
    }

    // A folder has no order that is the same on every machine.
    found.sort();
    Ok(found)
}

/// Whether this is a case, or a recording of a program.
fn is_recording(path: &Path) -> bool {
    let Ok(file) = open_file(path) else {
        return false;
    };
    if file.kind() == FileKind::Case {
        return is_case(&file);
    }
    // What has the stacks of a kernel needs its image.
    let is_of_program =
        || (file.bytes()).is_ok_and(|bytes| !import::is_of_kernel((*bytes).as_ref()));
    file.kind().is_recorded() && (!file.kind().is_converted() || is_of_program())
}

/// Whether this assembly file is a case. One that is malformed on purpose has its expected message
/// beside it, in a `.txt` of the same name.
fn is_case(file: &InputFile) -> bool {
    let header = |bytes: Owner| {
        (*bytes)
            .as_ref()
            .split(|b| *b == b'\n')
            .any(|line| line.starts_with(b"#!"))
    };
    // A file that cannot be read is reported when it is opened.
    let has_header = file.bytes().map_or(true, header);
    has_header && !file.path().with_extension("txt").is_file()
}

fn check_file(
    file: &Path,
    unwinder: &dyn Unwinder,
    proofs: &mut Proofs<'_>,
    report: &mut Report,
) -> Result<(), RunError> {
    let input = Input::open(file, &OpenOptions::default())?;

    // A recording that was cut is judged as far as it goes, and is named.
    if let Some(cut) = input.gaps().problems.first() {
        let first = format!("{cut}");
        report.unread.push(Unread {
            file: file.into(),
            error: std::io::Error::other(first).into(),
        });
    }

    let mut cache = Cache::new();
    let column = Column {
        engine: 0,
        variant: None,
        version: None,
    };

    // Asked of the recording: where it has a truth, a sample without one is not judged by a proof.
    let has_truth = input.has_truth();

    input.for_each(&Filter::default(), &mut |view| {
        // Of a kernel's stack, nothing is proven.
        if has_truth || view.sample.kernel.is_some() {
            judge(file, view, column, unwinder, &mut cache, report);
            return Ok(());
        }

        // The proof stands in for the truth, as far as it reaches.
        report.by_proof += 1;
        let proven = proofs.prove(view, &Setting::default());
        let sample = &with_truth(view.sample, proven.truth);
        let view = View { sample, ..*view };
        judge(file, &view, column, unwinder, &mut cache, report);
        Ok(())
    })
}

/// Whether a chain says that the unwinder is not for this stack: there is no table that it reads, or
/// it finds no caller in a kernel's stack and says nothing about it.
fn is_not_for(view: &View<'_>, outcome: &Outcome) -> bool {
    let end = &outcome.chain.end;
    let is_alone = outcome.chain.frames.len() <= 1;
    let is_kernel = view.sample.kernel.is_some();
    match end.reason.code() {
        Code::NoTable => is_kernel || is_alone,
        _ => is_kernel && is_alone && !end.marks_roots,
    }
}

fn judge(
    file: &Path,
    view: &View<'_>,
    column: Column,
    unwinder: &dyn Unwinder,
    cache: &mut Cache,
    report: &mut Report,
) {
    let start = column.variant_for(view);
    let outcome = examine(view, unwinder, start, &Setting::default(), cache);

    report.samples += 1;
    if is_not_for(view, &outcome) {
        report.not_for += 1;
        return;
    }

    // Without truth there is nothing to compare with, but the sample was read.
    if !outcome.verdict.is_judged() {
        return;
    }

    report.judged += 1;
    // Luck does not count as wrong here: the rule that found a chain is not visible from outside.
    if !outcome.verdict.is_wrong() {
        return;
    }

    let diagnosis = outcome.diagnosis.as_ref();
    report.wrong.push(Wrong {
        file: file.into(),
        sample: view.number,
        start,
        verdict: outcome.verdict,
        cause: diagnosis.map(|d| d.code),
        place: diagnosis.map(|d| Location::of(view.space, d.pc)),
        found: outcome.chain.frames.len(),
        // Without the frames further in than the start, which no chain from there has.
        truth: view
            .sample
            .truth
            .frames()
            .len()
            .saturating_sub(outcome.from),
    });
}

/// Tests the snippets of the page.
#[cfg(all(doctest, feature = "corpus"))]
#[doc = include_str!("../docs/own-unwinders.md")]
struct OwnUnwinders;

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that `check_dir("corpus", ..)` takes is a case that parses, or a trace.
    #[test]
    fn nothing_of_our_corpus_is_unreadable() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        let files = recordings(&corpus).expect("a folder");
        assert!(files.len() > 150, "{}", files.len());
        for file in files {
            match open_file(&file).expect("it is there").kind() {
                FileKind::Case => {
                    crate::cases::read(&file).unwrap_or_else(|error| panic!("{error}"));
                }
                FileKind::Trace => {
                    let trace = unwind_sim_recordings::trace::Trace::open(&file);
                    trace.unwrap_or_else(|error| panic!("{error}"));
                }
                FileKind::PerfData | FileKind::Core => {}
                kind => panic!("{}: {kind:?}", file.display()),
            }
        }
    }
}

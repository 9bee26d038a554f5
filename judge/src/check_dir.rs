//! Runs an unwinder of your own on a folder of recordings, in your own `cargo test`.
//!
//! See [`Unwinder`] and `docs/own-unwinders.md`.

use crate::engine::Setting;
use crate::engine::examine;
use crate::input::{FileKind, Input, file_kind};
use crate::run::{Column, RunError};
use std::fmt;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::counted::counted;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::Unwinder;
use unwind_sim_unwind::verdict::Verdict;

/// Why a folder cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The folder cannot be listed.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The folder has nothing to check.
    #[error("{path} holds neither a case (.s) nor a trace (.bin)")]
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
            self.file.display(),
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

    /// The report without the wrong chains that are `expected`, for what an unwinder cannot know.
    #[must_use]
    pub fn except(mut self, expected: impl Fn(&Wrong) -> bool) -> Report {
        self.wrong.retain(|wrong| !expected(wrong));
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wrong, judged) = (self.wrong.len(), self.judged);
        writeln!(
            f,
            "{}: {wrong} of {judged} chains wrong, in {} with {}",
            self.unwinder,
            counted(self.files, "file"),
            counted(self.samples, "sample")
        )?;
        for wrong in &self.wrong {
            writeln!(f, "  {wrong}")?;
        }
        for unread in &self.unread {
            writeln!(f, "  {}: {}", unread.file.display(), unread.error)?;
        }
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

/// Runs `unwinder` on every case (`.s`, which is assembled and run) and every trace (`.bin`) at or
/// below `path`, and judges its chains by the recorded truth. Samples start from the registers they
/// were taken with, and all recorded memory is visible. These are skipped: `.bin` files that are
/// not traces, assembly without a case's header (`#!`), and cases that are malformed on purpose,
/// whose message is in a `.txt` of the same name.
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
    for file in files {
        match check_file(&file, unwinder, &mut report) {
            Ok(()) => report.files += 1,
            Err(error) => report.unread.push(Unread { file, error }),
        }
    }
    Ok(report)
}

/// The cases and traces at or below `path`, sorted. A `.bin` that is not a trace and assembly
/// without a case's header are skipped.
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
            let extension = path.extension().and_then(|e| e.to_str());
            match extension {
                _ if is_folder => folders.push(path),
                Some("s") if is_case(&path) => found.push(path),
                Some("bin") if matches!(file_kind(&path), Ok(FileKind::Trace)) => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether this assembly file is a case. One that is malformed on purpose has its expected message
/// beside it, in a `.txt` of the same name.
fn is_case(path: &Path) -> bool {
    let header = |text: Vec<u8>| {
        text.split(|b| *b == b'\n')
            .any(|line| line.starts_with(b"#!"))
    };
    // A file that cannot be read is reported when it is opened.
    let has_header = std::fs::read(path).map_or(true, header);
    has_header && !path.with_extension("txt").is_file()
}

fn check_file(file: &Path, unwinder: &dyn Unwinder, report: &mut Report) -> Result<(), RunError> {
    let input = Input::open(file, &OpenOptions::default())?;
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
    input.for_each(&Filter::default(), &mut |view| {
        judge(file, view, column, unwinder, &mut cache, report);
        Ok(())
    })
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
            match file_kind(&file).expect("it is there") {
                FileKind::Case => {
                    crate::cases::read(&file).unwrap_or_else(|error| panic!("{error}"));
                }
                FileKind::Trace => {
                    let trace = unwind_sim_recordings::trace::Trace::open(&file);
                    trace.unwrap_or_else(|error| panic!("{error}"));
                }
                kind => panic!("{}: {kind:?}", file.display()),
            }
        }
    }
}

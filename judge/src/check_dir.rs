//! Somebody else's unwinder in front of a folder of recordings, for their own `cargo test`.
//!
//! Not here: the unwinder; see [`Unwinder`] and `docs/own-unwinders.md`.

use crate::engine::Setting;
use crate::engine::examine;
use crate::input::{FileKind, Input, file_kind};
use crate::run::{Column, RunError};
use std::fmt;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::names::Location;
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::reason::Code;
use unwind_sim_unwind::start::Variant;
use unwind_sim_unwind::unwinder::Unwinder;
use unwind_sim_unwind::verdict::Verdict;

/// A folder that cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It cannot be listed.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// There is nothing in it to check.
    #[error("{path} holds neither a case (.s) nor a trace (.bin)")]
    Nothing {
        /// The folder.
        path: PathBuf,
    },
}

/// A chain that is not the true one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The recording.
    pub file: PathBuf,
    /// The number of the sample in it, from 0.
    pub sample: u64,
    /// What the walk was started with.
    pub start: Variant,
    /// What is wrong.
    pub verdict: Verdict,
    /// Why, as far as that can be told from outside the unwinder.
    pub cause: Option<Code>,
    /// The function of the true frame that is to blame.
    pub place: Option<Location>,
    /// How many frames the unwinder found.
    pub found: usize,
    /// How many there are.
    pub truth: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sample {} from {}: {} {} ({} frames found, {} true)",
            self.file.display(),
            self.sample,
            self.start.as_str(),
            self.verdict.as_str(),
            self.verdict,
            self.found,
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

/// A recording that could not be read, or not to its end.
#[derive(Debug)]
pub struct Unread {
    /// The recording.
    pub file: PathBuf,
    /// Why not.
    pub error: RunError,
}

/// What came of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// The unwinder.
    pub unwinder: String,
    /// Recordings read.
    pub files: usize,
    /// Samples put in front of the unwinder.
    pub samples: u64,
    /// Those whose truth is known, and which could be started.
    pub judged: u64,
    /// Those of them with a wrong chain, in the order of files and samples.
    pub wrong: Vec<Wrong>,
    /// Recordings that could not be read.
    pub unread: Vec<Unread>,
}

impl Report {
    /// Was something judged, all of it right, and every file read?
    pub fn is_ok(&self) -> bool {
        self.judged > 0 && self.wrong.is_empty() && self.unread.is_empty()
    }

    /// Ends the test unless [`Report::is_ok`].
    ///
    /// # Panics
    /// With the report, unless all is well.
    #[track_caller]
    pub fn assert_ok(&self) {
        assert!(self.is_ok(), "{self}");
    }

    /// The same without the wrong chains that are `expected`: what an unwinder cannot know, it
    /// may get wrong.
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
            "{}: {wrong} of {judged} chains wrong, in {} files with {} samples",
            self.unwinder, self.files, self.samples
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

/// The folder of recordings with known truth that comes with this package: `cases`, `traces` and more,
/// for [`check_dir`]. It exists where the package is a git or path dependency.
#[cfg(feature = "corpus")]
pub fn corpus() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus"))
}

/// Puts `unwinder` in front of every case (`.s`, which is assembled and run) and every trace
/// (`.bin`) at or below `path`, and judges its chains by the truth recorded there. Samples are
/// started as they were taken, and see all of the memory recorded. Left out are a `.bin` that is not
/// a trace, assembly without a case's header (`#!`), and cases that are malformed on purpose, with
/// their message in a `.txt` of the same name.
///
/// In a test of your own:
///
/// ```
/// use unwind_sim_judge::check_dir;
/// use unwind_sim_unwind::dwarf::Dwarf;
///
/// let report = check_dir("../corpus/traces/seed-004.bin", &Dwarf::new()).unwrap();
/// assert_eq!((report.judged, report.wrong.len()), (3, 0));
/// report.assert_ok();
/// ```
///
/// What an unwinder cannot know, it may get wrong; [`Report::except`] takes that out:
///
/// ```
/// use unwind_sim_judge::check_dir;
/// use unwind_sim_unwind::fp::FramePointer;
///
/// let report = check_dir("../corpus/traces/seed-004.bin", &FramePointer).unwrap();
/// assert!(!report.is_ok());
/// let report = report.except(|wrong| wrong.file.ends_with("seed-004.bin"));
/// report.assert_ok();
/// ```
///
/// # Errors
/// If a folder cannot be read, or there is nothing to check. A recording that cannot be read is
/// no error, but keeps the report from being ok.
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

/// Cases and traces at or below `path`, sorted. A `.bin` that is not a trace, and assembly without a
/// case's header, belong to something else.
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
            // Links are not followed: they may lead round in a circle.
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

/// Is this assembly a case? One that is malformed on purpose has the message that it must give
/// beside it, in a `.txt` of its name.
fn is_case(path: &Path) -> bool {
    let header = |text: Vec<u8>| {
        text.split(|b| *b == b'\n')
            .any(|line| line.starts_with(b"#!"))
    };
    // What cannot be read is told when it is opened.
    let has_header = std::fs::read(path).map_or(true, header);
    has_header && !path.with_extension("txt").is_file()
}

fn check_file(file: &Path, unwinder: &dyn Unwinder, report: &mut Report) -> Result<(), RunError> {
    let input = Input::open(file, &OpenOptions::default())?;
    if let Some(cut) = input.cut() {
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
    // Luck is not wrong here: from outside nobody sees by which rule a chain was found.
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

/// The snippets of the page.
#[cfg(all(doctest, feature = "corpus"))]
#[doc = include_str!("../../docs/own-unwinders.md")]
struct OwnUnwinders;

#[cfg(test)]
mod tests {
    use super::*;

    /// All that `check_dir("corpus", ..)` takes is a case that parses, or a trace.
    #[test]
    fn nothing_of_our_corpus_is_unreadable() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
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

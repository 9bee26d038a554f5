//! Opens what can be replayed: a trace, a case, a perf.data, an ELF core or a kernel's capture.
//!
//! A command makes one [`InputFile`] of the path that it was given (`recordings/src/input_file.rs`), one
//! [`OpenOptions`] of the options that say where images come from, and of both one [`Input`], which is what
//! it passes on. Nothing below takes the path of a recording: what is to be known of it, such as its kind,
//! its bytes or where its images are, is asked of the [`Input`].

use crate::engine::Setting;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::branches::Stitching;
use unwind_sim_recordings::case_limits::CaseLimits;
use unwind_sim_recordings::convert::{ImportError, OpenOptions};
pub use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::file_kind::WrongKind;
use unwind_sim_recordings::files::{FileProblem, FinderOptions};
use unwind_sim_recordings::gaps::Gaps;
use unwind_sim_recordings::import;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::made::Made;
use unwind_sim_recordings::parts::Part;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_recordings::recording::Recording;
use unwind_sim_recordings::trace::{Meta, Trace, TraceError};
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_unwind::image::Owner;

/// Why an input cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened.
    #[error("cannot open {}: {source}", path.printable())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file is of a kind that cannot be replayed.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// The recording is damaged, or cannot be imported.
    #[error(transparent)]
    Recording(#[from] ImportError),
    /// The case cannot be recorded.
    #[cfg(feature = "machine")]
    #[error(transparent)]
    Case(#[from] crate::cases::CaseFailure),
    /// A case, which cannot be run.
    #[cfg(not(feature = "machine"))]
    #[error("{}: a case; this program was built without the emulated machine that runs cases", path.printable())]
    NoMachine {
        /// The case.
        path: PathBuf,
    },
    /// The recording has no sample with this number.
    #[error("no sample {number}: the recording has {len}, counted from 0")]
    NoSample {
        /// The requested number.
        number: u64,
        /// The number of samples.
        len: u64,
    },
}

impl From<TraceError> for InputError {
    fn from(error: TraceError) -> InputError {
        ImportError::from(error).into()
    }
}

/// Opens the file at `path`, or the case that the program carries under that name.
///
/// # Errors
/// If the file cannot be opened.
pub fn open_file(path: &Path) -> Result<InputFile, InputError> {
    #[cfg(feature = "machine")]
    if let Some(carried) = crate::cases::carried::input(path) {
        return Ok(carried);
    }
    InputFile::open(path).map_err(|source| InputError::Open {
        path: path.into(),
        source,
    })
}

/// Checks that a file can be replayed.
///
/// # Errors
/// If it is of another kind.
pub fn check_recording(file: &InputFile) -> Result<(), InputError> {
    if file.kind().is_recording() {
        return Ok(());
    }
    let kinds = FileKind::list(FileKind::is_recording);
    Err(file.is_not(format!("a recording: {kinds}")).into())
}

/// The recording of a case, which is run for it, and how its walks are set.
///
/// # Errors
/// If the case does not build or run.
#[cfg(feature = "machine")]
pub fn trace_of(file: &InputFile, limits: &CaseLimits) -> Result<(Trace, Setting), InputError> {
    Ok(crate::cases::trace_of(file, limits)?)
}

/// The recording of a case, which this build cannot run.
///
/// # Errors
/// Always.
#[cfg(not(feature = "machine"))]
pub fn trace_of(file: &InputFile, _: &CaseLimits) -> Result<(Trace, Setting), InputError> {
    let path = file.path().into();
    Err(InputError::NoMachine { path })
}

/// An open recording: its file, where images are looked for, and what was read. Every part of a command is
/// given this one, so that the file is opened once, and all look for images at the same places.
pub struct Input {
    recording: Recording,
    file: Option<InputFile>,
    options: OpenOptions,
    setting: Setting,
}

impl Input {
    /// Opens, imports or runs the file, depending on its kind.
    ///
    /// # Errors
    /// If the file cannot be read, cannot be replayed, or is damaged before its first sample.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Input, InputError> {
        Input::of(&open_file(path)?, options)
    }

    /// Imports or runs a file that is open, depending on its kind.
    ///
    /// # Errors
    /// See [`Input::open`].
    pub fn of(file: &InputFile, options: &OpenOptions) -> Result<Input, InputError> {
        check_recording(file)?;
        let (recording, setting) = match file.kind() {
            FileKind::Case => {
                let (trace, setting) = trace_of(file, &options.case_limits)?;
                (trace.into(), setting)
            }
            _ => (Recording::open(file, options)?, Setting::default()),
        };
        Ok(Input {
            recording,
            file: Some(file.clone()),
            options: options.clone(),
            setting,
        })
    }

    /// Opens a trace that is in memory.
    pub fn from_trace(trace: Trace) -> Input {
        Input {
            recording: trace.into(),
            file: None,
            options: OpenOptions::default(),
            setting: Setting::default(),
        }
    }

    /// The file that it was read from; `None` of a trace in memory.
    pub fn file(&self) -> Option<&InputFile> {
        self.file.as_ref()
    }

    /// Where images are looked for, and what else it was opened with.
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// How its walks are set: as its case says, if it is one.
    pub fn setting(&self) -> Setting {
        self.setting
    }

    /// Where to look for files of which the recording has only parts.
    pub fn files(&self) -> FinderOptions {
        FinderOptions {
            symfs: self.options.symfs.clone(),
            ..FinderOptions::system()
        }
    }

    /// Whether it holds the stacks of a kernel. A trace does if its first sample is of one.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn is_of_kernel(&self) -> Result<bool, InputError> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        if file.kind() == FileKind::Trace {
            let is_of_kernel = self.first(|view| view.sample.kernel.is_some());
            return Ok(is_of_kernel.unwrap_or(false));
        }
        if !file.kind().is_imported() {
            return Ok(false);
        }
        let bytes = file.bytes().map_err(|source| InputError::Open {
            path: file.path().into(),
            source,
        })?;
        Ok(import::is_of_kernel((*bytes).as_ref()))
    }

    /// The bytes of a perf.data, which is read in place; `None` of other recordings.
    pub fn perf_data(&self) -> Option<Owner> {
        self.recording.perf_data()
    }

    /// How the recording was made.
    pub fn made(&self) -> Made {
        self.recording.made()
    }

    /// The problems with the files that the recording names, as far as it was read.
    pub fn file_problems(&self) -> Vec<FileProblem> {
        self.recording.file_problems()
    }

    /// The recording's metadata.
    pub fn meta(&self) -> &Meta {
        self.recording.meta()
    }

    /// The number of samples, if that is known before the recording is read.
    pub fn sample_count(&self) -> Option<u64> {
        self.recording.sample_count()
    }

    /// The number of samples that are to be read, for a progress ([`Recording::samples_to_read`]).
    pub fn samples_to_read(&self) -> Option<u64> {
        self.recording.samples_to_read()
    }

    /// What the recording lacks. Whether its file was cut short is known before it is read.
    pub fn gaps(&self) -> Gaps {
        self.recording.gaps()
    }

    /// Calls `look` with the first sample. `None` if there is no sample or it cannot be read.
    pub fn first<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> Option<R> {
        let (mut look, mut found) = (Some(look), None);
        let read = self.recording.view(0, &mut |view| {
            found = look.take().map(|look| look(view));
            ControlFlow::Break(())
        });
        found.filter(|_| read.is_ok())
    }

    /// Whether the recording has a truth, according to its metadata, or else its first sample.
    pub fn has_truth(&self) -> bool {
        let has_truth = |view: &View<'_>| !view.sample.truth.frames().is_empty();
        !self.meta().truth.is_empty() || self.first(has_truth).unwrap_or(false)
    }

    /// Calls `take` with every sample that passes `filter`, in order, each with its world. A
    /// recording that was cut short ends with its last whole block.
    ///
    /// # Errors
    /// If a block is damaged, or `take` fails.
    pub fn for_each<E: From<InputError>>(
        &self,
        filter: &Filter,
        take: &mut dyn FnMut(&View<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut failed = None;

        // The reader is only told to stop; why is kept here.
        let mut flow = |taken: Result<(), E>| match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };

        let missing = |number, len| Err(InputError::NoSample { number, len }.into());

        // One sample can be found without the others, but stitching needs those before it.
        if let Some(number) = filter.sample.filter(|_| !filter.stitch) {
            let read = self.recording.view(number, &mut |view| flow(take(view)));
            return match (read.map_err(InputError::from)?, failed) {
                (_, Some(error)) => Err(error),
                (Some(len), None) => missing(number, len),
                (None, None) => Ok(()),
            };
        }

        // Without this, the whole recording would be read only to find out.
        if let (Some(number), Some(len)) = (filter.sample, self.sample_count())
            && number >= len
        {
            return missing(number, len);
        }

        let mut stitching = filter.stitch.then(Stitching::default);
        let mut left = filter.limit.unwrap_or(u64::MAX);

        let read = self.recording.views(&mut |view| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            // Of samples that the filter leaves out, too: a later one may need their branch
            // records.
            let stitched = stitching.as_mut().map(|s| s.next(view.sample));
            if !filter.lets_through(view) {
                return ControlFlow::Continue(());
            }

            left -= 1;
            let stitched = stitched.as_deref().unwrap_or_default();
            flow(take(&View { stitched, ..*view }))
        });

        let len = read.map_err(InputError::from)?;
        match (failed, filter.sample) {
            (Some(error), _) => Err(error),
            (None, Some(number)) if number >= len => missing(number, len),
            (None, _) => Ok(()),
        }
    }

    /// The recording in at most `count` parts that can be read at the same time, in order; `None`
    /// if it must be read as a whole.
    pub fn parts(&self, count: usize) -> Option<Vec<Part<'_>>> {
        self.recording.parts(count)
    }

    /// Calls `take` with at most `count` samples from number `first` on, without stitching. Returns
    /// how many there were.
    ///
    /// # Errors
    /// If a block is damaged.
    pub fn range(
        &self,
        first: u64,
        count: u64,
        take: &mut dyn FnMut(&View<'_>),
    ) -> Result<u64, InputError> {
        let mut taken = 0;
        if count == 0 {
            return Ok(0);
        }
        self.recording.views_from(first, &mut |view| {
            taken += 1;
            take(view);
            if taken < count {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(taken)
    }
}

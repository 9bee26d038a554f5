//! What can be replayed: a trace, a case, a perf.data, an ELF core. All of them become a trace.

use std::path::{Path, PathBuf};
use unwind_sim_recordings::branches::Stitching;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::convert::{self, ImportError};
pub use unwind_sim_recordings::file_kind::FileKind;
use unwind_sim_recordings::file_kind::{self, WrongKind};
use unwind_sim_recordings::model::Item;
use unwind_sim_recordings::trace::{Chunk, Trace, TraceError};
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_recordings::world::World;

/// An input that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened.
    #[error("cannot open {path}: {source}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It is nothing that can be replayed.
    #[error(transparent)]
    Kind(#[from] WrongKind),
    /// The trace is damaged.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The import failed.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The case cannot be recorded.
    #[error(transparent)]
    Case(#[from] crate::cases::CaseFailure),
    /// No such sample.
    #[error("no sample {number}: the recording has {len}, counted from 0")]
    NoSample {
        /// The number asked for.
        number: u64,
        /// How many there are.
        len: u64,
    },
}

/// What can be replayed, in words.
pub const RECORDING: &str =
    "a recording: a trace, a perf.data, an ELF core, a kernel's capture (JSON) or a case (.s)";

/// The kinds of what can be replayed.
pub const RECORDINGS: [FileKind; 5] = [
    FileKind::Trace,
    FileKind::PerfData,
    FileKind::Core,
    FileKind::Capture,
    FileKind::Case,
];

/// What the file at `path` is.
///
/// # Errors
/// If it cannot be opened.
pub fn file_kind(path: &Path) -> Result<FileKind, InputError> {
    file_kind::file_kind(path).map_err(|source| InputError::Open {
        path: path.into(),
        source,
    })
}

/// A recording that was opened.
pub struct Input {
    trace: Trace,
}

impl Input {
    /// Opens the file, imports it or runs it, whatever it is.
    ///
    /// # Errors
    /// If it cannot be read, is nothing that can be replayed, or is damaged before its first
    /// sample.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Input, InputError> {
        let kind = file_kind(path)?;
        let trace = match kind {
            FileKind::Trace => Trace::open(path)?,
            FileKind::Case => crate::cases::trace_of(path)?,
            FileKind::PerfData | FileKind::Core | FileKind::Capture => {
                convert::to_trace(path, kind, options)?
            }
            _ => {
                return Err(InputError::Kind(WrongKind {
                    path: path.into(),
                    kind,
                    wanted: RECORDING,
                }));
            }
        };
        Ok(Input { trace })
    }

    /// A recording in memory.
    pub fn from_trace(trace: Trace) -> Input {
        Input { trace }
    }

    /// The trace that it is, or became.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Does any sample have a truth? Asked of the recording's own description, and of the first
    /// sample where that says nothing.
    pub fn has_truth(&self) -> bool {
        if !self.trace.meta().truth.is_empty() {
            return true;
        }
        self.trace
            .sample(0)
            .is_ok_and(|s| !s.truth.frames().is_empty())
    }

    /// Takes every sample that `filter` lets through, in order, each in its world. A recording
    /// that was cut short ends with its last whole block.
    ///
    /// # Errors
    /// If a block is damaged, or `take` fails.
    pub fn for_each<E: From<InputError>>(
        &self,
        filter: &Filter,
        take: &mut dyn FnMut(&View<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.check_number(filter)?;
        if let Some(number) = filter.sample.filter(|_| !filter.stitch) {
            return self.one(number, take);
        }
        let mut stitching = filter.stitch.then(Stitching::default);
        let mut left = filter.limit.unwrap_or(u64::MAX);
        let mut world = World::new();
        for chunk in self.trace.chunks() {
            if left == 0 {
                break;
            }
            read_chunk::<E>(&self.trace, &chunk, &mut world, &mut |view| {
                let stitched = stitching.as_mut().map(|s| s.next(view.sample));
                if left > 0 && filter.lets_through(view) {
                    left -= 1;
                    let stitched = stitched.as_deref().unwrap_or_default();
                    take(&View { stitched, ..*view })?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn check_number(&self, filter: &Filter) -> Result<(), InputError> {
        let len = self.trace.len();
        match filter.sample.filter(|&number| number >= len) {
            Some(number) => Err(InputError::NoSample { number, len }),
            None => Ok(()),
        }
    }

    fn one<E: From<InputError>>(
        &self,
        number: u64,
        take: &mut dyn FnMut(&View<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let sample = self.trace.sample(number).map_err(InputError::from)?;
        let world = self.trace.world_at(number).map_err(InputError::from)?;
        take(&View {
            number,
            sample: &sample,
            space: world.space(sample.pid),
            pristine: None,
            stitched: &[],
            world: Some(&world),
        })
    }
}

/// Takes every sample of one chunk. `world` is the one before it, and afterwards the one behind.
///
/// # Errors
/// If the chunk is damaged, or `take` fails.
pub fn read_chunk<E: From<InputError>>(
    trace: &Trace,
    chunk: &Chunk<'_>,
    world: &mut World,
    take: &mut dyn FnMut(&View<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut number = chunk.samples().start;
    let mut reader = chunk.read().map_err(InputError::from)?;
    while let Some(item) = reader.next() {
        match item.map_err(InputError::from)? {
            Item::Event(event) => world.apply(&event, trace.images()),
            Item::Sample(sample) => {
                take(&View {
                    number,
                    sample: &sample,
                    space: world.space(sample.pid),
                    pristine: None,
                    stitched: &[],
                    world: Some(&*world),
                })?;
                number += 1;
            }
        }
    }
    Ok(())
}

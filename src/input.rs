//! What can be replayed: a trace, a case, a perf.data, an ELF core. All of them become a trace.

use crate::branches::Stitching;
use crate::engine::View;
pub use crate::file_kind::FileKind;
use crate::file_kind::{self, WrongKind};
use crate::import::{self, ImportError};
use crate::run::RunError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use unwind_sim_corpus::kernel;
use unwind_sim_corpus::model::Item;
use unwind_sim_corpus::trace::{Chunk, Trace, TraceError};
use unwind_sim_corpus::world::World;

/// How images of an import are looked for.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The folder below which paths are looked for first.
    pub symfs: Option<PathBuf>,
    /// The kernel's image, for captures and dumps of a machine.
    pub kernel: Option<PathBuf>,
    /// What belongs to it.
    pub kernel_files: kernel::OpenOptions,
    /// How far the kernel was moved (KASLR), if that is known.
    pub kaslr: Option<u64>,
    /// Take the image whatever release or build id a capture names.
    pub force: bool,
    /// Offsets in structs of a dump's kernel, bytes, by `STRUCT.MEMBER`.
    pub offsets: BTreeMap<String, u64>,
}

/// Which samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filter {
    /// Only this one.
    pub sample: Option<u64>,
    /// Only of this thread.
    pub tid: Option<u32>,
    /// Only with a time in this range, end excluded.
    pub time: Option<(u64, u64)>,
    /// At most so many.
    pub limit: Option<u64>,
    /// Put branch records together with those of samples before ([`Stitching`]): all samples are
    /// read then, whichever are wanted.
    pub stitch: bool,
}

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
                import::to_trace(path, kind, options)?
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
    pub fn for_each(
        &self,
        filter: &Filter,
        take: &mut dyn FnMut(&View<'_>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
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
            read_chunk(&self.trace, &chunk, &mut world, &mut |view| {
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

    fn one(
        &self,
        number: u64,
        take: &mut dyn FnMut(&View<'_>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
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
pub fn read_chunk(
    trace: &Trace,
    chunk: &Chunk<'_>,
    world: &mut World,
    take: &mut dyn FnMut(&View<'_>) -> Result<(), RunError>,
) -> Result<(), RunError> {
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

impl Filter {
    /// Is this sample wanted?
    pub fn lets_through(&self, view: &View<'_>) -> bool {
        let sample = view.sample;
        self.sample.is_none_or(|number| number == view.number)
            && self.tid.is_none_or(|tid| tid == sample.tid)
            && self.time.is_none_or(|(a, b)| (a..b).contains(&sample.time))
    }
}

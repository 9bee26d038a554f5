//! A recording read sample by sample, each with its process's mappings: a trace or a perf.data.

use crate::convert::{self, ImportError, OpenOptions};
use crate::file_kind::FileKind;
use crate::files::FileProblem;
use crate::files::{FinderOptions, ImageFinder};
use crate::gaps::Gaps;
use crate::import::{ImportItem, Imported, perf};
use crate::input_file::InputFile;
use crate::made::Made;
use crate::model::Item;
use crate::trace::{Chunk, Meta, Trace, TraceError};
use crate::view::View;
use crate::world::World;
use std::cell::{Cell, OnceCell, RefCell};
use std::ops::ControlFlow;
use unwind_sim_unwind::image::Owner;

/// A recording that can be read sample by sample.
pub enum Recording {
    /// A trace.
    Trace(Box<Trace>),
    /// A core or a capture, converted to a trace, and how that went.
    Converted(Box<(Trace, Imported)>),
    /// A perf.data, read again at each pass.
    PerfData(Box<PerfData>),
}

/// A mapped perf.data.
pub struct PerfData {
    bytes: Owner,
    meta: Meta,
    files: FinderOptions,
    chains: bool,
    /// Chains of samples whose user part was recorded later; joined when first needed.
    deferred: OnceCell<perf::Deferred>,
    /// Keeps images between passes.
    finder: Cell<Option<ImageFinder>>,
    gaps: RefCell<Gaps>,
}

/// Receives samples in recording order; may stop the iteration.
pub type TakeView<'t> = dyn FnMut(&View<'_>) -> ControlFlow<()> + 't;

impl Recording {
    /// Reads a recording that is open. A perf.data is read directly; a core or a capture is converted to a
    /// temporary trace.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a recording.
    pub fn open(input: &InputFile, options: &OpenOptions) -> Result<Recording, ImportError> {
        match input.kind() {
            FileKind::Trace => Ok(Trace::read(input)?.into()),
            FileKind::PerfData => {
                let io = |error: std::io::Error| crate::import::ImportError::Io(error.kind());
                let bytes = input.bytes().map_err(io)?;
                let file = perf::parse((*bytes).as_ref())?;

                // These are known before any sample was read.
                let problems = file
                    .cut()
                    .into_iter()
                    .chain(file.problems().iter().copied());
                let gaps = Gaps::known(problems.map(crate::import::ImportError::Perf));
                let files = FinderOptions {
                    symfs: options.symfs.clone(),
                    // A file that is newer than the recording may be another one.
                    recorded: options.recorded_at(input),
                    ..FinderOptions::system()
                };

                Ok(Recording::PerfData(Box::new(PerfData {
                    bytes,
                    meta: convert::meta(input),
                    files,
                    chains: options.chains,
                    deferred: OnceCell::new(),
                    finder: Cell::default(),
                    gaps: RefCell::new(gaps),
                })))
            }
            _ => Ok(Recording::Converted(Box::new(convert::to_trace(
                input, options,
            )?))),
        }
    }

    /// The recording's metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Recording::Trace(trace) => trace.meta(),
            Recording::Converted(converted) => converted.0.meta(),
            Recording::PerfData(perf) => &perf.meta,
        }
    }

    /// The trace that is read; `None` for a perf.data.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        match self {
            Recording::Trace(trace) => Some(trace),
            Recording::Converted(converted) => Some(&converted.0),
            Recording::PerfData(_) => None,
        }
    }

    /// The bytes of a perf.data; `None` of others, which are read as traces.
    pub fn perf_data(&self) -> Option<Owner> {
        match self {
            Recording::PerfData(perf) => Some(perf.bytes.clone()),
            Recording::Trace(_) | Recording::Converted(_) => None,
        }
    }

    /// How the recording was made.
    pub fn made(&self) -> Made {
        match self {
            Recording::PerfData(perf) => perf::parse((*perf.bytes).as_ref())
                .map(|file| Made::of_perf(&file))
                .unwrap_or_default(),
            Recording::Trace(trace) => Made {
                engine: trace.meta().engine,
                ..Made::default()
            },
            Recording::Converted(converted) => Made {
                engine: converted.0.meta().engine,
                is_cut: converted.1.problems.iter().any(|problem| problem.is_cut()),
                lacks_file_list: (converted.1.problems.iter())
                    .any(|problem| problem.lacks_file_list()),
                ..Made::default()
            },
        }
    }

    /// The problems with the files that mappings name, as far as the recording was read. None for a
    /// trace, which has its images.
    pub fn file_problems(&self) -> Vec<FileProblem> {
        match self {
            Recording::Trace(_) => Vec::new(),
            Recording::Converted(converted) => converted.1.file_problems.clone(),
            Recording::PerfData(perf) => {
                let finder = perf.finder.take();
                let problems = finder.as_ref().map(|f| f.problems().to_vec());
                perf.finder.set(finder);
                problems.unwrap_or_default()
            }
        }
    }

    /// The number of samples, if known without reading the recording.
    pub fn sample_count(&self) -> Option<u64> {
        self.trace().map(Trace::len)
    }

    /// The number of samples that are to be read, for a progress: of a perf.data by the headers of its
    /// records, so that it counts those that are skipped, too. `None` if they are compressed.
    pub fn samples_to_read(&self) -> Option<u64> {
        let Recording::PerfData(perf) = self else {
            return self.sample_count();
        };
        let file = perf::parse((*perf.bytes).as_ref()).ok()?;
        // What follows an error is not read.
        let chunks = file.chunks(u64::MAX).map_while(Result::ok);
        chunks
            .map(|chunk| (!chunk.compressed).then_some(chunk.samples))
            .sum()
    }

    /// What the recording lacks. Whether its file was cut short is known before it is read.
    pub fn gaps(&self) -> Gaps {
        match self {
            Recording::Trace(trace) => Gaps::of_trace(trace),
            Recording::Converted(converted) => converted.1.clone().into(),
            Recording::PerfData(perf) => perf.gaps.borrow().clone(),
        }
    }

    /// Passes every sample to `take` until it stops. Returns the number of samples passed.
    ///
    /// # Errors
    /// If a block of a trace is damaged. A damaged perf.data is read as far as possible.
    pub fn views(&self, take: &mut TakeView<'_>) -> Result<u64, ImportError> {
        match self {
            Recording::Trace(trace) => views_of_trace(trace, take),
            Recording::Converted(converted) => views_of_trace(&converted.0, take),
            Recording::PerfData(perf) => Ok(perf.views(take)?),
        }
    }

    /// Passes the samples from number `first` on to `take` until it stops. Of a trace, earlier
    /// blocks of samples are not read.
    ///
    /// # Errors
    /// See [`Recording::views`].
    pub fn views_from(&self, first: u64, take: &mut TakeView<'_>) -> Result<(), ImportError> {
        let mut take = |view: &View<'_>| {
            if view.number < first {
                ControlFlow::Continue(())
            } else {
                take(view)
            }
        };
        let Some(trace) = self.trace() else {
            return self.views(&mut take).map(drop);
        };
        let mut chunks = trace.chunks().skip_while(|c| c.samples().end <= first);
        let Some(chunk) = chunks.next() else {
            return Ok(());
        };
        let mut world = trace.world_before(&chunk)?;
        for chunk in std::iter::once(chunk).chain(chunks) {
            if views_of_chunk(trace, &chunk, &mut world, &mut take)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Passes sample `number` to `take`. If there is no such sample, returns the number of samples.
    ///
    /// # Errors
    /// See [`Recording::views`].
    pub fn view(&self, number: u64, take: &mut TakeView<'_>) -> Result<Option<u64>, ImportError> {
        if let Some(trace) = self.trace() {
            if number >= trace.len() {
                return Ok(Some(trace.len()));
            }

            let sample = trace.sample(number)?;
            let world = trace.world_at(number)?;
            // There is only this one, so it does not matter whether `take` wants more.
            let _ = take(&View {
                number,
                sample: &sample,
                space: world.space(sample.pid),
                pristine: None,
                stitched: &[],
                world: Some(&world),
            });
            return Ok(None);
        }

        // Without an index, all samples before it are read, too.
        let mut found = false;
        let len = self.views(&mut |view| {
            if view.number < number {
                return ControlFlow::Continue(());
            }
            found = true;
            let _ = take(view);
            ControlFlow::Break(())
        })?;

        Ok((!found).then_some(len))
    }
}

impl From<Trace> for Recording {
    fn from(trace: Trace) -> Recording {
        Recording::Trace(Box::new(trace))
    }
}

fn views_of_trace(trace: &Trace, take: &mut TakeView<'_>) -> Result<u64, ImportError> {
    let mut world = World::new();
    for chunk in trace.chunks() {
        if let ControlFlow::Break(number) = views_of_chunk(trace, &chunk, &mut world, take)? {
            return Ok(number);
        }
    }
    Ok(trace.len())
}

/// Passes the samples of one chunk to `take`. `world` is the state before the chunk, and is updated
/// to the state after it. If `take` stops, the break value is the number of samples so far.
pub(crate) fn views_of_chunk(
    trace: &Trace,
    chunk: &Chunk<'_>,
    world: &mut World,
    take: &mut TakeView<'_>,
) -> Result<ControlFlow<u64>, TraceError> {
    let mut number = chunk.samples().start;
    let mut reader = chunk.read()?;

    while let Some(item) = reader.next() {
        match item? {
            // Events stand between the samples, so that each sample has the mappings of its time.
            Item::Event(event) => world.apply(&event, trace.images()),
            Item::Sample(sample) => {
                let view = View {
                    number,
                    sample: &sample,
                    space: world.space(sample.pid),
                    pristine: None,
                    stitched: &[],
                    world: Some(&*world),
                };
                // Before `take`: if it stops here, this sample counts.
                number += 1;
                if take(&view).is_break() {
                    return Ok(ControlFlow::Break(number));
                }
            }
        }
    }
    Ok(ControlFlow::Continue(()))
}

impl PerfData {
    fn views(&self, take: &mut TakeView<'_>) -> Result<u64, crate::import::ImportError> {
        let file = perf::parse((*self.bytes).as_ref())?;
        let mut world = World::new();
        let mut images = Vec::new();
        let mut number = 0;
        // Images stay loaded from one pass to the next.
        let finder = self.finder.take();
        let mut finder = finder.unwrap_or_else(|| ImageFinder::new(self.files.clone()));

        let options = perf::ItemOptions {
            chains: self.chains,
            deferred: Some(self.deferred.get_or_init(|| perf::Deferred::read(&file))),
            at: None,
        };

        // After an early end, the counts of what was skipped are not those of the whole.
        let mut ended = false;
        let imported = perf::items(&file, &mut finder, &options, &mut |item| {
            match item {
                // Images come in the order of their numbers.
                ImportItem::Image { image, .. } => images.push(image),
                ImportItem::Item(Item::Event(event)) => world.apply(&event, &images),
                ImportItem::Item(Item::Sample(sample)) => {
                    let view = View {
                        number,
                        sample: &sample,
                        space: world.space(sample.pid),
                        pristine: None,
                        stitched: &[],
                        world: Some(&world),
                    };
                    number += 1;
                    let flow = take(&view);
                    ended = flow.is_break();
                    return flow;
                }
            }
            ControlFlow::Continue(())
        });

        self.gaps.borrow_mut().pass(imported, ended);
        self.finder.set(Some(finder));
        Ok(number)
    }
}

#[cfg(test)]
mod tests;

//! A recording read sample by sample, each with its process's mappings: a trace or a perf.data.

use crate::convert::{self, ImportError, OpenOptions};
use crate::file_kind::FileKind;
use crate::files::{FinderOptions, ImageFinder};
use crate::gaps::{Gaps, Problem};
use crate::import::{ImportItem, perf};
use crate::mapped::map_file;
use crate::model::Item;
use crate::trace::{Chunk, Meta, Trace, TraceError};
use crate::view::View;
use crate::world::World;
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::path::Path;
use unwind_sim_unwind::image::Owner;

/// A recording that can be read sample by sample.
pub enum Recording {
    /// A trace: opened, or converted from another format with these gaps.
    Trace(Box<Trace>, Gaps),
    /// A perf.data, read again at each pass.
    PerfData(Box<PerfData>),
}

/// A mapped perf.data.
pub struct PerfData {
    bytes: Owner,
    meta: Meta,
    files: FinderOptions,
    chains: bool,
    /// Keeps images between passes.
    finder: Cell<Option<ImageFinder>>,
    gaps: RefCell<Gaps>,
}

/// Receives samples in recording order; may stop the iteration.
pub type TakeView<'t> = dyn FnMut(&View<'_>) -> ControlFlow<()> + 't;

impl Recording {
    /// Opens the file at `path`, which is of kind `kind`. A perf.data is read directly; a core or a
    /// capture is converted to a temporary trace.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a recording.
    pub fn open(
        path: &Path,
        kind: FileKind,
        options: &OpenOptions,
    ) -> Result<Recording, ImportError> {
        match kind {
            FileKind::Trace => Ok(Trace::open(path)?.into()),
            FileKind::PerfData => {
                let io = |error: std::io::Error| crate::import::ImportError::Io(error.kind());
                let bytes = map_file(path).map_err(io)?;
                let file = perf::parse((*bytes).as_ref())?;
                let problems = file
                    .cut()
                    .into_iter()
                    .chain(file.problems().iter().copied());
                let gaps = Gaps::known(problems.map(crate::import::ImportError::Perf));
                let files = FinderOptions {
                    symfs: options.symfs.clone(),
                    ..FinderOptions::system()
                };
                Ok(Recording::PerfData(Box::new(PerfData {
                    bytes,
                    meta: convert::meta(path, kind),
                    files,
                    chains: options.chains,
                    finder: Cell::default(),
                    gaps: RefCell::new(gaps),
                })))
            }
            _ => {
                let (trace, imported) = convert::to_trace(path, kind, options)?;
                Ok(Recording::Trace(Box::new(trace), imported.into()))
            }
        }
    }

    /// The recording's metadata.
    pub fn meta(&self) -> &Meta {
        match self {
            Recording::Trace(trace, _) => trace.meta(),
            Recording::PerfData(perf) => &perf.meta,
        }
    }

    /// The number of samples, if known without reading the recording.
    pub fn sample_count(&self) -> Option<u64> {
        match self {
            Recording::Trace(trace, _) => Some(trace.len()),
            Recording::PerfData(_) => None,
        }
    }

    /// What the recording lacks. Whether its file was cut short is known before it is read.
    pub fn gaps(&self) -> Gaps {
        match self {
            Recording::Trace(_, gaps) => gaps.clone(),
            Recording::PerfData(perf) => perf.gaps.borrow().clone(),
        }
    }

    /// Passes every sample to `take` until it stops. Returns the number of samples passed.
    ///
    /// # Errors
    /// If a block of a trace is damaged. A damaged perf.data is read as far as possible.
    pub fn views(&self, take: &mut TakeView<'_>) -> Result<u64, ImportError> {
        match self {
            Recording::Trace(trace, _) => views_of_trace(trace, take),
            Recording::PerfData(perf) => Ok(perf.views(take)?),
        }
    }

    /// Passes sample `number` to `take`. If there is no such sample, returns the number of samples.
    ///
    /// # Errors
    /// See [`Recording::views`].
    pub fn view(&self, number: u64, take: &mut TakeView<'_>) -> Result<Option<u64>, ImportError> {
        if let Recording::Trace(trace, _) = self {
            if number >= trace.len() {
                return Ok(Some(trace.len()));
            }
            let sample = trace.sample(number)?;
            let world = trace.world_at(number)?;
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
        let problems = trace.cut().cloned().map(Problem::from);
        let gaps = Gaps {
            problems: problems.into_iter().collect(),
            ..Gaps::default()
        };
        Recording::Trace(Box::new(trace), gaps)
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
fn views_of_chunk(
    trace: &Trace,
    chunk: &Chunk<'_>,
    world: &mut World,
    take: &mut TakeView<'_>,
) -> Result<ControlFlow<u64>, TraceError> {
    let mut number = chunk.samples().start;
    let mut reader = chunk.read()?;
    while let Some(item) = reader.next() {
        match item? {
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
        let finder = self.finder.take();
        let mut finder = finder.unwrap_or_else(|| ImageFinder::new(self.files.clone()));
        let mut ended = false;
        let imported = perf::items(&file, &mut finder, self.chains, &mut |item| {
            match item {
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

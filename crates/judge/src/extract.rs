//! Extracts one sample, or all, as a small separate recording, to keep or to share.

mod case;
mod error;
mod kernel;
mod reproduce;
pub mod samples;

pub use case::Written;
pub use error::NotWritable;
pub use reproduce::{Recorded, check};

use crate::input::Input;
use crate::run::RunError;
use crate::scrub::{Differs, ScrubError, Scrubber, scrub_meta};
use crate::states::States;
use samples::write_samples;
use std::path::Path;
use unwind_sim_recordings::convert::ReadByWalks;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::model::{Region, Sample};
use unwind_sim_recordings::trace::{Engine, Meta, TraceWriter, WriteError};
use unwind_sim_recordings::view::{Filter, View};
use unwind_sim_tables::ground::FileArena;
use unwind_sim_unwind::image::Mapping;

/// Extracted samples with their mappings.
pub struct Extracted {
    meta: Meta,
    samples: Vec<(Sample<'static>, Vec<Mapping>)>,
}

/// Extracts sample `number` of `input`, or all samples. With `scrub`, they are scrubbed as
/// [`scrub`](crate::scrub) does it, and of a kernel's image only the rows and symbols of the walks
/// remain.
///
/// # Errors
/// If the recording is damaged, or a walk would give another result.
pub fn extract(input: &Input, number: Option<u64>, scrub: bool) -> Result<Extracted, ScrubError> {
    let filter = Filter {
        sample: number,
        ..Filter::default()
    };
    let shelf = FileArena::default();
    let mut taken = Taken::new(scrub.then_some((&shelf, input.files())))?;
    input.for_each::<RunError>(&filter, &mut |view| {
        taken.add(view);
        Ok(())
    })?;
    taken.finish(input.meta().clone())
}

/// Extracts the states of these numbers, which are in order, as [`extract`] does samples.
///
/// # Errors
/// If a recording is damaged, or a walk would give another result.
pub fn extract_states(
    states: &mut States,
    numbers: &[u64],
    scrub: bool,
) -> Result<Extracted, ScrubError> {
    let shelf = FileArena::default();
    let mut taken = Taken::new(scrub.then(|| (&shelf, FinderOptions::system())))?;
    for &number in numbers {
        let found = states.with(number, &mut |at| taken.add(at.view));
        if !found.map_err(RunError::from)? {
            return Err(ScrubError::NoState(number));
        }
    }
    let meta = Meta {
        engine: Engine::Emulator,
        truth: "of single states".to_owned(),
        ..Meta::default()
    };
    taken.finish(meta)
}

/// Samples that are taken one by one.
struct Taken<'f> {
    samples: Vec<(Sample<'static>, Vec<Mapping>)>,
    walks: ReadByWalks,
    scrubber: Option<Scrubber<'f>>,
    /// The first sample that cannot be scrubbed.
    differs: Option<Differs>,
}

impl<'f> Taken<'f> {
    /// None so far. They are scrubbed if there are files to do it with.
    fn new(files: Option<(&'f FileArena, FinderOptions)>) -> Result<Taken<'f>, ScrubError> {
        let scrubber = files.map(|(shelf, files)| Scrubber::new(shelf, files));
        Ok(Taken {
            samples: Vec::new(),
            walks: ReadByWalks::new(),
            scrubber: scrubber.transpose()?,
            differs: None,
        })
    }

    fn add(&mut self, view: &View<'_>) {
        // A trace cannot hold a process's memory, so a sample gets what walks read of it.
        let mut whole = owned(view.sample);
        self.walks.complete(&mut whole, view.space);

        let sample = match &mut self.scrubber {
            None => whole,
            Some(scrubber) => {
                let view = View {
                    sample: &whole,
                    ..*view
                };
                match scrubber.sample(&view) {
                    Ok((sample, _)) => sample,
                    Err(error) => {
                        // The first sample that differs is the one that is reported.
                        self.differs.get_or_insert(error);
                        return;
                    }
                }
            }
        };
        self.samples.push((sample, view.space.mappings().to_vec()));
    }

    fn finish(mut self, mut meta: Meta) -> Result<Extracted, ScrubError> {
        if let Some(differs) = self.differs {
            return Err(differs.into());
        }
        if self.scrubber.is_some() {
            // A kernel's image is large, and its rows elsewhere are not needed.
            kernel::reduce(&mut self.samples)?;
            scrub_meta(&mut meta);
        }
        Ok(Extracted {
            meta,
            samples: self.samples,
        })
    }
}

fn owned(sample: &Sample<'_>) -> Sample<'static> {
    let regions = sample.regions.iter().map(|r| Region {
        bytes: r.bytes.to_vec().into(),
        role: r.role,
        bounds: r.bounds.clone(),
        next_sp: r.next_sp,
        address: r.address,
    });
    Sample {
        regions: regions.collect(),
        truth: sample.truth.clone(),
        recorded: sample.recorded.clone(),
        branches: sample.branches.clone(),
        kernel: sample.kernel.clone(),
        process_memory: sample.process_memory.clone(),
        ..*sample
    }
}

impl Extracted {
    /// The number of nonzero bytes of memory.
    pub fn bytes_kept(&self) -> usize {
        let regions = self.samples.iter().flat_map(|(s, _)| &s.regions);
        regions
            .map(|r| r.bytes.iter().filter(|b| **b != 0).count())
            .sum()
    }

    /// Writes the samples as a trace.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_trace(&self, path: &Path) -> Result<(), WriteError> {
        let mut file = TraceWriter::create(path, &self.meta)?;
        write_samples(&mut file, &self.samples)?;
        file.finish()
    }
}

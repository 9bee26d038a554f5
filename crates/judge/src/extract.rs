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
use crate::scrub::{ScrubError, Scrubber, scrub_meta};
use samples::write_samples;
use std::path::Path;
use unwind_sim_recordings::convert::ReadByWalks;
use unwind_sim_recordings::model::{Region, Sample};
use unwind_sim_recordings::trace::{Meta, TraceWriter, WriteError};
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
    let mut samples = Vec::new();
    let mut walks = ReadByWalks::new();

    let filter = Filter {
        sample: number,
        ..Filter::default()
    };

    let shelf = FileArena::default();
    let new = || Scrubber::new(&shelf, input.files());
    let mut scrubber = scrub.then(new).transpose()?;

    // `for_each` can only fail with a `RunError`, so what a scrub refused is kept here.
    let mut differs = None;

    input.for_each::<RunError>(&filter, &mut |view| {
        // A trace cannot hold a process's memory, so a sample gets what walks read of it.
        let mut whole = owned(view.sample);
        walks.complete(&mut whole, view.space);

        let sample = match &mut scrubber {
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
                        differs.get_or_insert(error);
                        return Ok(());
                    }
                }
            }
        };

        samples.push((sample, view.space.mappings().to_vec()));
        Ok(())
    })?;

    if let Some(differs) = differs {
        return Err(differs.into());
    }
    // A kernel's image is large, and its rows elsewhere are not needed.
    if scrub {
        kernel::reduce(&mut samples)?;
    }

    let mut meta = input.meta().clone();
    if scrub {
        scrub_meta(&mut meta);
    }

    Ok(Extracted { meta, samples })
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

//! Extracts one sample, or all, as a small separate recording, to keep or to share.

mod case;
mod error;
mod kernel;
mod reproduce;
pub mod samples;

pub use case::Written;
pub use error::NotWritable;
pub use reproduce::{Recorded, check};

use crate::engine::stack_of;
use crate::input::Input;
use crate::run::{Run, RunError};
use crate::unwinders::is_scan;
use samples::write_samples;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use unwind_sim_recordings::convert::ReadByWalks;
use unwind_sim_recordings::model::{Region, Sample};
use unwind_sim_recordings::trace::{Meta, TraceWriter, WriteError};
use unwind_sim_recordings::view::Filter;
use unwind_sim_recordings::view::View;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::image::{AddressSpace, Mapping};
use unwind_sim_unwind::kernel::{CallchainOptions, UserWalk, get_perf_callchain};
use unwind_sim_unwind::memory::{Memory, MemoryError, Regions};
use unwind_sim_unwind::start::Variant;

/// Extracted samples with their mappings.
pub struct Extracted {
    meta: Meta,
    samples: Vec<(Sample<'static>, Vec<Mapping>)>,
}

/// Extracts sample `number` of `input`, or all samples. With `scrub`, memory that no unwinder reads
/// is zeroed: only words that some walk used and words that are code addresses remain. Of a
/// kernel's image, only the rows and symbols of these walks remain.
///
/// # Errors
/// If the recording is damaged.
pub fn extract(input: &Input, number: Option<u64>, scrub: bool) -> Result<Extracted, RunError> {
    let mut samples = Vec::new();
    let mut walks = ReadByWalks::new();
    let filter = Filter {
        sample: number,
        ..Filter::default()
    };
    let run = scrub.then(every_engine).transpose()?;
    let count = run.as_ref().map_or(0, |run| run.engines.len());
    let mut caches: Vec<Cache> = std::iter::repeat_with(Cache::new).take(count).collect();
    input.for_each::<RunError>(&filter, &mut |view| {
        let mut sample = owned(view.sample);
        walks.complete(&mut sample, view.space);
        if let Some(run) = &run {
            let read = words_read(view, run, &mut caches);
            for region in &mut sample.regions {
                zero_unread(region, &read, view.space);
            }
        }
        samples.push((sample, view.space.mappings().to_vec()));
        Ok(())
    })?;
    if scrub {
        kernel::reduce(&mut samples)?;
    }
    let mut meta = input.meta().clone();
    if scrub {
        // The paths of files are private.
        meta.command
            .iter_mut()
            .for_each(|word| *word = file_name(word).to_owned());
    }
    Ok(Extracted { meta, samples })
}

/// The file name, if this is an absolute path.
fn file_name(path: &str) -> &str {
    match path.starts_with('/') {
        true => path.rsplit('/').next().unwrap_or(path),
        false => path,
    }
}

fn every_engine() -> Result<Run, RunError> {
    let names = crate::unwinders::ALL
        .iter()
        .chain(&crate::unwinders::KERNEL);
    let names: Vec<String> = names.map(|s| (*s).to_owned()).collect();
    let against = crate::run::Against::Truth;
    let engines = crate::spec::engines(&names)?;
    let (setting, group_by) = Default::default();
    Ok(Run {
        engines,
        variants: Variant::ALL.to_vec(),
        setting,
        against,
        group_by,
    })
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

/// Memory that remembers which addresses were read.
struct Watched<'a> {
    inner: Regions<'a>,
    read: RefCell<Vec<Range<u64>>>,
}

impl Memory for Watched<'_> {
    fn read_u64(&self, address: u64) -> Result<u64, MemoryError> {
        self.read
            .borrow_mut()
            .push(address..address.saturating_add(8));
        self.inner.read_u64(address)
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), MemoryError> {
        self.read
            .borrow_mut()
            .push(address..address.saturating_add(buf.len() as u64));
        self.inner.read(address, buf)
    }
}

/// The addresses of all bytes that walks read, from any start, by any unwinder except the scan.
fn words_read(view: &View<'_>, run: &Run, caches: &mut [Cache]) -> BTreeSet<u64> {
    let watched = Watched {
        inner: view.sample.memory(),
        read: RefCell::default(),
    };
    for (engine, cache) in run.engines.iter().zip(caches) {
        if is_scan(engine.name()) {
            continue;
        }
        for &variant in &run.variants {
            let Ok(start) = view.sample.regs.start(variant, false, &watched) else {
                continue;
            };
            let stack = stack_of(view, &start, &watched, &run.setting);
            engine.walk(&stack, cache);
        }
    }
    if let (Some(_), Some(space)) = (&view.sample.kernel, view.sample.user_space()) {
        for user in [UserWalk::FramePointer, UserWalk::UnwindUser] {
            let options = CallchainOptions {
                user,
                ..CallchainOptions::default()
            };
            get_perf_callchain(None, Some(&space), &watched, options);
        }
    }
    let truth = &view.sample.truth;
    let slots = (0..truth.frames().len()).filter_map(|i| truth.slot(i));
    let slots: Vec<Range<u64>> = slots.map(|s| s..s.saturating_add(8)).collect();
    watched
        .read
        .into_inner()
        .into_iter()
        .chain(slots)
        .flatten()
        .collect()
}

fn zero_unread(region: &mut Region<'_>, read: &BTreeSet<u64>, space: &AddressSpace) {
    let base = region.address;
    let bytes = region.bytes.to_mut();
    for start in (0..bytes.len()).step_by(8) {
        let end = (start + 8).min(bytes.len());
        let word = bytes[start..]
            .first_chunk()
            .map_or(0, |w| u64::from_le_bytes(*w));
        // What a scan reports is kept, since that is its whole result.
        if space.is_text(word.wrapping_sub(1)) {
            continue;
        }
        for (at, byte) in bytes.iter_mut().enumerate().take(end).skip(start) {
            if !read.contains(&base.wrapping_add(at as u64)) {
                *byte = 0;
            }
        }
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

//! Runs one unwinder on any recording: on a perf.data directly, on others as traces.

use super::replay::{Counts, ReplayOptions, replay, replay_alone};
use super::task::{Consumer, Taken};
use super::traced;
use super::unwind::How;
use crate::engine::Engine;
use crate::input::{Input, InputError};
use crate::run::{Run, RunError};
use unwind_sim_perf_data::PerfFile;
use unwind_sim_perf_data::feature;
use unwind_sim_recordings::convert::ImportError;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::import as corpus;
use unwind_sim_recordings::view::Filter;
use unwind_sim_unwind::image::Owner;

/// The source of stacks.
#[derive(Clone, Copy)]
pub struct Source<'i> {
    /// A perf.data, a trace, a case or a core.
    pub input: &'i Input,
    /// The samples to walk.
    pub filter: Filter,
    /// Of a perf.data, only the samples of the event with this index.
    pub event: Option<usize>,
}

/// A callback with process, thread, time and the pcs of a stack, innermost first.
pub type PerStack<'f> = dyn FnMut(u32, u32, u64, &[u64]) + 'f;

/// Walks a perf.data for addresses, on one thread. For several threads see [`replay()`].
pub fn addresses(
    file: &PerfFile<'_>,
    options: &ReplayOptions<'_>,
    per_stack: &mut PerStack<'_>,
) -> Counts {
    struct Each<'e, 'f>(&'e mut PerStack<'f>);
    impl Consumer for Each<'_, '_> {
        fn stack(&mut self, taken: &Taken<'_>) {
            (self.0)(taken.task.pid, taken.task.tid, taken.time, taken.pcs);
        }
    }
    replay_alone(file, options, &mut Each(per_stack))
}

/// The options for addresses only: from hardware registers, with the tables in the images, without
/// symbols and separate debug files.
pub fn plain_options(engine: &Engine) -> ReplayOptions<'_> {
    let mut files = FinderOptions::system();
    files.elf.symbols = false;
    files.elf.plt = false;
    files.debug_files = false;
    let setting = crate::engine::Setting::default();
    ReplayOptions {
        how: How {
            engine,
            variant: None,
            setting,
        },
        filter: Filter::default(),
        event: None,
        files,
    }
}

/// The options for walking the stacks of `source` in a run.
pub fn options<'r>(source: &Source<'_>, run: &'r Run, engine: &'r Engine) -> ReplayOptions<'r> {
    ReplayOptions {
        how: How {
            engine,
            variant: run.variants.first().copied(),
            setting: run.setting,
        },
        filter: source.filter,
        event: source.event,
        files: source.input.files(),
    }
}

/// The bytes of a source that is read directly, not as a trace. Branch records need a trace.
fn direct(source: &Source<'_>, options: &ReplayOptions<'_>) -> Option<Owner> {
    let needs_stack = options.how.engine.needs_stack();
    source.input.perf_data().filter(|_| needs_stack)
}

/// Walks all stacks of the source on this thread.
///
/// # Errors
/// If the recording cannot be read.
pub fn alone<C: Consumer>(
    source: &Source<'_>,
    options: &ReplayOptions<'_>,
    consumer: &mut C,
) -> Result<Counts, RunError> {
    let Some(bytes) = direct(source, options) else {
        return traced::replay(source, options, consumer);
    };
    let walk = |file: &PerfFile<'_>| replay_alone(file, options, consumer);
    Ok(perf_data(&bytes, options, walk)?)
}

/// Walks all stacks of the source on `threads` threads (0 means one for each processor), each with
/// a consumer made by `make`.
///
/// # Errors
/// If the recording cannot be read.
pub fn gather<C: Consumer + Send>(
    source: &Source<'_>,
    options: &ReplayOptions<'_>,
    threads: usize,
    make: impl Fn() -> C,
) -> Result<(Counts, Vec<C>), RunError> {
    let Some(bytes) = direct(source, options) else {
        let mut consumer = make();
        let counts = alone(source, options, &mut consumer)?;
        return Ok((counts, vec![consumer]));
    };
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { processors() } else { threads };
    let mut consumers: Vec<C> = (0..threads).map(|_| make()).collect();
    let counts = perf_data(&bytes, options, |file| {
        replay(file, options, &mut consumers)
    })?;
    Ok((counts, consumers))
}

fn perf_data(
    bytes: &Owner,
    options: &ReplayOptions<'_>,
    walk: impl FnOnce(&PerfFile<'_>) -> Counts,
) -> Result<Counts, InputError> {
    let failed = |error| InputError::Recording(ImportError::Corpus(error));
    let file = PerfFile::parse((**bytes).as_ref())
        .map_err(|error| failed(corpus::ImportError::Perf(error)))?;

    // The numbers of sampled registers mean others on other architectures (`perf_regs.h` of each).
    let arch = file.features().string(feature::ARCH).ok().flatten();
    if arch.is_some_and(|arch| arch != b"x86_64") {
        return Err(failed(corpus::ImportError::PerfArch));
    }

    let counts = walk(&file);
    match options.filter.sample {
        Some(number) if counts.stacks == 0 => Err(InputError::NoSample {
            number,
            len: counts.samples,
        }),
        _ => Ok(counts),
    }
}

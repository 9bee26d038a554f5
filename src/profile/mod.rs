//! Recordings as profiles: addresses, and the formats of those who show profiles.
//!
//! A perf.data is read straight from its mapped file, by one thread or several; no trace lies in
//! between ([`replay()`]). Other recordings come as traces. What is kept grows with distinct
//! stacks, not with samples (but for formats that list them). The same recording
//! gives the same output whatever the number of threads.
//!
//! Only the user part of a stack is shown; samples without user registers are counted
//! ([`Counts::skipped`]). Not here: verdicts, and formats of our own.

mod batch;
mod format;
pub(crate) mod gathered;
mod leader;
mod replay;
mod single;
pub(crate) mod symbols;
pub(crate) mod table;
mod task;
mod traced;
pub(crate) mod tree;
mod unwind;
mod walked;

pub use format::Format;
pub use replay::{Counts, Options, replay, replay_alone};
pub use single::{Single, Walked};
pub use task::{Consumer, Taken, Task};
pub use unwind::How;

use crate::engine::Engine;
use crate::import::ImportError;
use crate::input::{self, FileKind, Filter, InputError};
use crate::run::{Run, RunError};
use gathered::Profile;
use std::io::Write;
use std::path::{Path, PathBuf};
use unwind_sim_corpus::files::FinderOptions;
use unwind_sim_corpus::import as corpus;
use unwind_sim_corpus::mapped::map_file;
use unwind_sim_perf::PerfFile;
use unwind_sim_perf::data::feature;

/// Where stacks come from.
#[derive(Clone, Debug)]
pub struct Source {
    /// A perf.data, a trace, a case or a core.
    pub path: PathBuf,
    /// The folder below which image files are looked for first.
    pub symfs: Option<PathBuf>,
    /// Which samples.
    pub filter: Filter,
}

/// What was written.
pub type Written = Counts;

/// Writes the stacks that the run's unwinders find, started as its first start says. 0 threads are
/// as many as there are processors.
///
/// Where there are several unwinders, each has threads of its own, and its name stands behind the
/// thread's. Frames without a symbol are shown by their image, `[libc.so.6]`. But for the formats
/// that others make of perf's text, the outermost frame says why a walk stopped, if it did not reach
/// a root.
///
/// # Errors
/// If the recording cannot be read, or the output not written.
pub fn write(
    source: &Source,
    run: &Run,
    format: Format,
    threads: usize,
    out: &mut dyn Write,
) -> Result<Written, RunError> {
    let mut written = None;
    let mut all = Vec::new();
    let names: Vec<String> = run.engines.iter().map(|e| e.name().to_owned()).collect();
    let reasons = format != Format::Folded;
    for (engine, series) in run.engines.iter().zip(0..) {
        let options = options(source, run, engine);
        let counts = match format.kind() {
            None => {
                let mut text = format::text::Text::new(engine.name().to_owned(), out);
                let counts = alone(source, &options, &mut text)?;
                text.finish()?;
                counts
            }
            Some(kind) => {
                let make = || {
                    let profile = Profile::new(kind, names.clone());
                    walked::Walks::new(profile, series, reasons)
                };
                let (counts, gathered) = gather(source, &options, threads, make)?;
                all.extend(gathered.into_iter().map(|one| one.profile));
                counts
            }
        };
        written.get_or_insert(counts);
    }
    if let Some(profile) = Profile::join(all) {
        format.write(&profile, &source.path.display().to_string(), out)?;
    }
    Ok(written.unwrap_or_default())
}

/// Is given process, thread, time and the pcs of a stack, innermost first.
pub type PerStack<'f> = dyn FnMut(u32, u32, u64, &[u64]) + 'f;

/// A perf.data to addresses, on one thread. For several see [`replay()`].
pub fn addresses(
    file: &PerfFile<'_>,
    options: &Options<'_>,
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

/// How an unwinder is to be used for addresses only: from hardware registers, by the tables in the
/// images themselves; without symbols and separate debug files.
pub fn plain_options(engine: &Engine) -> Options<'_> {
    let mut files = FinderOptions::system();
    files.elf.symbols = false;
    files.elf.plt = false;
    files.debug_files = false;
    let setting = crate::engine::Setting::default();
    Options {
        how: How {
            engine,
            variant: None,
            setting,
        },
        filter: Filter::default(),
        files,
    }
}

fn options<'r>(source: &Source, run: &'r Run, engine: &'r Engine) -> Options<'r> {
    Options {
        how: How {
            engine,
            variant: run.variants.first().copied(),
            setting: run.setting,
        },
        filter: source.filter,
        files: FinderOptions {
            symfs: source.symfs.clone(),
            ..FinderOptions::system()
        },
    }
}

/// Whether it is read without a trace between. Branch records come by way of a trace.
fn is_direct(source: &Source, options: &Options<'_>) -> Result<bool, InputError> {
    let kind = input::file_kind(&source.path)?;
    Ok(kind == FileKind::PerfData && options.how.engine.needs_stack())
}

/// Walks all stacks of the source on this thread.
fn alone<C: Consumer>(
    source: &Source,
    options: &Options<'_>,
    consumer: &mut C,
) -> Result<Counts, RunError> {
    if !is_direct(source, options)? {
        return traced::replay(source, options, consumer);
    }
    let walk = |file: &PerfFile<'_>| replay_alone(file, options, consumer);
    Ok(perf_data(&source.path, options, walk)?)
}

/// Walks all stacks of the source with consumers that `make` makes.
fn gather<C: Consumer + Send>(
    source: &Source,
    options: &Options<'_>,
    threads: usize,
    make: impl Fn() -> C,
) -> Result<(Counts, Vec<C>), RunError> {
    if !is_direct(source, options)? {
        let mut consumer = make();
        let counts = alone(source, options, &mut consumer)?;
        return Ok((counts, vec![consumer]));
    }
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { processors() } else { threads };
    let mut consumers: Vec<C> = (0..threads).map(|_| make()).collect();
    let counts = perf_data(&source.path, options, |file| {
        replay(file, options, &mut consumers)
    })?;
    Ok((counts, consumers))
}

fn perf_data(
    path: &Path,
    options: &Options<'_>,
    walk: impl FnOnce(&PerfFile<'_>) -> Counts,
) -> Result<Counts, InputError> {
    let owner = map_file(path).map_err(|source| InputError::Open {
        path: path.into(),
        source,
    })?;
    let failed = |error| InputError::Import(ImportError::Corpus(error));
    let file = PerfFile::parse((*owner).as_ref())
        .map_err(|error| failed(corpus::ImportError::Perf(error)))?;
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

//! Recordings as profiles: addresses, folded stacks, the Firefox Profiler's format.
//!
//! A perf.data is read straight from its mapped file, by one thread or several; no trace lies in
//! between ([`replay()`]). Other recordings come as traces. What is kept grows with distinct
//! stacks, not with samples (but for the Firefox format, which lists them). The same recording
//! gives the same output whatever the number of threads.
//!
//! Only the user part of a stack is shown; samples without user registers are counted
//! ([`Counts::skipped`]). Not here: verdicts, and formats of our own.

mod batch;
mod firefox;
mod folded;
mod grown;
mod leader;
mod replay;
mod single;
mod stacks;
mod symbols;
mod task;
mod traced;
mod unwind;

pub use replay::{Counts, Options, replay, replay_alone};
pub use single::{Single, Walked};
pub use task::{Consumer, Taken, Task};
pub use unwind::How;

use crate::engine::Engine;
use crate::import::ImportError;
use crate::input::{self, FileKind, Filter, InputError};
use crate::run::{Run, RunError};
use firefox::Firefox;
use folded::Folded;
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

/// Writes folded stacks: the first of the run's unwinders, started as its first start says.
/// 0 threads are as many as there are processors.
///
/// Names hold no `;`: it is written as `:`. Frames without a symbol are shown by their image,
/// `[libc.so.6]`.
///
/// # Errors
/// If the recording cannot be read, or the output not written.
pub fn folded(
    source: &Source,
    run: &Run,
    threads: usize,
    out: &mut dyn Write,
) -> Result<Written, RunError> {
    let (counts, all) = gather(source, run, threads, Folded::new)?;
    let merged = all.into_iter().reduce(|mut whole, part| {
        whole.merge(&part);
        whole
    });
    if let Some(folded) = merged {
        let mut out = std::io::BufWriter::with_capacity(1 << 16, out);
        folded.write(&mut out)?;
        out.flush()?;
    }
    Ok(counts)
}

/// Writes the Firefox Profiler's processed profile, gzipped. See [`folded()`].
///
/// # Errors
/// If the recording cannot be read, or the output not written.
pub fn firefox(
    source: &Source,
    run: &Run,
    threads: usize,
    out: &mut dyn Write,
) -> Result<Written, RunError> {
    let (counts, all) = gather(source, run, threads, Firefox::new)?;
    let name = source.path.display().to_string();
    Firefox::join(all).write(&name, out)?;
    Ok(counts)
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

/// Walks all stacks of the source with consumers that `make` makes.
fn gather<C: Consumer + Send>(
    source: &Source,
    run: &Run,
    threads: usize,
    make: impl Fn() -> C,
) -> Result<(Counts, Vec<C>), RunError> {
    let Some(engine) = run.engines.first() else {
        return Ok((Counts::default(), Vec::new()));
    };
    let files = FinderOptions {
        symfs: source.symfs.clone(),
        ..FinderOptions::system()
    };
    let how = How {
        engine,
        variant: run.variants.first().copied(),
        setting: run.setting,
    };
    let options = Options {
        how,
        filter: source.filter,
        files,
    };
    // Branch records come by way of a trace.
    if input::file_kind(&source.path)? != FileKind::PerfData || !engine.needs_stack() {
        let mut consumer = make();
        let counts = traced::replay(source, &options, &mut consumer)?;
        return Ok((counts, vec![consumer]));
    }
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { processors() } else { threads };
    let mut consumers: Vec<C> = (0..threads).map(|_| make()).collect();
    let counts = perf_data(&source.path, &options, &mut consumers)?;
    Ok((counts, consumers))
}

fn perf_data<C: Consumer + Send>(
    path: &Path,
    options: &Options<'_>,
    consumers: &mut [C],
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
    let counts = replay(&file, options, consumers);
    match options.filter.sample {
        Some(number) if counts.stacks == 0 => Err(InputError::NoSample {
            number,
            len: counts.samples,
        }),
        _ => Ok(counts),
    }
}

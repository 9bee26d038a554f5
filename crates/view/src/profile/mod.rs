//! Recordings as profiles in the formats of profile viewers.
//!
//! A perf.data is read directly from its mapped file, by one thread or several, without making a
//! trace ([`stacks`](unwind_sim_judge::stacks)). Other recordings come as traces. Memory grows with
//! the number of distinct stacks, not of samples, except for formats that list samples. The same
//! recording gives the same output for any number of threads.
//!
//! Of a perf.data the user part of a stack is walked, and the kernel's part is as perf recorded it;
//! samples without user registers are counted ([`Counts::gaps`]).

mod format;
pub mod gathered;
mod recording;
pub mod symbols;
pub mod table;
pub mod tree;
mod walked;

pub use format::Format;
pub use recording::events;

use crate::symbol_files::HELPER;
use gathered::Profile;
use recording::RecordingHeader;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use unwind_sim_judge::run::{Run, RunError};
use unwind_sim_judge::stacks::{Counts, Source, alone, gather, options};
use unwind_sim_perf_script::symbols::KernelSymbols;
use unwind_sim_recordings::input_file::InputFile;

/// Counts of what was written and skipped.
pub type Written = Counts;

/// Writes the stacks that the run's unwinders find, from its first start variant. With `threads` 0,
/// there is one thread for each processor.
///
/// If there are several unwinders or events, each has its own threads, with its name after the
/// thread's.
/// Frames without a symbol are named by their image, `[libc.so.6]`. If a walk did not reach a root,
/// the outermost frame says why it stopped, except in formats that other tools make from perf's
/// text.
///
/// # Errors
/// If the recording cannot be read, or the output not written.
pub fn write(
    source: &Source<'_>,
    run: &Run,
    format: Format,
    threads: usize,
    out: &mut dyn Write,
) -> Result<Written, RunError> {
    // Symbols of the kernel are read once, for all unwinders and workers.
    let known = RecordingHeader::of(source.input);
    let files = Mutex::new(KernelSymbols::new(known.places(source.input), HELPER));
    let series = known.series(&run.engines);

    let mut written = None;
    let mut all = Vec::new();
    let reasons = format != Format::Folded;

    // Each unwinder has a series for each event, one behind the other.
    for (engine, first) in run.engines.iter().zip((0..).step_by(known.event_count())) {
        let options = options(source, run, engine);
        let counts = match format.kind() {
            None => {
                // Text has every sample in its order, so one thread writes it as it comes.
                let names = series[first..][..known.event_count()].iter();
                let names = names.map(|series| series.name.clone()).collect();
                let mut text = format::text::Text::new(names, &files, out);
                let counts = alone(source, &options, &mut text)?;
                text.finish()?;
                counts
            }
            Some(kind) => {
                let make = || {
                    // Each worker has a profile of its own, so that none waits for another; they
                    // are joined below.
                    let mut profile = Profile::new(kind, series.clone());
                    profile.clock = known.clock;
                    walked::WalkGatherer::new(profile, first as u32, reasons, &files)
                };
                let (counts, gathered) = gather(source, &options, threads, make)?;
                all.extend(gathered.into_iter().map(|one| one.profile));
                counts
            }
        };

        // All unwinders are given the same samples, so the counts of one are those of all.
        written.get_or_insert(counts);
    }

    if let Some(profile) = Profile::join(all) {
        let path = source.input.file().map_or(Path::new(""), InputFile::path);
        format.write(&profile, &path.display().to_string(), out)?;
    }

    Ok(written.unwrap_or_default())
}

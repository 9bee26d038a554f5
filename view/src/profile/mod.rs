//! Recordings as profiles: addresses, and the formats of those who show profiles.
//!
//! A perf.data is read straight from its mapped file, by one thread or several; no trace lies in
//! between ([`stacks`](unwind_sim_judge::stacks)). Other recordings come as traces. What is kept grows with distinct
//! stacks, not with samples (but for formats that list them). The same recording
//! gives the same output whatever the number of threads.
//!
//! Only the user part of a stack is shown; samples without user registers are counted
//! ([`Counts::skipped`]). Not here: verdicts, and formats of our own.

mod format;
pub mod gathered;
pub mod symbols;
pub mod table;
pub mod tree;
mod walked;

pub use format::Format;

use gathered::Profile;
use std::io::Write;
use unwind_sim_judge::run::{Run, RunError};
use unwind_sim_judge::stacks::{Counts, Source, alone, gather, options};

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

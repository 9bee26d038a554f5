//! Scrubs a whole recording into a new file, which gets its name when it was checked.

use super::error::ScrubError;
use super::kept::Kept;
use super::names::Names;
use super::perf_data::{self, LeftOut};
use super::scrubber::Scrubber;
use super::{check, trace};
use crate::input::{FileKind, Input, InputError, open_file};
use std::fs::File;
use std::io;
use std::path::Path;
use unwind_sim_recordings::convert::OpenOptions;
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::gaps::Gaps;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::leftovers::TemporaryFile;
use unwind_sim_recordings::output_file::OutputFile;
use unwind_sim_recordings::trace::Trace;
use unwind_sim_tables::ground::FileArena;

/// What to do besides scrubbing memory and registers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Replace the names of files, threads and hosts by numbers.
    pub names: bool,
}

/// The kind of file that was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// A trace.
    Trace,
    /// A perf.data without compression.
    PerfData,
}

/// What was done.
#[derive(Clone, Debug)]
pub struct Done {
    /// The kind of the recording.
    pub from: FileKind,
    /// The kind of the output.
    pub written: Written,
    /// What was kept.
    pub kept: Kept,
    /// The number of samples in which all results were compared.
    pub checked: u64,
    /// What was left out of a perf.data.
    pub left_out: LeftOut,
    /// The number of words left out of command lines.
    pub words: usize,
    /// The number of names that were replaced.
    pub names: usize,
    /// What the recording lacks.
    pub gaps: Gaps,
}

/// Scrubs a recording into `output`. Calls `tell` with the number of samples so far, in
/// each of two passes.
///
/// # Errors
/// If the recording cannot be read, the output cannot be written, or an unwinder would give another
/// result; the output is then as it was before.
pub fn scrub(
    input: &InputFile,
    open: &OpenOptions,
    output: &Path,
    options: Options,
    tell: &mut dyn FnMut(u64),
) -> Result<Done, ScrubError> {
    let from = input.kind();
    // A case holds nothing of a program that somebody ran.
    if !from.is_recorded() {
        let kinds = FileKind::list(FileKind::is_recorded);
        let wanted = format!("a recording of a program: {kinds}");
        return Err(InputError::Kind(input.is_not(wanted)).into());
    }

    // Samples without registers have a recorded chain, which `doctor` judges and which may hold
    // data.
    let open = OpenOptions {
        chains: from == FileKind::PerfData,
        ..open.clone()
    };

    let of_output = |source| ScrubError::Output {
        path: output.into(),
        source,
    };

    // Whether it can be written is known before the work is done.
    let mut out = OutputFile::create(output).map_err(of_output)?;
    let temporary = || TemporaryFile::new().map_err(ScrubError::Temporary);

    // A core and a capture are scrubbed as the trace that `import` makes of them.
    let mut basis = None;
    let mut gaps = None;
    if from.is_converted() {
        let mut file = temporary()?;
        let imported = trace::import(input, &open, file.as_file_mut())?;
        gaps = Some(Gaps::from(imported));
        basis = Some(file);
    }

    let input = match &basis {
        Some(trace) => open_file(trace.path())?,
        None => input.clone(),
    };
    let shelf = FileArena::default();
    let before = Input::of(&input, &open)?;
    let mut scrubber = Scrubber::new(&shelf, before.files())?;
    // Not into the output: what fails its check must not be left there.
    let mut scrubbed = temporary()?;

    let (written, digests, left_out, words) = match from {
        FileKind::PerfData => {
            let (digests, left_out) =
                perf(&input, &open, &mut scrubber, tell, scrubbed.as_file_mut())?;
            let words = left_out.words;
            (Written::PerfData, digests, left_out, words)
        }
        _ => {
            let trace = Trace::read(&input)?;
            let out = scrubbed.as_file_mut();
            let (digests, words) = trace::scrub(&trace, &mut scrubber, tell, out)?;
            (Written::Trace, digests, LeftOut::default(), words)
        }
    };

    let kept = scrubber.kept().clone();

    // What was written is read again: the check is of the file, not of what was meant to be in it.
    let written_file = open_file(scrubbed.path())?;
    let after = Input::of(&written_file, &open)?;
    check::samples(&before, &after, &digests, &mut scrubber, tell)?;
    check::doctor(&before, &after, &mut scrubber)?;
    drop(after);

    // Files are found by their names, which are replaced when all was checked.
    let mut names = Names::default();
    if options.names {
        let mut renamed = temporary()?;
        let out = renamed.as_file_mut();
        match written {
            Written::PerfData => drop(perf_data::copy(&written_file, Some(&mut names), out)?),
            Written::Trace => trace::rename(&Trace::read(&written_file)?, &mut names, out)?,
        }
        scrubbed = renamed;
    }

    // The output is replaced only by `finish`: after any error before that, the old file is still
    // there.
    let mut reader = scrubbed.reopen().map_err(ScrubError::Temporary)?;
    io::copy(&mut reader, &mut out).map_err(of_output)?;
    out.finish().map_err(of_output)?;

    Ok(Done {
        from,
        written,
        kept,
        checked: digests.len() as u64,
        left_out,
        words,
        names: names.count(),
        gaps: gaps.unwrap_or_else(|| before.gaps()),
    })
}

/// Scrubs a perf.data into `out`.
fn perf(
    input: &InputFile,
    open: &OpenOptions,
    scrubber: &mut Scrubber<'_>,
    tell: &mut dyn FnMut(u64),
    out: &mut File,
) -> Result<(Vec<u64>, LeftOut), ScrubError> {
    let mut plain = TemporaryFile::new().map_err(ScrubError::Temporary)?;
    let left_out = perf_data::copy(input, None, plain.as_file_mut())?;
    io::copy(plain.as_file_mut(), out).map_err(ScrubError::Temporary)?;
    let files = FinderOptions {
        symfs: open.symfs.clone(),
        ..FinderOptions::system()
    };
    let digests = perf_data::samples(&open_file(plain.path())?, files, scrubber, tell, out)?;
    Ok((digests, left_out))
}

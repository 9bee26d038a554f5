//! `perf script`: prints a recording as perf's text, or writes it as a profile.

use super::losses;
use super::recording::Recording;
use super::samples::Samples;
use super::stacks::{Stacks, libdw};
use crate::profile::Format;
use crate::symbol_files::HELPER;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use unwind_sim_judge::engine::Engine;
use unwind_sim_perf_data::{
    EventAttr, Mode as PerfMode, Order, Summary, is_core, sample_type as st,
};
use unwind_sim_perf_data::{PerfError, PerfFile};
use unwind_sim_perf_script::symbols::{Files, Places};
use unwind_sim_perf_script::{FieldError, OptionError, Output, Script, Text, Unwind, header};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::printable::PrintableName as _;

pub use unwind_sim_perf_data::stitch::Mode;
pub use unwind_sim_perf_script::{
    FieldList, Filter, Options, RequestedFields, TimeError, TimeSpan,
};

/// Bytes written at a time.
const BUFFER: usize = 1 << 16;

/// Why a recording cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("{}: {source}", path.printable())]
    Open {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The file is not a valid perf.data file.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// A requested field was not recorded.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// `--time` needs times that the recording lacks.
    #[error(transparent)]
    Time(#[from] TimeError),
    /// The text cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] std::io::Error),
}

impl From<OptionError> for ScriptError {
    fn from(error: OptionError) -> Self {
        match error {
            OptionError::Field(error) => Self::Field(error),
            OptionError::Time(error) => Self::Time(error),
        }
    }
}

/// What to report about a recording besides its samples.
#[derive(Clone, Debug)]
pub struct Report {
    /// How far it could be read.
    pub summary: Summary,
    /// Samples of guests, which are not printed.
    pub guests: u64,
    /// Samples that have the chain that was recorded, because they have no registers or no stack copy
    /// for the chosen unwinder.
    pub kept: u64,
    /// The losses that the recording reports: a line for each event and kind of loss.
    pub losses: String,
}

/// Prints the recording at `path`.
///
/// # Errors
/// If it cannot be read at all, if it lacks a requested field or time, or if the text cannot be
/// written.
pub fn script(
    path: &Path,
    options: &Options,
    places: Places,
    out: &mut dyn Write,
) -> Result<Report, ScriptError> {
    let recording = Recording::open(path)?;
    profile(&recording, options, places, Format::PerfScript, None, out)
}

/// Prints when, where and how a recording was made (`--header`). The features of a recording from a
/// pipe are records; as in perf, they are printed only if samples follow.
///
/// # Errors
/// If it cannot be read at all, or the text cannot be written.
pub fn header(
    recording: &Recording,
    samples_follow: bool,
    out: &mut dyn Write,
) -> Result<(), ScriptError> {
    let bytes = recording.bytes();
    let file = PerfFile::parse(bytes)?;
    let mut text = header::text(&file, bytes, recording.written());
    if samples_follow && file.mode() == PerfMode::Pipe {
        text.extend(header::features(&file));
    }
    Ok(out.write_all(&text)?)
}

/// Prints a recording.
fn text(
    recording: &Recording,
    options: &Options,
    places: Places,
    unwinder: Option<&Engine>,
    out: &mut dyn Write,
) -> Result<Report, ScriptError> {
    let make = |file: &PerfFile<'_>| Ok(Text::new(file, options)?);
    let (report, _, text) = each(recording, options, places, unwinder, make, |_, text| {
        if text.len() >= BUFFER {
            out.write_all(text)?;
            text.clear();
        }
        Ok(())
    })?;
    out.write_all(&text)?;
    out.flush()?;
    Ok(report)
}

/// Writes a recording in a profile format, or as text. With an `unwinder`, the user frames of
/// samples with registers and a stack copy are those that it finds.
///
/// # Errors
/// If the recording cannot be read at all, or the profile cannot be written.
pub fn profile(
    recording: &Recording,
    options: &Options,
    places: Places,
    format: Format,
    unwinder: Option<&Engine>,
    out: &mut dyn Write,
) -> Result<Report, ScriptError> {
    // Text has another writer: it prints as it reads, and needs no profile.
    let Some(kind) = format.kind() else {
        return text(recording, options, places, unwinder, out);
    };

    // The profile's events are those of the file, so it is made once the file is parsed.
    let make =
        |file: &PerfFile<'_>| Ok(Samples::new(file, kind, recording.ended(), options.inline));

    let (report, mut samples, mut last) = each(
        recording,
        options,
        places,
        unwinder,
        make,
        |samples, piece| {
            samples.take(piece);
            Ok(())
        },
    )?;

    // The last piece comes after all samples: it holds what was waiting for a later record.
    samples.take(&mut last);
    format.write(&samples.finish(), recording.name(), out)?;
    Ok(report)
}

/// Processes every sample, and calls `take` after each event; returns the rest.
fn each<O: Output>(
    recording: &Recording,
    options: &Options,
    mut places: Places,
    unwinder: Option<&Engine>,
    make: impl FnOnce(&PerfFile<'_>) -> Result<O, ScriptError>,
    mut take: impl FnMut(&mut O, &mut O::Piece) -> std::io::Result<()>,
) -> Result<(Report, O, O::Piece), ScriptError> {
    let file = PerfFile::parse(recording.bytes())?;
    // Modules have build ids, too; only that of the kernel itself is wanted.
    let mut kernels = file.build_ids().filter_map(Result::ok);
    let kernel = kernels.find(|id| id.kernel && is_core(id.path));
    places.kernel_build_id = kernel.map(|id| id.id.to_vec());

    // A sample without either of them is not unwound (perf's `thread__resolve_callchain_unwind`).
    let copies = st::REGS_USER | st::STACK_USER;
    let unwinds = |attr: &EventAttr| attr.sample_type & copies == copies && !options.hide_chains;

    // Without another unwinder, samples are unwound as perf does with libdw, for the text to be the
    // same.
    let as_perf = Engine::Table(Box::new(libdw()));
    let engine = unwinder.unwrap_or(&as_perf);

    let options = &Options {
        unwound: unwinder.is_some(),
        ..options.clone()
    };

    // Without a root folder given, files are those of this system.
    let mut files = FinderOptions {
        symfs: places.symfs.clone(),
        ..FinderOptions::system()
    };
    // The finder only unwinds: names come from `symbols`.
    files.elf.symbols = false;
    files.elf.plt = false;

    // Only if some event has both; most recordings have chains by frame pointer, which need no
    // unwinder.
    let mut stacks = file
        .attrs()
        .iter()
        .any(unwinds)
        .then(|| Stacks::new(&file, &files, engine, unwinder.is_none()));
    let unwind = stacks.as_mut().map(|stacks| stacks as &mut dyn Unwind);

    let mut symbols = Files::new(places, HELPER);
    let output = make(&file)?;

    // Events come in the order of time, which is not that of the file: perf writes each processor's
    // buffer by itself.
    let mut script = Script::with_output(&file, options, output, &mut symbols, unwind)?;
    let mut piece = O::Piece::default();
    // The callback cannot return an error; it stops and leaves it here.
    let mut failed = None;

    let summary = file.for_each(Order::Time, |event| {
        script.event(&event, &mut piece);
        match take(script.output(), &mut piece) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(error) = failed {
        return Err(error.into());
    }

    // What is still waiting is printed as it is.
    script.finish(&mut piece);
    let report = Report {
        summary,
        guests: script.guests(),
        kept: script.kept(),
        losses: losses::lines(script.losses(), &file),
    };
    Ok((report, script.into_output(), piece))
}

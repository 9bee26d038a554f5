//! `perf script`: prints a recording as perf's text, or writes it as a profile.

use super::samples::Samples;
use super::stacks::{Stacks, libdw};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use unwind_sim_judge::engine::Engine;
use unwind_sim_perf_data::{EventAttr, Order, Summary, sample_type as st};
use unwind_sim_perf_data::{PerfError, PerfFile};
use unwind_sim_perf_script::{FieldError, Output, Script, Text, Unwind};
use unwind_sim_recordings::files::FinderOptions;
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_recordings::symbols::{Files, Places};
use unwind_sim_view::profile::Format;

pub use unwind_sim_perf_data::stitch::Mode;
pub use unwind_sim_perf_script::{Asked, FieldList, Options};

/// Bytes written at a time.
const BUFFER: usize = 1 << 16;

/// Why a recording cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
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
    /// The text cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

/// What to report about a recording besides its samples.
#[derive(Clone, Debug)]
pub struct Report {
    /// How far it could be read.
    pub summary: Summary,
    /// Samples of guests, which are not printed.
    pub guests: u64,
    /// The losses that the recording reports: a line for each event and kind of loss.
    pub losses: String,
}

/// Prints a recording.
///
/// # Errors
/// If the recording cannot be read at all, a requested field was not recorded, or the text cannot
/// be written.
pub fn script(
    path: &Path,
    options: Options,
    places: Places,
    out: &mut dyn Write,
) -> Result<Report, ScriptError> {
    let make = |file: &PerfFile<'_>| Ok(Text::new(file, options)?);
    let (report, _, text) = each(path, options, places, make, |_, text| {
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

/// Writes a recording in a profile format.
///
/// # Errors
/// If the recording cannot be read at all, or the profile cannot be written.
pub fn profile(
    path: &Path,
    options: Options,
    places: Places,
    format: Format,
    out: &mut dyn Write,
) -> Result<Report, ScriptError> {
    let Some(kind) = format.kind() else {
        return script(path, options, places, out);
    };
    let make = |file: &PerfFile<'_>| Ok(Samples::new(file, kind));
    let (report, mut samples, mut last) = each(path, options, places, make, |samples, piece| {
        samples.take(piece);
        Ok(())
    })?;
    samples.take(&mut last);
    format.write(&samples.finish(), &path.display().to_string(), out)?;
    Ok(report)
}

/// Processes every sample, and calls `take` after each event; returns the rest.
fn each<O: Output>(
    path: &Path,
    options: Options,
    mut places: Places,
    make: impl FnOnce(&PerfFile<'_>) -> Result<O, ScriptError>,
    mut take: impl FnMut(&mut O, &mut O::Piece) -> std::io::Result<()>,
) -> Result<(Report, O, O::Piece), ScriptError> {
    let owner = map_file(path).map_err(|source| ScriptError::Open {
        path: path.into(),
        source,
    })?;
    let file = PerfFile::parse((*owner).as_ref())?;
    let kernel = file.build_ids().filter_map(Result::ok).find(|id| id.kernel);
    places.kernel_build_id = kernel.map(|id| id.id.to_vec());
    let copies = st::REGS_USER | st::STACK_USER;
    let unwinds = |attr: &EventAttr| attr.sample_type & copies == copies;
    let engine = Engine::Table(Box::new(libdw()));
    let mut files = FinderOptions {
        symfs: places.symfs.clone(),
        ..FinderOptions::system()
    };
    // Names come from elsewhere.
    files.elf.symbols = false;
    files.elf.plt = false;
    let mut stacks = file
        .attrs()
        .iter()
        .any(unwinds)
        .then(|| Stacks::new(&file, &files, &engine));
    let unwind = stacks.as_mut().map(|stacks| stacks as &mut dyn Unwind);
    let mut symbols = Files::new(places);
    let output = make(&file)?;
    let mut script = Script::with_output(&file, options, output, &mut symbols, unwind);
    let mut piece = O::Piece::default();
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
    script.finish(&mut piece);
    let report = Report {
        summary,
        guests: script.guests(),
        losses: script.losses().lines(&file).to_string(),
    };
    Ok((report, script.into_output(), piece))
}

//! `perf script`: a recording as perf's text.

use super::stacks::{Stacks, libdw};
use super::symbols::{Files, Places};
use crate::engine::Engine;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use unwind_sim_corpus::files::FinderOptions;
use unwind_sim_corpus::mapped::map_file;
use unwind_sim_perf::data::{EventAttr, Order, Stop, Summary, sample_type as st};
use unwind_sim_perf::script::{Script, Unwind};
use unwind_sim_perf::{PerfError, PerfFile};

pub use unwind_sim_perf::script::{Fields, Options};
pub use unwind_sim_perf::stitch::Mode;

/// Bytes written at a time.
const BUFFER: usize = 1 << 16;

/// Why a recording cannot be printed.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no perf.data.
    #[error(transparent)]
    Perf(#[from] PerfError),
    /// The text cannot be written.
    #[error("cannot write: {0}")]
    Output(#[from] std::io::Error),
}

/// Prints a recording and says how far it could be read.
///
/// # Errors
/// If it cannot be read at all, or the text not be written.
pub fn script(
    path: &Path,
    options: Options,
    mut places: Places,
    out: &mut dyn Write,
) -> Result<Summary, ScriptError> {
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
    let mut script = Script::new(&file, options, &mut symbols, unwind);
    let mut text = Vec::with_capacity(2 * BUFFER);
    let mut failed = None;
    let summary = file.for_each(Order::Time, |event| {
        script.event(&event, &mut text);
        if text.len() < BUFFER {
            return ControlFlow::Continue(());
        }
        let written = out.write_all(&text);
        text.clear();
        match written {
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
    script.finish(&mut text);
    out.write_all(&text)?;
    out.flush()?;
    Ok(summary)
}

/// Whether the recording was read to its end.
pub fn is_whole(summary: &Summary) -> bool {
    summary.stop == Stop::End
}

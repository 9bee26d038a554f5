//! Recordings of other tools as items of our own model: perf.data ([`perf`]) and ELF cores
//! ([`core`]), captures of a running kernel, and dumps of a whole machine.
//!
//! An import is a stream: images are announced before the first event that names them, events and
//! samples follow in the order of time, and nothing is kept that grows with the number of samples.
//! Truth is unknown in all of them. What could not be imported is counted by its reason.
//!
//! Not here: finding files ([`crate::files`]), writing traces, captures of our own tools.

mod capture;
pub mod core;
mod error;
mod item;
pub mod perf;
mod vmcore;

pub use capture::Problem as CaptureProblem;
pub use error::{CoreErrorKind, ImportError};
pub use item::{ImportItem, ImportOptions, Imported, Sink, Skip};
pub use vmcore::{
    Fault as VmcoreFault, KernelMemory, LoadedCode, Problem as VmcoreProblem, VmcoreFacts,
    import_vmcore, is_vmcore, loaded_code, vmcore_facts,
};

use crate::mapped::map_file;
use std::path::Path;
use unwind_sim_unwind::image::Owner;

/// Imports a file, by what it is: perf.data or an ELF core.
///
/// # Errors
/// If it cannot be read, or is no recording that we know. A recording that is cut short is no
/// error: what is there is imported, and [`Imported::problems`] says what is missing.
pub fn import(
    path: &Path,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let owner = map_file(path).map_err(|error| ImportError::Io(error.kind()))?;
    import_bytes(owner, options, sink)
}

/// As [`import`], from bytes that are in memory (a pipe that was read to its end).
///
/// # Errors
/// As [`import`].
pub fn import_bytes(
    owner: Owner,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let bytes: &[u8] = (*owner).as_ref();
    match bytes {
        [b'P', b'E', b'R', b'F', ..] | [b'2', b'E', b'L', b'I', ..] => {
            perf::import(bytes, options, sink)
        }
        [0x7f, b'E', b'L', b'F', ..] if vmcore::is_vmcore(bytes) => {
            vmcore::import(owner.clone(), options, sink)
        }
        [0x7f, b'E', b'L', b'F', ..] => core::import(owner.clone(), options, sink),
        _ if capture::is_capture(bytes) => capture::import(bytes, options, sink),
        _ => match vmcore::unsupported(bytes) {
            Some(name) => Err(VmcoreProblem::Format { name }.into()),
            None => Err(ImportError::UnknownFormat),
        },
    }
}

#[cfg(test)]
mod tests;

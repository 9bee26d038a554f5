//! Imports recordings of other tools: perf.data ([`perf`]), ELF cores ([`core`]), captures of a
//! running kernel, and dumps of a whole machine.
//!
//! An import is a stream. Each image is yielded before the first event that refers to it; events
//! and samples follow in time order. Memory does not grow with the number of samples. The truth is
//! always unknown, except in captures of single-stepped kernels. What cannot be imported is counted
//! by reason.
//!
//! Finding files is in [`crate::files`], writing traces in [`crate::trace`].

mod capture;
pub mod core;
mod error;
mod item;
pub mod perf;
mod vmcore;

pub use capture::Problem as CaptureProblem;
pub use error::{CoreErrorKind, ImportError};
pub(crate) use item::STACK_BYTES_MAX;
pub use item::{ImportItem, ImportOptions, Imported, Sink, Skip};
pub use vmcore::{
    Fault as VmcoreFault, KernelMemory, LoadedCode, Problem as VmcoreProblem, VmcoreFacts,
    import_vmcore, is_vmcore, loaded_code, vmcore_facts,
};

use crate::input_file::InputFile;
use unwind_sim_unwind::image::Owner;

/// Imports an input of any supported format, detected from its contents.
///
/// # Errors
/// If it cannot be read or its format is unknown. A truncated recording is not an error: the
/// readable part is imported, and [`Imported::problems`] says what is missing.
pub fn import(
    input: &InputFile,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let owner = input.bytes();
    let owner = owner.map_err(|error| ImportError::Io(error.kind()))?;
    import_bytes(owner, options, sink)
}

/// Like [`import`], from bytes in memory.
///
/// # Errors
/// See [`import`].
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

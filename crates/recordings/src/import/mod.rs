//! Imports recordings of other tools: perf.data ([`perf`]), ELF cores ([`core`]), captures of a
//! running kernel, and dumps of a whole machine.
//!
//! An import is a stream. Each image is yielded before the first event that refers to it; events
//! and samples follow in time order. Memory does not grow with the number of samples. The truth is
//! always unknown, except in captures of single-stepped kernels. What cannot be imported is counted
//! by reason.
//!
//! Here is the table of importers. Finding files is in [`crate::files`], writing traces in [`crate::trace`].

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
    generated_code, import_vmcore, is_vmcore, loaded_code, vmcore_facts,
};

use crate::file_kind::FileKind;
use crate::input_file::InputFile;
use unwind_sim_unwind::image::Owner;

/// Imports an input of any supported format.
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
    import_one_of(|format| format.kind == input.kind(), owner, options, sink)
}

/// Like [`import`], from bytes in memory, whose format is detected.
///
/// # Errors
/// See [`import`].
pub fn import_bytes(
    owner: Owner,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    import_one_of(|_| true, owner, options, sink)
}

fn import_one_of(
    among: impl Fn(&Format) -> bool,
    owner: Owner,
    options: &ImportOptions,
    sink: &mut Sink<'_>,
) -> Result<Imported, ImportError> {
    let bytes: &[u8] = (*owner).as_ref();
    match format_of(among, bytes) {
        Some(format) => (format.read)(owner.clone(), options, sink),
        None => match vmcore::unsupported(bytes) {
            Some(name) => Err(VmcoreProblem::Format { name }.into()),
            None => Err(ImportError::UnknownFormat),
        },
    }
}

/// Whether a file that can be imported holds the stacks of a kernel, as far as its format says it.
pub fn is_of_kernel(bytes: &[u8]) -> bool {
    format_of(|_| true, bytes).is_some_and(|format| format.is_of_kernel)
}

/// A row of the table of importers.
struct Format {
    /// The kind of such files. Each that is imported ([`FileKind::is_imported`]) has a row.
    kind: FileKind,
    /// Whether a file is one. It may look at all bytes; of several formats of a kind, the first is taken.
    is: fn(&[u8]) -> bool,
    /// Reads a file as a stream of items.
    read: Read,
    /// The stacks are those of a kernel.
    is_of_kernel: bool,
}

/// An importer.
type Read = fn(Owner, &ImportOptions, &mut Sink<'_>) -> Result<Imported, ImportError>;

/// The table of importers. A new one needs a row here, its folder, declared above, and a row in the table of
/// file kinds (`file_kind.rs`).
const FORMATS: &[Format] = &[
    Format {
        kind: FileKind::PerfData,
        // The second is that of another byte order, which its reader refuses.
        is: |bytes| bytes.starts_with(b"PERF") || bytes.starts_with(b"2ELI"),
        read: |owner, options, sink| perf::import((*owner).as_ref(), options, sink),
        is_of_kernel: false,
    },
    Format {
        kind: FileKind::Core,
        is: |bytes| bytes.starts_with(b"\x7fELF") && is_vmcore(bytes),
        read: vmcore::import,
        is_of_kernel: true,
    },
    Format {
        kind: FileKind::Core,
        is: |bytes| bytes.starts_with(b"\x7fELF"),
        read: core::import,
        is_of_kernel: false,
    },
    Format {
        kind: FileKind::Capture,
        is: capture::is_capture,
        read: |owner, options, sink| capture::import((*owner).as_ref(), options, sink),
        is_of_kernel: true,
    },
];

fn format_of(among: impl Fn(&Format) -> bool, bytes: &[u8]) -> Option<&'static Format> {
    let mut formats = FORMATS.iter().filter(|format| among(format));
    formats.find(|format| (format.is)(bytes))
}

#[cfg(test)]
mod tests;

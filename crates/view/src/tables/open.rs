//! Opens an ELF file for the workshop.

use std::io;
use std::path::{Path, PathBuf};
use unwind_sim_recordings::file_kind::{FileKind, KindError};
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_tables::file::{File, FileError};

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It is of another kind, or its first bytes cannot be read.
    #[error(transparent)]
    Kind(#[from] KindError),
    /// It cannot be mapped.
    #[error("cannot read {}: {source}", path.printable())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is damaged, or for another processor.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Opens a program, library or relocatable object.
///
/// # Errors
/// If it cannot be read, or is something else.
pub fn open(path: &Path) -> Result<File, OpenError> {
    let input = InputFile::expect(path, "an ELF program, library or object", &[FileKind::Elf])?;
    let owner = input.bytes().map_err(|source| OpenError::Read {
        path: path.into(),
        source,
    })?;
    Ok(File::read(&path.to_text(), owner)?)
}

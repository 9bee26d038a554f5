//! A trace as a file, which gets its name when it is done.

use super::error::WriteError;
use super::meta::Meta;
use super::output::OutputOptions;
use super::writer::TraceWriter;
use crate::output_file::OutputFile;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

/// A trace that is being written to a file.
///
/// Until it is finished it lies beside its place as `NAME.partial`, readable to its last whole
/// block. Dropped without [`finish`](TraceFile::finish) or [`abandon`](TraceFile::abandon), it is
/// removed.
pub struct TraceFile {
    writer: TraceWriter<OutputFile>,
}

impl TraceWriter<OutputFile> {
    /// Starts a trace that is to become the file `path`.
    ///
    /// # Errors
    /// As [`OutputFile::create`] and [`TraceWriter::new`].
    pub fn create(path: impl AsRef<Path>, meta: &Meta) -> Result<TraceFile, WriteError> {
        TraceFile::create(path.as_ref(), meta, OutputOptions::default())
    }
}

impl TraceFile {
    /// As [`TraceWriter::create`], with options.
    ///
    /// # Errors
    /// As [`TraceWriter::create`].
    pub fn create(
        path: &Path,
        meta: &Meta,
        options: OutputOptions,
    ) -> Result<TraceFile, WriteError> {
        let file = OutputFile::create(path).map_err(|source| WriteError::File {
            path: path.into(),
            source,
        })?;
        let writer = TraceWriter::with_options(file, meta, options)?;
        Ok(TraceFile { writer })
    }

    /// Writes the rest and the index, and gives the file its name.
    ///
    /// # Errors
    /// If the output fails; the file can then still be kept by [`TraceFile::abandon`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.writer.end()?;
        self.writer.get_mut().finish()?;
        Ok(())
    }

    /// Ends the trace early. What was recorded is written out and stays as `NAME.partial`, whose
    /// path this is; without a sample nothing stays.
    pub fn abandon(mut self) -> Option<PathBuf> {
        if self.writer.samples() == 0 {
            return None;
        }
        // What was written before an error of the output is kept.
        let _ = self.writer.flush();
        self.writer.get_mut().keep_partial()
    }
}

impl Deref for TraceFile {
    type Target = TraceWriter<OutputFile>;
    fn deref(&self) -> &Self::Target {
        &self.writer
    }
}

impl DerefMut for TraceFile {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.writer
    }
}

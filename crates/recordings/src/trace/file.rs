//! A trace file, which gets its name once it is complete.

use super::error::WriteError;
use super::meta::Meta;
use super::output::OutputOptions;
use super::writer::TraceWriter;
use crate::output_file::OutputFile;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

/// A trace being written to a file.
///
/// Until it is finished, it is `NAME.partial` in the same folder, readable up to its last complete
/// block. It is removed if dropped without [`finish`](TraceFile::finish) or
/// [`abandon`](TraceFile::abandon).
pub struct TraceFile {
    writer: TraceWriter<OutputFile>,
}

impl TraceWriter<OutputFile> {
    /// Starts writing a trace to the file `path`.
    ///
    /// # Errors
    /// See [`OutputFile::create`] and [`TraceWriter::new`].
    pub fn create(path: impl AsRef<Path>, meta: &Meta) -> Result<TraceFile, WriteError> {
        TraceFile::create(path.as_ref(), meta, OutputOptions::default())
    }
}

impl TraceFile {
    /// [`TraceWriter::create`] with options.
    ///
    /// # Errors
    /// See [`TraceWriter::create`].
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

    /// Writes the buffered rest and the index, and gives the file its name.
    ///
    /// # Errors
    /// If writing fails; the file can then still be kept with [`TraceFile::abandon`].
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.writer.end()?;
        self.writer.get_mut().finish()?;
        Ok(())
    }

    /// Ends the trace early. What was recorded is kept as `NAME.partial`, and the path of that file
    /// is returned. Without samples nothing is kept.
    pub fn abandon(mut self) -> Option<PathBuf> {
        if self.writer.samples() == 0 {
            return None;
        }
        // Keep what was written even if writing fails.
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

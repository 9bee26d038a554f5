//! A trace as a file: written under a temporary name, and renamed when it is done.

use super::error::WriteError;
use super::meta::Meta;
use super::output::Options;
use super::writer::TraceWriter;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

/// A trace that is being written to a file.
///
/// Until it is finished it lies beside the file, as `NAME.tmp-PID`. If it is dropped without
/// [`TraceFile::finish`] (the recording was interrupted), what was recorded is written out and
/// takes the file's place, readable to its last item; a trace with nothing in it is removed.
pub struct TraceFile {
    /// `None` when finished.
    writer: Option<TraceWriter<BufWriter<File>>>,
    temporary: PathBuf,
    path: PathBuf,
}

impl TraceWriter<BufWriter<File>> {
    /// Begins a trace that is to become the file `path`.
    ///
    /// # Errors
    /// If the file cannot be made beside `path`, or as [`TraceWriter::new`].
    pub fn create(path: impl AsRef<Path>, meta: &Meta) -> Result<TraceFile, WriteError> {
        TraceFile::create(path.as_ref(), meta, Options::default())
    }
}

impl TraceFile {
    /// As [`TraceWriter::create`], with options.
    ///
    /// # Errors
    /// As [`TraceWriter::create`].
    pub fn create(path: &Path, meta: &Meta, options: Options) -> Result<TraceFile, WriteError> {
        let Some(name) = path.file_name() else {
            let message = format!("{} is not a file name", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message).into());
        };
        let mut temporary = name.to_owned();
        temporary.push(format!(".tmp-{}", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let out = BufWriter::new(File::create(&temporary)?);
        let mut file = TraceFile {
            writer: None,
            temporary,
            path: path.to_owned(),
        };
        match TraceWriter::with_options(out, meta, options) {
            Ok(writer) => file.writer = Some(writer),
            Err(error) => {
                file.remove();
                return Err(error);
            }
        }
        Ok(file)
    }

    /// Writes the rest and the index, and gives the file its name.
    ///
    /// # Errors
    /// If the output fails; what was written then stays, as after an interruption.
    pub fn finish(mut self) -> Result<(), WriteError> {
        if let Some(writer) = self.writer.take() {
            let finished = writer.finish();
            let renamed = fs::rename(&self.temporary, &self.path);
            finished?;
            renamed?;
        }
        Ok(())
    }

    fn remove(&self) {
        // Nobody is left to hear that the file could not be removed.
        let _ = fs::remove_file(&self.temporary);
    }
}

impl Deref for TraceFile {
    type Target = TraceWriter<BufWriter<File>>;
    fn deref(&self) -> &Self::Target {
        self.writer
            .as_ref()
            .expect("there is a writer until the file is finished")
    }
}

impl DerefMut for TraceFile {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.writer
            .as_mut()
            .expect("there is a writer until the file is finished")
    }
}

impl Drop for TraceFile {
    fn drop(&mut self) {
        let Some(mut writer) = self.writer.take() else {
            return;
        };
        if writer.samples() == 0 && writer.events() == 0 {
            self.remove();
            return;
        }
        // An error here comes after the interruption itself; what was written before stays.
        let _ = writer.flush();
        drop(writer);
        let _ = fs::rename(&self.temporary, &self.path);
    }
}

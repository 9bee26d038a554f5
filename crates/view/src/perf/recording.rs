//! The bytes of a recording, its name and its times.

use super::script::ScriptError;
use std::path::Path;
use std::time::SystemTime;
use unwind_sim_recordings::input_file::InputFile;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_unwind::image::Owner;

/// A perf.data, whose bytes are in memory or mapped.
pub struct Recording {
    name: String,
    owner: Owner,
    modified: Option<SystemTime>,
    opened: SystemTime,
}

impl Recording {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ScriptError> {
        let file = InputFile::open(path).map_err(|source| ScriptError::Open {
            path: path.into(),
            source,
        })?;
        Recording::read(&file)
    }

    /// Reads a file that is open.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(file: &InputFile) -> Result<Self, ScriptError> {
        let recording = Recording::stream(&file.path().to_text(), file)?;
        Ok(Self {
            modified: file.modified(),
            ..recording
        })
    }

    /// Reads what is no file, or is not known as one. `name` is for messages and profiles.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn stream(name: &str, file: &InputFile) -> Result<Self, ScriptError> {
        let owner = file.bytes().map_err(|source| ScriptError::Open {
            path: name.into(),
            source,
        })?;
        Ok(Self {
            name: name.into(),
            owner,
            modified: None,
            opened: SystemTime::now(),
        })
    }

    /// The name for messages and profiles.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole recording.
    pub fn bytes(&self) -> &[u8] {
        (*self.owner).as_ref()
    }

    /// When the recording ended: its file was last changed then, unless it was copied. `None` if it
    /// came as a stream.
    pub fn ended(&self) -> Option<SystemTime> {
        self.modified
    }

    /// Time of the last change, if known; of a stream, now.
    pub fn written(&self) -> Option<SystemTime> {
        Some(self.modified.unwrap_or(self.opened))
    }
}

//! The bytes of a recording: a mapped file, or a stream that was read to its end.

use super::script::ScriptError;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use unwind_sim_recordings::mapped::map_file;
use unwind_sim_recordings::printable::PrintableName as _;
use unwind_sim_unwind::image::Owner;

/// A perf.data, whose bytes are in memory or mapped.
pub struct Recording {
    name: String,
    owner: Owner,
    written: Option<SystemTime>,
    is_file: bool,
}

impl Recording {
    /// Maps a file.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, ScriptError> {
        let owner = map_file(path).map_err(|source| ScriptError::Open {
            path: path.into(),
            source,
        })?;
        let modified = std::fs::metadata(path).and_then(|data| data.modified());
        Ok(Self {
            name: path.to_text(),
            owner,
            written: modified.ok(),
            is_file: true,
        })
    }

    /// Reads a stream to its end. `name` is for messages.
    ///
    /// # Errors
    /// If the stream cannot be read.
    pub fn read(name: &str, mut stream: impl Read) -> Result<Self, ScriptError> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map_err(|source| {
            let path = name.into();
            ScriptError::Open { path, source }
        })?;
        Ok(Self {
            name: name.into(),
            owner: Arc::new(bytes),
            written: Some(SystemTime::now()),
            is_file: false,
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
        self.written.filter(|_| self.is_file)
    }

    /// Time of the last change, if known.
    pub fn written(&self) -> Option<SystemTime> {
        self.written
    }
}

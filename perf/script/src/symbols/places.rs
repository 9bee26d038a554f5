//! Where files are looked up.

use std::path::PathBuf;

/// Where to find files.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// All files are looked up below this folder only.
    pub symfs: Option<PathBuf>,
    /// A list of the kernel's symbols.
    pub kallsyms: Option<PathBuf>,
    /// Build ID of the recorded kernel; `None` means the running kernel.
    pub kernel_build_id: Option<Vec<u8>>,
}

#[cfg(feature = "text")]
impl Places {
    /// The location on this machine of a path on the recorded machine.
    pub(super) fn inside(&self, path: &std::path::Path) -> PathBuf {
        match &self.symfs {
            None => path.into(),
            Some(folder) => folder.join(path.strip_prefix("/").unwrap_or(path)),
        }
    }
}

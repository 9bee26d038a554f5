//! Memory-maps files: the only `unsafe` of this crate.

use crate::perf_directory;
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{MmapMut, MmapOptions};
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_unwind::image::Owner;

/// Maps a file for reading. An empty file yields no bytes. A directory of `perf record --threads` is
/// read as one perf.data file.
///
/// If another process truncates the file while it is mapped, this process is killed by `SIGBUS`, as
/// with any memory map. If another process writes to it, the bytes change; all readers tolerate
/// that.
///
/// # Errors
/// If the file cannot be opened or mapped, or is not a regular file.
pub fn map_file(path: &Path) -> io::Result<Owner> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() && perf_directory::is_directory(path) {
        return perf_directory::map_directory(path);
    }
    map_open_file(&file, &metadata)
}

/// [`map_file`] for an open file.
///
/// # Errors
/// If the file cannot be mapped, or is not a regular file.
pub(crate) fn map_open_file(file: &File, metadata: &Metadata) -> io::Result<Owner> {
    if !metadata.is_file() {
        let message = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    if metadata.len() == 0 {
        return Ok(Arc::new(Vec::<u8>::new()));
    }
    let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    // SAFETY: the mapping is private and read-only, and lives as long as the owner. Other processes
    // may still change the file; the doc comment of `map_file` says what happens then.
    let map = unsafe { MmapOptions::new().len(len).map(file)? };
    Ok(Arc::new(map))
}

/// Zeroed memory of `len` bytes, in huge pages if the kernel has some: filling 60 MB in small pages
/// takes 15,000 page faults. `None` if there is not as much.
pub(crate) fn huge(len: usize) -> Option<MmapMut> {
    let room = MmapMut::map_anon(len).ok().filter(|_| len != 0)?;
    // Only a hint.
    #[cfg(target_os = "linux")]
    let _ = room.advise(Advice::HugePage);
    Some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_mapped_whole_and_an_empty_or_missing_one_is_no_fault() {
        let this = std::env::current_exe().expect("our own path");
        let mapped = map_file(&this).expect("our own file");
        let read = std::fs::read(&this).expect("our own file");
        assert!((*mapped).as_ref() == read);

        let dir = std::env::temp_dir();
        let empty = dir.join(format!("unwind-sim-empty-{}", std::process::id()));
        std::fs::write(&empty, b"").expect("a temporary file");
        assert_eq!((*map_file(&empty).expect("empty")).as_ref(), b"");
        std::fs::remove_file(&empty).expect("ours");
        let missing = map_file(&empty).map(|_| ()).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(map_file(&dir).is_err());
    }
}

//! Memory-maps files. With `shrunk.rs`, this is the only `unsafe` of this crate.

use crate::open;
use crate::perf_directory::PerfDirectory;
use crate::shrunk;
#[cfg(target_os = "linux")]
use memmap2::Advice;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_unwind::image::Owner;

pub use crate::shrunk::{Shrunk, check, forget};

/// Maps a file for reading. An empty file yields no bytes. A directory of `perf record --threads` is
/// read as one perf.data file.
///
/// If another process truncates the file while it is mapped, what is missing reads as zeros, and
/// [`check`] fails from then on. If another process writes to it, the bytes change; all readers
/// tolerate that. A file that grows is read as far as it was.
///
/// # Errors
/// If the file cannot be opened or mapped, or is not a regular file.
pub fn map_file(path: &Path) -> io::Result<Owner> {
    match open::file(path) {
        Ok((file, metadata)) => map_open_file(path, &file, &metadata),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            match PerfDirectory::open(path) {
                Some(folder) => folder.map(path),
                None => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

/// [`map_file`] for an open regular file.
///
/// # Errors
/// If the file cannot be mapped.
pub(crate) fn map_open_file(path: &Path, file: &File, metadata: &Metadata) -> io::Result<Owner> {
    if metadata.len() == 0 {
        return Ok(Arc::new(Vec::<u8>::new()));
    }
    let len = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    // SAFETY: the mapping is private and read-only, and lives as long as the owner. Other processes
    // may still change the file; the doc comment of `map_file` says what happens then.
    let map = unsafe { MmapOptions::new().len(len).map(file)? };
    let watch = shrunk::watch(path, map.as_ptr().addr(), len);
    Ok(Arc::new(Watched { _watch: watch, map }))
}

/// A mapped file, and the guard against its end moving.
struct Watched {
    // Dropped first: the addresses may belong to another mapping as soon as this one is gone.
    _watch: shrunk::Watch,
    map: Mmap,
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.map
    }
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

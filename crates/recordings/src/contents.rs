//! The bytes of a file that is read once: mapped or, if nobody knows its length before, read into large
//! pages.

use crate::mapped::{huge, map_file};
use crate::open;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use unwind_sim_unwind::image::Bytes;

/// Buffer size for a file of unknown length, bytes; enough for most kernels' symbol lists.
const READ_AT_FIRST: usize = 16 << 20;

/// The bytes of a file, at most `size_max`: mapped, or read if its length is unknown.
pub fn contents(path: &Path, size_max: u64) -> Option<Bytes> {
    let length = std::fs::metadata(path).ok()?.len();
    if length == 0 {
        return read_at_once(path, size_max, READ_AT_FIRST);
    }
    let owner = map_file(path).ok()?;
    let length = (*owner).as_ref().len();
    Bytes::new(
        owner,
        0..length.min(usize::try_from(size_max).unwrap_or(usize::MAX)),
    )
}

/// Reads a file of unknown length, at most `size_max` bytes. The first `believed` bytes are read into
/// large pages: small ones, one for each read from `/proc`, take as long as the parsing.
fn read_at_once(path: &Path, size_max: u64, believed: usize) -> Option<Bytes> {
    let mut file = open::stream(path).ok()?.take(size_max);
    let mut room = huge(believed)?;
    let mut filled = 0;
    while filled < room.len() {
        match file.read(&mut room[filled..]) {
            Ok(0) => return Bytes::new(Arc::new(room), 0..filled),
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    let mut bytes = room.to_vec();
    file.read_to_end(&mut bytes).ok()?;
    Some(Bytes::from_vec(bytes))
}

/// Reads a whole file, unless it is larger than `size_max` bytes.
pub fn read(path: &Path, size_max: u64) -> Option<Vec<u8>> {
    let (file, _) = open::file(path).ok()?;
    let mut bytes = Vec::with_capacity(READ_AT_FIRST);
    file.take(size_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in `/proc`, where files have no length.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_of_unknown_length_is_read_to_its_end_or_to_the_limit() {
        let path = Path::new("/proc/filesystems");
        let whole = std::fs::read(path).expect("Linux has it");
        let length = whole.len();
        for believed in [1, length - 1, length, length + 1, 1 << 20] {
            let read = read_at_once(path, 1 << 20, believed).expect("it is read");
            assert!(read[..] == whole, "{believed}");
            let cut = read_at_once(path, 5, believed).expect("it is read");
            assert!(cut[..] == whole[..5], "{believed}");
        }
        assert!(contents(path, 1 << 20).is_some_and(|read| read[..] == whole));
        assert!(
            read_at_once(Path::new("/proc/self"), 5, 5).is_none(),
            "a folder"
        );
    }
}

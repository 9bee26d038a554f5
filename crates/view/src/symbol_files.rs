//! How `unwind-sim-perf-script` opens files, unpacks and demangles here: as recordings are read.

use std::io;
use std::path::Path;
use std::sync::Arc;
use unwind_sim_perf_script::symbols::{Compression, Helper, Owner};
use unwind_sim_recordings::{contents, files, mapped, names};
use unwind_sim_unwind::elf::{self, unpack};
use unwind_sim_unwind::image::Bytes;

/// Opens files, unpacks and demangles as for recordings.
pub const HELPER: &dyn Helper = &AsRecordings;

#[derive(Debug)]
struct AsRecordings;

/// A part of a file.
struct FilePart(Bytes);

impl AsRef<[u8]> for FilePart {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Helper for AsRecordings {
    fn map(&self, path: &Path) -> io::Result<Owner> {
        mapped::map_file(path)
    }

    fn contents(&self, path: &Path, bytes_max: u64) -> Option<Owner> {
        Some(Arc::new(FilePart(contents::contents(path, bytes_max)?)))
    }

    fn read(&self, path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
        contents::read(path, bytes_max)
    }

    fn vdso(&self) -> Option<Vec<u8>> {
        files::own_vdso()
    }

    fn unpack(&self, compression: Compression, data: &[u8]) -> Option<Vec<u8>> {
        let compression = match compression {
            Compression::Zlib => elf::Compression::Zlib,
            Compression::Zstd => elf::Compression::Zstd,
            Compression::Xz => return files::unpack_debug_data(data).ok(),
        };
        unpack::unpack(compression, data).ok()
    }

    fn demangle(&self, name: &str) -> String {
        names::demangle_or_keep(name)
    }
}

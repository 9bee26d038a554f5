//! What symbols need of the program around them: which files may be opened and how, how much may be
//! unpacked, and how names are demangled. The rest of that program does all of it, too, by rules of
//! its own.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The bytes of a file, read or mapped.
pub type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// How a part of an ELF file is compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// `ELFCOMPRESS_ZLIB`, a section.
    Zlib,
    /// `ELFCOMPRESS_ZSTD`, a section.
    Zstd,
    /// xz, the contents of `.gnu_debugdata`.
    Xz,
}

/// The program's own way to open files, to unpack, and to demangle.
pub trait Helper: Debug + Sync {
    /// The bytes of a regular file. What it gives may be kept for long.
    ///
    /// # Errors
    /// If it cannot be opened, or is not a regular file.
    fn map(&self, path: &Path) -> io::Result<Owner>;

    /// The bytes of a file, at most `bytes_max`. It may state no length, as those of `/proc`, or be
    /// a pipe. `None` if it cannot be read.
    fn contents(&self, path: &Path, bytes_max: u64) -> Option<Owner>;

    /// A copy of the first `bytes_max` bytes of a regular file, which a program may still write to.
    /// `None` if it cannot be read.
    fn read(&self, path: &Path, bytes_max: u64) -> Option<Vec<u8>>;

    /// The bytes of this process's vdso; `None` on systems without.
    fn vdso(&self) -> Option<Vec<u8>>;

    /// Unpacks a part of a file; `None` if it is damaged or too long.
    fn unpack(&self, compression: Compression, data: &[u8]) -> Option<Vec<u8>>;

    /// The readable name of a function. A name that is not mangled stays as it is, with its
    /// version.
    fn demangle(&self, name: &str) -> String;
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Read;

    /// Maximum size of what is unpacked, bytes.
    const UNPACKED_MAX: u64 = 64 << 20;
    /// Maximum memory for the window of xz, KiB.
    const WINDOW_KIB_MAX: u32 = 64 << 10;

    /// The plainest way to do all of it; names stay mangled.
    #[derive(Debug)]
    struct Plain;

    /// [`Plain`], for tests.
    pub(in crate::symbols) const PLAIN: &dyn Helper = &Plain;

    fn all(reader: impl Read) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        reader.take(UNPACKED_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    impl Helper for Plain {
        fn map(&self, path: &Path) -> io::Result<Owner> {
            Ok(Arc::new(std::fs::read(path)?))
        }

        fn contents(&self, path: &Path, bytes_max: u64) -> Option<Owner> {
            Some(Arc::new(self.read(path, bytes_max)?))
        }

        fn read(&self, path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
            all(std::fs::File::open(path).ok()?.take(bytes_max))
        }

        fn vdso(&self) -> Option<Vec<u8>> {
            None
        }

        fn unpack(&self, compression: Compression, data: &[u8]) -> Option<Vec<u8>> {
            match compression {
                Compression::Zlib => all(flate2::read::ZlibDecoder::new(data)),
                Compression::Zstd => None,
                Compression::Xz => all(lzma_rust2::XzReader::new_mem_limit(
                    data,
                    true,
                    WINDOW_KIB_MAX,
                )),
            }
        }

        fn demangle(&self, name: &str) -> String {
            name.to_owned()
        }
    }
}

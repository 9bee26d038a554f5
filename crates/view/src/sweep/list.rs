//! The list of files of a sweep, and its parts.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

/// The maximum length of a list, bytes: ten million long paths.
const BYTES_MAX: u64 = 1 << 30;
/// The maximum length of a path, bytes (`PATH_MAX` of Linux).
const PATH_BYTES_MAX: usize = 4096;

/// A file of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedFile {
    path: Vec<u8>,
    package: Option<String>,
}

impl ListedFile {
    /// The bytes of the path.
    pub fn bytes(&self) -> &[u8] {
        &self.path
    }

    /// The path.
    #[cfg(unix)]
    pub fn path(&self) -> &Path {
        use std::os::unix::ffi::OsStrExt;
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// The path; elsewhere than on Unix, one that is not UTF-8 names no file.
    #[cfg(not(unix))]
    pub fn path(&self) -> &Path {
        Path::new(OsStr::new(std::str::from_utf8(&self.path).unwrap_or("")))
    }

    /// The package that the list gives it.
    pub fn package(&self) -> Option<&str> {
        self.package.as_deref()
    }
}

/// A list of files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct List {
    entries: Vec<ListedFile>,
    repeated: usize,
}

/// Why a list cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It is too long.
    #[error("it is longer than {BYTES_MAX} bytes; split it")]
    Long,
    /// An entry is no path.
    #[error("entry {number}: {what}; an entry is PATH or PATH, a tab and the package's name")]
    Entry {
        /// Its number, from 1.
        number: usize,
        /// What is wrong.
        what: &'static str,
    },
}

impl List {
    /// Reads a list: one file a line, or, if there is a NUL byte in it, one before each NUL byte.
    /// Behind the last tab of an entry is the name of the file's package, which may be empty. Empty
    /// entries do not count. A path that comes again is left out.
    ///
    /// # Errors
    /// If it cannot be read, or an entry is not a path.
    pub fn read(input: impl Read) -> Result<List, ListError> {
        let mut text = Vec::new();
        // One byte more than is allowed, to tell a list that just fits from one that goes on.
        input.take(BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(ListError::Long);
        }

        // As of `find -print0`: a path may hold a newline, but not a NUL.
        let end = if text.contains(&0) { 0 } else { b'\n' };

        let mut list = List::default();
        let mut met = HashSet::new();
        for (number, entry) in text.split(|&byte| byte == end).enumerate() {
            if entry.is_empty() {
                continue;
            }

            let wrong = |what| ListError::Entry {
                number: number + 1,
                what,
            };
            // The package is behind the last tab, so that a path may hold tabs.
            let tab = entry.iter().rposition(|&byte| byte == b'\t');
            let (path, package) = match tab {
                Some(tab) => (&entry[..tab], &entry[tab + 1..]),
                None => (entry, &[][..]),
            };

            if path.is_empty() {
                return Err(wrong("there is no path"));
            }

            // A path that the system would refuse is not worth opening.
            if path.len() > PATH_BYTES_MAX {
                return Err(wrong("the path is too long"));
            }

            // A path may have any bytes; the package becomes a JSON string.
            let package = std::str::from_utf8(package);
            let package = package.map_err(|_| wrong("the package is not UTF-8"))?;

            // Twice in the list, a file would be counted twice.
            if !met.insert(path) {
                list.repeated += 1;
                continue;
            }

            list.entries.push(ListedFile {
                path: path.to_vec(),
                package: (!package.is_empty()).then(|| package.to_owned()),
            });
        }
        Ok(list)
    }

    /// The files, in the list's order.
    pub fn entries(&self) -> &[ListedFile] {
        &self.entries
    }

    /// The number of entries whose path came before.
    pub fn repeated(&self) -> usize {
        self.repeated
    }

    /// The files of a shard, in the list's order. The files are dealt out to the shards one after
    /// the other, there and back (1, 2, 3, 3, 2, 1, 1, ..): for a list with the largest files first,
    /// the shards are then of similar size. A hash of the path would not see sizes.
    pub fn shard(&self, shard: Shard) -> Vec<&ListedFile> {
        let dealt = |index: &usize| {
            let (round, place) = (index / shard.count, index % shard.count);
            let number = if round.is_multiple_of(2) {
                place + 1
            } else {
                shard.count - place
            };
            number == shard.number
        };
        let mine = (0..self.entries.len()).filter(dealt);
        mine.map(|index| &self.entries[index]).collect()
    }

    /// A hash of the files and packages (FNV-1a, 64 bits).
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        for entry in &self.entries {
            add(&entry.path);
            // Neither byte is in a path or package.
            add(b"\0");
            add(entry.package.as_deref().unwrap_or_default().as_bytes());
            add(b"\0");
        }
        hash
    }
}

/// A part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Its number, from 1.
    pub number: usize,
    /// The number of shards.
    pub count: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Shard {
            number: 1,
            count: 1,
        }
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let numbers = text.split_once('/');
        let numbers = numbers.and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((number, count)) if (1..=count).contains(&number) => Ok(Shard { number, count }),
            _ => Err(format!(
                "`{text}` is not K/N with K from 1 to N, such as 1/4"
            )),
        }
    }
}

#[cfg(test)]
mod tests;

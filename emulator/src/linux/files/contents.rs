//! The contents of the host's files that are mapped. Mappings of the same file share them, in all
//! processes, for as long as there is one.

use super::{Answer, Errno, Files, Inode};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Weak};
use unwind_sim_unwind::image::Bytes;

/// A file of at most this size is read whole, bytes.
const WHOLE_MAX: u64 = 64 << 20;

/// What identifies a content: device, inode number, size, and when it was changed; and which of its
/// bytes these are. Those that are not shared also have a number.
type Key = ([u64; 3], [i64; 4], (u64, u64), u64);
type Owner = dyn AsRef<[u8]> + Send + Sync;

/// The contents in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    all: BTreeMap<Key, Held>,
    /// How many were not shared.
    numbers: u64,
}

#[derive(Clone)]
struct Held(Weak<Owner>, u64);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.1)
    }
}

fn key(m: &Metadata, range: &Range<u64>, number: u64) -> Key {
    let times = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
    let file = [m.dev(), m.ino(), m.len()];
    (file, times, (range.start, range.end), number)
}

impl Files {
    /// At most `size` bytes of a file of the host from `offset` on.
    ///
    /// # Errors
    /// `ENOMEM` if more than `most` bytes of files would be in use.
    pub(in crate::linux) fn content(
        &mut self,
        file: &File,
        offset: u64,
        size: u64,
        most: u64,
    ) -> Answer<Bytes> {
        let metadata = file.metadata()?;
        let length = metadata.len();
        let start = offset.min(length);
        let wanted = start..start + (length - start).min(size);
        let read = match length <= WHOLE_MAX {
            true => 0..length,
            false => wanted.clone(),
        };
        let part = |bytes: &Bytes| {
            let from = (wanted.start - read.start) as usize;
            let part = bytes.part(from..from + (wanted.end - wanted.start) as usize);
            part.ok_or(Errno::EIO)
        };
        // What the program writes to the host may have the same time as what was there before.
        self.contents.numbers += u64::from(self.allow_write);
        let key = key(&metadata, &read, self.contents.numbers);
        let all = &mut self.contents.all;
        if let Some(Held(held, _)) = all.get(&key)
            && let Some(owner) = held.upgrade()
        {
            let bytes = Bytes::new(owner, 0..(read.end - read.start) as usize);
            return part(&bytes.ok_or(Errno::EIO)?);
        }
        self.contents.check(read.end - read.start, most)?;
        let mut bytes = vec![0; (read.end - read.start) as usize];
        file.read_exact_at(&mut bytes, read.start)?;
        let bytes = Bytes::from_vec(bytes);
        self.contents.hold(key, &bytes);
        part(&bytes)
    }

    /// At most `size` bytes of a file in memory from `offset` on.
    ///
    /// # Errors
    /// Like [`Files::content`].
    pub(in crate::linux) fn content_in_memory(
        &mut self,
        inode: &Inode,
        offset: u64,
        size: u64,
        most: u64,
    ) -> Answer<Bytes> {
        let start = usize::try_from(offset).ok();
        let data = start.and_then(|at| inode.data().get(at..));
        let data = data.unwrap_or_default();
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(size)];
        self.contents.check(data.len() as u64, most)?;
        self.contents.numbers += 1;
        let key = ([0; 3], [0; 4], (0, 0), self.contents.numbers);
        let bytes = Bytes::from_vec(data.to_vec());
        self.contents.hold(key, &bytes);
        Ok(bytes)
    }
}

impl Contents {
    /// Checks whether there is room for more bytes.
    fn check(&mut self, more: u64, most: u64) -> Answer<()> {
        self.all.retain(|_, Held(held, _)| held.strong_count() > 0);
        let in_use: u64 = self.all.values().map(|Held(_, size)| size).sum();
        match in_use.saturating_add(more) > most {
            true => Err(Errno::ENOMEM),
            false => Ok(()),
        }
    }

    fn hold(&mut self, key: Key, bytes: &Bytes) {
        let held = Held(Arc::downgrade(bytes.owner()), bytes.len() as u64);
        self.all.insert(key, held);
    }
}

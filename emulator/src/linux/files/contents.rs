//! The host's files that are mapped, and the programs that run: a page is read when it is first
//! needed, and kept for as long as the file is mapped anywhere, also in a snapshot. So mapping a
//! file costs nothing, and what was seen of it once stays the same. Mappings of the same file share
//! its pages, in all processes. Each such file is open on the host, which has a limit: where many
//! are mapped, the next ones are read at once.

use super::{Answer, Files};
use crate::address_space::{Content, PAGE_SIZE, PageMissing, Source};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What identifies a content: device, inode number, size, and when it was changed; and how often
/// programs may have written to files of the host before it was mapped.
type ContentKey = ([u64; 3], [i64; 4], u64);
type Page = [u8; PAGE_SIZE as usize];

/// The maximum number of mapped files that stay open. Hosts often let a process open 1,024.
const OPEN_MAX: usize = 256;

/// The contents in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    all: BTreeMap<ContentKey, Weak<HostFile>>,
    /// How often programs may have written to files of the host.
    writes: u64,
    /// The bytes of all pages that are kept.
    kept: Arc<AtomicU64>,
}

/// A file of the host of which pages are kept.
struct HostFile {
    /// None if all of its pages are kept.
    file: Option<Arc<File>>,
    pages: Mutex<HashMap<u64, Box<Page>>>,
    /// The bytes that all files keep, and how many they may.
    kept: Arc<AtomicU64>,
    most: u64,
}

impl std::fmt::Debug for HostFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.file)
    }
}

impl HostFile {
    /// Reads a page of the file as it is now.
    fn read_page(&self, number: u64) -> Result<Page, PageMissing> {
        let mut page = [0; PAGE_SIZE as usize];
        let start = number.checked_mul(PAGE_SIZE).ok_or(PageMissing)?;
        let file = self.file.as_ref().ok_or(PageMissing)?;
        let mut held = 0;
        while held < page.len() {
            match file.read_at(&mut page[held..], start + held as u64) {
                Ok(0) => break,
                Ok(count) => held += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Linux sends `SIGBUS` for these, too.
                Err(_) => return Err(PageMissing),
            }
        }
        // What was mapped was inside the file, which has become shorter.
        if held == 0 {
            Err(PageMissing)
        } else {
            Ok(page)
        }
    }

    /// Reads all pages of a file of `size` bytes, and closes it, if they may be kept.
    fn keep_all(mut self, size: u64) -> HostFile {
        let count = size.div_ceil(PAGE_SIZE);
        let bytes = count.saturating_mul(PAGE_SIZE);
        if self.kept.load(Ordering::Relaxed).saturating_add(bytes) > self.most {
            return self;
        }
        // Where one cannot be read, the file has become shorter.
        let pages =
            (0..count).map_while(|number| Some((number, Box::new(self.read_page(number).ok()?))));
        let pages: HashMap<u64, Box<Page>> = pages.collect();
        self.kept
            .fetch_add(pages.len() as u64 * PAGE_SIZE, Ordering::Relaxed);
        (self.pages, self.file) = (Mutex::new(pages), None);
        self
    }
}

impl Source for HostFile {
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), PageMissing> {
        let number = offset / PAGE_SIZE;
        let in_page = (offset % PAGE_SIZE) as usize;
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(page) = pages.get(&number) {
            to.copy_from_slice(&page[in_page..][..to.len()]);
            return Ok(());
        }

        let page = self.read_page(number)?;
        to.copy_from_slice(&page[in_page..][..to.len()]);
        // Beyond the limit a page is read again whenever it is needed.
        if self.kept.load(Ordering::Relaxed) < self.most {
            self.kept.fetch_add(PAGE_SIZE, Ordering::Relaxed);
            pages.insert(number, Box::new(page));
        }
        Ok(())
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        let pages = self.pages.get_mut().unwrap_or_else(PoisonError::into_inner);
        let bytes = pages.len() as u64 * PAGE_SIZE;
        self.kept.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn key(m: &Metadata, writes: u64) -> ContentKey {
    let times = [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()];
    ([m.dev(), m.ino(), m.len()], times, writes)
}

impl Contents {
    fn hold(&mut self, file: &Arc<File>, metadata: &Metadata, most: u64) -> Arc<HostFile> {
        let key = key(metadata, self.writes);
        if let Some(held) = self.all.get(&key).and_then(Weak::upgrade) {
            return held;
        }

        self.all.retain(|_, held| held.strong_count() > 0);
        let new = HostFile {
            file: Some(file.clone()),
            pages: Mutex::default(),
            kept: self.kept.clone(),
            most,
        };
        let new = Arc::new(if self.all.len() < OPEN_MAX {
            new
        } else {
            new.keep_all(metadata.len())
        });
        self.all.insert(key, Arc::downgrade(&new));
        new
    }
}

impl Files {
    /// The content of a file of the host. At most `most` bytes of such files are kept.
    pub(in crate::linux) fn content(&mut self, file: &Arc<File>, most: u64) -> Answer<Content> {
        let metadata = file.metadata()?;
        let held = self.contents.hold(file, &metadata, most);
        Ok(Content::new(held, metadata.len()))
    }

    /// A program may write to a file of the host: pages that are kept no longer show the file. It
    /// may have the same time as before.
    pub(in crate::linux) fn host_written(&mut self) {
        self.contents.writes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::{AddressSpace, FaultKind, Permissions};

    const P: u64 = PAGE_SIZE;

    fn host(file: File, most: u64) -> Arc<HostFile> {
        Arc::new(HostFile {
            file: Some(Arc::new(file)),
            pages: Mutex::default(),
            kept: Arc::default(),
            most,
        })
    }

    #[test]
    fn a_file_that_shrinks_faults_where_it_was_not_seen() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4 * P).expect("it grows");
        file.write_at(b"seen", P).expect("written");
        let content = Content::new(host(file.try_clone().expect("a copy"), 1 << 20), 4 * P);
        let mut memory = AddressSpace::default();

        let range = 0x10000..0x10000 + 4 * P;
        memory
            .map_file(range.clone(), Permissions::READ_WRITE, content, 0)
            .expect("mapped");
        let mut seen = [0; 4];
        memory.read(range.start + P, &mut seen).expect("there");

        // One byte of the third page is left, and nothing of the fourth.
        file.set_len(2 * P + 1).expect("it shrinks");

        // What was read once stays, as a page in use does; the rest of the last page is zeros.
        assert_eq!(memory.load_bytes::<4>(range.start + P), Some(*b"seen"));
        assert_eq!(memory.load_bytes::<1>(range.start + 2 * P), Some([0]));

        let gone = range.start + 3 * P;
        let read = memory.read(gone, &mut seen).map_err(|fault| fault.kind);
        assert_eq!(read, Err(FaultKind::Gone));
        assert_eq!(memory.load_bytes::<1>(gone), None);
        assert_eq!(memory.store_bytes(gone, [1]), None);

        // The fault is at the page that is gone, and nothing of the write is done.
        let across = memory.write(gone - 1, b"ab").map_err(|fault| fault.address);
        assert_eq!(across, Err(gone));
        assert_eq!(memory.load_bytes::<1>(gone - 1), Some([0]));
        assert_eq!(memory.pages_in_use(), 2);
    }

    /// The number of open files is limited, and what is mapped beyond that is the same.
    #[test]
    fn of_many_files_the_last_ones_are_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut contents = Contents::default();
        let mut hold = |number: usize, most: u64| {
            let path = folder.path().join(number.to_string());
            std::fs::write(&path, vec![number as u8; 5000]).expect("written");
            let file = Arc::new(File::open(&path).expect("open"));
            let metadata = file.metadata().expect("a file");
            contents.hold(&file, &metadata, most)
        };

        let held: Vec<_> = (0..OPEN_MAX + 3).map(|n| hold(n, 1 << 20)).collect();
        let open = held.iter().filter(|held| held.file.is_some()).count();
        assert_eq!(open, OPEN_MAX);

        for (number, held) in held.iter().enumerate().skip(OPEN_MAX - 1) {
            // The file has 5000 bytes. Behind them, its last page has zeros.
            let mut read = [1; 8];
            held.read(4996, &mut read).expect("there");
            let byte = number as u8;
            assert_eq!(read, [byte, byte, byte, byte, 0, 0, 0, 0]);
            assert_eq!(held.read(2 * P, &mut read), Err(PageMissing));
        }

        // What may not be kept stays open.
        let last = hold(OPEN_MAX + 3, P);
        assert!(last.file.is_some());
        drop((held, last));
        assert_eq!(contents.kept.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn pages_are_kept_up_to_the_limit_and_given_back() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 40).expect("a sparse file");
        let host = host(file, 2 * P);
        let kept = host.kept.clone();
        let mut byte = [1];
        for page in [0, 1 << 20, 1 << 27, 1 << 20] {
            host.read(page * P, &mut byte).expect("a hole");
            assert_eq!(byte, [0]);
        }
        assert_eq!(kept.load(Ordering::Relaxed), 2 * P);
        drop(host);
        assert_eq!(kept.load(Ordering::Relaxed), 0);
    }
}

//! Bodies of records: mappings, tasks, kernel symbols and ID tables.

use super::le;

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mmap<'a> {
    /// Process ID; -1 for the kernel.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    /// First address.
    pub address: u64,
    /// Length, bytes.
    pub length: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// The file's identity.
    pub identity: MmapIdentity<'a>,
    /// `PROT_*` bits; 0 if unknown (`PERF_RECORD_MMAP`).
    pub protection: u32,
    /// `MAP_*` bits; 0 if unknown (`PERF_RECORD_MMAP`).
    pub flags: u32,
    /// Path, or a name in brackets.
    pub path: &'a [u8],
}

/// The identity of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MmapIdentity<'a> {
    /// Only the path (`PERF_RECORD_MMAP`).
    Path,
    /// Device and inode.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Inode.
        inode: u64,
        /// Generation of the inode.
        generation: u64,
    },
    /// Build ID, at most 20 bytes.
    BuildId(&'a [u8]),
}

/// A task's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm<'a> {
    /// Process ID.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    /// Was it set by exec? Then all mappings of the process are gone.
    pub exec: bool,
    /// The name.
    pub name: &'a [u8],
}

/// The creation or the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Process ID.
    pub pid: i32,
    /// Parent process ID.
    pub ppid: i32,
    /// Thread ID.
    pub tid: i32,
    /// Parent thread ID.
    pub ptid: i32,
    /// Time, nanoseconds.
    pub time: u64,
}

/// A change of throttling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Time, nanoseconds.
    pub time: u64,
    /// Event ID.
    pub id: u64,
    /// Stream ID.
    pub stream_id: u64,
}

/// Kernel code that was added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ksymbol<'a> {
    /// First address.
    pub address: u64,
    /// Length, bytes.
    pub length: u32,
    /// 1 BPF, 2 out-of-line code.
    pub kind: u16,
    /// Bit 0: it was removed.
    pub flags: u16,
    /// Its name.
    pub name: &'a [u8],
}

/// Namespaces of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces<'a> {
    /// Process ID.
    pub pid: i32,
    /// Thread ID.
    pub tid: i32,
    pub(super) links: &'a [u8],
}

impl<'a> Namespaces<'a> {
    /// (device, inode) of each namespace, in the kernel's order (net, uts, ipc, pid, user, ..).
    pub fn links(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + 'a {
        self.links.as_chunks::<16>().0.iter().map(|link| {
            (
                le::u64_at(link, 0).unwrap_or_default(),
                le::u64_at(link, 8).unwrap_or_default(),
            )
        })
    }
}

/// Entries of an `ID_INDEX` record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdIndex<'a> {
    pub(super) entries: &'a [u8],
}

impl<'a> IdIndex<'a> {
    /// (id, index, cpu, tid) of each entry; cpu and tid are -1 for any.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, u64, i64, i64)> + 'a {
        self.entries.as_chunks::<32>().0.iter().map(|entry| {
            let word = |at| le::u64_at(entry, at).unwrap_or_default();
            (
                word(0),
                word(8),
                word(16).cast_signed(),
                word(24).cast_signed(),
            )
        })
    }
}

/// Entries of a `THREAD_MAP` record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadMap<'a> {
    pub(super) entries: &'a [u8],
}

impl<'a> ThreadMap<'a> {
    /// (tid, name) of each thread.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (u64, &'a [u8])> + 'a {
        self.entries.as_chunks::<24>().0.iter().map(|entry| {
            (
                le::u64_at(entry, 0).unwrap_or_default(),
                le::until_nul(&entry[8..]),
            )
        })
    }
}

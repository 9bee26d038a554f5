//! The memory layout beyond the address space: the heap, the mapped files, pages past the end of a
//! file.

use crate::address_space::{ObjectId, Permissions};
use crate::load::Loaded;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// A mapped file.
#[derive(Clone, Debug)]
pub(super) struct FileMapping {
    pub(super) path: Rc<[u8]>,
    /// Offset in the file at which the mapping starts, bytes.
    pub(super) offset: u64,
    /// Device and inode number of a file whose changes are visible here; `None` for a program's
    /// file.
    pub(super) object: Option<(u64, u64)>,
    /// `MAP_SHARED`: others would see what is written.
    pub(super) is_shared: bool,
    /// Whether the file was writable for the process that mapped it.
    pub(super) is_writable: bool,
    /// The object that shows the file; `None` if the mapping has a copy of its own.
    pub(super) memory: Option<ObjectId>,
}

impl FileMapping {
    /// The file of a program or its interpreter.
    pub(super) fn of_program(path: Rc<[u8]>, offset: u64) -> FileMapping {
        FileMapping {
            path,
            offset,
            object: None,
            is_shared: false,
            is_writable: false,
            memory: None,
        }
    }
}

/// The memory layout.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Start of the heap.
    pub(super) heap: u64,
    /// End of the heap.
    pub(super) brk: u64,
    pub(super) stack: Range<u64>,
    /// `/proc/self/auxv`.
    pub(super) auxv: Vec<u8>,
    /// By start address: the end and the file.
    files: BTreeMap<u64, (u64, FileMapping)>,
    /// Pages past the end of a file (`SIGBUS`), and the permissions they would have if the file
    /// were longer. The memory itself allows no access.
    behind: BTreeMap<u64, (u64, Permissions)>,
}

impl Layout {
    pub(super) fn new(loaded: &Loaded) -> Layout {
        let words = loaded.auxv.iter().flat_map(|e| [e.kind, e.value]);
        Layout {
            heap: loaded.brk,
            brk: loaded.brk,
            stack: loaded.stack.clone(),
            auxv: words.flat_map(u64::to_le_bytes).collect(),
            ..Layout::default()
        }
    }

    /// Records that a range was mapped, to this file if any, or unmapped.
    pub(super) fn name(&mut self, range: Range<u64>, file: Option<FileMapping>) {
        cut(&mut self.files, &range, |file, by| FileMapping {
            offset: file.offset + by,
            ..file.clone()
        });
        cut(&mut self.behind, &range, |&may, _| may);
        if let Some(file) = file {
            self.files.insert(range.start, (range.end, file));
        }
    }

    /// Marks pages as past the end of a file, or not any longer (`None`).
    pub(super) fn set_behind(&mut self, range: Range<u64>, may: Option<Permissions>) {
        cut(&mut self.behind, &range, |&may, _| may);
        if let Some(may) = may {
            self.behind.insert(range.start, (range.end, may));
        }
    }

    /// The intended permissions of a page past the end of a file; `None` for any other page.
    pub(super) fn behind(&self, address: u64) -> Option<Permissions> {
        let (_, (end, may)) = self.behind.range(..=address).next_back()?;
        (address < *end).then_some(*may)
    }

    /// The parts of a range that are past the end of a file.
    pub(super) fn behind_in(&self, range: &Range<u64>) -> Vec<(Range<u64>, Permissions)> {
        let all = self.behind.range(..range.end).rev();
        let touching = all.take_while(|(_, (end, _))| *end > range.start);
        let part = |(&start, &(end, may)): (&u64, &(u64, Permissions))| {
            (start.max(range.start)..end.min(range.end), may)
        };
        touching.map(part).collect()
    }

    /// The file at an address, with the offset of that address.
    pub(super) fn file_at(&self, address: u64) -> Option<FileMapping> {
        let (start, (end, file)) = self.files.range(..=address).next_back()?;
        (address < *end).then(|| FileMapping {
            offset: file.offset + (address - start),
            ..file.clone()
        })
    }

    /// All mapped files, by address.
    pub(super) fn files(&self) -> impl Iterator<Item = (Range<u64>, &FileMapping)> {
        let all = self.files.iter();
        all.map(|(&start, (end, file))| (start..*end, file))
    }

    /// Whether a file is mapped whose changes are visible.
    pub(super) fn has_objects(&self) -> bool {
        self.files.values().any(|(_, file)| file.object.is_some())
    }

    /// The ranges at which a file is mapped.
    pub(super) fn mappings_of(&self, object: (u64, u64)) -> Vec<(Range<u64>, FileMapping)> {
        let all = self.files.iter();
        let of = all.filter(|(_, (_, file))| file.object == Some(object));
        of.map(|(&start, (end, file))| (start..*end, file.clone()))
            .collect()
    }

    /// The ranges at which an object is mapped under a name.
    pub(super) fn mappings_with(&self, memory: ObjectId) -> Vec<(Range<u64>, FileMapping)> {
        let all = self.files.iter();
        let of = all.filter(|(_, (_, file))| file.memory == Some(memory));
        of.map(|(&start, (end, file))| (start..*end, file.clone()))
            .collect()
    }

    /// The mappings of files in a range.
    pub(super) fn files_in(&self, range: &Range<u64>) -> impl Iterator<Item = &FileMapping> {
        let before = self.files.range(..range.end).rev();
        let touching = before.take_while(|(_, (end, _))| *end > range.start);
        touching.map(|(_, (_, file))| file)
    }
}

/// Removes a range from a map of ranges; `advance` moves the value by a number of bytes.
fn cut<T>(map: &mut BTreeMap<u64, (u64, T)>, range: &Range<u64>, advance: impl Fn(&T, u64) -> T) {
    let touching: Vec<u64> = map
        .range(..range.end)
        .rev()
        .take_while(|(_, (end, _))| *end > range.start)
        .map(|(&start, _)| start)
        .collect();
    for start in touching {
        let Some((end, value)) = map.remove(&start) else {
            continue;
        };
        if end > range.end {
            map.insert(range.end, (end, advance(&value, range.end - start)));
        }
        if start < range.start {
            map.insert(start, (range.start, value));
        }
    }
}

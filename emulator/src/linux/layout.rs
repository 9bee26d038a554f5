//! What is mapped where, beyond what the address space knows: the heap, the names of files, pages
//! behind a file's end.

use crate::address_space::Permissions;
use crate::load::Loaded;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// A file that is mapped.
#[derive(Clone, Debug)]
pub(super) struct FileMapping {
    pub(super) path: Rc<[u8]>,
    /// Where in it the mapping begins, bytes.
    pub(super) offset: u64,
    /// Device and number of the file whose changes are seen here; `None` for a program's own.
    pub(super) object: Option<(u64, u64)>,
    /// `MAP_SHARED`: what is written would be seen by others.
    pub(super) is_shared: bool,
    /// Could the file be written by who mapped it?
    pub(super) is_writable: bool,
}

impl FileMapping {
    /// Of a program or its interpreter.
    pub(super) fn of_program(path: Rc<[u8]>, offset: u64) -> FileMapping {
        FileMapping {
            path,
            offset,
            object: None,
            is_shared: false,
            is_writable: false,
        }
    }
}

/// Where things are.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    /// Where the heap begins.
    pub(super) heap: u64,
    /// Where it ends.
    pub(super) brk: u64,
    pub(super) stack: Range<u64>,
    /// `/proc/self/auxv`.
    pub(super) auxv: Vec<u8>,
    /// By first address: the end, and the file.
    files: BTreeMap<u64, (u64, FileMapping)>,
    /// Pages behind the end of a file, `SIGBUS`, and what could be done with them if the file went
    /// on. In memory nothing can.
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

    /// A range was mapped, or unmapped: this file is there, or none.
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

    /// These pages are behind a file's end, or no longer (`None`).
    pub(super) fn set_behind(&mut self, range: Range<u64>, may: Option<Permissions>) {
        cut(&mut self.behind, &range, |&may, _| may);
        if let Some(may) = may {
            self.behind.insert(range.start, (range.end, may));
        }
    }

    /// What could be done with a page that is behind a file's end; `None` if it is not.
    pub(super) fn behind(&self, address: u64) -> Option<Permissions> {
        let (_, (end, may)) = self.behind.range(..=address).next_back()?;
        (address < *end).then_some(*may)
    }

    /// The parts of a range that are behind a file's end.
    pub(super) fn behind_in(&self, range: &Range<u64>) -> Vec<(Range<u64>, Permissions)> {
        let all = self.behind.range(..range.end).rev();
        let touching = all.take_while(|(_, (end, _))| *end > range.start);
        let part = |(&start, &(end, may)): (&u64, &(u64, Permissions))| {
            (start.max(range.start)..end.min(range.end), may)
        };
        touching.map(part).collect()
    }

    /// The file at an address, its offset being that of the address.
    pub(super) fn file_at(&self, address: u64) -> Option<FileMapping> {
        let (start, (end, file)) = self.files.range(..=address).next_back()?;
        (address < *end).then(|| FileMapping {
            offset: file.offset + (address - start),
            ..file.clone()
        })
    }

    /// Is any file mapped whose changes are seen?
    pub(super) fn has_objects(&self) -> bool {
        self.files.values().any(|(_, file)| file.object.is_some())
    }

    /// Where a file is mapped, and from which offset on.
    pub(super) fn mappings_of(&self, object: (u64, u64)) -> Vec<(Range<u64>, u64)> {
        let all = self.files.iter();
        let of = all.filter(|(_, (_, file))| file.object == Some(object));
        of.map(|(&start, (end, file))| (start..*end, file.offset))
            .collect()
    }
}

/// Takes a range out of a map of ranges; `advance` is what is `by` bytes farther on.
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

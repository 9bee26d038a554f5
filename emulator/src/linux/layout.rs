//! What is mapped where, beyond what the address space knows: the heap, the names of files, pages
//! behind a file's end.

use crate::load::Loaded;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// A file and where in it something begins, bytes.
pub(super) type Place = (Rc<[u8]>, u64);

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
    files: BTreeMap<u64, (u64, Place)>,
    /// Pages behind the end of a file: `SIGBUS`.
    behind: BTreeMap<u64, (u64, ())>,
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
    pub(super) fn name(&mut self, range: Range<u64>, file: Option<Place>) {
        cut(&mut self.files, &range, |(path, offset), by| {
            (path.clone(), offset + by)
        });
        cut(&mut self.behind, &range, |(), _| ());
        if let Some(file) = file {
            self.files.insert(range.start, (range.end, file));
        }
    }

    /// These pages are behind a file's end.
    pub(super) fn add_behind(&mut self, range: Range<u64>) {
        self.behind.insert(range.start, (range.end, ()));
    }

    /// Is an address behind a file's end?
    pub(super) fn is_behind(&self, address: u64) -> bool {
        let found = self.behind.range(..=address).next_back();
        found.is_some_and(|(_, (end, ()))| address < *end)
    }

    /// The parts of a range that are behind a file's end.
    pub(super) fn behind_in(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let all = self.behind.range(..range.end).rev();
        let touching = all.take_while(|(_, (end, ()))| *end > range.start);
        let part =
            |(&start, &(end, ())): (&u64, &(u64, ()))| start.max(range.start)..end.min(range.end);
        touching.map(part).collect()
    }

    /// The file at an address, and where in it.
    pub(super) fn file_at(&self, address: u64) -> Option<Place> {
        let (start, (end, (path, offset))) = self.files.range(..=address).next_back()?;
        (address < *end).then(|| (path.clone(), offset + (address - start)))
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

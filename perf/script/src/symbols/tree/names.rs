//! The names of symbols: places in the files that they come from, or made here.

use super::super::helper::Owner;
use super::NAME_MAX;
use std::ops::Range;

/// The number of the source for names that are in no file.
const MADE: u8 = u8::MAX;

/// Where a name is in a file. It ends at the source's terminator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::symbols) struct NameRef {
    /// The source's number, from [`Names::add_source`].
    pub(in crate::symbols) source: u8,
    /// Offset in the source's bytes.
    pub(in crate::symbols) offset: u32,
}

struct Source {
    bytes: Owner,
    terminator: u8,
}

/// All names of a tree's symbols.
pub(super) struct Names {
    sources: Vec<Source>,
    /// Names that are in no file, and displayed ones.
    made: Vec<u8>,
    /// The ranges in `made`, by number.
    ranges: Vec<Range<usize>>,
    /// Maximum bytes of made names; with displayed ones, twice as much.
    room: usize,
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Names")
            .field("sources", &self.sources.len())
            .field("made", &self.made.len())
            .finish_non_exhaustive()
    }
}

impl Names {
    pub(super) fn with_room(room: usize) -> Self {
        Names {
            sources: Vec::new(),
            made: Vec::new(),
            ranges: Vec::new(),
            room,
        }
    }

    /// Adds the bytes of a file; returns its number. `None` if there are too many.
    pub(super) fn add_source(&mut self, bytes: Owner, terminator: u8) -> Option<u8> {
        let number = u8::try_from(self.sources.len()).ok()?;
        self.sources.push(Source { bytes, terminator });
        (number != MADE).then_some(number)
    }

    /// Bytes of the names that are stored here.
    #[cfg(test)]
    pub(super) fn stored(&self) -> usize {
        self.made.len()
    }

    /// The name at this place, at most [`NAME_MAX`] bytes.
    pub(super) fn get(&self, at: NameRef) -> &[u8] {
        if at.source == MADE {
            let range = self.ranges.get(at.offset as usize);
            return range.map_or(&[], |range| &self.made[range.clone()]);
        }
        let source = &self.sources[usize::from(at.source)];
        let rest = (*source.bytes).as_ref().get(at.offset as usize..);
        let rest = rest.unwrap_or_default();
        let rest = &rest[..rest.len().min(NAME_MAX)];
        let end = memchr::memchr(source.terminator, rest).unwrap_or(rest.len());
        &rest[..end]
    }

    /// Whether the name at this place is `name`.
    pub(super) fn is(&self, at: NameRef, name: &[u8]) -> bool {
        if at.source == MADE || name.len() == NAME_MAX {
            return self.get(at) == name;
        }
        let source = &self.sources[usize::from(at.source)];
        let rest = (*source.bytes).as_ref().get(at.offset as usize..);
        let after = rest.and_then(|rest| rest.strip_prefix(name));
        after.is_some_and(|after| after.first().is_none_or(|&byte| byte == source.terminator))
    }

    /// Stores a name that is in no file; beyond the limit, no name.
    pub(super) fn make(&mut self, name: &[u8]) -> NameRef {
        let name = &name[..name.len().min(NAME_MAX)];
        let nothing = NameRef {
            source: MADE,
            offset: u32::MAX,
        };
        self.store(name, self.room).unwrap_or(nothing)
    }

    /// Stores a displayed name; `None` beyond the limit.
    pub(super) fn show(&mut self, name: &[u8]) -> Option<NameRef> {
        self.store(name, self.room.saturating_mul(2))
    }

    fn store(&mut self, name: &[u8], room: usize) -> Option<NameRef> {
        let start = self.made.len();
        if start + name.len() > room {
            return None;
        }
        let offset = u32::try_from(self.ranges.len()).ok();
        let offset = offset.filter(|&number| number != u32::MAX)?;
        self.made.extend_from_slice(name);
        self.ranges.push(start..self.made.len());
        Some(NameRef {
            source: MADE,
            offset,
        })
    }
}

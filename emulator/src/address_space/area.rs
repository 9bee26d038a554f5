//! Areas: consecutive pages of the same kind, and what they contain before they are written.

use super::content::Content;
use super::fault::{MapError, Permissions};
use super::ids::ObjectId;
use super::limits::{AREAS_MAX, MMAP_MIN_ADDR, PAGE_SIZE, TASK_SIZE};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The content of an area before it is written. It starts at the address `origin`, modulo 2^64, and
/// is zero outside of its bytes.
#[derive(Clone, Debug)]
pub(super) enum Backing {
    Zero,
    File {
        content: Content,
        origin: u64,
    },
    Object {
        object: ObjectId,
        origin: u64,
        /// Stores go to the object; otherwise the page is copied first.
        is_shared: bool,
    },
}

/// Consecutive pages of the same kind.
#[derive(Clone, Debug)]
pub struct Area {
    /// The first address past the area.
    pub(super) end: u64,
    pub(super) permissions: Permissions,
    pub(super) backing: Backing,
}

impl Area {
    /// The area's permissions.
    pub fn permissions(&self) -> Permissions {
        self.permissions
    }

    /// Whether the area is backed by the bytes of a file.
    pub fn is_file(&self) -> bool {
        matches!(self.backing, Backing::File { .. })
    }

    /// The object that is mapped here.
    pub fn object(&self) -> Option<ObjectId> {
        match self.backing {
            Backing::Object { object, .. } => Some(object),
            _ => None,
        }
    }

    /// Whether what is written here is seen by all who have mapped the object.
    pub fn is_shared(&self) -> bool {
        match self.backing {
            Backing::Object { is_shared, .. } => is_shared,
            _ => false,
        }
    }

    /// The offset of an address in the file or the object, bytes.
    pub fn offset_at(&self, address: u64) -> Option<u64> {
        match self.backing {
            Backing::Zero => None,
            Backing::File { origin, .. } | Backing::Object { origin, .. } => {
                Some(address.wrapping_sub(origin))
            }
        }
    }
}

/// The pages of an area that are in use.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PagesInUse {
    /// Pages that only this area has, or that are shared since a fork.
    pub own: usize,
    /// Pages of the object that is mapped there.
    pub shown: usize,
    /// The number of areas, of all spaces, that map that object.
    pub mappings: usize,
}

/// The areas of a space, by first address. Copies share them until one changes.
#[derive(Clone, Default, Debug)]
pub(super) struct Areas(Arc<BTreeMap<u64, Area>>);

impl Areas {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_same(&self, other: &Areas) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &Area)> {
        let all = self.0.iter();
        all.map(|(&start, area)| (start..area.end, area))
    }

    /// The area that holds `address`.
    pub(super) fn at(&self, address: u64) -> Option<(Range<u64>, &Area)> {
        let (&start, area) = self.0.range(..=address).next_back()?;
        (address < area.end).then_some((start..area.end, area))
    }

    /// The areas that start in a range.
    pub(super) fn in_range_mut(
        &mut self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (u64, &mut Area)> {
        let areas = Arc::make_mut(&mut self.0);
        areas
            .range_mut(range.clone())
            .map(|(&start, area)| (start, area))
    }

    /// Checks that there is room for `new` more.
    pub(super) fn room_for(&self, new: usize) -> Result<(), MapError> {
        if self.len() + new <= AREAS_MAX {
            Ok(())
        } else {
            Err(MapError::Areas)
        }
    }

    pub(super) fn insert(&mut self, start: u64, area: Area) {
        Arc::make_mut(&mut self.0).insert(start, area);
    }

    /// Removes the areas of a range; both ends must be the ends of areas, or free.
    pub(super) fn remove(&mut self, range: &Range<u64>) -> Vec<(u64, Area)> {
        let inside: Vec<u64> = self
            .0
            .range(range.clone())
            .map(|(&start, _)| start)
            .collect();
        if inside.is_empty() {
            return Vec::new();
        }
        let areas = Arc::make_mut(&mut self.0);
        let removed = inside.into_iter();
        removed
            .filter_map(|start| Some((start, areas.remove(&start)?)))
            .collect()
    }

    /// Splits the area that `address` lies in, and returns the upper part.
    pub(super) fn split(&mut self, address: u64) -> Option<&Area> {
        let (&start, area) = self.0.range(..address).next_back()?;
        if area.end <= address {
            return None;
        }
        let upper = area.clone();
        let areas = Arc::make_mut(&mut self.0);
        areas.get_mut(&start)?.end = address;
        areas.insert(address, upper);
        areas.get(&address)
    }

    /// See [`super::AddressSpace::find_free`].
    pub(super) fn find_free(&self, size: u64, top: u64) -> Option<u64> {
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) {
            return None;
        }
        let mut end = top.min(TASK_SIZE) & !(PAGE_SIZE - 1);
        for (&start, area) in self.0.range(..end).rev() {
            if end.checked_sub(area.end).is_some_and(|gap| gap >= size) {
                break;
            }
            end = end.min(start);
        }
        let start = end.checked_sub(size)?;
        (start >= MMAP_MIN_ADDR).then_some(start)
    }
}

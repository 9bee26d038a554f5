//! Members by their paths.

use super::{Btf, DEPTH_MAX, KIND_ARRAY, Type};
use std::cell::Cell;
use std::ops::Deref;

/// Most members that one question looks at.
const LOOKS_MAX: u32 = 1 << 20;

/// A member that was found.
struct FoundMember {
    /// From the start of the outermost structure, bytes.
    offset: u64,
    /// The number of its type.
    type_id: u32,
}

impl<D: Deref<Target = [u8]>> Btf<D> {
    /// Offset of the member `path`, bytes: [`Btf::extent`] without the size.
    pub fn offset(&self, name: &str, path: &str) -> Option<u64> {
        self.extent(name, path).map(|(offset, _)| offset)
    }

    /// Offset and size, in bytes, of the member `path` ("thread.sp") of the structure or union
    /// `name`. Members of unnamed members count as its own; an array of structures stands for its
    /// first element. `None` if there is no such member, or if it is a bit-field.
    pub fn extent(&self, name: &str, path: &str) -> Option<(u64, u64)> {
        let looks = Cell::new(LOOKS_MAX);
        let (mut type_id, _) = self.named(name)?;
        let mut offset = 0u64;
        for part in path.split('.') {
            let inside = self.element(type_id)?;
            let found = self.member(&inside, part, DEPTH_MAX, &looks)?;
            offset = offset.checked_add(found.offset)?;
            type_id = found.type_id;
        }
        Some((offset, self.size(type_id).ok()?))
    }

    /// The size of the structure or union `name`, bytes.
    pub fn size_of(&self, name: &str) -> Option<u64> {
        self.named(name).map(|(_, found)| u64::from(found.value))
    }

    /// The first structure or union of that name that has members.
    fn named(&self, name: &str) -> Option<(u32, Type)> {
        let structures = self.structures.iter();
        let mut types = structures.filter_map(|&id| Some((id, self.get(id).ok()?)));
        types.find(|(_, found)| self.is_string(found.name, name.as_bytes()))
    }

    /// The structure itself, or the elements of the array.
    fn element(&self, mut id: u32) -> Option<Type> {
        for _ in 0..DEPTH_MAX {
            let found = self.resolve(id).ok()?;
            match found.kind {
                KIND_ARRAY => id = self.array(&found).ok()?.0,
                _ => return found.has_members().then_some(found),
            }
        }
        None
    }

    fn member(&self, of: &Type, name: &str, depth: u32, looks: &Cell<u32>) -> Option<FoundMember> {
        let depth = depth.checked_sub(1)?;
        for member in self.members(of) {
            looks.set(looks.get().checked_sub(1)?);
            let offset = u64::from(member.bits / 8);
            if member.name == name {
                let type_id = member.type_id;
                let is_whole = member.width == 0 && member.bits.is_multiple_of(8);
                return is_whole.then_some(FoundMember { offset, type_id });
            }
            if !member.name.is_empty() {
                continue;
            }
            let inner = self.resolve(member.type_id).ok()?;
            if let Some(found) = self.member(&inner, name, depth, looks) {
                let offset = offset + found.offset;
                return Some(FoundMember { offset, ..found });
            }
        }
        None
    }
}

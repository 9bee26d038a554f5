//! Names of spaces and objects.

/// A space of a memory. Unique: never used again for another space.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpaceId(pub(super) u64);

/// Memory that several mappings can share: that of a file, or of `MAP_SHARED | MAP_ANONYMOUS`.
/// Unique: never used again for another object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectId(pub(super) u64);

/// What is at an address: equal for all who share it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MemoryKey {
    /// Memory of one space.
    Private {
        /// The space.
        space: SpaceId,
        /// The address.
        address: u64,
    },
    /// Memory of an object that is mapped shared.
    Shared {
        /// The object.
        object: ObjectId,
        /// The offset in the object, bytes.
        offset: u64,
    },
}

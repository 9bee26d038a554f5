//! Pointers of programs: numbers that are not real addresses and encode what they point to.
//!
//! Bits 62 and 63 are `01`, which is not canonical on x86-64, so that helpers can tell them from
//! addresses of the kernel and of tasks. Then come the kind (4 bits) and, for values of maps, map
//! (10), slot (24) and offset (24). Offsets are stored with a bias, so that an index below the
//! start is seen as one. Pointers are plain numbers to arithmetic: one that leaves its region by
//! more than 4 MiB below or 12 MiB above would be taken for one to a neighbour.

use std::fmt;

/// The stored offset of a region's first byte.
const BIAS: u64 = 1 << 22;
const OFFSET_BITS: u32 = 24;
const SLOT_BITS: u32 = 24;
const KIND_SHIFT: u32 = 58;
const TAG: u64 = 1 << 62;

/// What a pointer points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Region {
    /// The context.
    Context,
    /// The stack of a call; 0 is the program's own.
    Stack(u32),
    /// The value in a slot of a map.
    Value {
        /// Number of the map.
        map: u32,
        /// The slot.
        slot: u32,
    },
    /// A map itself, which has no bytes that programs can access.
    Map(u32),
    /// A record that is reserved in a ring buffer, or a key that a helper holds for a callback, by
    /// its number in the run.
    Record(u32),
    /// A function: the offset is the number of its first instruction.
    Code,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Context => write!(f, "the context"),
            Self::Stack(frame) => write!(f, "the stack of call {frame}"),
            Self::Value { map, slot } => write!(f, "value {slot} of map {map}"),
            Self::Map(map) => write!(f, "map {map} itself"),
            Self::Record(number) => write!(f, "record {number}"),
            Self::Code => write!(f, "code"),
        }
    }
}

/// The pointer to `offset` of a region.
pub(crate) const fn encode(region: Region, offset: u32) -> u64 {
    let (kind, map, slot) = match region {
        Region::Context => (1, 0, 0),
        Region::Stack(frame) => (2, 0, frame),
        Region::Value { map, slot } => (3, map, slot),
        Region::Map(map) => (4, map, 0),
        Region::Code => (5, 0, 0),
        Region::Record(number) => (6, 0, number),
    };
    TAG | kind << KIND_SHIFT
        | (map as u64) << (OFFSET_BITS + SLOT_BITS)
        | (slot as u64) << OFFSET_BITS
        | (offset as u64 + BIAS)
}

/// The region and the offset of a pointer; `None` if it is not a pointer.
pub(crate) const fn decode(address: u64) -> Option<(Region, i64)> {
    if address >> 62 != 1 {
        return None;
    }
    let offset = (address & ((1 << OFFSET_BITS) - 1)) as i64 - BIAS as i64;
    let slot = (address >> OFFSET_BITS & ((1 << SLOT_BITS) - 1)) as u32;
    let map = (address >> (OFFSET_BITS + SLOT_BITS) & 0x3ff) as u32;
    let region = match address >> KIND_SHIFT & 0xf {
        1 => Region::Context,
        2 => Region::Stack(slot),
        3 => Region::Value { map, slot },
        4 => Region::Map(map),
        5 => Region::Code,
        6 => Region::Record(slot),
        _ => return None,
    };
    Some((region, offset))
}

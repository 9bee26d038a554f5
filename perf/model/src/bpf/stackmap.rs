//! The map of stack traces: one bucket per hash, and the handling of collisions.
//!
//! Source: `kernel/bpf/stackmap.c` and `include/linux/jhash.h`, Linux 6.18. The answers depend
//! on the order of stacks: a bucket that is taken by another stack is a collision, which loses
//! the newer stack (`EEXIST`) or, with `BPF_F_REUSE_STACKID`, the older one.

use super::env::Env;
use super::errno::Errno;
use std::collections::BTreeMap;

/// Frames to leave out at the start: the lowest eight bits of the flags.
pub const SKIP_MASK: u64 = 0xff;
/// Flag: the user stack, not the kernel's.
pub const USER_STACK: u64 = 1 << 8;
/// Flag: stacks with equal hashes are considered equal.
pub const FAST_STACK_CMP: u64 = 1 << 9;
/// Flag: a bucket that holds another stack is taken from it.
pub const REUSE_STACKID: u64 = 1 << 10;
/// Flag of `get_stack`: build ids and offsets instead of addresses.
pub const USER_BUILD_ID: u64 = 1 << 11;
/// Flag of the map: it holds build ids and offsets.
pub const STACK_BUILD_ID: u32 = 1 << 5;

/// Bytes of `struct bpf_stack_build_id`.
pub const BUILD_ID_ENTRY_SIZE: u32 = 32;

/// An address as an offset in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildId {
    /// The image's build id; shorter ones end in zeros.
    pub id: [u8; 20],
    /// Offset in the image's file.
    pub offset: u64,
}

/// `struct bpf_stack_build_id` of an address: with a build id, or with the address where none
/// is known.
pub(crate) fn build_id_entry(address: u64, found: Option<BuildId>) -> [u8; 32] {
    const STATUS_VALID: u32 = 1;
    const STATUS_IP: u32 = 2;
    let (status, id, word) = match found {
        Some(found) => (STATUS_VALID, found.id, found.offset),
        None => (STATUS_IP, [0; 20], address),
    };
    let mut entry = [0; 32];
    entry[..4].copy_from_slice(&status.to_le_bytes());
    entry[4..24].copy_from_slice(&id);
    entry[24..].copy_from_slice(&word.to_le_bytes());
    entry
}

/// The results of storing stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackStats {
    /// Put into an empty bucket.
    pub stored: u64,
    /// Found in their bucket.
    pub found: u64,
    /// Considered equal to the stack in their bucket by hash alone.
    pub found_by_hash: u64,
    /// Lost: the bucket holds another stack (`EEXIST`).
    pub collisions: u64,
    /// Put into the bucket of another stack, which is lost.
    pub replaced: u64,
    /// Lost: all buckets are in use (`ENOMEM`).
    pub no_memory: u64,
    /// No stack, or one no deeper than the frames to skip (`EFAULT`).
    pub too_short: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bucket {
    hash: u32,
    frames: u32,
    /// Addresses, or entries with build ids.
    data: Vec<u8>,
}

/// A map of type `BPF_MAP_TYPE_STACK_TRACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackMap {
    value_size: u32,
    max_entries: u32,
    has_build_ids: bool,
    /// Those in use, by id. There are as many ids as the power of two at or above `max_entries`.
    buckets: BTreeMap<u32, Bucket>,
    stats: StackStats,
}

impl StackMap {
    /// An empty map; `EINVAL` for sizes that the kernel refuses.
    pub(crate) fn new(
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
        max_stack: u32,
    ) -> Result<Self, Errno> {
        // With build IDs, an entry is an ID and an offset instead of an address.
        let has_build_ids = flags & STACK_BUILD_ID != 0;
        let entry = if has_build_ids {
            BUILD_ID_ENTRY_SIZE
        } else {
            8
        };

        // The checks of `stack_map_alloc` (`kernel/bpf/stackmap.c`).
        if max_entries == 0
            || key_size != 4
            || value_size < 8
            || !value_size.is_multiple_of(entry)
            || value_size / entry > max_stack
        {
            return Err(Errno::Einval);
        }

        // The number of buckets is rounded up to a power of two, which must fit into 32 bits.
        if max_entries > 1 << 31 {
            return Err(Errno::E2big);
        }

        Ok(Self {
            value_size,
            max_entries,
            has_build_ids,
            buckets: BTreeMap::new(),
            stats: StackStats::default(),
        })
    }

    /// The results so far.
    pub fn stats(&self) -> StackStats {
        self.stats
    }

    /// Ids in use, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.buckets.keys().copied()
    }

    /// The words of a stack: addresses, or entries of four words with build ids.
    pub fn get(&self, id: u32) -> Option<Vec<u64>> {
        let bucket = self.buckets.get(&id)?;
        let words = bucket.data.as_chunks::<8>().0.iter();
        Some(words.map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Frees a bucket, as `bpf_map_delete_elem` does for user space.
    ///
    /// # Errors
    /// `ENOENT` if it is not in use.
    pub fn delete(&mut self, id: u32) -> Result<(), Errno> {
        self.buckets.remove(&id).map(drop).ok_or(Errno::Enoent)
    }

    /// The number of frames that `get_stackid` requests: those that fit in a value, and those to
    /// skip.
    pub(crate) fn max_depth(&self, flags: u64, max_stack: u32) -> u32 {
        let entry = if self.has_build_ids {
            BUILD_ID_ENTRY_SIZE
        } else {
            8
        };
        max_depth(self.value_size, entry, flags, max_stack)
    }

    /// The id of a stack, which is stored if it can be.
    ///
    /// # Errors
    /// `EFAULT` if it is no deeper than the frames to skip, `EEXIST` if its bucket holds another
    /// one, `ENOMEM` if all buckets are in use.
    pub(crate) fn id_of(
        &mut self,
        trace: &[u64],
        flags: u64,
        env: &mut dyn Env,
    ) -> Result<u32, Errno> {
        let skip = (flags & SKIP_MASK) as usize;
        let max_depth = self.max_depth(flags, env.max_stack()) as usize;

        if trace.len() <= skip {
            self.stats.too_short += 1;
            return Err(Errno::Efault);
        }

        // The kernel subtracts without a check: the limit is never below the number to skip,
        // because a value has at least one entry, unless perf_event_max_stack is.
        let room = max_depth.saturating_sub(skip);
        let frames = &trace[skip..][..(trace.len() - skip).min(room)];

        // The whole 32 bits are kept with the stack; the number of buckets cuts them to the id.
        let hash = jhash2(frames);
        let id = hash & (self.max_entries.next_power_of_two() - 1);
        let reuse = flags & REUSE_STACKID != 0;

        let old = self.buckets.get(&id);
        let same_hash = old.is_some_and(|bucket| bucket.hash == hash);

        // The caller accepts that two stacks with the same hash get the same id.
        if same_hash && flags & FAST_STACK_CMP != 0 {
            self.stats.found_by_hash += 1;
            return Ok(id);
        }

        // Only now: with build IDs, making the data costs a lookup for each frame.
        let data = self.data(frames, flags, env);
        let same_count = old.is_some_and(|bucket| bucket.frames as usize == frames.len());
        if same_hash && same_count && old.is_some_and(|bucket| bucket.data == data) {
            self.stats.found += 1;
            return Ok(id);
        }

        let is_taken = old.is_some();
        // With build ids, a free bucket is taken before anything is compared.
        let has_room = self.buckets.len() < self.max_entries as usize;
        if is_taken && !reuse && (has_room || !self.has_build_ids) {
            self.stats.collisions += 1;
            return Err(Errno::Eexist);
        }

        if !has_room {
            self.stats.no_memory += 1;
            return Err(Errno::Enomem);
        }

        if is_taken {
            self.stats.replaced += 1
        } else {
            self.stats.stored += 1
        }

        let frames = frames.len() as u32;
        self.buckets.insert(id, Bucket { hash, frames, data });
        Ok(id)
    }

    /// Counts a stack that could not be walked.
    pub(crate) fn count_failed(&mut self) {
        self.stats.too_short += 1;
    }

    fn data(&self, frames: &[u64], flags: u64, env: &mut dyn Env) -> Vec<u8> {
        if !self.has_build_ids {
            return frames.iter().flat_map(|ip| ip.to_le_bytes()).collect();
        }
        let user = flags & USER_STACK != 0;
        // Kernel addresses have no build id here.
        let entry = |ip: &u64| build_id_entry(*ip, if user { env.build_id(*ip) } else { None });
        frames.iter().flat_map(entry).collect()
    }
}

/// Frames that `size` bytes hold, and those to skip, at most `max_stack`.
pub(crate) fn max_depth(size: u32, entry: u32, flags: u64, max_stack: u32) -> u32 {
    let skip = (flags & SKIP_MASK) as u32;
    (size / entry).saturating_add(skip).min(max_stack)
}

/// The kernel's `jhash2` over the addresses' 32-bit halves, with initial value 0.
pub fn jhash2(addresses: &[u64]) -> u32 {
    const INITIAL: u32 = 0xdead_beef;

    // The lower half comes first, as in the kernel's memory.
    let words: Vec<u32> = addresses
        .iter()
        .flat_map(|address| [*address as u32, (*address >> 32) as u32])
        .collect();
    let start = INITIAL.wrapping_add((words.len() as u32) << 2);
    let (mut a, mut b, mut c) = (start, start, start);

    // Three words at a time, except the last one to three, which are mixed otherwise.
    let mut rest = &words[..];
    while let [x, y, z, more @ ..] = rest
        && !more.is_empty()
    {
        a = a.wrapping_add(*x);
        b = b.wrapping_add(*y);
        c = c.wrapping_add(*z);
        (a, b, c) = mix(a, b, c);
        rest = more;
    }
    let [x, y, z] = [0, 1, 2].map(|index| rest.get(index).copied().unwrap_or(0));
    if rest.is_empty() {
        c
    } else {
        last(a.wrapping_add(x), b.wrapping_add(y), c.wrapping_add(z))
    }
}

/// One step of Bob Jenkins' lookup3: `a` and `b` with `c`, and `c` with the next.
const fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    let rotations = [4, 6, 8, 16, 19, 4];
    let mut step = 0;
    while step < rotations.len() {
        a = a.wrapping_sub(c) ^ c.rotate_left(rotations[step]);
        c = c.wrapping_add(b);
        // The next step has b for a, c for b, a for c.
        (a, b, c) = (b, c, a);
        step += 1;
    }
    (a, b, c)
}

/// The last step of lookup3; its `c` is the hash.
const fn last(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let rotations = [14, 11, 25, 16, 4, 14, 24];
    let mut step = 0;
    while step < rotations.len() {
        c = (c ^ b).wrapping_sub(b.rotate_left(rotations[step]));
        // The next step has a for c, c for b, b for a.
        (a, b, c) = (b, c, a);
        step += 1;
    }
    // After seven steps the last one changed is in b.
    let _ = (a, c);
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup3_gives_its_published_values() {
        // `hashword` of lookup3.c (Bob Jenkins, May 2006) is this function over 32-bit words.
        assert_eq!(jhash2(&[]), 0xdead_beef);
    }
}

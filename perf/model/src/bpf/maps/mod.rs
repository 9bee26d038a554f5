//! Maps: the data that programs keep between runs, and that user space reads afterwards.
//!
//! A map's value has a *slot*: its number among all values of the map. Pointers name map, slot
//! and offset. Source: `kernel/bpf/{arraymap,hashtab,stackmap}.c`, Linux 6.18. What differs: the
//! kernel's LRU is approximate, ours exact; and memory is taken when it is used.

mod array;
mod hash;
pub mod kind;
mod ring;

use super::env::MAX_STACK;
use super::errno::Errno;
use super::error::{LoadError, LoadErrorKind};
use super::names;
use super::object::MapDef;
use super::stackmap::StackMap;
pub use array::Array;
pub use hash::{Hash, HashStats};
pub use ring::{Ring, RingStats};
use std::collections::BTreeMap;

/// `BPF_ANY`: insert or change.
pub const ANY: u64 = 0;
/// `BPF_NOEXIST`: insert only.
pub const NOEXIST: u64 = 1;
/// `BPF_EXIST`: change only.
pub const EXIST: u64 = 2;
/// `BPF_F_RDONLY_PROG`.
pub(crate) const RDONLY_PROG: u32 = 1 << 7;

/// Bytes of a value; pointers could not name more.
pub const VALUE_SIZE_MAX: u32 = 1 << 22;
/// Values of a map, all processors' together; pointers could not name more.
const SLOTS_MAX: u64 = 1 << 24;
/// Maps of an object; pointers could not name more.
const MAPS_MAX: usize = 1 << 10;

/// The limits of maps, and the number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of processors that maps hold values for.
    pub cpus: u32,
    /// Bytes of all values and keys, if all entries were used.
    pub map_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpus: 1,
            map_bytes: 1 << 30,
        }
    }
}

/// The contents of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Storage {
    /// `ARRAY` and `PERCPU_ARRAY`.
    Array(Array),
    /// `HASH`, `PERCPU_HASH`, `LRU_HASH`, `LRU_PERCPU_HASH`.
    Hash(Hash),
    /// `STACK_TRACE`.
    Stacks(StackMap),
    /// `PERF_EVENT_ARRAY`: for each slot the processor of its output event.
    PerfEvents(Vec<Option<u32>>),
    /// `PROG_ARRAY`: for each slot the number of a program.
    Programs(Vec<Option<usize>>),
    /// `RINGBUF`.
    Ring(Ring),
    /// `ARRAY_OF_MAPS` and `HASH_OF_MAPS`: by key the number of a map.
    Maps(BTreeMap<Vec<u8>, usize>),
}

/// Where a map keeps its values; a *slot* is the number of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Values {
    size: u32,
    cpus: u32,
    bytes: Vec<u8>,
}

impl Values {
    /// No values yet, of `size` bytes, `cpus` for each entry.
    fn new(size: u32, cpus: u32) -> Self {
        Self {
            size,
            cpus,
            bytes: Vec::new(),
        }
    }

    /// Bytes of a value.
    fn size(&self) -> usize {
        self.size as usize
    }

    /// The slot of an entry on a processor; `None` for processors that the map was not made for.
    fn slot(&self, entry: u32, cpu: u32) -> Option<u32> {
        let cpu = if self.cpus > 1 { cpu } else { 0 };
        (cpu < self.cpus).then(|| entry * self.cpus + cpu)
    }

    /// Zeroes the values of an entry, after growing up to it with zeros.
    fn clear(&mut self, entry: u32) {
        let each = self.size() * self.cpus as usize;
        let start = entry as usize * each;
        if self.bytes.len() < start + each {
            self.bytes.resize(start + each, 0);
        }
        self.bytes[start..start + each].fill(0);
    }

    fn range(&self, slot: u32) -> std::ops::Range<usize> {
        let start = slot as usize * self.size();
        start..start + self.size()
    }

    /// The value in a slot.
    fn get(&self, slot: u32) -> Option<&[u8]> {
        self.bytes.get(self.range(slot))
    }

    /// The value in a slot, to be changed.
    fn get_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        let range = self.range(slot);
        self.bytes.get_mut(range)
    }

    /// All values of an entry, processor by processor.
    fn of_entry(&self, entry: u32) -> Vec<&[u8]> {
        let slots = (0..self.cpus).map(|cpu| entry * self.cpus + cpu);
        slots.filter_map(|slot| self.get(slot)).collect()
    }
}

/// A map with values, which programs look up by key.
trait Table {
    /// The slot of a key's value on a processor; `None` if there is no such entry.
    fn lookup(&mut self, key: &[u8], cpu: u32) -> Option<u32>;
    /// Inserts or changes an entry, with per-processor values that of `cpu`.
    fn update(&mut self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno>;
    /// The entries: keys, and a value for each processor.
    fn dump(&self) -> Vec<(Vec<u8>, Vec<&[u8]>)>;
    fn values(&self) -> &Values;
    fn values_mut(&mut self) -> &mut Values;
}

/// One map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Its definition.
    pub def: MapDef,
    /// Its contents.
    pub storage: Storage,
    cpus: u32,
}

/// All maps of an object.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Maps {
    maps: Vec<Map>,
}

impl Maps {
    /// Creates maps from their definitions.
    ///
    /// # Errors
    /// For types that are not modelled, sizes that the kernel refuses, and more memory than the
    /// limit.
    pub fn new(definitions: &[MapDef], limits: Limits) -> Result<Self, LoadError> {
        let fail = |name: &str, kind| LoadError {
            name: name.to_owned(),
            insn: None,
            kind,
        };

        // Bounded first, since every definition costs memory even if it is refused later.
        if definitions.len() > MAPS_MAX {
            let kind = LoadErrorKind::TooManyMaps(definitions.len());
            return Err(fail("maps", kind));
        }

        let mut need = 0u64;
        let mut maps = Vec::with_capacity(definitions.len());
        for def in definitions {
            let map = Map::new(def, limits.cpus.max(1)).map_err(|kind| fail(&def.name, kind))?;

            // Counted before the memory is taken: definitions come from a file.
            need = need.saturating_add(map.bytes());
            if need > limits.map_bytes {
                // The map whose memory is too much is the one that is named.
                let limit = limits.map_bytes;
                return Err(fail(&def.name, LoadErrorKind::MapMemory { need, limit }));
            }
            maps.push(map.filled());
        }

        // Inner maps are put in when all maps exist, because they may come later in the list.
        let mut maps = Self { maps };
        for (outer, def) in definitions.iter().enumerate() {
            for (slot, inner) in &def.inner {
                let put = maps.put_map(outer, &slot.to_le_bytes(), *inner);
                put.map_err(|_| fail(&def.name, LoadErrorKind::MapAttributes))?;
            }
        }
        Ok(maps)
    }

    /// Puts map number `inner` into a map of maps, as user space does.
    ///
    /// # Errors
    /// `EINVAL` if it is not a map of maps, for a key of another size, and for a map of maps in
    /// another one; `ENOENT` if there is no such map, `E2BIG` if there is no room.
    pub fn put_map(&mut self, outer: usize, key: &[u8], inner: usize) -> Result<(), Errno> {
        let put = self.maps.get(inner).ok_or(Errno::Enoent)?;
        if matches!(put.storage, Storage::Maps(_)) {
            return Err(Errno::Einval);
        }
        let outer = self.maps.get_mut(outer).ok_or(Errno::Enoent)?;
        let (entries, kind) = (outer.def.max_entries, outer.def.kind);
        let Storage::Maps(slots) = &mut outer.storage else {
            return Err(Errno::Einval);
        };
        if key.len() != outer.def.key_size as usize {
            return Err(Errno::Einval);
        }
        let is_beyond = match kind {
            kind::ARRAY_OF_MAPS => index_of(key).is_none_or(|index| index >= entries),
            _ => !slots.contains_key(key) && slots.len() >= entries as usize,
        };
        if is_beyond {
            return Err(Errno::E2big);
        }
        slots.insert(key.to_vec(), inner);
        Ok(())
    }

    /// Map number `index`.
    pub fn get(&self, index: usize) -> Option<&Map> {
        self.maps.get(index)
    }

    /// Map number `index`, to be changed.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Map> {
        self.maps.get_mut(index)
    }

    /// The map with that name.
    pub fn named(&self, name: &str) -> Option<&Map> {
        self.maps.iter().find(|map| map.def.name == name)
    }

    /// All maps, in the order of the object.
    pub fn iter(&self) -> impl Iterator<Item = &Map> {
        self.maps.iter()
    }

    /// Takes what was submitted to ring buffers, as a consumer that keeps up does: names of the
    /// maps, and records.
    pub fn consume_rings(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut taken = Vec::new();
        for map in &mut self.maps {
            if let Storage::Ring(ring) = &mut map.storage {
                let records = ring.consume().into_iter();
                taken.extend(records.map(|data| (map.def.name.clone(), data)));
            }
        }
        taken
    }

    /// Opens an output event on each processor, in the slot of its number, for every map of perf
    /// events: what tools do before they attach a program.
    pub fn open_outputs(&mut self, cpus: u32) {
        for map in &mut self.maps {
            if let Storage::PerfEvents(slots) = &mut map.storage {
                for (cpu, slot) in (0..cpus).zip(slots) {
                    *slot = Some(cpu);
                }
            }
        }
    }
}

impl Map {
    fn new(def: &MapDef, cpus: u32) -> Result<Self, LoadErrorKind> {
        let invalid = LoadErrorKind::MapAttributes;

        // A ring has neither keys nor values (`ringbuf_map_alloc`).
        if def.kind == kind::RINGBUF && (def.key_size, def.value_size) != (0, 0) {
            return Err(invalid);
        }

        // Only hash maps have keys of another size: an array's key is an index of 32 bits.
        let values = |has_key: bool| match def.key_size {
            0 => Err(invalid),
            4 => Ok(()),
            _ if has_key => Ok(()),
            _ => Err(invalid),
        };

        // A map for each processor has as many values for each key.
        let per_cpu = if kind::is_per_cpu(def.kind) { cpus } else { 1 };
        let storage = match def.kind {
            kind::ARRAY | kind::PERCPU_ARRAY => {
                values(false)?;
                Storage::Array(Array::new(def.value_size, def.max_entries, per_cpu))
            }
            kind::HASH | kind::PERCPU_HASH | kind::LRU_HASH | kind::LRU_PERCPU_HASH => {
                values(true)?;
                let is_lru = matches!(def.kind, kind::LRU_HASH | kind::LRU_PERCPU_HASH);
                let sizes = (def.key_size, def.value_size, def.max_entries);
                Storage::Hash(Hash::new(sizes, per_cpu, is_lru))
            }
            kind::STACK_TRACE => {
                let sizes = (def.key_size, def.value_size, def.max_entries);
                let map = StackMap::new(sizes.0, sizes.1, sizes.2, def.flags, MAX_STACK);
                Storage::Stacks(map.map_err(|_| invalid)?)
            }
            // How many slots: as defined, or one for each processor.
            kind::PERF_EVENT_ARRAY | kind::PROG_ARRAY => {
                // What is stored by a file descriptor has 32 bits (`fd_array_map_alloc_check`).
                if def.key_size != 4 || def.value_size != 4 {
                    return Err(invalid);
                }
                match def.kind {
                    kind::PERF_EVENT_ARRAY => Storage::PerfEvents(Vec::new()),
                    _ => Storage::Programs(Vec::new()),
                }
            }
            kind::ARRAY_OF_MAPS | kind::HASH_OF_MAPS => {
                let is_array = def.kind == kind::ARRAY_OF_MAPS;
                if def.value_size != 4 || def.key_size == 0 || is_array && def.key_size != 4 {
                    return Err(invalid);
                }
                Storage::Maps(BTreeMap::new())
            }
            kind::RINGBUF => Storage::Ring(Ring::new(def.max_entries).map_err(|_| invalid)?),
            other => return Err(LoadErrorKind::MapType(other, names::map(other))),
        };

        let map = Self {
            def: def.clone(),
            storage,
            cpus,
        };

        // Bounds of pointers, which have a limited number of bits; and keys come from the program's
        // stack, which has 512 bytes.
        let has_values = matches!(map.storage, Storage::Array(_) | Storage::Hash(_));
        if has_values && !(1..=VALUE_SIZE_MAX).contains(&def.value_size)
            || def.key_size > 512
            || def.initial.len() > def.value_size as usize
            || map.slots() > SLOTS_MAX && !matches!(map.storage, Storage::Ring(_))
            || map.entries() == 0
        {
            return Err(invalid);
        }

        Ok(map)
    }

    /// The most entries: as defined, or one for each processor for a map of perf events with 0
    /// entries, as in libbpf.
    pub fn entries(&self) -> u32 {
        match (&self.storage, self.def.max_entries) {
            (Storage::PerfEvents(_), 0) => self.cpus,
            (_, entries) => entries,
        }
    }

    fn slots(&self) -> u64 {
        let per_cpu = if kind::is_per_cpu(self.def.kind) {
            self.cpus
        } else {
            1
        };
        u64::from(self.entries()) * u64::from(per_cpu)
    }

    /// Size with all entries in use, bytes.
    fn bytes(&self) -> u64 {
        if let Storage::Ring(_) = self.storage {
            return u64::from(self.entries());
        }
        let keys = u64::from(self.entries()) * u64::from(self.def.key_size);
        let value = u64::from(self.def.value_size).next_multiple_of(8);
        self.slots().saturating_mul(value).saturating_add(keys)
    }

    /// The map with its memory, which is allocated only after the limit was checked.
    fn filled(mut self) -> Self {
        let entries = self.entries() as usize;
        match &mut self.storage {
            Storage::Array(array) => array.fill(&self.def.initial),
            Storage::PerfEvents(slots) => slots.resize(entries, None),
            Storage::Programs(slots) => slots.resize(entries, None),
            Storage::Hash(_) | Storage::Stacks(_) | Storage::Ring(_) | Storage::Maps(_) => {}
        }
        self
    }

    /// Whether programs may not write its values.
    pub(crate) fn is_read_only(&self) -> bool {
        self.def.flags & RDONLY_PROG != 0
    }

    /// The size of the value of an array of one entry, whose address programs may have.
    pub(crate) fn direct_value_size(&self) -> Option<u32> {
        let is_one = self.def.kind == kind::ARRAY && self.def.max_entries == 1;
        is_one.then_some(self.def.value_size)
    }

    fn table(&self) -> Option<&dyn Table> {
        match &self.storage {
            Storage::Array(array) => Some(array),
            Storage::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    fn table_mut(&mut self) -> Option<&mut dyn Table> {
        match &mut self.storage {
            Storage::Array(array) => Some(array),
            Storage::Hash(hash) => Some(hash),
            _ => None,
        }
    }

    /// The slot of a key's value on a processor; `None` if there is no such entry.
    pub fn lookup(&mut self, key: &[u8], cpu: u32) -> Option<u32> {
        self.table_mut()?.lookup(key, cpu)
    }

    /// Inserts or changes an entry, with per-processor values that of `cpu`.
    ///
    /// # Errors
    /// As the kernel's `map_update_elem`: `EEXIST`, `ENOENT`, `E2BIG`, `EINVAL`.
    pub fn update(&mut self, key: &[u8], value: &[u8], flags: u64, cpu: u32) -> Result<(), Errno> {
        if flags > EXIST {
            return Err(Errno::Einval);
        }
        let table = self.table_mut().ok_or(Errno::Einval)?;
        table.update(key, value, flags, cpu)
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// `ENOENT` if it is not there, `EINVAL` for arrays.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), Errno> {
        match &mut self.storage {
            Storage::Hash(hash) => hash.delete(key),
            Storage::Stacks(stacks) => stacks.delete(index_of(key).ok_or(Errno::Einval)?),
            _ => Err(Errno::Einval),
        }
    }

    /// The value in a slot.
    pub fn value(&self, slot: u32) -> Option<&[u8]> {
        self.table()?.values().get(slot)
    }

    /// The value in a slot, to be changed.
    pub fn value_mut(&mut self, slot: u32) -> Option<&mut [u8]> {
        self.table_mut()?.values_mut().get_mut(slot)
    }

    /// The entries of a map with values: keys, and a value for each processor it has values for.
    /// Those of an array in order, others in the order of their keys' bytes.
    pub fn dump(&self) -> Vec<(Vec<u8>, Vec<&[u8]>)> {
        self.table().map(Table::dump).unwrap_or_default()
    }
}

/// A key of four bytes as an index.
fn index_of(key: &[u8]) -> Option<u32> {
    key.try_into().ok().map(u32::from_le_bytes)
}

//! The numbers of the types of maps that are modelled (`include/uapi/linux/bpf.h`).

/// `BPF_MAP_TYPE_HASH`.
pub const HASH: u32 = 1;
/// `BPF_MAP_TYPE_ARRAY`.
pub const ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_PROG_ARRAY`.
pub const PROG_ARRAY: u32 = 3;
/// `BPF_MAP_TYPE_PERF_EVENT_ARRAY`.
pub const PERF_EVENT_ARRAY: u32 = 4;
/// `BPF_MAP_TYPE_PERCPU_HASH`.
pub const PERCPU_HASH: u32 = 5;
/// `BPF_MAP_TYPE_PERCPU_ARRAY`.
pub const PERCPU_ARRAY: u32 = 6;
/// `BPF_MAP_TYPE_STACK_TRACE`.
pub const STACK_TRACE: u32 = 7;
/// `BPF_MAP_TYPE_LRU_HASH`.
pub const LRU_HASH: u32 = 9;
/// `BPF_MAP_TYPE_LRU_PERCPU_HASH`.
pub const LRU_PERCPU_HASH: u32 = 10;

/// `BPF_MAP_TYPE_ARRAY_OF_MAPS`.
pub const ARRAY_OF_MAPS: u32 = 12;
/// `BPF_MAP_TYPE_HASH_OF_MAPS`.
pub const HASH_OF_MAPS: u32 = 13;
/// `BPF_MAP_TYPE_RINGBUF`.
pub const RINGBUF: u32 = 27;

/// Whether a map of that type holds maps.
pub(crate) const fn is_of_maps(kind: u32) -> bool {
    matches!(kind, ARRAY_OF_MAPS | HASH_OF_MAPS)
}

/// Whether a map of that type has a value for each processor.
pub(crate) const fn is_per_cpu(kind: u32) -> bool {
    matches!(kind, PERCPU_HASH | PERCPU_ARRAY | LRU_PERCPU_HASH)
}

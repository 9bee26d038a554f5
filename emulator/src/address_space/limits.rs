//! The sizes and limits of memory.

/// Page size, bytes.
pub const PAGE_SIZE: u64 = 4096;
/// The end of user space (Linux `TASK_SIZE_MAX`: the last page of the lower half is left out).
pub const TASK_SIZE: u64 = (1 << 47) - PAGE_SIZE;
/// The lowest address that can be mapped (Linux `vm.mmap_min_addr`).
pub const MMAP_MIN_ADDR: u64 = 0x1_0000;
/// Maximum number of areas of a space (Linux `vm.max_map_count`).
pub const AREAS_MAX: usize = 65530;
/// Default for the maximum number of pages in use: 1 GiB.
pub const PAGES_MAX: usize = 1 << 18;

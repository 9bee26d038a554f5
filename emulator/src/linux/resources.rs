//! Resource limits, by the numbers of `setrlimit`.

use super::options::Limits;

/// Number of resources with a limit (`RLIM_NLIMITS`).
pub(super) const RESOURCES: usize = 16;
/// Limit of processor time, seconds.
pub(super) const RLIMIT_CPU: usize = 0;
const RLIMIT_STACK: usize = 3;
const RLIMIT_CORE: usize = 4;
const RLIMIT_NPROC: usize = 6;
/// Limit of open files.
pub(super) const RLIMIT_NOFILE: usize = 7;
const RLIMIT_MEMLOCK: usize = 8;
const RLIM_INFINITY: u64 = u64::MAX;
/// Maximum number of descriptors (Linux `fs.nr_open`).
pub(super) const DESCRIPTORS_MAX: u64 = 1 << 20;

/// The initial limits of a process, soft and hard.
pub(super) fn resources(limits: &Limits) -> [[u64; 2]; RESOURCES] {
    let mut all = [[RLIM_INFINITY; 2]; RESOURCES];
    all[RLIMIT_STACK][0] = limits.stack_bytes;
    all[RLIMIT_CORE][0] = 0;
    all[RLIMIT_NPROC] = [1; 2];
    all[RLIMIT_NOFILE] = [1024, DESCRIPTORS_MAX];
    all[RLIMIT_MEMLOCK] = [8 << 20; 2];
    all
}

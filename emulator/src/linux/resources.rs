//! Resource limits, by the numbers of `setrlimit`.

use super::options::Limits;
use super::signals::PENDING_MAX;

/// Number of resources with a limit (`RLIM_NLIMITS`).
pub(super) const RESOURCES: usize = 16;
/// Limit of processor time, seconds.
pub(super) const RLIMIT_CPU: usize = 0;
/// Limit of the size of a file that is written, bytes.
pub(super) const RLIMIT_FSIZE: usize = 1;
/// Limit of memory that is private and writable, bytes.
pub(super) const RLIMIT_DATA: usize = 2;
/// Limit of the stack, bytes.
pub(super) const RLIMIT_STACK: usize = 3;
const RLIMIT_CORE: usize = 4;
/// Limit of the processes and threads of a user.
pub(super) const RLIMIT_NPROC: usize = 6;
/// Limit of open files.
pub(super) const RLIMIT_NOFILE: usize = 7;
/// Limit of locked memory, bytes.
pub(super) const RLIMIT_MEMLOCK: usize = 8;
/// Limit of mapped memory, bytes.
pub(super) const RLIMIT_AS: usize = 9;
/// Limit of queued signals.
pub(super) const RLIMIT_SIGPENDING: usize = 11;
/// Limit of the POSIX message queues of a user, bytes.
pub(super) const RLIMIT_MSGQUEUE: usize = 12;
/// Limit of nice values, as 20 less the value.
pub(super) const RLIMIT_NICE: usize = 13;
/// Limit of real-time priorities.
pub(super) const RLIMIT_RTPRIO: usize = 14;
const RLIM_INFINITY: u64 = u64::MAX;
/// Maximum number of descriptors (Linux `fs.nr_open`).
pub(super) const DESCRIPTORS_MAX: u64 = 1 << 20;

/// No limit.
pub(super) const fn unlimited() -> u64 {
    RLIM_INFINITY
}

/// The initial limits of a process, soft and hard.
pub(super) fn resources(limits: &Limits) -> [[u64; 2]; RESOURCES] {
    let mut all = [[RLIM_INFINITY; 2]; RESOURCES];
    all[RLIMIT_STACK][0] = limits.stack_bytes;
    all[RLIMIT_CORE][0] = 0;
    all[RLIMIT_NPROC] = [limits.tasks as u64; 2];
    all[RLIMIT_NOFILE] = [1024, DESCRIPTORS_MAX];
    all[RLIMIT_MEMLOCK] = [8 << 20; 2];
    all[RLIMIT_SIGPENDING] = [PENDING_MAX as u64; 2];
    // `MQ_BYTES_MAX`.
    all[RLIMIT_MSGQUEUE] = [819_200; 2];
    all[RLIMIT_NICE] = [0; 2];
    all[RLIMIT_RTPRIO] = [0; 2];
    all
}

//! Keeps a single-stepped thread on its tracer's processor, because waking a thread on another one
//! costs more than the step. The program cannot notice: for the system calls that get or set the
//! affinity, the thread has its own affinity back.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// `sched_setaffinity` and `sched_getaffinity`.
pub const SYSCALLS: [u64; 2] = [203, 204];

/// The affinity that a thread had.
#[derive(Clone, Copy, Debug)]
pub struct Affinity(CpuSet);

impl Affinity {
    /// That of a thread; `None` if it has ended.
    pub fn of(tid: i32) -> Option<Affinity> {
        sched_getaffinity(Pid::from_raw(tid)).ok().map(Affinity)
    }

    /// Applies the affinity to `tid`. If the kernel refuses, the thread merely runs elsewhere.
    pub fn give(&self, tid: i32) {
        let _ = sched_setaffinity(Pid::from_raw(tid), &self.0);
    }
}

/// The processor that tracer and threads share while stepping.
#[derive(Debug)]
pub struct Pinned {
    ours: Affinity,
    one: Affinity,
}

impl Pinned {
    /// Pins this thread to the processor it runs on.
    pub fn here() -> Option<Pinned> {
        let ours = Affinity::of(0)?;
        let cpu = nix::sched::sched_getcpu().ok()?;
        let mut set = CpuSet::new();
        set.set(cpu).ok()?;
        let one = Affinity(set);
        one.give(0);
        Some(Pinned { ours, one })
    }

    /// Moves `tid` to this processor and returns its previous affinity.
    pub fn bring(&self, tid: i32) -> Option<Affinity> {
        let had = Affinity::of(tid)?;
        self.one.give(tid);
        Some(had)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.ours.give(0);
    }
}

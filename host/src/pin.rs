//! Keeping a single-stepped thread on the processor of its tracer: waking a thread elsewhere
//! costs more than the step. The program cannot see it: whenever it asks for its affinity, or
//! sets it, it has its own for that system call.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// `sched_setaffinity` and `sched_getaffinity`.
pub(crate) const SYSCALLS: [u64; 2] = [203, 204];

/// The affinity that a thread had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affinity(CpuSet);

impl Affinity {
    pub(crate) fn of(tid: i32) -> Option<Affinity> {
        sched_getaffinity(Pid::from_raw(tid)).ok().map(Affinity)
    }

    /// Gives it to `tid`. Where the kernel refuses, the thread only runs elsewhere.
    pub(crate) fn give(&self, tid: i32) {
        let _ = sched_setaffinity(Pid::from_raw(tid), &self.0);
    }
}

/// The processor that tracer and threads share while stepping.
#[derive(Debug)]
pub(crate) struct Pinned {
    ours: Affinity,
    one: Affinity,
}

impl Pinned {
    /// Pins this thread to where it runs now.
    pub(crate) fn here() -> Option<Pinned> {
        let ours = Affinity::of(0)?;
        let cpu = nix::sched::sched_getcpu().ok()?;
        let mut set = CpuSet::new();
        set.set(cpu).ok()?;
        let one = Affinity(set);
        one.give(0);
        Some(Pinned { ours, one })
    }

    /// Brings `tid` here; gives what it had.
    pub(crate) fn bring(&self, tid: i32) -> Option<Affinity> {
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

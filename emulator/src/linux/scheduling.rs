//! How a thread is scheduled: what `sched_setscheduler`, `nice` and `ioprio_set` keep of it, and what
//! a new thread inherits. It changes nothing here: threads take turns, as they also may on several
//! processors. Not here: the calls (`calls::scheduling`, `calls::priority`).
//!
//! Source: Linux 6.12 `include/uapi/linux/sched.h`, `kernel/sched/core.c` (`sched_fork`).

/// `SCHED_OTHER`, `SCHED_FIFO`, `SCHED_RR`, `SCHED_BATCH`, `SCHED_IDLE`.
pub(super) const OTHER: u32 = 0;
pub(super) const FIFO: u32 = 1;
pub(super) const ROUND_ROBIN: u32 = 2;
pub(super) const BATCH: u32 = 3;
pub(super) const IDLE: u32 = 5;

/// The scheduling of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Scheduling {
    pub(super) policy: u32,
    /// The real-time priority; 0 for none.
    pub(super) priority: u32,
    /// -20 to 19.
    pub(super) nice: i32,
    /// `ioprio_set`.
    pub(super) io_priority: u32,
    /// `SCHED_RESET_ON_FORK`.
    pub(super) resets_on_fork: bool,
}

impl Scheduling {
    pub(super) fn is_real_time(&self) -> bool {
        matches!(self.policy, FIFO | ROUND_ROBIN)
    }

    /// That of a thread or process that this one creates.
    pub(super) fn child(mut self) -> Scheduling {
        if !self.resets_on_fork {
            return self;
        }
        if self.is_real_time() {
            (self.policy, self.priority, self.nice) = (OTHER, 0, 0);
        }
        Scheduling {
            nice: self.nice.max(0),
            resets_on_fork: false,
            ..self
        }
    }
}

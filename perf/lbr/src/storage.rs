//! Where the kernel keeps branch records.

/// Where branch records are kept while a task does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// With the events (up to Linux 6.14). Events of a task have memory in the task's event
    /// context. Events of a CPU have none, as no task's records may stay there: the ring is wiped
    /// at every switch.
    PerContext,
    /// With the task, for events of tasks and of CPUs alike (from Linux 6.15 on).
    PerTask,
    /// With the task, but a recording of a cgroup allocates memory only for the cgroup's tasks, as
    /// the patch of January 2020 proposes for later. Linux allocates it for every task.
    PerCgroup,
}

impl Storage {
    /// A stable name for machines, as `--lbr-storage` takes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PerContext => "cpu",
            Self::PerTask => "task",
            Self::PerCgroup => "cgroup",
        }
    }

    /// The storage with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = [Self::PerContext, Self::PerTask, Self::PerCgroup].into_iter();
        all.find(|storage| storage.as_str() == name)
    }
}

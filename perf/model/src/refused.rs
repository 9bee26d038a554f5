//! Reasons why an action cannot happen.

/// Why an action cannot happen now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No such CPU.
    NoCpu,
    /// No such task, or it has exited.
    NoTask,
    /// No such event.
    NoEvent,
    /// No such handler.
    NoHandler,
    /// The event already has a handler (EEXIST).
    HandlerExists,
    /// Only hardware counters, timers and software events take programs (EINVAL).
    NotForPrograms,
    /// No task runs on the CPU.
    Idle,
    /// The CPU is not in user space.
    NotUser,
    /// The task is not in a system call, or something runs on top of it.
    NotInSystemCall,
    /// An interrupt is pending and comes first.
    InterruptWaits,
    /// Interrupts are disabled, or an interrupt is already running.
    InterruptsOff,
    /// The task cannot be preempted here.
    NotPreemptible,
    /// The task is already running, on this CPU or another.
    Running,
    /// The thread number is taken, or there are too many tasks.
    NoNewTask,
    /// The task is a kernel thread.
    KernelThread,
    /// The task is not at a function's first instruction.
    NotAtEntry,
    /// The event does not overflow here, or only on its own.
    WrongContext,
    /// User code would never run: the task is in a system call.
    NeverReturns,
    /// The event is already open.
    IsOpen,
    /// The event is not open.
    IsClosed,
    /// The address is not in the kernel's text.
    NotKernelText,
    /// The event's program came with its attribute.
    AttachedAtOpen,
    /// The event's ring takes the records of tasks or of user frames.
    TakesOthersRecords,
    /// The time is too long.
    TooLong,
    /// The log has [`LOG_MAX`](super::LOG_MAX) entries.
    TooMuch,
    /// The records take more than [`RECORD_BYTES_MAX`](super::RECORD_BYTES_MAX).
    TooManyRecords,
}

impl Refused {
    /// The error message.
    pub const fn description(self) -> &'static str {
        match self {
            Self::NoCpu => "no such CPU",
            Self::NoTask => "no such task, or it has exited",
            Self::NoEvent => "no such event",
            Self::NoHandler => "no such handler",
            // Errors that the kernel itself returns have their name behind them.
            Self::HandlerExists => "the event already has a handler (EEXIST)",
            Self::NotForPrograms => {
                "programs are for hardware counters, timers and software events only (EINVAL)"
            }
            Self::Idle => "no task runs on this CPU",
            Self::NotUser => "this CPU does not run user code",
            Self::NotInSystemCall => "no system call runs on this CPU, or it is interrupted",
            Self::InterruptWaits => "an interrupt is pending and comes first: use `step`",
            Self::InterruptsOff => "interrupts are disabled here",
            Self::NotPreemptible => "the task cannot be preempted here",
            Self::Running => "the task is already running",
            Self::NoNewTask => "the thread number is taken, or there are too many tasks",
            Self::KernelThread => "the task is a kernel thread",
            Self::NotAtEntry => "the task is not at a function's entry",
            Self::WrongContext => "the event cannot overflow here",
            Self::NeverReturns => "user code would never run: use `leave` first",
            Self::IsOpen => "the event is already open",
            Self::IsClosed => "the event is not open",
            Self::NotKernelText => "the address is not in the kernel's text",
            Self::AttachedAtOpen => {
                "the program was attached when the event was opened and stays until it is closed"
            }
            Self::TakesOthersRecords => {
                "the event's ring also takes records of tasks or of user frames: it must stay open"
            }
            Self::TooLong => "the time is too long",
            Self::TooMuch => "the run's log has reached its limit of 262144 entries",
            Self::TooManyRecords => "the run's records take more than 64 MiB",
        }
    }
}

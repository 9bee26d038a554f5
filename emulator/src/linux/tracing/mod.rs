//! Threads that another process traces: what the tracer wants of each, and where each stands. Not here:
//! the requests of tracers (`calls::ptrace`), and when a thread stops (`stops`, `delivery`, `run`).
//!
//! Source: Linux 6.12 `kernel/ptrace.c`, `include/uapi/linux/ptrace.h`.

mod changes;
mod ends;
mod stops;

pub(super) use stops::CALL_ENTRY;

use super::signals::Info;
use super::task::Task;

/// Options of `PTRACE_SETOPTIONS` and `PTRACE_SEIZE`.
pub(super) mod option {
    pub(in crate::linux) const SYSGOOD: u32 = 1;
    pub(in crate::linux) const EXITKILL: u32 = 1 << 20;
    pub(in crate::linux) const SUSPEND_SECCOMP: u32 = 1 << 21;
    /// `PTRACE_O_MASK`: these, and the events.
    pub(in crate::linux) const ALL: u32 = 0xff | EXITKILL | SUSPEND_SECCOMP;
}

/// An event, `PTRACE_EVENT_*`; its number is also that of its option's bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TraceEvent {
    Fork = 1,
    Vfork = 2,
    Clone = 3,
    Exec = 4,
    VforkDone = 5,
    Exit = 6,
    Seccomp = 7,
}

impl TraceEvent {
    /// The option that asks for it.
    fn option(self) -> u32 {
        1 << (self as u32)
    }
}

/// `PTRACE_EVENT_STOP`: a group-stop or an interruption of a thread that is seized.
pub(super) const EVENT_STOP: u32 = 128;

/// How a tracer lets a thread go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ResumeMode {
    /// Until something else stops it.
    Continue,
    /// To the start or the end of a system call.
    Syscall,
    /// For one instruction.
    Step,
}

/// Why a traced thread has stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StopKind {
    /// A signal is about to be delivered; the tracer says which one is.
    Signal,
    /// A system call begins or ends; the tracer may send a signal.
    Call,
    /// Its group was stopped, or its tracer interrupted it.
    Group,
    /// One of [`TraceEvent`], or a handler has been entered in a single step.
    Event,
}

/// A stop of a traced thread.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    pub(super) kind: StopKind,
    /// The upper half of what `wait4` returns: a signal, with an event above it.
    pub(super) code: u32,
    /// What `PTRACE_GETSIGINFO` returns; a group-stop of a thread that is not seized has none.
    pub(super) info: Option<Info>,
    /// The tracer has not waited for it yet.
    pub(super) is_news: bool,
    /// The tracer waits for the group to be continued (`PTRACE_LISTEN`).
    pub(super) listens: bool,
}

/// What the tracer of a thread wants.
#[derive(Clone, Debug)]
pub(super) struct Traced {
    /// The thread that traces it.
    pub(super) tracer: Task,
    /// Attached by `PTRACE_SEIZE`.
    pub(super) seized: bool,
    /// See [`option`].
    pub(super) options: u32,
    pub(super) how: ResumeMode,
    pub(super) stop: Option<Stop>,
    /// What `PTRACE_GETEVENTMSG` returns.
    pub(super) message: u64,
    /// The signal with which the tracer continued the thread: it is delivered without another stop.
    pub(super) injected: Option<Info>,
    /// The trap flag is set because of a single step, not by the program.
    pub(super) forced_tf: bool,
    /// The end of a `vfork`, or of the thread, was reported.
    pub(super) reported: bool,
    /// The filters of a call have been asked, and the tracer has seen it.
    pub(super) passes: bool,
    /// Debug registers 6, which shows what happened, and 7, in which nothing is enabled.
    pub(super) debug: [u64; 2],
}

impl Traced {
    pub(super) fn new(tracer: Task, seized: bool, options: u32) -> Traced {
        Traced {
            tracer,
            seized,
            options,
            how: ResumeMode::Continue,
            stop: None,
            message: 0,
            injected: None,
            forced_tf: false,
            reported: false,
            passes: false,
            debug: [0; 2],
        }
    }

    /// The same for a thread that this one creates.
    fn child(&self) -> Traced {
        Traced::new(self.tracer, self.seized, self.options)
    }

    /// Whether the tracer wants to see an event.
    fn wants(&self, event: TraceEvent) -> bool {
        self.options & event.option() != 0
    }
}

/// Where in a system call a thread has stopped for its tracer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Phase {
    /// Nowhere, or a call waits.
    #[default]
    Outside,
    /// The call is made when it goes on.
    Entering,
    /// So it is, but its filters have been asked.
    Filtered,
    /// The call has its answer.
    Leaving,
}

/// A traced thread that has ended, but not the first one of its process, until the tracer has waited for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedThread {
    pub(super) task: Task,
    /// The process group.
    pub(super) group: u32,
    /// The thread that traces it.
    pub(super) tracer: Task,
    /// As `wait4` returns it.
    pub(super) status: u32,
}

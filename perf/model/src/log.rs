//! The log of a run: everything that happened, in order, as facts for the oracle and as text for
//! people.

use super::sampling::TimerRegs;
use super::stack::{Leaf, StackId, StackSource};
use std::fmt::Write as _;
use unwind_sim_perf_lbr::Step;

/// The context of code on a CPU, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// The current task, or the idle task.
    Task,
    /// A softirq.
    Softirq,
    /// A hardirq.
    Hardirq,
    /// An NMI.
    Nmi,
}

impl Context {
    /// A stable name for machines.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Softirq => "softirq",
            Self::Hardirq => "hardirq",
            Self::Nmi => "nmi",
        }
    }
}

/// What a handler does with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The event's own output follows.
    Kept,
    /// No output.
    Dropped,
    /// Dropped without a call, because a program was already running on the CPU.
    Recursion,
    /// Dropped, because the program did something that the kernel's verifier would have refused.
    Fault {
        /// The number of the instruction.
        insn: u16,
    },
}

impl Handling {
    fn text(self) -> String {
        match self {
            Self::Kept => "kept".into(),
            Self::Dropped => "dropped".into(),
            Self::Recursion => "dropped, a program runs already".into(),
            Self::Fault { insn } => format!("dropped, fault at instruction {insn}"),
        }
    }
}

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Virtual time, nanoseconds.
    pub time: u64,
    /// The CPU.
    pub cpu: u16,
    /// The current task; 0 for the idle task.
    pub tid: i32,
    /// What happened.
    pub fact: Fact,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Time passed on the CPU.
    Ran {
        /// Whether user code ran.
        user: bool,
        /// Duration, nanoseconds.
        ns: u64,
    },
    /// The scenario moved a counter to its overflow.
    Counted {
        /// The event.
        event: u16,
        /// The number of events.
        by: u64,
    },
    /// User code went on to another stack.
    Stack {
        /// The stack it has now.
        stack: StackId,
        /// The place in the innermost function.
        leaf: Leaf,
    },
    /// The task entered the kernel from user space.
    Enter,
    /// An interrupt began.
    Interrupt(Context),
    /// An interrupt ended.
    InterruptEnd(Context),
    /// The task returned to user space.
    Return,
    /// The CPU switched to another task.
    Switch {
        /// The next thread; 0 for the idle task.
        to: i32,
    },
    /// A task was created, with the stack of its parent.
    Fork {
        /// The new task.
        child: i32,
    },
    /// execve: the task has another stack from here on.
    Exec {
        /// The stack at the start of the new program.
        stack: StackId,
    },
    /// The kernel oopsed, and kept the branch records of all tasks.
    Oops,
    /// The task is exiting (`PF_EXITING`).
    Exiting,
    /// The task has exited.
    Exit,
    /// A signal handler was put on top of the user stack.
    Signal {
        /// The stack it has now.
        stack: StackId,
    },
    /// A uprobe's instruction was emulated: the task is after `push %rbp`.
    UprobeStep,
    /// A counter in frequency mode was loaded with another period.
    Loaded {
        /// The event.
        event: u16,
        /// The number of events that its next sample stands for.
        period: u64,
        /// Events counted so far that are in no sample.
        dropped: u64,
    },
    /// An event overflowed, and a sample begins.
    Overflow {
        /// The event.
        event: u16,
        /// The number of the sample, from 1.
        number: u64,
        /// Number of events that it stands for.
        period: u64,
        /// The context.
        context: Context,
        /// Whether the registers are those of user space.
        user_mode: bool,
    },
    /// An overflow that the event's filters dropped.
    Filtered {
        /// The event.
        event: u16,
        /// Number of events that it stands for.
        period: u64,
    },
    /// The user part of a callchain was requested.
    Request {
        /// The number of the sample, from 1.
        number: u64,
        /// The cookie; `None` where the kernel refused to defer and unwinds at once.
        cookie: Option<u64>,
    },
    /// A task work was queued.
    Queued,
    /// A handler was called.
    Handled {
        /// The number of the sample, from 1.
        number: u64,
        /// The handler.
        handler: u16,
        /// The context that it was called with.
        context: u16,
        /// What it does with the sample.
        how: Handling,
    },
    /// A program was chosen to run.
    Taken {
        /// The number of the sample, from 1.
        number: u64,
        /// The handler.
        handler: u16,
        /// The context that it will be called with.
        context: u16,
    },
    /// A program wrote a record.
    Output {
        /// The number of the sample, from 1.
        number: u64,
        /// The event.
        event: u16,
        /// The handler.
        handler: u16,
        /// The size of the record, bytes.
        bytes: u32,
    },
    /// A global tracepoint at the head of the timers' function.
    Traced {
        /// The event.
        event: u16,
        /// The registers of the interrupt.
        regs: TimerRegs,
    },
    /// A handler was installed, with its context.
    Installed {
        /// The event.
        event: u16,
        /// The handler; 0 for none.
        handler: u16,
    },
    /// A sample was written.
    Sample {
        /// The number of the sample, from 1.
        number: u64,
    },
    /// A sample did not fit its ring.
    SampleLost {
        /// The number of the sample, from 1.
        number: u64,
        /// The event.
        event: u16,
    },
    /// The unwind of the user stack began.
    Unwind,
    /// The cache could not be allocated.
    NoMemory,
    /// A record with user frames was written.
    Deferred {
        /// The event.
        event: u16,
        /// The cookie; 0 in the form of 2023.
        cookie: u64,
        /// The number of frames.
        frames: u16,
    },
    /// A record with user frames did not fit its ring.
    DeferredLost {
        /// The event.
        event: u16,
        /// The cookie; 0 in the form of 2023.
        cookie: u64,
    },
    /// Another record did not fit its ring.
    OtherLost {
        /// The event.
        event: u16,
    },
    /// The mask of requests was cleared on the way out of the kernel.
    Reset,
    /// The event was throttled on this CPU.
    Throttled {
        /// The event.
        event: u16,
    },
    /// The event counts again on this CPU.
    Unthrottled {
        /// The event.
        event: u16,
    },
    /// The reader took all records of the CPU.
    Read,
    /// The event was opened.
    Opened {
        /// The event.
        event: u16,
    },
    /// The event was closed.
    Closed {
        /// The event.
        event: u16,
    },
    /// The returns and then calls by which user code reached its stack; only with branch records.
    Moved {
        /// The number of returns.
        returns: u16,
        /// The number of calls.
        calls: u16,
    },
    /// Something happened to branch records or their memory.
    Branches(Step),
}

impl Fact {
    /// Whether the text leaves it out, as it does with the passing of time.
    const fn is_quiet(self) -> bool {
        matches!(self, Self::Ran { .. } | Self::Counted { .. })
    }

    fn text(self, names: &Names<'_>) -> String {
        let event = |index: u16| names.events.get(usize::from(index)).map_or("?", |e| e);
        let stack = |id| names.stacks.name(id);

        match self {
            Self::Ran { user, ns } => {
                format!("ran {ns} ns {}", if user { "user" } else { "kernel" })
            }
            Self::Counted { event: e, by } => format!("{} counts {by}", event(e)),
            Self::Stack { stack: s, leaf } => match leaf {
                Leaf::Body => format!("user stack {}", stack(s)),
                Leaf::Entry => format!("user stack {}, at function entry", stack(s)),
                Leaf::AfterPush => format!("user stack {}, behind push", stack(s)),
            },
            Self::Enter => "enters the kernel".into(),
            Self::Interrupt(context) => format!("{} begins", context.as_str()),
            Self::InterruptEnd(context) => format!("{} ends", context.as_str()),
            Self::Return => "returns to user space".into(),
            // 0 is the idle task.
            Self::Switch { to: 0 } => "switch to idle".into(),
            Self::Switch { to } => format!("switch to {to}"),
            Self::Fork { child } => format!("forks {child}"),
            Self::Exec { stack: s } => format!("execve, user stack {}", stack(s)),
            Self::Oops => "oopses".into(),
            Self::Exiting => "is exiting".into(),
            Self::Exit => "is gone".into(),
            Self::Signal { stack: s } => format!("signal delivered, user stack {}", stack(s)),
            Self::UprobeStep => "uprobe: push emulated, ip behind it".into(),
            Self::Overflow {
                event: e,
                number,
                period,
                context,
                user_mode,
            } => format!(
                "{}: sample {number}, period {period}, {}, {} registers",
                event(e),
                context.as_str(),
                if user_mode { "user" } else { "kernel" }
            ),
            Self::Loaded {
                event: e,
                period,
                dropped,
            } => match dropped {
                0 => format!("{}: period {period} from here", event(e)),
                _ => format!(
                    "{}: period {period} from here, {dropped} events are in no sample",
                    event(e)
                ),
            },
            Self::Filtered { event: e, .. } => format!("{}: kept out by its filters", event(e)),
            // The form of 2023 has no cookie, which is logged as 0.
            Self::Request { number, cookie } => match cookie {
                None => format!("sample {number}: refused to defer, unwinds at once"),
                Some(0) => format!("sample {number}: deferred"),
                Some(cookie) => format!("sample {number}: deferred, cookie {cookie:#x}"),
            },
            Self::Queued => "task work queued".into(),
            Self::Handled {
                number,
                handler,
                context,
                how,
            } => {
                let how = how.text();
                format!("sample {number}: handler {handler} with context {context}: {how}")
            }
            Self::Taken {
                number, handler, ..
            } => format!("sample {number}: program {handler} begins"),
            Self::Output {
                number,
                event: e,
                handler,
                bytes,
            } => format!(
                "sample {number}: program {handler} writes {bytes} bytes to {}",
                event(e)
            ),
            Self::Traced { event: e, regs } => {
                format!("{}: tracepoint, {}", event(e), regs.as_str())
            }
            // Handler 0 is none.
            Self::Installed {
                event: e,
                handler: 0,
            } => format!("{}: no handler", event(e)),
            Self::Installed { event: e, handler } => format!("{}: handler {handler}", event(e)),
            Self::Sample { number } => format!("sample {number} written"),
            Self::SampleLost { number, event: e } => {
                format!("sample {number} lost: the ring of {} is full", event(e))
            }
            Self::Unwind => "task work: unwinds the user stack".into(),
            Self::NoMemory => "task work: no memory for the frames".into(),
            Self::Deferred {
                event: e,
                cookie,
                frames,
            } => format!(
                "user record{}, {frames} frames, to {}",
                cookie_text(cookie),
                event(e)
            ),
            Self::DeferredLost { event: e, cookie } => format!(
                "user record{} lost: the ring of {} is full",
                cookie_text(cookie),
                event(e)
            ),
            Self::OtherLost { event: e } => {
                format!("record lost: the ring of {} is full", event(e))
            }
            Self::Reset => "cookie and cache forgotten".into(),
            Self::Throttled { event: e } => format!("{} throttled", event(e)),
            Self::Unthrottled { event: e } => format!("{} goes on", event(e)),
            Self::Read => "the reader takes the records".into(),
            Self::Opened { event: e } => format!("{} opened", event(e)),
            Self::Closed { event: e } => format!("{} closed", event(e)),
            Self::Moved { returns, calls } => format!("returns: {returns}, calls: {calls}"),
            Self::Branches(step) => step_text(step),
        }
    }
}

fn step_text(step: Step) -> String {
    match step {
        Step::Allocated { piece, tid } => format!("branch memory {piece} allocated for {tid}"),
        Step::Found { piece } => format!("switch begins, finds branch memory {piece}"),
        Step::Saved { piece } => format!("branch records saved to memory {piece}"),
        Step::Restored { piece } => format!("branch records restored from memory {piece}"),
        Step::Skipped { piece } => format!("branch records of memory {piece} are still there"),
        Step::Wiped { .. } => "branch records wiped".into(),
        Step::Freed { piece } => format!("branch memory {piece} freed"),
    }
}

fn cookie_text(cookie: u64) -> String {
    match cookie {
        0 => String::new(),
        cookie => format!(" {cookie:#x}"),
    }
}

/// The names that the text uses.
struct Names<'a> {
    events: &'a [String],
    stacks: &'a dyn StackSource,
}

/// The log as text: a line for each fact, without the passing of time.
pub(super) fn text(entries: &[Entry], events: &[String], stacks: &dyn StackSource) -> String {
    let names = &Names { events, stacks };
    let mut out = String::new();
    for entry in entries.iter().filter(|entry| !entry.fact.is_quiet()) {
        let what = entry.fact.text(names);
        let who = if entry.tid == 0 {
            "idle".to_owned()
        } else {
            entry.tid.to_string()
        };
        // Writing into a String does not fail.
        let _ = writeln!(out, "{:>8} cpu{} {who:>5}  {what}", entry.time, entry.cpu);
    }
    out
}

//! What happened, in order: for people as text, for the oracle as facts.
//!
//! The log is complete: who knows it knows the world. Not here: what should have happened.

use super::sampling::TimerRegs;
use super::stack::{Leaf, StackId, StackSource};
use crate::lbr::Step;
use std::fmt::Write as _;

/// Where code runs on a CPU, from the outermost.
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

/// What a handler makes of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handling {
    /// The event's own output follows.
    Kept,
    /// No output.
    Dropped,
    /// Dropped, as a program was running on the CPU already: this one was not called.
    Recursion,
    /// Dropped, as the program did what the kernel's verifier would have refused.
    Fault {
        /// At which instruction.
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

/// One line of the log.
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
        /// In user space.
        user: bool,
        /// How long.
        ns: u64,
    },
    /// A counter was moved to its overflow by the scenario.
    Counted {
        /// The event.
        event: u16,
        /// By how much.
        by: u64,
    },
    /// User code ran on to another stack.
    Stack {
        /// The stack it has now.
        stack: StackId,
        /// Where in the innermost function.
        leaf: Leaf,
    },
    /// From user space into the kernel.
    Enter,
    /// An interrupt came.
    Interrupt(Context),
    /// It is over.
    InterruptEnd(Context),
    /// Back in user space.
    Return,
    /// The CPU goes on with another task.
    Switch {
        /// Which; 0 for the idle task.
        to: i32,
    },
    /// A task was made, with the stack of its maker.
    Fork {
        /// The new task.
        child: i32,
    },
    /// The program was replaced: from here on the task has another stack.
    Exec {
        /// The stack the new program begins with.
        stack: StackId,
    },
    /// The kernel oopsed, and kept the branch records of all tasks.
    Oops,
    /// The task is ending (`PF_EXITING`).
    Exiting,
    /// The task is gone.
    Exit,
    /// A signal handler was put on top of the user stack.
    Signal {
        /// The stack it has now.
        stack: StackId,
    },
    /// A uprobe's instruction was done: the task stands behind `push %rbp`.
    UprobeStep,
    /// A counter in frequency mode was loaded with another period.
    Loaded {
        /// The event.
        event: u16,
        /// What its next sample stands for.
        period: u64,
        /// What it had counted, if that is in no sample.
        dropped: u64,
    },
    /// An event overflowed and is to become a sample.
    Overflow {
        /// The event.
        event: u16,
        /// Which sample of the run, from 1.
        number: u64,
        /// Events it stands for.
        period: u64,
        /// In which context.
        context: Context,
        /// Whether the registers are those of user space.
        user_mode: bool,
    },
    /// An overflow that the event's filters keep out.
    Filtered {
        /// The event.
        event: u16,
        /// Events it would have stood for.
        period: u64,
    },
    /// The user part was asked for.
    Request {
        /// For which sample.
        number: u64,
        /// The cookie; `None` where the kernel refused and unwinds at once.
        cookie: Option<u64>,
    },
    /// A task work was queued.
    Queued,
    /// A handler was called.
    Handled {
        /// For which sample.
        number: u64,
        /// The handler.
        handler: u16,
        /// The context it was called with.
        context: u16,
        /// What it makes of the sample.
        how: Handling,
    },
    /// A program is going to run: this is which.
    Taken {
        /// For which sample.
        number: u64,
        /// The handler.
        handler: u16,
        /// The context it will be called with.
        context: u16,
    },
    /// A program wrote a record.
    Output {
        /// At which sample.
        number: u64,
        /// To which event's ring.
        event: u16,
        /// The handler.
        handler: u16,
        /// How many bytes.
        bytes: u32,
    },
    /// A timer's function began: what a global tracepoint there sees.
    Traced {
        /// Whose timer.
        event: u16,
        /// The registers of the interrupt.
        regs: TimerRegs,
    },
    /// A handler was put in place, completely.
    Installed {
        /// Of which event.
        event: u16,
        /// Which; 0 for none.
        handler: u16,
    },
    /// A sample was written.
    Sample {
        /// Which.
        number: u64,
    },
    /// A sample found no room.
    SampleLost {
        /// Which.
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
        /// To which event's ring.
        event: u16,
        /// The cookie; 0 in the form of 2023.
        cookie: u64,
        /// How many frames.
        frames: u16,
    },
    /// A record with user frames found no room.
    DeferredLost {
        /// In which event's ring.
        event: u16,
        /// The cookie; 0 in the form of 2023.
        cookie: u64,
    },
    /// Another record found no room.
    OtherLost {
        /// In which event's ring.
        event: u16,
    },
    /// The mask was cleared on the way out.
    Reset,
    /// The event was throttled on this CPU.
    Throttled {
        /// Which.
        event: u16,
    },
    /// The event counts again on this CPU.
    Unthrottled {
        /// Which.
        event: u16,
    },
    /// The reader took all records of the CPU.
    Read,
    /// The event was opened.
    Opened {
        /// Which.
        event: u16,
    },
    /// The event was closed.
    Closed {
        /// Which.
        event: u16,
    },
    /// User code came to its stack by so many returns and then calls; told with branch records.
    Moved {
        /// Returns.
        returns: u16,
        /// Calls.
        calls: u16,
    },
    /// Something happened to branch records or their memory.
    Branches(Step),
}

impl Fact {
    /// Whether it is only the passing of time, which the text leaves out.
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

/// What the text needs to know of the world.
struct Names<'a> {
    events: &'a [String],
    stacks: &'a dyn StackSource,
}

/// The log as text: a line each, without the passing of time.
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

//! The actions that a script or a random schedule may ask of the world.

use super::stack::{Leaf, StackId};

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// One atomic step of the CPU.
    Step {
        /** The CPU. */
        cpu: u16,
    },
    /// User code, or the idle task, runs for a time.
    Run {
        /** The CPU. */
        cpu: u16,
        /** Duration, nanoseconds. */
        ns: u64,
    },
    /// User code goes on to another stack.
    Stack {
        /** The CPU. */
        cpu: u16,
        /** The stack. */
        stack: StackId,
        /** The place in the innermost function. */
        leaf: Leaf,
    },
    /// User code makes a system call.
    Syscall {
        /** The CPU. */
        cpu: u16,
    },
    /// A task in a system call, or a kernel thread, goes on to an instruction of the kernel's text.
    /// Without this action, all system calls are at one address.
    Kernel {
        /** The CPU. */
        cpu: u16,
        /** The address of the instruction. */
        address: u64,
    },
    /// The system call is over; the way out begins.
    Leave {
        /** The CPU. */
        cpu: u16,
    },
    /// Steps until user code runs or the task has exited.
    Finish {
        /** The CPU. */
        cpu: u16,
    },
    /// The event overflows now, in its own context.
    Sample {
        /** The CPU. */
        cpu: u16,
        /** The event. */
        event: u16,
    },
    /// An interrupt without effects.
    Irq {
        /** The CPU. */
        cpu: u16,
    },
    /// A softirq without effects.
    Softirq {
        /** The CPU. */
        cpu: u16,
    },
    /// A timer expires outside an interrupt, so there are no registers.
    Expire {
        /** The CPU. */
        cpu: u16,
        /** The event. */
        event: u16,
    },
    /// The CPU switches to another task, wherever that waited.
    Switch {
        /** The CPU. */
        cpu: u16,
        /** The thread; 0 for the idle task. */
        tid: i32,
    },
    /// The first half of a switch; the second half is the CPU's next step. The two are separate
    /// only with branch records.
    SwitchBegin {
        /** The CPU. */
        cpu: u16,
        /** The thread; 0 for the idle task. */
        tid: i32,
    },
    /// A task in a system call opens an event.
    Open {
        /** The CPU. */
        cpu: u16,
        /** The event. */
        event: u16,
    },
    /// A task in a system call closes an event.
    Close {
        /** The CPU. */
        cpu: u16,
        /** The event. */
        event: u16,
    },
    /// fork in a system call.
    Fork {
        /** The CPU. */
        cpu: u16,
        /** The new task. */
        child: i32,
    },
    /// execve in a system call.
    Exec {
        /** The CPU. */
        cpu: u16,
        /** The new program's stack. */
        stack: StackId,
    },
    /// exit in a system call.
    Exit {
        /** The CPU. */
        cpu: u16,
    },
    /// The kernel oopses in a system call: the branch records of all tasks are kept, and the task
    /// is killed.
    Oops {
        /** The CPU. */
        cpu: u16,
    },
    /// A signal is sent, with a handler.
    Signal {
        /** The thread; 0 for the idle task. */
        tid: i32,
        /** The stack with the handler on it. */
        stack: StackId,
    },
    /// User code at a function's first instruction hits a uprobe there.
    Uprobe {
        /** The CPU. */
        cpu: u16,
    },
    /// The reader takes the records of the CPU's rings.
    Read {
        /** The CPU. */
        cpu: u16,
    },
    /// The task's next allocation for an unwind fails.
    NoMemory {
        /** The thread; 0 for the idle task. */
        tid: i32,
    },
    /// A task in a system call installs or removes (0) a handler.
    Install {
        /** The CPU. */
        cpu: u16,
        /** The event. */
        event: u16,
        /** The handler; 0 for none. */
        handler: u16,
    },
}

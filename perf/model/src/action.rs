//! What a script or a random schedule may ask of the world.
//!
//! `apply` carries it out.

use super::stack::{Leaf, StackId};

/// Something that happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// One atomic step of the CPU.
    Step {
        /** Where. */
        cpu: u16,
    },
    /// User code, or the idle task, runs for a time.
    Run {
        /** Where. */
        cpu: u16,
        /** How long. */
        ns: u64,
    },
    /// User code goes on to another stack.
    Stack {
        /** Where. */
        cpu: u16,
        /** Its stack then. */
        stack: StackId,
        /** Where in the innermost function. */
        leaf: Leaf,
    },
    /// User code makes a system call.
    Syscall {
        /** Where. */
        cpu: u16,
    },
    /// A task in a system call, or a kernel thread, goes on to an instruction of the kernel's text;
    /// elsewhere it is where all system calls are.
    Kernel {
        /** Where. */
        cpu: u16,
        /** The instruction. */
        address: u64,
    },
    /// The system call is over; the way out begins.
    Leave {
        /** Where. */
        cpu: u16,
    },
    /// Steps until user code runs, or the task is gone.
    Finish {
        /** Where. */
        cpu: u16,
    },
    /// The event overflows now, in its own context.
    Sample {
        /** Where. */
        cpu: u16,
        /** Which event. */
        event: u16,
    },
    /// An interrupt of no interest.
    Irq {
        /** Where. */
        cpu: u16,
    },
    /// A softirq of no interest.
    Softirq {
        /** Where. */
        cpu: u16,
    },
    /// A timer expires outside of an interrupt: there are no registers.
    Expire {
        /** Where. */
        cpu: u16,
        /** Whose. */
        event: u16,
    },
    /// The CPU goes on with another task, wherever that waited; 0 is the idle task.
    Switch {
        /** Where. */
        cpu: u16,
        /** Which task. */
        tid: i32,
    },
    /// The first half of a switch: the rest is the CPU's next step. Only with branch records is
    /// there anything in between.
    SwitchBegin {
        /** Where. */
        cpu: u16,
        /** Which task. */
        tid: i32,
    },
    /// A task in a system call opens an event.
    Open {
        /** Where. */
        cpu: u16,
        /** Which event. */
        event: u16,
    },
    /// A task in a system call closes an event.
    Close {
        /** Where. */
        cpu: u16,
        /** Which event. */
        event: u16,
    },
    /// fork in a system call.
    Fork {
        /** Where. */
        cpu: u16,
        /** The new task. */
        child: i32,
    },
    /// execve in a system call.
    Exec {
        /** Where. */
        cpu: u16,
        /** The new program's stack. */
        stack: StackId,
    },
    /// exit in a system call.
    Exit {
        /** Where. */
        cpu: u16,
    },
    /// The kernel oopses in a system call: the branch records of all tasks are kept, and the task
    /// is killed.
    Oops {
        /** Where. */
        cpu: u16,
    },
    /// A signal is sent, with a handler.
    Signal {
        /** To whom. */
        tid: i32,
        /** The stack with the handler on it. */
        stack: StackId,
    },
    /// User code at a function's first instruction hits a uprobe there.
    Uprobe {
        /** Where. */
        cpu: u16,
    },
    /// The reader takes the records of the CPU's rings.
    Read {
        /** Where. */
        cpu: u16,
    },
    /// The task's next allocation for an unwind fails.
    NoMemory {
        /** Whose. */
        tid: i32,
    },
    /// A task in a system call puts a handler in place, or takes it away (0).
    Install {
        /** Where. */
        cpu: u16,
        /** Of which event. */
        event: u16,
        /** Which handler. */
        handler: u16,
    },
}

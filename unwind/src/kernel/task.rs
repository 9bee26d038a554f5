//! The task whose stack is unwound: its stacks, and the return addresses that tracers replaced on
//! them.

use super::stacks::{StackInfo, StackType};
use super::version::Version;
use crate::orc::Encoding;
use alloc::vec::Vec;
use core::ops::Range;

/// An entry of the function graph tracer's shadow stack (`struct ftrace_ret_stack`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GraphReturn {
    /// The original return address.
    pub ret: u64,
    /// The address of its slot.
    pub retp: u64,
}

/// A return address replaced by a kretprobe or fprobe (`struct rethook_node`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rethook {
    /// The original return address.
    pub ret_addr: u64,
    /// The address of its slot.
    pub frame: u64,
}

/// A task.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    /// The kernel's version, if recorded.
    pub version: Option<Version>,
    /// The encoding of the kernel's ORC entries, if recorded.
    pub encoding: Option<Encoding>,
    /// Whether it is the current task (`current`).
    pub is_current: bool,
    /// Whether it runs on another processor.
    pub on_other_cpu: bool,
    /// The sp with which it left the processor (`thread.sp`); 0 if it runs, or if unknown.
    pub thread_sp: u64,
    /// Bytes between the registers of a system call and the end of the task's stack
    /// (`TOP_OF_KERNEL_STACK_PADDING`): 0; 16 with `CONFIG_X86_FRED`.
    pub top_padding: u64,
    /// The stacks that may be visited: its own and, if it is current, those of its processor.
    pub stacks: Vec<StackInfo>,
    /// The function graph tracer's shadow stack, oldest entry first.
    pub graph: Vec<GraphReturn>,
    /// Replaced return addresses, newest first.
    pub rethooks: Vec<Rethook>,
}

impl Default for Task {
    /// The current task, with nothing known about it.
    fn default() -> Self {
        Task {
            version: None,
            encoding: None,
            is_current: true,
            on_other_cpu: false,
            thread_sp: 0,
            top_padding: 0,
            stacks: Vec::new(),
            graph: Vec::new(),
            rethooks: Vec::new(),
        }
    }
}

impl Task {
    /// The current task, with its own stack and no other.
    pub fn of_stack(bounds: Option<Range<u64>>) -> Task {
        let own = bounds.map(|range| StackInfo {
            kind: StackType::Task,
            begin: range.start,
            end: range.end,
            next_sp: 0,
        });
        Task {
            stacks: own.into_iter().collect(),
            ..Task::default()
        }
    }
}

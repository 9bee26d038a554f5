//! Return addresses that tracers (the function graph tracer and kretprobes) took from a task's
//! stack.
//!
//! Sources: Linux `include/linux/rethook.h`, `include/linux/ftrace.h`, `kernel/trace/fgraph.c`.

use super::KernelMachine;
use unwind_sim_recordings::kernel::Btf;
use unwind_sim_unwind::kernel::{GraphReturn, GraphSearch, Rethook, Task, Version};

/// Maximum number of return addresses taken by tracers.
const TAKEN_MAX: usize = 64;

/// Offsets of the tracers' data.
pub(super) struct TracerOffsets {
    /// From a task to the list, and from a link to the next link, `ret_addr` and `frame`.
    rethooks: Option<[u64; 4]>,
    graph: Option<Graph>,
}

/// Offsets of the function graph tracer's data.
struct Graph {
    ret_stack: u64,
    curr: u64,
    retp: u64,
    size: u64,
    /// Is it a stack of words (since 6.10) rather than an array?
    is_shadow: bool,
}

impl TracerOffsets {
    pub(super) fn new(btf: &Btf, version: Option<Version>) -> TracerOffsets {
        TracerOffsets {
            rethooks: rethooks(btf),
            graph: graph(btf, version),
        }
    }

    /// Reads the return addresses that tracers took from the stack of the task at `address`.
    pub(super) fn read<M: KernelMachine>(
        &self,
        machine: &mut M,
        address: u64,
        task: &mut Task,
    ) -> Result<(), M::Error> {
        if let Some([first, next, ret_addr, frame]) = self.rethooks {
            let mut node = machine.word(address.wrapping_add(first))?;
            // The list has the newest first.
            while node != 0 && task.rethooks.len() < TAKEN_MAX {
                task.rethooks.push(Rethook {
                    ret_addr: machine.word(node.wrapping_add(ret_addr))?,
                    frame: machine.word(node.wrapping_add(frame))?,
                });
                node = machine.word(node.wrapping_add(next))?;
            }
        }

        if let Some(graph) = &self.graph {
            let stack = machine.word(address.wrapping_add(graph.ret_stack))?;
            // `curr_ret_stack` is an int.
            let last = machine.word(address.wrapping_add(graph.curr))? as u32 as i32;
            if stack != 0 {
                task.graph = graph.entries(machine, stack, last)?;
            }
        }

        Ok(())
    }
}

fn rethooks(btf: &Btf) -> Option<[u64; 4]> {
    // The list links `llist` to `llist`, not node to node.
    let list = btf.offset("rethook_node", "llist")?;
    let from_list = |member| Some(btf.offset("rethook_node", member)?.wrapping_sub(list));
    Some([
        btf.offset("task_struct", "rethooks.first")?,
        from_list("llist.next")?,
        from_list("ret_addr")?,
        from_list("frame")?,
    ])
}

fn graph(btf: &Btf, version: Option<Version>) -> Option<Graph> {
    let retp = btf.offset("ftrace_ret_stack", "retp")?;
    Some(Graph {
        ret_stack: btf.offset("task_struct", "ret_stack")?,
        curr: btf.offset("task_struct", "curr_ret_stack")?,
        retp,
        size: retp + 8,
        // An unknown version is newer.
        is_shadow: version.is_none_or(|v| v.graph_search() == GraphSearch::Newest),
    })
}

impl Graph {
    /// The entries, oldest first. Before 6.10, `last` is the index of the last entry. Since then it
    /// is the index of the first free word, and the low ten bits of the word before that say how
    /// many words further back the entry starts (`kernel/trace/fgraph.c`).
    fn entries<M: KernelMachine>(
        &self,
        machine: &mut M,
        stack: u64,
        last: i32,
    ) -> Result<Vec<GraphReturn>, M::Error> {
        const WORDS_BACK: u64 = 0x3ff;
        let mut out = Vec::new();
        let mut entry = |machine: &mut M, at: u64| {
            out.push(GraphReturn {
                ret: machine.word(at)?,
                retp: machine.word(at.wrapping_add(self.retp))?,
            });
            Ok::<bool, M::Error>(out.len() < TAKEN_MAX)
        };

        // -1 before 6.10, if no return address is taken.
        let Ok(last) = u64::try_from(last) else {
            return Ok(out);
        };

        // From the last entry backwards, at most as many as `TAKEN_MAX`.
        let mut left = last;
        if self.is_shadow {
            while left > 0 {
                let word = machine.word(stack.wrapping_add(8 * (left - 1)))?;
                let back = (word & WORDS_BACK) + 1;
                // An entry has a length, and lies inside the stack.
                let Some(begin) = left.checked_sub(back).filter(|_| back > 1) else {
                    break;
                };
                left = begin;
                if !entry(machine, stack.wrapping_add(8 * begin))? {
                    break;
                }
            }
        } else {
            while entry(machine, stack.wrapping_add(self.size * left))? && left > 0 {
                left -= 1;
            }
        }

        out.reverse();
        Ok(out)
    }
}

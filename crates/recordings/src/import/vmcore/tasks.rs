//! The tasks of a dump: all threads of all processes, and the idle tasks.
//!
//! Sources: Linux `include/linux/sched.h` (`struct task_struct`), `sched/signal.h`
//! (`for_each_process_thread`), `kernel/trace/fgraph.c`, `include/linux/rethook.h`, of 6.1 and
//! 6.12.

use super::error::{Fault, Problem};
use super::layout::Layout;
use super::pages::{KernelMemory, Virtual};
use std::collections::HashSet;
use unwind_sim_unwind::kernel::{GraphReturn, GraphSearch, Rethook, Version};

/// Maximum number of tasks: `PID_MAX_LIMIT`.
const TASKS_MAX: usize = 4 << 20;
/// Size of `comm`, bytes.
const COMM_LEN: usize = 16;
/// Maximum number of return addresses taken by tracers from one task. A shadow stack is one page.
const TAKEN_MAX: u64 = 4096;

#[derive(Clone, Debug)]
pub(super) struct TaskInfo {
    pub(super) pid: u32,
    pub(super) comm: String,
    /// The lowest address of its stack.
    pub(super) stack: u64,
    pub(super) thread_sp: u64,
    pub(super) on_cpu: bool,
    pub(super) graph: Vec<GraphReturn>,
    pub(super) rethooks: Vec<Rethook>,
    /// Address of its user-space page tables (`mm->pgd`): 0 without user space, `None` if the
    /// offsets are unknown.
    pub(super) pgd: Option<u64>,
}

/// Reads tasks; holds the offsets in `task_struct` and the structs that it points to.
pub(super) struct Reader<'a, 'd, 'm> {
    memory: &'a Virtual<'d, 'm>,
    pid: u64,
    comm: u64,
    stack: u64,
    sp: u64,
    /// Offset and size.
    on_cpu: Option<(u64, u64)>,
    graph: Option<Graph>,
    rethooks: Option<Rethooks>,
    /// Offsets of `mm` in the task and of `pgd` in `mm`.
    user: Option<[u64; 2]>,
}

struct Graph {
    ret_stack: u64,
    current: u64,
    entry_len: u64,
    ret: u64,
    retp: u64,
    search: GraphSearch,
}

struct Rethooks {
    first: u64,
    link: u64,
    ret_addr: u64,
    frame: u64,
}

impl<'a, 'd, 'm> Reader<'a, 'd, 'm> {
    pub(super) fn new(
        memory: &'a Virtual<'d, 'm>,
        layout: &Layout<'_>,
        version: Version,
    ) -> Result<Self, Problem> {
        const TASK: &str = "task_struct";
        // A kernel without the tracer lacks these members, and nothing was taken.
        let graph = || {
            Some(Graph {
                ret_stack: layout.find(TASK, "ret_stack")?,
                current: layout.find(TASK, "curr_ret_stack")?,
                entry_len: layout.size_of("ftrace_ret_stack").filter(|len| *len > 0)?,
                ret: layout.find("ftrace_ret_stack", "ret")?,
                retp: layout.find("ftrace_ret_stack", "retp")?,
                search: version.graph_search(),
            })
        };

        let rethooks = || {
            Some(Rethooks {
                first: layout.find(TASK, "rethooks.first")?,
                link: layout.find("rethook_node", "llist")?,
                ret_addr: layout.find("rethook_node", "ret_addr")?,
                frame: layout.find("rethook_node", "frame")?,
            })
        };

        Ok(Reader {
            memory,
            pid: layout.needed(TASK, "pid")?,
            comm: layout.needed(TASK, "comm")?,
            stack: layout.needed(TASK, "stack")?,
            sp: layout.needed(TASK, "thread.sp")?,
            // An offset from `--offset` comes without a size; an `int` is assumed.
            on_cpu: match layout.extent(TASK, "on_cpu") {
                None => layout.find(TASK, "on_cpu").map(|offset| (offset, 4)),
                known => known,
            },
            graph: graph(),
            rethooks: rethooks(),
            // Optional: without these, the kernel's part can still be unwound.
            user: layout
                .find(TASK, "mm")
                .zip(layout.find("mm_struct", "pgd"))
                .map(<[u64; 2]>::from),
        })
    }

    /// The task whose `task_struct` is at `address`.
    pub(super) fn read(&self, address: u64) -> Result<TaskInfo, Fault> {
        let at = |offset: u64| address.wrapping_add(offset);
        // An int; a byte since 7.0 at the latest.
        let on_cpu = self.on_cpu.map(|(offset, len)| {
            let word = self.memory.u32(at(offset))?;
            Ok::<u32, Fault>(if len == 1 { word & 0xff } else { word })
        });
        Ok(TaskInfo {
            pid: self.memory.u32(at(self.pid))?,
            comm: self.memory.text(at(self.comm), COMM_LEN),
            stack: self.memory.u64(at(self.stack))?,
            thread_sp: self.memory.u64(at(self.sp))?,
            on_cpu: on_cpu.transpose()? == Some(1),
            graph: self.graph(address)?,
            rethooks: self.rethooks(address)?,
            pgd: self.pgd(address),
        })
    }

    /// Unreadable values only cost the user part of the chain.
    fn pgd(&self, task: u64) -> Option<u64> {
        let [mm, pgd] = self.user?;
        match self.memory.u64(task.wrapping_add(mm)).ok()? {
            0 => Some(0),
            mm => self.memory.u64(mm.wrapping_add(pgd)).ok(),
        }
    }

    /// The shadow stack of the function graph tracer, oldest entry first.
    fn graph(&self, task: u64) -> Result<Vec<GraphReturn>, Fault> {
        /// Mask of the span, in words, in an entry's last word (since 6.10).
        const SPAN_MASK: u64 = 0x3ff;
        let Some(graph) = &self.graph else {
            return Ok(Vec::new());
        };

        let base = self.memory.u64(task.wrapping_add(graph.ret_stack))?;
        let current = self.memory.u32(task.wrapping_add(graph.current))? as i32;
        let mut out = Vec::new();
        // The function graph tracer has not used this task.
        if base == 0 {
            return Ok(out);
        }

        let entry = |at: u64| {
            Ok(GraphReturn {
                ret: self.memory.u64(at.wrapping_add(graph.ret))?,
                retp: self.memory.u64(at.wrapping_add(graph.retp))?,
            })
        };

        match graph.search {
            // An array of entries; `curr_ret_stack` is the index of the last one.
            GraphSearch::Oldest => {
                let count = u64::try_from(current.saturating_add(1)).unwrap_or(0);
                for i in 0..count.min(TAKEN_MAX) {
                    out.push(entry(base.wrapping_add(i * graph.entry_len))?);
                }
            }
            // A stack of words: the last word of an entry says how long it is.
            GraphSearch::Newest => {
                let mut offset = u64::try_from(current).unwrap_or(0).min(TAKEN_MAX);
                while offset > 0 {
                    offset -= 1;
                    let span = self.memory.u64(base.wrapping_add(offset * 8))? & SPAN_MASK;
                    // A damaged word would lead nowhere, or out of the stack.
                    if span == 0 || span > offset {
                        break;
                    }
                    offset -= span;
                    out.push(entry(base.wrapping_add(offset * 8))?);
                }
                // Found from the newest entry down.
                out.reverse();
            }
        }
        Ok(out)
    }

    /// The return addresses taken by rethooks, newest first.
    fn rethooks(&self, task: u64) -> Result<Vec<Rethook>, Fault> {
        let mut out = Vec::new();
        let Some(rethooks) = &self.rethooks else {
            return Ok(out);
        };
        let mut link = self.memory.u64(task.wrapping_add(rethooks.first))?;
        while link != 0 && (out.len() as u64) < TAKEN_MAX {
            let node = link.wrapping_sub(rethooks.link);
            out.push(Rethook {
                ret_addr: self.memory.u64(node.wrapping_add(rethooks.ret_addr))?,
                frame: self.memory.u64(node.wrapping_add(rethooks.frame))?,
            });
            link = self.memory.u64(link)?;
        }
        Ok(out)
    }
}

/// The addresses of the links in a circular list (`struct list_head`) after `head`. A broken link
/// ends the list and is a problem.
pub(super) fn list(
    memory: &dyn KernelMemory,
    list: &'static str,
    head: u64,
    max: usize,
    problems: &mut Vec<Problem>,
) -> Vec<u64> {
    let mut seen = HashSet::new();
    let mut out = Vec::new();
    let mut next = memory.u64(head);

    loop {
        let address = match next {
            Ok(address) if address == head => break,
            Ok(address) => address,
            Err(fault) => {
                problems.push(fault.into());
                break;
            }
        };

        // A damaged list may run in a circle without its head.
        if out.len() == max || !seen.insert(address) {
            problems.push(Problem::Endless { list, address });
            break;
        }

        next = memory.u64(address);
        // An address without memory is not an element.
        if next.is_ok() {
            out.push(address);
        }
    }
    out
}

/// The addresses of all `task_struct`s, except the idle tasks of other processors.
pub(super) fn all(
    memory: &Virtual<'_, '_>,
    layout: &Layout<'_>,
    init_task: u64,
    problems: &mut Vec<Problem>,
) -> Result<Vec<u64>, Problem> {
    let tasks = layout.needed("task_struct", "tasks")?;
    let node = layout.needed("task_struct", "thread_node")?;
    let signal = layout.needed("task_struct", "signal")?;
    let head = layout.needed("signal_struct", "thread_head")?;

    // This list has only the first thread of each process.
    let leaders = list(
        memory,
        "tasks",
        init_task.wrapping_add(tasks),
        TASKS_MAX,
        problems,
    );

    // The head of the list is in this task, so it is not one of the elements.
    let mut out = vec![init_task];
    let mut seen = HashSet::from([init_task]);
    for link in leaders {
        let leader = link.wrapping_sub(tasks);
        if seen.insert(leader) {
            out.push(leader);
        }

        let threads = match memory.u64(leader.wrapping_add(signal)) {
            Ok(signal) => {
                // All lists together are bounded.
                let left = TASKS_MAX - out.len().min(TASKS_MAX);
                list(memory, "threads", signal.wrapping_add(head), left, problems)
            }
            Err(fault) => {
                problems.push(fault.into());
                continue;
            }
        };

        let threads = threads.into_iter().map(|link| link.wrapping_sub(node));
        // The first thread is in this list, too.
        out.extend(threads.filter(|task| seen.insert(*task)));
    }
    Ok(out)
}

//! Return addresses that a tracer replaced with its own, and the original addresses.
//!
//! Linux `arch/x86/include/asm/unwind.h` (`unwind_recover_ret_addr`), `kernel/trace/fgraph.c`
//! (`ftrace_graph_ret_addr`), `kernel/trace/rethook.c` (`rethook_find_ret_addr`).

use super::Code;
use super::task::Task;
use super::version::GraphSearch;

/// The unwinder's search state: `graph_idx` and `kr_cur`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cursors {
    /// `graph_idx`: how far the function graph tracer's shadow stack was searched, in entries; the
    /// kernel counts words since 6.10.
    pub graph_idx: u32,
    /// `kr_cur`: how many of [`Task::rethooks`] were used.
    pub rethook: u32,
}

/// The real return address in `slot`, which contains `word`.
#[inline]
pub(super) fn recover(
    code: &Code,
    task: &Task,
    cursors: &mut Cursors,
    word: u64,
    slot: u64,
) -> u64 {
    let ret = recover_graph(code, task, cursors, word, slot);
    recover_rethook(code, task, cursors, ret, slot)
}

/// The part of [`recover`] for the function graph tracer: `ftrace_graph_ret_addr`.
#[inline]
pub(super) fn recover_graph(
    code: &Code,
    task: &Task,
    cursors: &mut Cursors,
    word: u64,
    slot: u64,
) -> u64 {
    let handler = code.known().return_to_handler;
    if word == handler && word != 0 {
        graph(code, task, cursors, handler, slot).unwrap_or(word)
    } else {
        word
    }
}

fn graph(code: &Code, task: &Task, cursors: &mut Cursors, handler: u64, slot: u64) -> Option<u64> {
    match code.version().graph_search() {
        GraphSearch::Oldest => task.graph.iter().find(|e| e.retp == slot).map(|e| e.ret),
        GraphSearch::Newest => {
            let len = task.graph.len() as u32;
            // A cursor of 0 means that nothing was found yet, even if the oldest entry was.
            let from = if cursors.graph_idx == 0 {
                len
            } else {
                cursors.graph_idx
            };
            let searched = task.graph.get(..from.min(len) as usize)?;
            let found = searched
                .iter()
                .rposition(|e| e.retp == slot && e.ret != handler)?;
            cursors.graph_idx = found as u32;
            Some(searched[found].ret)
        }
    }
}

/// The part of [`recover`] for kretprobes and fprobes. Returns 0 if the trampoline is there but no
/// address was taken.
#[inline]
pub(super) fn recover_rethook(
    code: &Code,
    task: &Task,
    cursors: &mut Cursors,
    word: u64,
    slot: u64,
) -> u64 {
    let trampoline = code.known().arch_rethook_trampoline;
    if word != trampoline || word == 0 || !code.version().recovers_kretprobes() {
        return word;
    }
    let first = cursors.rethook as usize;
    let rest = task.rethooks.iter().enumerate().skip(first);
    let mut real = rest.filter(|(_, r)| r.ret_addr != trampoline);
    // Every entry passed moves the cursor, even if none fits.
    for (i, rethook) in &mut real {
        cursors.rethook = i as u32 + 1;
        if rethook.frame == slot {
            return rethook.ret_addr;
        }
    }
    0
}

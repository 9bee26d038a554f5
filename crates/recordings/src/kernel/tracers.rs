//! Return addresses that tracers (the function graph tracer and kretprobes) took from a task's
//! stack.
//!
//! Sources: Linux `include/linux/rethook.h`, `include/linux/ftrace.h`, `kernel/trace/fgraph.c`.

use super::Btf;
use unwind_sim_unwind::kernel::{GraphReturn, GraphSearch, Rethook, Task, Version};

/// Reads a word of the kernel's memory.
type Word<'a, E> = &'a mut dyn FnMut(u64) -> Result<u64, E>;

/// Maximum number of return addresses taken by tracers.
const TAKEN_MAX: usize = 64;

/// Offsets of the tracers' data; by default of a kernel without tracers.
#[derive(Clone, Debug, Default)]
pub struct TracerPlaces {
    /// From a task to the list, and from a link to the next link, `ret_addr` and `frame`.
    rethooks: Option<[u64; 4]>,
    graph: Option<Graph>,
}

/// Offsets of the function graph tracer's data.
#[derive(Clone, Debug)]
struct Graph {
    ret_stack: u64,
    curr: u64,
    retp: u64,
    size: u64,
    /// Is it a stack of words (since 6.10) rather than an array?
    is_shadow: bool,
}

impl TracerPlaces {
    /// Those of the kernel with these types; an unknown version is newer.
    pub(super) fn new(btf: &Btf, version: Option<Version>) -> TracerPlaces {
        TracerPlaces {
            rethooks: rethooks(btf),
            graph: graph(btf, version),
        }
    }

    /// Reads the return addresses that tracers took from the stack of the task whose `struct task_struct` is
    /// at `address`; `word` reads the kernel's memory.
    ///
    /// # Errors
    /// Those of `word`.
    pub fn read<E>(&self, address: u64, word: Word<'_, E>, task: &mut Task) -> Result<(), E> {
        task.rethooks.clear();
        if let Some([first, next, ret_addr, frame]) = self.rethooks {
            let mut node = word(address.wrapping_add(first))?;
            // The list has the newest first.
            while node != 0 && task.rethooks.len() < TAKEN_MAX {
                task.rethooks.push(Rethook {
                    ret_addr: word(node.wrapping_add(ret_addr))?,
                    frame: word(node.wrapping_add(frame))?,
                });
                node = word(node.wrapping_add(next))?;
            }
        }

        task.graph.clear();
        if let Some(graph) = &self.graph {
            let stack = word(address.wrapping_add(graph.ret_stack))?;
            if stack != 0 {
                // `curr_ret_stack` is an int.
                let last = word(address.wrapping_add(graph.curr))? as u32 as i32;
                graph.entries(stack, last, word, &mut task.graph)?;
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
    fn entries<E>(
        &self,
        stack: u64,
        last: i32,
        word: Word<'_, E>,
        out: &mut Vec<GraphReturn>,
    ) -> Result<(), E> {
        const WORDS_BACK: u64 = 0x3ff;
        let mut entry = |word: Word<'_, E>, at: u64| {
            out.push(GraphReturn {
                ret: word(at)?,
                retp: word(at.wrapping_add(self.retp))?,
            });
            Ok::<bool, E>(out.len() < TAKEN_MAX)
        };

        // -1 before 6.10, if no return address is taken.
        let Ok(last) = u64::try_from(last) else {
            return Ok(());
        };

        // From the last entry backwards, at most as many as `TAKEN_MAX`.
        let mut left = last;
        if self.is_shadow {
            while left > 0 {
                let length = word(stack.wrapping_add(8 * (left - 1)))?;
                let back = (length & WORDS_BACK) + 1;
                // An entry has a length, and lies inside the stack.
                let Some(begin) = left.checked_sub(back).filter(|_| back > 1) else {
                    break;
                };
                left = begin;
                if !entry(word, stack.wrapping_add(8 * begin))? {
                    break;
                }
            }
        } else {
            while entry(word, stack.wrapping_add(self.size * left))? && left > 0 {
                left -= 1;
            }
        }

        out.reverse();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const TASK: u64 = 0x1000;
    const STACK: u64 = 0x2000;
    const NODE: u64 = 0x3000;
    /// Where in the task the list begins, and in a link the next link, the return address and the frame.
    const RETHOOKS: [u64; 4] = [0x10, 0, 0x18, 0x20];

    fn graph(is_shadow: bool) -> TracerPlaces {
        TracerPlaces {
            rethooks: Some(RETHOOKS),
            graph: Some(Graph {
                ret_stack: 0x20,
                curr: 0x28,
                retp: 0x10,
                size: 0x18,
                is_shadow,
            }),
        }
    }

    /// What is read where memory has these words.
    fn read(places: &TracerPlaces, words: &[(u64, u64)]) -> Result<Task, u64> {
        let words: BTreeMap<u64, u64> = words.iter().copied().collect();
        let mut task = Task::default();
        let mut word = |at: u64| words.get(&at).copied().ok_or(at);
        places.read(TASK, &mut word, &mut task)?;
        Ok(task)
    }

    fn entry(at: u64, number: u64) -> [(u64, u64); 2] {
        [(at, 0x100 + number), (at + 0x10, 0x200 + number)]
    }

    fn taken(number: u64) -> GraphReturn {
        GraphReturn {
            ret: 0x100 + number,
            retp: 0x200 + number,
        }
    }

    const NONE: [(u64, u64); 2] = [(TASK + 0x10, 0), (TASK + 0x20, 0)];

    #[test]
    fn a_kernel_without_tracers_has_taken_nothing() {
        let task = read(&TracerPlaces::default(), &[]).expect("nothing is read");
        assert_eq!((task.rethooks, task.graph), (vec![], vec![]));
    }

    #[test]
    fn what_kretprobes_took_is_a_list_with_the_newest_first() {
        let second = NODE + 0x100;
        let words = [
            (TASK + 0x10, NODE),
            (NODE, second),
            (NODE + 0x18, 0x51),
            (NODE + 0x20, 0x61),
            (second, 0),
            (second + 0x18, 0x52),
            (second + 0x20, 0x62),
            NONE[1],
        ];
        let task = read(&graph(true), &words).expect("all words are there");
        let of = |ret_addr, frame| Rethook { ret_addr, frame };
        assert_eq!(task.rethooks, [of(0x51, 0x61), of(0x52, 0x62)]);
        // A list that has no end.
        let words = words.map(|(at, word)| (at, if at == second { NODE } else { word }));
        let task = read(&graph(true), &words).expect("all words are there");
        assert_eq!(task.rethooks.len(), TAKEN_MAX);
    }

    #[test]
    fn the_function_graph_tracer_had_an_array() {
        let last = |last: u32| (TASK + 0x28, u64::from(last) | 0xabcd << 32);
        let words = |curr| {
            let mut words = vec![NONE[0], (TASK + 0x20, STACK), last(curr)];
            words.extend((0..3).flat_map(|n| entry(STACK + 0x18 * n, n)));
            words
        };
        let task = read(&graph(false), &words(1)).expect("all words are there");
        assert_eq!(task.graph, [taken(0), taken(1)]);
        // An int of -1.
        let task = read(&graph(false), &words(u32::MAX)).expect("all words are there");
        assert_eq!(task.graph, []);
        assert_eq!(read(&graph(false), &words(3)), Err(STACK + 0x18 * 3));
    }

    #[test]
    fn the_function_graph_tracer_has_a_stack_of_entries_with_lengths() {
        // Two entries of three words, with a word each that says so.
        let mut words = vec![NONE[0], (TASK + 0x20, STACK), (TASK + 0x28, 8)];
        words.extend(entry(STACK, 0));
        words.push((STACK + 0x18, 3 | 1 << 10));
        words.extend(entry(STACK + 0x20, 1));
        words.push((STACK + 0x38, 3 | 1 << 10));
        let task = read(&graph(true), &words).expect("all words are there");
        assert_eq!(task.graph, [taken(0), taken(1)]);
        // A length beyond the start of the stack, and none at all.
        for length in [9, 0] {
            let words: Vec<(u64, u64)> = words
                .iter()
                .map(|&(at, word)| (at, if at == STACK + 0x38 { length } else { word }))
                .collect();
            let task = read(&graph(true), &words).expect("all words are there");
            assert_eq!(task.graph, []);
        }
    }
}

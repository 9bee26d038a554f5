//! The oracle's books on branch records, from the log alone: the calls that each thread has made
//! and not returned from, and the memory for branch records.
//!
//! A processor does not see that a signal, a uprobe or execve replaces the stack: its records stay,
//! and later returns remove them.

use super::ExpectedBranches;
use super::rule::Rule;
use crate::log::{Entry, Fact};
use crate::setup::EventSetup;
use crate::stack::{StackId, StackSource};
use std::collections::BTreeMap;
use unwind_sim_perf_data::BranchEntry;
use unwind_sim_perf_lbr::{Step, Storage};

/// Size of a call, which is its distance from the return address, bytes.
const CALL: u64 = 5;
/// The most calls of a stack that are considered, from the innermost on.
const CALLS_MAX: usize = 1024;

/// The calls of a thread.
#[derive(Clone, Debug, Default)]
struct Calls {
    /// Their addresses, outermost first.
    froms: Vec<u64>,
    held: usize,
}

/// The books.
pub(super) struct BranchAccounts {
    depth: usize,
    storage: Storage,
    threads: BTreeMap<i32, Calls>,
    /// The memory by number, and whether it was freed.
    memory: BTreeMap<u64, bool>,
    /// Memory that a switch on the CPU is about to write.
    in_use: BTreeMap<u16, u64>,
}

/// A broken rule and its description.
type Fault = (Rule, String);

impl BranchAccounts {
    /// `None` if no event has branch records.
    pub(super) fn new(events: &[EventSetup], depth: usize, storage: Storage) -> Option<Self> {
        events.iter().find(|event| event.branch_stack)?;
        Some(Self {
            depth,
            storage,
            threads: BTreeMap::new(),
            memory: BTreeMap::new(),
            in_use: BTreeMap::new(),
        })
    }

    /// User code goes from one stack to another. `recorded`: its branches are recorded.
    pub(super) fn ran(
        &mut self,
        tid: i32,
        from: Option<StackId>,
        to: StackId,
        source: &dyn StackSource,
        recorded: bool,
    ) {
        let calls = |stack: StackId| {
            let made = 1..source.depth(stack);
            let mut froms: Vec<u64> = made
                .take(CALLS_MAX)
                .map(|frame| source.frame(stack, frame).wrapping_sub(CALL))
                .collect();
            froms.reverse();
            froms
        };

        let (old, new) = (from.map(calls), calls(to));
        let thread = self.threads.entry(tid).or_default();

        // Calls made before the thread was seen are on its stack, but not in a ring.
        let Some(old) = old else {
            thread.froms = new;
            return;
        };

        // The ring is a stack of calls: what both stacks share stays, returns remove the rest.
        let common = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
        let returns = old.len() - common;
        let left = thread.froms.len().saturating_sub(returns);

        thread.froms.truncate(left);
        thread.froms.extend(&new[common..]);

        if recorded {
            // Returns remove entries, calls add some, and the oldest fall out.
            let held = thread.held.saturating_sub(returns);
            thread.held = (held + new.len() - common).min(self.depth);
        }
    }

    /// A thread was created: it continues in the calls of its parent, none of them recorded.
    pub(super) fn forked(&mut self, maker: i32, child: i32) {
        let froms = self.threads.get(&maker).map(|calls| calls.froms.clone());
        let froms = froms.unwrap_or_default();
        self.threads.insert(child, Calls { froms, held: 0 });
    }

    /// Forgets the records of threads that are no longer recorded.
    pub(super) fn closed(&mut self, is_recorded: impl Fn(i32) -> bool) {
        for (&tid, calls) in &mut self.threads {
            if !is_recorded(tid) {
                calls.held = 0;
            }
        }
    }

    /// The branch stack that a sample of the thread must have now.
    pub(super) fn due(&self, tid: i32, frames: usize) -> ExpectedBranches {
        let Some(thread) = self.threads.get(&tid) else {
            return ExpectedBranches::default();
        };
        ExpectedBranches {
            froms: thread
                .froms
                .iter()
                .rev()
                .take(self.depth)
                .copied()
                .collect(),
            calls: frames.saturating_sub(1),
            held: thread.held,
        }
    }

    /// Checks a sample's branch stack.
    pub(super) fn judge(
        &self,
        tid: i32,
        due: &ExpectedBranches,
        entries: &[BranchEntry],
    ) -> Option<Fault> {
        // Both are newest first, so a shorter stack is a prefix of the true one.
        let are_own = entries.len() <= due.froms.len()
            && entries
                .iter()
                .zip(&due.froms)
                .all(|(e, due)| e.from == *due);

        if !are_own {
            let stranger = entries.iter().find(|e| !due.froms.contains(&e.from));
            let of = |(&other, calls): (&i32, &Calls)| {
                let from = stranger?.from;
                (other != tid && calls.froms.contains(&from)).then_some(other)
            };
            let whose = self.threads.iter().find_map(of);
            let what = match (stranger, whose) {
                (Some(entry), Some(other)) => {
                    format!("branch from {:x} is of thread {other}", entry.from)
                }
                (Some(entry), None) => format!("branch from {:x} is not its own", entry.from),
                (None, _) => "branches are not those nearest to the leaf".to_owned(),
            };
            return Some((Rule::OwnBranches, what));
        }

        // With memory for each context, branches may be missing for a reason.
        let is_cut = self.storage != Storage::PerContext && entries.len() != due.held;
        is_cut.then(|| {
            let (has, held) = (entries.len(), due.held);
            let what = format!("{has} branches, {held} were recorded");
            (Rule::WholeBranches, what)
        })
    }

    /// Checks a fact about memory.
    pub(super) fn fact(&mut self, entry: &Entry) -> Option<Fault> {
        let fault = |what: String| Some((Rule::BranchMemory, what));

        let step = match entry.fact {
            Fact::Branches(step) => step,
            Fact::Switch { .. } => {
                self.in_use.remove(&entry.cpu);
                return None;
            }
            _ => return None,
        };

        // Memory is followed from its allocation to its end; every use in between must find it
        // there.
        let piece = match step {
            Step::Wiped { .. } => return None,
            Step::Allocated { piece, .. } => {
                let was = self.memory.insert(piece, false);
                return was.and_then(|_| fault(format!("memory {piece} is handed out twice")));
            }
            Step::Freed { piece } => {
                let was = self.memory.insert(piece, true);
                if was != Some(false) {
                    return fault(format!("memory {piece} is freed twice"));
                }
                let user = self.in_use.iter().find(|(_, used)| **used == piece);
                return user.and_then(|(cpu, _)| {
                    fault(format!("memory {piece} is freed while cpu{cpu} uses it"))
                });
            }
            Step::Found { piece } => {
                self.in_use.insert(entry.cpu, piece);
                piece
            }
            Step::Saved { piece } => {
                // This ends the RCU read section.
                self.in_use.remove(&entry.cpu);
                piece
            }
            Step::Restored { piece } | Step::Skipped { piece } => piece,
        };

        let is_there = self.memory.get(&piece) == Some(&false);
        (!is_there).then(|| {
            (
                Rule::BranchMemory,
                format!("memory {piece} is used, but freed"),
            )
        })
    }

    /// Checks that no memory is left at the end.
    pub(super) fn end(&self) -> Option<Fault> {
        let left = self.memory.iter().find(|(_, freed)| !**freed);
        left.map(|(piece, _)| {
            let what = format!("memory {piece} is never freed");
            (Rule::BranchMemory, what)
        })
    }
}

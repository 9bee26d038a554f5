//! Branch records of a program in the emulated machine: rings in call-stack mode, user space only,
//! as configured by `perf record --call-graph lbr`, and what the kernel does with them at context
//! switches.

use unwind_sim_emulator::linux::Task;
use unwind_sim_perf_lbr::{Branch, Depth, Kernel, Kind, Layout, Mutation, Ring, Storage, Tid};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::lbr::{self, BranchStack};

/// The machine has one processor.
const CPU: usize = 0;

/// The rings of branch records to keep.
#[derive(Clone, Debug)]
pub struct Lbr {
    /// The depth of each.
    pub depths: Vec<Depth>,
    /// What becomes of the records of a task that does not run: with [`Storage::PerContext`] the
    /// rings are wiped at every switch, otherwise saved and restored.
    pub storage: Storage,
}

/// None.
impl Default for Lbr {
    fn default() -> Lbr {
        Lbr {
            depths: Vec::new(),
            storage: Storage::PerTask,
        }
    }
}

/// Rings of several depths that get the same branches, each with a kernel of its own.
pub(super) struct Rings(Vec<Kernel>);

fn tid(task: Task) -> Tid {
    task.thread.cast_signed()
}

impl Rings {
    /// Empty rings, for a recording of all tasks.
    pub(super) fn new(lbr: &Lbr) -> Rings {
        let kernel = |&depth: &Depth| {
            let layout = Layout::default();
            let mut kernel = Kernel::new(1, depth, lbr.storage, layout, Mutation::None);
            kernel.attach_system(None);
            kernel.start(tid(Task::FIRST), None);
            kernel.sched_task(CPU, tid(Task::FIRST));
            kernel
        };
        Rings(lbr.depths.iter().map(kernel).collect())
    }

    /// The running thread has created another one, or a process.
    pub(super) fn forked(&mut self, running: Task, child: Task) {
        for kernel in &mut self.0 {
            kernel.fork(tid(running), tid(child), true);
        }
    }

    /// Another thread runs from here on.
    pub(super) fn switched(&mut self, task: Task) {
        for kernel in &mut self.0 {
            kernel.sched_task(CPU, tid(task));
        }
    }

    /// A thread has ended.
    pub(super) fn ended(&mut self, task: Task) {
        for kernel in &mut self.0 {
            kernel.exit(tid(task));
        }
    }

    /// Records the instruction at `from`, after which the next one is at `to`.
    #[inline]
    pub(super) fn branch(&mut self, insn: Insn, from: u64, to: u64) {
        if self.0.is_empty() {
            return;
        }
        let kind = match insn {
            Insn::Call {
                indirect: false, ..
            } => Kind::Call,
            Insn::Call { indirect: true, .. } => Kind::IndirectCall,
            Insn::Ret => Kind::Return,
            // Call-stack mode filters out everything else.
            _ => return,
        };

        // All rings get the same branches.
        let task = 0;
        for kernel in &mut self.0 {
            kernel.branch(
                CPU,
                Branch {
                    from,
                    to,
                    kind,
                    task,
                },
            );
        }
    }

    /// The contents of the rings.
    pub(super) fn read(&self) -> Vec<BranchStack> {
        let rings = self.0.iter().filter_map(|kernel| kernel.ring(CPU));
        let stack = |ring: &Ring| BranchStack {
            depth: ring.depth() as u32,
            hw_index: Some(ring.tos() as u64),
            entries: ring
                .read()
                .iter()
                .map(|b| lbr::Branch {
                    from: b.from,
                    to: b.to,
                })
                .collect(),
        };
        rings.map(stack).collect()
    }
}

//! Follows a kernel that the machine executes: its stacks, of which each task has one, and what the
//! processor does between instructions.

use super::Checker;
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Permissions};
use unwind_sim_record::machine::{KERNEL_STACK, cpu, cpu_at};
use unwind_sim_unwind::image::Mapping;
use unwind_sim_unwind::truth::{Cpu, Tracker};

/// Where a kernel does what cannot be seen from its instructions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelPlaces {
    /// The code that goes on with the stack of another task (`__switch_to_asm`).
    pub switch: Range<u64>,
    /// The addresses of code.
    pub code: Vec<Range<u64>>,
    /// Where a new task begins (`ret_from_fork_asm`, or `ret_from_fork`).
    pub begin: u64,
}

/// What is known of the stacks of a kernel's tasks.
#[derive(Default)]
pub(super) struct KernelTasks {
    places: KernelPlaces,
    /// The number of the task of each stack, by the stack's start.
    numbers: HashMap<u64, u32>,
}

/// What `__switch_to_asm` pops before it goes on, from rsp up (Linux `struct inactive_task_frame`,
/// `arch/x86/include/asm/switch_to.h`): r15, r14, r13, r12, rbx, rbp. The return address is behind it.
const INACTIVE_WORDS: usize = 6;

impl Checker<'_> {
    /// From now on what is observed is a kernel.
    pub fn follow_kernel(&mut self, mut places: KernelPlaces) {
        self.walks.end();
        self.stacks.code = std::mem::take(&mut places.code);
        self.kernel = Some(Box::new(KernelTasks {
            places,
            numbers: HashMap::new(),
        }));
    }

    /// Code is mapped from the start.
    pub fn map_code(&mut self, mapping: Mapping) {
        self.mapped.places.mapped(&mapping);
        self.mapped.jit.mapped(&mapping);
        self.mapped.map(mapping, Permissions::READ_EXECUTE);
    }

    /// If the instruction that was executed has loaded rsp with the stack of another task: goes on with
    /// that one's frames.
    pub(super) fn switch_task(&mut self, core: &Core, next: u64) -> bool {
        let before = self.current.before;
        let Some(kernel) = &mut self.kernel else {
            return false;
        };
        let rsp = core.state.gpr(4);
        let start = |rsp: u64| rsp & !(KERNEL_STACK - 1);
        let (old, new) = (start(before.rsp), start(rsp));
        if old == new || !kernel.places.switch.contains(&before.rip) {
            return false;
        }

        let running = self.stacks.task;
        kernel.numbers.insert(old, running.thread);
        let count = kernel.numbers.len() as u32;
        let number = *kernel.numbers.entry(new).or_insert(running.process + count);
        let task = Task {
            process: running.process,
            thread: number,
        };

        let word = |number: usize| {
            let at = rsp.wrapping_add(8 * number as u64);
            core.memory.read_u64(at).unwrap_or(0)
        };
        let pc = word(INACTIVE_WORDS);
        let at = cpu_at(&core.state, next);
        if pc == kernel.places.begin {
            // rbx, rbp, r12 to r15.
            let saved = [4, 5, 3, 2, 1, 0].map(word);
            let slot = rsp.wrapping_add(8 * INACTIVE_WORDS as u64);
            let entry = Cpu {
                rsp: slot,
                saved,
                ..at
            };
            let end = start(rsp).wrapping_add(KERNEL_STACK);
            let ended = self.stacks.remove(task);
            self.processes.add_earlier(ended);
            self.stacks.add(task, Tracker::prepared(&entry, pc, end));
        }

        self.stores.forget();
        self.outcome.change_all();
        self.stacks.rest();
        self.stacks.switch(task, &at);
        self.stacks.wake();
        self.walks.take_next();
        true
    }

    /// The running task's stack is empty, or what was on it is of no concern any longer.
    fn start_stack(&mut self, tracker: Tracker) {
        let ended = std::mem::replace(&mut self.stacks.tracker, tracker);
        self.processes.add_earlier(Some(*ended.stats()));
        self.outcome.change_all();
    }

    /// An instruction was executed behind which other code goes on.
    fn left_by(&mut self) {
        self.end_run();
        self.stores.forget();
        self.counts.executed += 1;
    }
}

impl SystemObserver for Checker<'_> {
    fn entered(&mut self, entry: &SystemEntry, core: &Core) {
        self.end_run();
        self.stores.forget();
        let mut handler = cpu_at(&core.state, core.state.rip);
        if entry.from_user {
            self.start_stack(Tracker::root(&handler, handler.rsp));
        } else {
            // An error code is below it.
            handler.rsp = entry.frame.unwrap_or(handler.rsp);
            self.walk_interrupted(core, &entry.interrupted);
            self.stacks.tracker.trap(&cpu(&entry.interrupted), &handler);
            self.outcome.change_all();
        }
        self.walks.take_next();
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        self.left_by();
        let after = cpu_at(&core.state, core.state.rip);
        self.stacks.iret(&cpu(before), &after, core);
        self.outcome.change_all();
        self.walks.take_next();
    }

    fn left(&mut self, core: &Core) {
        self.left_by();
        let at = cpu_at(&core.state, core.state.rip);
        self.start_stack(Tracker::root(&at, at.rsp));
    }
}

//! The stacks of a kernel that the machine executes: each task has one. [`KernelTasks`] finds where
//! another task's stack goes on; [`KernelShadow`] is the shadow stack of all of them.

use crate::kernel::truth;
use crate::machine::{KERNEL_STACK, KernelCode, cpu, cpu_at};
use crate::shadow::Shadow;
use std::collections::HashMap;
use std::ops::Range;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Observer, State};
use unwind_sim_recordings::kernel::KernelImage;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::{Cpu, Stats, Tracker, TrueFrame, TrueKind, Truth};

/// Where a kernel does what cannot be seen from its instructions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelPlaces {
    /// The code that goes on with the stack of another task (`__switch_to_asm`).
    pub switch: Range<u64>,
    /// Its code.
    pub code: KernelCode,
    /// Where a new task begins (`ret_from_fork_asm`, or `ret_from_fork`).
    pub begin: u64,
}

/// Physical memory that is mapped where it is, in which a kernel begins.
pub const IDENTITY: Range<u64> = 0x1000..1 << 32;
/// The addresses of modules and of generated code (Linux `Documentation/arch/x86/x86_64/mm.rst`).
pub const MODULES: Range<u64> = 0xffff_ffff_a000_0000..0xffff_ffff_ff00_0000;
/// The symbol of the code that goes on with the stack of another task.
const SWITCH: &str = "__switch_to_asm";
/// The symbols of the code at which a new task begins, newest first: it was renamed in 6.6.
const BEGIN: [&str; 2] = ["ret_from_fork_asm", "ret_from_fork"];
/// The symbols of the code of tracers that functions return to instead: of the function graph tracer and of
/// kretprobes, newest first (renamed in 5.14 and 5.19).
const TRAMPOLINES: [&str; 4] = [
    "return_to_handler",
    "arch_rethook_trampoline",
    "__kretprobe_trampoline",
    "kretprobe_trampoline",
];

impl KernelPlaces {
    /// Those of `kernel`, moved up by `slide`. `None` if its symbols do not say so.
    pub fn of(kernel: &KernelImage, slide: u64) -> Option<KernelPlaces> {
        let at = |name: &str| {
            let mut all = kernel.symbols.iter();
            all.find(|s| s.name == name).map(|s| s.address)
        };
        let start = at(SWITCH)?;
        let later = kernel.symbols.iter().map(|s| s.address);
        let end = later.filter(|&address| address > start).min()?;
        let moved = |range: &Range<u64>| range.start + slide..range.end + slide;
        let trampolines = TRAMPOLINES.into_iter().filter_map(at);
        let trampolines = trampolines.map(|address| address + slide);
        let own = kernel.image.text().iter().map(moved);
        Some(KernelPlaces {
            switch: moved(&(start..end)),
            begin: BEGIN.into_iter().find_map(at)? + slide,
            code: KernelCode {
                ranges: own.chain([IDENTITY, MODULES]).collect(),
                trampolines: trampolines.collect(),
            },
        })
    }
}

/// What `__switch_to_asm` pops before it goes on, from rsp up (Linux `struct inactive_task_frame`,
/// `arch/x86/include/asm/switch_to.h`): r15, r14, r13, r12, rbx, rbp. The return address is behind it.
pub(crate) const INACTIVE_WORDS: usize = 6;

/// The tasks of a kernel, by their stacks.
#[derive(Clone, Debug, Default)]
pub struct KernelTasks {
    places: KernelPlaces,
    /// The number of the task of each stack, by the stack's start.
    numbers: HashMap<u64, u32>,
}

/// Another task goes on.
#[derive(Debug)]
pub struct TaskSwitch {
    /// The task.
    pub task: Task,
    /// Its shadow stack, if the task is a new one. What was known of its stack is over.
    pub begins: Option<Tracker>,
}

impl KernelTasks {
    /// Those of a kernel of which none has run.
    pub fn new(places: KernelPlaces) -> KernelTasks {
        KernelTasks {
            places,
            numbers: HashMap::new(),
        }
    }

    /// The task that goes on, if the instruction that was executed by `running` at `before` has loaded rsp
    /// with the stack of another one. The next instruction is at `next`.
    #[inline]
    pub fn switch(
        &mut self,
        running: Task,
        before: &Cpu,
        core: &Core,
        next: u64,
    ) -> Option<TaskSwitch> {
        let rsp = core.state.gpr(4);
        let start = |rsp: u64| rsp & !(KERNEL_STACK - 1);
        let (old, new) = (start(before.rsp), start(rsp));
        if old == new || !self.places.switch.contains(&before.rip) {
            return None;
        }

        self.numbers.insert(old, running.thread);
        let count = self.numbers.len() as u32;
        let number = *self.numbers.entry(new).or_insert(running.process + count);
        let task = Task {
            process: running.process,
            thread: number,
        };

        let word = |number: usize| {
            let at = rsp.wrapping_add(8 * number as u64);
            core.memory.read_u64(at).unwrap_or(0)
        };
        let pc = word(INACTIVE_WORDS);
        let begins = (pc == self.places.begin).then(|| {
            // rbx, rbp, r12 to r15.
            let saved = [4, 5, 3, 2, 1, 0].map(word);
            let slot = rsp.wrapping_add(8 * INACTIVE_WORDS as u64);
            let entry = Cpu {
                rsp: slot,
                saved,
                ..cpu_at(&core.state, next)
            };
            Tracker::prepared(&entry, pc, new.wrapping_add(KERNEL_STACK))
        });
        Some(TaskSwitch { task, begins })
    }
}

/// Ring 0 was entered, or something interrupted it: changes the shadow stack of the task that runs. Returns
/// what it had before, if what was on its stack is of no concern any longer.
pub fn enter(tracker: &mut Tracker, entry: &SystemEntry, core: &Core) -> Option<Stats> {
    let mut handler = cpu_at(&core.state, core.state.rip);
    if entry.from_user {
        return Some(start(tracker, &handler));
    }
    // An error code is below it.
    handler.rsp = entry.frame.unwrap_or(handler.rsp);
    tracker.trap(&cpu(&entry.interrupted), &handler);
    None
}

/// User mode goes on: the running task's stack is empty. Returns what its shadow stack had.
pub fn leave(tracker: &mut Tracker, state: &State) -> Stats {
    start(tracker, &cpu_at(state, state.rip))
}

fn start(tracker: &mut Tracker, at: &Cpu) -> Stats {
    let ended = std::mem::replace(tracker, Tracker::root(at, at.rsp));
    *ended.stats()
}

/// An observer that keeps the shadow stacks of a kernel's tasks.
#[derive(Clone)]
pub struct KernelShadow {
    shadow: Shadow,
    tasks: KernelTasks,
}

impl KernelShadow {
    /// That of a kernel that has not started.
    pub fn new(mut places: KernelPlaces) -> KernelShadow {
        KernelShadow {
            shadow: Shadow::kernel(std::mem::take(&mut places.code)),
            tasks: KernelTasks::new(places),
        }
    }

    fn switch(&mut self, core: &Core, next: u64) -> bool {
        let before = self.shadow.state_before();
        let switch = self.tasks.switch(self.shadow.task(), before, core, next);
        let Some(TaskSwitch { task, begins }) = switch else {
            return false;
        };
        if let Some(begins) = begins {
            self.shadow.thread_ended(task);
            self.shadow.thread_starts(task, begins);
        }
        self.shadow.switch(task, core);
        true
    }

    /// The task that runs. The numbers are ours.
    pub fn task(&self) -> Task {
        self.shadow.task()
    }

    /// The shadow stack of the task that runs.
    pub fn tracker(&self) -> &Tracker {
        self.shadow.tracker()
    }

    /// The true chain, up to where ring 0 was entered. The next instruction is at `rip`.
    pub fn truth(&self, core: &Core, rip: u64) -> Truth {
        self.shadow.truth(core, rip)
    }

    /// The true chain of the task that left the processor with this rsp (`thread.sp`), from the function on that
    /// called the switch. Unknown if the task has not run since the start.
    pub fn truth_at_rest(&self, core: &Core, rsp: u64) -> Truth {
        let slot = rsp.wrapping_add(8 * INACTIVE_WORDS as u64);
        let Ok(pc) = core.memory.read_u64(slot) else {
            return Truth::Unknown;
        };
        // It has not run yet.
        if pc == self.tasks.places.begin {
            return Truth::Complete(vec![TrueFrame {
                pc,
                cfa: 0,
                kind: TrueKind::Top,
                saved: None,
            }]);
        }

        let Some(&thread) = self.tasks.numbers.get(&(rsp & !(KERNEL_STACK - 1))) else {
            return Truth::Unknown;
        };
        let task = Task {
            thread,
            ..self.shadow.task()
        };
        let at = Cpu {
            rsp,
            ..cpu_at(&core.state, pc)
        };
        // The innermost frame is that of the code that switches.
        let whole = self.shadow.truth_of(task, &at).unwrap_or_default();
        match whole.frames().get(1) {
            Some(caller) if caller.pc == pc => truth::from(&whole, 1, pc),
            _ => Truth::Unknown,
        }
    }

    /// Statistics so far.
    pub fn stats(&self) -> Stats {
        self.shadow.stats()
    }
}

impl Observer for KernelShadow {
    #[inline]
    fn enter(&mut self, _: &Core, block: Option<BlockId>, operations: usize, _: u64) -> usize {
        self.shadow.enter(block, operations);
        0
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        self.shadow.before(core, insn);
    }

    #[inline]
    fn after(&mut self, core: &Core, _: &Executed, next: u64) {
        if self.shadow.class() != Insn::MoveSp || !self.switch(core, next) {
            self.shadow.after(core, next);
        }
    }
}

impl SystemObserver for KernelShadow {
    fn entered(&mut self, entry: &SystemEntry, core: &Core) {
        self.shadow.replace(|tracker| enter(tracker, entry, core));
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        self.shadow.iret(&cpu(before), core);
    }

    fn left(&mut self, core: &Core) {
        self.shadow
            .replace(|tracker| Some(leave(tracker, &core.state)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unwind_sim_emulator::{AddressSpace, Permissions};

    const STACK: Range<u64> = 0x10_0000..0x10_0000 + KERNEL_STACK;
    const CALLER: u64 = 0x40_0010;
    const BEGIN: u64 = 0x40_0100;

    /// The truth of a task that was left with rsp at `at`, where the word that its switch returns to is `pc`.
    fn truth_at_rest(at: u64, pc: u64) -> Truth {
        let mut memory = AddressSpace::default();
        let mapped = memory.map(STACK, Permissions::READ_WRITE);
        mapped.expect("it is free");
        let slot = at + 8 * INACTIVE_WORDS as u64;
        let written = memory.write(slot, &pc.to_le_bytes());
        written.expect("it is mapped");

        let mut shadow = KernelShadow::new(KernelPlaces {
            begin: BEGIN,
            ..KernelPlaces::default()
        });
        let task = Task {
            thread: 5,
            ..shadow.task()
        };
        shadow.tasks.numbers.insert(STACK.start, task.thread);
        let entry = Cpu {
            rsp: slot,
            ..Cpu::default()
        };
        let tracker = Tracker::prepared(&entry, CALLER, STACK.end);
        shadow.shadow.thread_starts(task, tracker);
        shadow.truth_at_rest(&Core::new(memory), at)
    }

    #[test]
    fn a_task_at_rest_begins_with_the_caller_of_its_switch() {
        let at = STACK.end - 0x100;
        let truth = truth_at_rest(at, CALLER);
        let frames: Vec<(u64, TrueKind)> = truth.frames().iter().map(|f| (f.pc, f.kind)).collect();
        assert_eq!(frames, [(CALLER, TrueKind::Top)]);
        assert!(truth.is_complete());
        // Another task was here, or none has run.
        assert_eq!(truth_at_rest(at, CALLER + 1), Truth::Unknown);
        let truth = truth_at_rest(at, BEGIN);
        assert!(truth.is_complete());
        assert_eq!(truth.frames()[0].pc, BEGIN);
    }
}

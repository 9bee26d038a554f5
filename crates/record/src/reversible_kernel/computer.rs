//! A computer with what is known of its run: its shadow stacks, and where it is.

use crate::boot::{Boot, LoadError};
use crate::kernel::PID;
use crate::kernel::stopped::StoppedCore;
use crate::kernel::world::KernelLayout;
use crate::kernel_stacks::{KernelPlaces, KernelShadow};
use crate::reversible::Look;
use std::ops::Range;
use std::sync::Arc;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::state::Preserved;
use unwind_sim_emulator::system::{Stopped, System, SystemEntry, SystemObserver};
use unwind_sim_emulator::{Core, Observer};
use unwind_sim_recordings::world::World;

/// Instructions from the switch of stacks until the next task is the current one, at most.
const SWITCH_MAX: u64 = 1 << 12;
/// The vector of a debug exception.
const DEBUG: u8 = 1;

/// A computer, and the observer of its kernel.
pub(super) struct Computer {
    pub(super) system: System,
    watcher: Watcher,
    /// The numbers of the states at which an NMI comes, in order.
    nmis: Arc<[u64]>,
    /// Why it can no longer run.
    pub(super) end: Option<Stopped>,
}

/// What is known of a run besides the computer's state.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) shadow: KernelShadow,
    /// The number of the state.
    pub(super) number: u64,
    /// The exceptions and interrupts delivered, which are states as instructions are.
    deliveries: u64,
    /// The number of NMIs that have come.
    nmis: usize,
}

/// A search: what is looked for, and where it was found.
pub(super) struct Search {
    look: Box<dyn Look>,
    /// The only addresses where it can be.
    pub(super) addresses: Option<Vec<u64>>,
    world: World,
    tasks: Option<Arc<KernelLayout>>,
    /// The running task as the shadow stacks number it, since when it runs, and its PID.
    task: (u32, u64, u32),
    pub(super) first: Option<u64>,
    pub(super) last: Option<u64>,
}

impl Search {
    pub(super) fn new(
        look: Box<dyn Look>,
        addresses: Option<Vec<u64>>,
        (world, tasks): (&World, Option<&Arc<KernelLayout>>),
    ) -> Search {
        Search {
            look,
            addresses,
            world: world.clone(),
            tasks: tasks.cloned(),
            task: (0, 0, 0),
            first: None,
            last: None,
        }
    }

    /// Whether it is at the state of a computer.
    pub(super) fn is_at(&mut self, computer: &Computer) -> bool {
        let known = &computer.watcher.known;
        let core = &computer.system.machine.core;
        self.is_there(core, core.state.rip, known.shadow.task(), known.number)
    }

    fn is_there(&mut self, core: &Core, rip: u64, task: Task, number: u64) -> bool {
        if let Some(addresses) = &self.addresses {
            return addresses.contains(&rip);
        }
        let (running, since, _) = self.task;
        if running != task.thread || since > number {
            (self.task.0, self.task.1) = (task.thread, number);
        }
        // The kernel says a little later than its stack which task is the current one.
        if number - self.task.1 < SWITCH_MAX {
            let pid = self.tasks.as_ref().and_then(|tasks| {
                let pid = tasks.current_pid(&mut StoppedCore { core, rip });
                pid.ok()
            });
            self.task.2 = pid.unwrap_or(0);
        }
        let task = Task {
            process: PID,
            thread: self.task.2,
        };
        self.look.is_there(core, rip, task, &self.world)
    }

    fn found(&mut self, number: u64) {
        self.first.get_or_insert(number);
        self.last = Some(number);
    }
}

impl Computer {
    /// A computer with a kernel that has not executed anything.
    pub(super) fn start(boot: &Boot<'_>, places: &KernelPlaces) -> Result<Computer, LoadError> {
        let mut system = boot.load()?;
        // What is kept is bounded by the checkpoints; more than all of memory never changes.
        system.machine.core.memory.set_history_max(usize::MAX);
        let known = Known {
            shadow: KernelShadow::new(places.clone()),
            number: 0,
            deliveries: 0,
            nmis: 0,
        };
        Ok(Computer {
            system,
            watcher: Watcher {
                known,
                entered: None,
                has_stopped: false,
                at: Vec::new(),
                stopped_in: 0..0,
                executed: 0,
                idle: 0,
                search: None,
            },
            nmis: Arc::new([]),
            end: None,
        })
    }

    /// From now on, NMIs come at the states of these numbers.
    pub(super) fn set_nmis(&mut self, nmis: Arc<[u64]>) {
        self.nmis = nmis;
    }

    /// The number of the state.
    pub(super) fn number(&self) -> u64 {
        self.watcher.known.number
    }

    pub(super) fn known(&self) -> &Known {
        &self.watcher.known
    }

    /// Its state has become that of which this is known, from which it can go on.
    pub(super) fn set_known(&mut self, known: Known) {
        self.watcher.known = known;
        self.watcher.entered = None;
        self.end = None;
    }

    /// How ring 0 was entered right before this state, if [`Computer::run`] has stopped for that.
    pub(super) fn entered(&self) -> Option<&SystemEntry> {
        self.watcher.entered.as_ref()
    }

    /// Goes on at most to state `number`, and stops where ring 0 is entered.
    pub(super) fn run(&mut self, number: u64) {
        let watcher = &mut self.watcher;
        let now = watcher.known.number;
        let mut until = number;
        if let Some(&next) = self.nmis.get(watcher.known.nmis) {
            if next <= now {
                watcher.known.nmis += 1;
                if let Some(devices) = self.system.devices() {
                    devices.inject_nmi();
                }
            } else {
                until = until.min(next);
            }
        }

        watcher.entered = None;
        watcher.has_stopped = false;
        watcher.executed = self.system.executed();
        watcher.idle = self.system.now() - self.system.executed();
        let stopped = self.system.run(until.saturating_sub(now), watcher);
        watcher.known.number = self.system.executed() + watcher.known.deliveries;
        watcher.look_at_handler(&self.system.machine.core);
        if stopped != Stopped::Limit {
            self.end = Some(stopped);
        }
        // Nobody reads the console.
        if let Some(devices) = self.system.devices() {
            devices.take_output();
        }
    }

    /// Goes on to state `number`, or to the end of the run.
    pub(super) fn run_to(&mut self, number: u64) {
        while self.end.is_none() && self.number() < number {
            self.run(number);
        }
    }

    /// From now on, what is looked for is looked for at each instruction of the kernel.
    pub(super) fn set_search(&mut self, search: Search) {
        self.watcher.search = Some(search);
    }

    /// What was found since [`Computer::set_search`].
    pub(super) fn take_search(&mut self) -> Option<Search> {
        self.watcher.search.take()
    }

    /// Goes on to state `number`, and looks for instructions at the addresses of a search, behind where
    /// it is.
    pub(super) fn search_addresses(&mut self, mut search: Search, number: u64) -> Search {
        let addresses = search.addresses.clone().unwrap_or_default();
        let start = self.number();
        while self.end.is_none() && self.number() < number {
            self.watcher.at.clone_from(&addresses);
            self.watcher.stopped_in = 0..0;
            self.run(number);
            self.watcher.at.clear();

            // In front of a block with such an address, one instruction at a time.
            let block = self.watcher.stopped_in.clone();
            loop {
                let rip = self.system.machine.core.state.rip;
                if addresses.contains(&rip) && self.number() > start {
                    search.found(self.number());
                }
                let is_inside = block.contains(&rip);
                if !is_inside || self.end.is_some() || self.number() >= number {
                    break;
                }
                self.run(self.number() + 1);
            }
        }
        search
    }
}

/// Keeps the shadow stacks, and looks.
struct Watcher {
    known: Known,
    /// How ring 0 was entered at last.
    entered: Option<SystemEntry>,
    has_stopped: bool,
    /// The addresses in front of whose blocks the machine stops, and the block at which it did.
    at: Vec<u64>,
    stopped_in: Range<u64>,
    /// The number of instructions executed, while something is looked for, and how long the processor has
    /// waited until then.
    executed: u64,
    idle: u64,
    search: Option<Search>,
}

impl Watcher {
    /// The next instruction of the kernel is at `rip`, and state `number` is before it.
    #[cold]
    fn look(&mut self, core: &Core, rip: u64, number: u64) {
        let task = self.known.shadow.task();
        if let Some(search) = &mut self.search
            && search.is_there(core, rip, task, number)
        {
            search.found(number);
        }
    }

    /// Looks at a handler's first instruction, if ring 0 was just entered.
    fn look_at_handler(&mut self, core: &Core) {
        if self.search.is_some() && self.entered.is_some() {
            self.look(core, core.state.rip, self.known.number);
        }
    }
}

impl Observer for Watcher {
    const STOPS: bool = true;

    fn stops(&mut self, code: Range<u64>) -> bool {
        self.has_stopped = self.at.iter().any(|at| code.contains(at));
        if self.has_stopped {
            self.stopped_in = code;
        }
        self.has_stopped
    }

    fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    #[inline]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        // Instructions of user mode are not seen.
        self.executed = core.time - self.idle;
        self.known.shadow.enter(core, block, operations, end)
    }

    #[inline]
    fn before(&mut self, core: &Core, insn: &Executed) {
        self.known.shadow.before(core, insn);
    }

    #[inline]
    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        self.known.shadow.after(core, insn, next);
        self.executed += 1;
        if self.search.is_some() {
            self.look(core, next, self.executed + self.known.deliveries);
        }
    }
}

impl SystemObserver for Watcher {
    fn entered(&mut self, entry: &SystemEntry, core: &Core) {
        self.known.shadow.entered(entry, core);
        // One that an instruction raises is part of it, as is the trap behind one.
        let is_state = !entry.is_by_instruction && entry.vector != Some(DEBUG);
        self.known.deliveries += u64::from(is_state);
        self.entered = Some(*entry);
        self.has_stopped = true;
    }

    fn returned(&mut self, before: &Preserved, core: &Core) {
        self.known.shadow.returned(before, core);
        self.executed += 1;
        if self.search.is_some() {
            self.look(core, core.state.rip, self.executed + self.known.deliveries);
        }
    }

    fn left(&mut self, core: &Core) {
        self.known.shadow.left(core);
    }
}

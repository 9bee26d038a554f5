//! The observer that compares every row with the shadow stack at every instruction.
//!
//! An outcome is reused if nothing that it depends on has changed: the claims and the frame are the
//! same, and no instruction in between may have written a register or slot that the claims name.
//! With `elide` off everything is computed, and the report must be the same.

mod ahead;
mod calls;
mod deadlock;
mod generated;
mod kernel;
mod kernel_walks;
mod mapped;
mod now;
mod outcome;
mod process;
mod quiet;
mod run;
mod slots;
mod stacks;
mod stray;
mod unwinders;
mod whole;
mod wrong;

use super::claim::{self, Claim, Parts};
use super::code::{Code, Known, NO_EFFECT};
use super::departures::Bounds;
use super::findings::{Finding, Findings};
use super::frames::wrong_in;
use super::generated::Function;
use super::images::Images;
use super::kernel::KernelWalks;
use super::marks::Marks;
use super::memory::MemoryUse;
use super::numbered::{NONE, UNWINDERS_MAX};
use super::places::{PlaceId, Places};
use super::shown::Shown;
use super::stores::SlotStores;
use super::walks::{Disagreement, Walks};
use super::work::Work;
use crate::engine::{Engine, Setting};
use generated::WithoutTable;
use kernel::FollowedKernel;
use mapped::Mapped;
use outcome::Outcome;
use process::Processes;
use quiet::Started;
use run::Run;
use slots::Stores;
use stacks::Stacks;
use unwind_sim_emulator::address_space::Guard;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Core, Observer};
use unwind_sim_record::machine::cpu_at;
use unwind_sim_recordings::files::FileProblem;
use unwind_sim_unwind::image;
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::truth::{Cpu, Stats};
use unwinders::Unwinders;

/// The totals of one unwinder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Instructions at which its row was checked.
    pub checked: u64,
    /// Instructions of generated code for which it has no table.
    pub no_table: u64,
    /// Instructions at which something was wrong, of any class.
    pub wrong: u64,
    /// Instructions at which only a loss of a derived table was found.
    pub lost: u64,
    /// Instructions whose row describes the frame that is jumped to.
    pub target: u64,
    /// Calls at which its row was checked, looked up by the return address - 1.
    pub calls: u64,
    /// Calls at which something was wrong.
    pub calls_wrong: u64,
    /// Calls at which something was wrong with the row looked up by the return address.
    pub calls_wrong_at_return: u64,
    /// Walks of the whole stack.
    pub walks: u64,
    /// Walks whose chain was wrong.
    pub walks_wrong: u64,
    /// Walks that ended in generated code without a table, and are not judged.
    pub walks_unjudged: u64,
    /// Distinct rows that executed instructions met.
    pub rows: u64,
    /// Where bounds were reached, so that rows of the frame that is jumped to may count as wrong.
    pub bounds: Bounds,
}

/// A run's results.
#[derive(Debug)]
pub struct Results {
    /// The totals by unwinder.
    pub tallies: Vec<Tally>,
    /// The contradictions found.
    pub findings: Vec<Finding>,
    /// Walks that contradict the check of single frames, which are bugs in unwind-sim.
    pub disagreements: Vec<Disagreement>,
    /// The number of executed instructions.
    pub instructions: u64,
    /// The statistics of the shadow stack.
    pub truth: Stats,
    /// The number of distinct addresses that were executed.
    pub addresses: u64,
    /// The addresses that were executed.
    pub(super) executed: Marks<PlaceId>,
    /// The places of findings and stores.
    pub places: Places,
    /// Stores into live slots.
    pub stores: SlotStores,
    /// The memory used by the checker, without the machine's decoded code.
    pub memory: MemoryUse,
    /// The generated functions without a table that were executed.
    pub generated: Vec<Function>,
    /// Instructions of generated code without a table that were not kept: a table that the program wrote
    /// later, which they may have, was not used.
    pub not_kept: u64,
    /// The bytes of generated code around findings.
    pub(super) shown: Shown,
    /// How many checks had to be computed.
    pub work: Work,
}

impl Results {
    /// The addresses that were executed, each with what was mapped there, in no particular order.
    pub fn executed(&self) -> impl Iterator<Item = (PlaceId, u64)> {
        self.executed.iter()
    }
}

/// The observer. Each part has a state of its own, and says what holds for it.
pub struct Checker<'a> {
    unwinders: Unwinders<'a>,
    /// What is mapped in the running process.
    mapped: Mapped,
    /// The shadow stacks of the running process.
    stacks: Stacks,
    processes: Processes,
    /// What is known of each instruction before it is executed.
    code: Code,
    current: Current,
    /// The outcome of the last check.
    outcome: Outcome,
    run: Run,
    /// Stores into live slots.
    stores: Stores,
    /// Generated code without a table.
    generated: WithoutTable,
    /// If what is observed is a kernel.
    kernel: Option<Box<FollowedKernel<'a>>>,
    /// If its stacks are walked, too.
    kernel_walks: Option<Box<KernelWalks>>,
    findings: Findings,
    walks: Walks,
    counts: Counts,
}

/// The instruction that is being executed.
struct Current {
    /// Its index in its block.
    index: u32,
    class: Insn,
    /// The registers before it. They are kept only where the shadow stack needs them: at instructions
    /// that may change frames, and while it has to see every instruction.
    before: Cpu,
    /// rax before it, likewise.
    rax: u64,
}

/// What has been counted. Instructions of a [run](Run) are counted at its end.
struct Counts {
    tallies: [Tally; UNWINDERS_MAX],
    work: Work,
    /// Instructions whose row was checked, and those of generated code without a table.
    checked: u64,
    /// Executed instructions; also the number of the next one.
    executed: u64,
}

impl<'a> Checker<'a> {
    /// A checker that finds images by `images`. All `engines` must read tables.
    pub fn new(engines: &'a [Engine], images: Images, setting: Setting, elide: bool) -> Self {
        let unwinders = Unwinders::new(engines);
        Checker {
            findings: Findings::new(unwinders.expected()),
            unwinders,
            mapped: Mapped::new(images),
            stacks: Stacks::new(),
            processes: Processes::new(),
            code: Code::new(),
            current: Current {
                index: 0,
                class: Insn::Other,
                before: Cpu::default(),
                rax: 0,
            },
            outcome: Outcome::new(elide),
            run: Run::NONE,
            stores: Stores::default(),
            generated: WithoutTable::default(),
            kernel: None,
            kernel_walks: None,
            walks: Walks::new(setting),
            counts: Counts {
                tallies: [Tally::default(); UNWINDERS_MAX],
                work: Work::default(),
                checked: 0,
                executed: 0,
            },
        }
    }

    /// The checker, keeping each finding of unwinders that are expected to err.
    #[must_use]
    pub fn keeping_each(mut self) -> Self {
        self.findings.keep_each();
        self
    }

    /// The first file of the program that could not be read.
    pub(crate) fn unread(&self) -> Option<&FileProblem> {
        self.mapped.unread()
    }

    /// The results, and the images that are mapped at the end.
    pub fn finish(mut self) -> (Results, image::AddressSpace) {
        // Instructions of a run are counted only at its end.
        self.end_run();
        let truth = self.processes.stats().plus(&self.stacks.stats());
        let mut tallies = self.counts.tallies[..self.unwinders.len()].to_vec();
        for (which, count) in self.findings.repeats.contradictions() {
            tallies[which].wrong += count;
        }
        // Measured before `finish`, which frees a part of it.
        let findings = self.findings.bytes();
        let Mapped { places, space, .. } = self.mapped;
        let found = self.findings.finish(&places);

        for (which, tally) in tallies.iter_mut().enumerate() {
            // Generated code without a table was not checked.
            tally.checked = self.counts.checked - tally.no_table;
            tally.rows = self.unwinders.rows_met(which);
            (tally.walks, tally.walks_wrong, tally.walks_unjudged) = self.walks.tally(which);
            (tally.lost, tally.target) = (found.lost[which], found.target[which]);
            tally.bounds = self.findings.bounds(which);
        }

        let mut memory = self.code.memory();
        memory.findings += findings;
        memory.rows = self.unwinders.cache_bytes();
        memory.met += self.unwinders.marks_bytes() + places.bytes() + self.generated.bytes();

        let executed = self.code.into_addresses();
        let (generated, not_kept, shown) = self.generated.finish(&places);
        let results = Results {
            tallies,
            disagreements: self.walks.finish(),
            findings: found.all,
            instructions: self.counts.executed,
            truth,
            addresses: executed.count(),
            executed,
            generated,
            not_kept,
            shown,
            places,
            stores: self.stores.finish(),
            memory,
            work: self.counts.work,
        };

        (results, space)
    }

    #[cold]
    fn look_up(&mut self, core: &Core, insn: &Executed) {
        let met = self.code.count();
        self.unwinders.bound_caches(met);
        let of_kernel = self.kernel.as_ref();
        let is_hook = self.mapped.jit.may_be_hook(insn.rip)
            || of_kernel.is_some_and(|kernel| kernel.is_hook(insn.rip));
        let mut tables = self.unwinders.tables(&mut self.mapped);
        self.code.look_up(core, insn, is_hook, &mut tables);
        self.meet_generated(insn.rip);
        // A kernel is walked at each instruction that it executes for the first time.
        if self.kernel_walks.is_some() && self.code.count() > met {
            self.walks.take_next();
        }
    }

    /// Checks the innermost frame at the next instruction, whose outcome is not known. Returns
    /// false if there is nothing to check.
    #[inline(never)]
    fn judge(&mut self, core: &Core, rip: u64, set: u32) -> bool {
        let tracker = &self.stacks.tracker;
        let (Some(held), Some(known)) = (tracker.frames().last(), self.code.set(set)) else {
            // The frame is the root, which has no caller.
            self.outcome.clear();
            return false;
        };

        if tracker.in_doubt() {
            self.outcome.clear();
            return false;
        }

        self.outcome.judge(
            core,
            held,
            (&self.code, known),
            self.unwinders.len(),
            &mut self.counts.work,
        );
        self.outcome.slots = self.outcome.slots_read(held, &self.unwinders, tracker);

        // A slow claim may depend on anything, so only an outcome without one is used again.
        if known.has_slow {
            self.judge_slow(core, rip, set);
        } else if self.outcome.elide {
            self.outcome.set = set;
        }

        true
    }

    /// Checks the claims that do not have the common shape.
    #[cold]
    fn judge_slow(&mut self, core: &Core, rip: u64, set: u32) {
        let frames = self.stacks.tracker.frames();
        let (Some(&held), Some(&known)) = (frames.last(), self.code.set(set)) else {
            return;
        };
        for which in 0..self.unwinders.len() {
            if *self.code.claim(known.claims[which]) == Claim::Slow {
                let wrong = wrong_in(&self.contradictions(core, rip, &held, which));
                self.outcome.judge_slow(which, wrong);
            }
        }
    }
}

impl Observer for Checker<'_> {
    #[inline]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        if self.enter_block(core, block, operations, end) {
            self.start_with_block(core)
        } else {
            0
        }
    }

    #[inline(always)]
    fn before(&mut self, core: &Core, insn: &Executed) {
        if self.run.goes_on() {
            self.go_on(core, insn)
        } else {
            self.begin(core, insn, true)
        }
    }

    #[inline(always)]
    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        if self.run.is_active() {
            self.executed()
        } else {
            self.end(core, insn, next)
        }
    }

    #[inline(always)]
    fn next_wanted(&mut self, insn: &Executed) -> usize {
        self.next_effect(insn.index)
    }

    fn stopped(&mut self, insn: &Executed, left: u64) {
        self.run_stopped(insn, left);
    }

    #[inline(always)]
    fn guard(&self) -> Guard {
        self.run_guard()
    }

    fn guarded(&mut self, core: &Core, insn: &Executed) {
        self.guarded_store(core, insn);
    }
}

impl Checker<'_> {
    /// Starts a block, of which all instructions will be seen. Returns whether it was met before.
    #[inline]
    pub fn enter_block(
        &mut self,
        core: &Core,
        block: Option<BlockId>,
        operations: usize,
        end: u64,
    ) -> bool {
        self.end_run();
        self.forget_stale();
        let is_known = self.code.enter(block, operations);
        if !is_known {
            let range = core.state.rip..end;
            let mut place_of = self.mapped.place_of();
            self.code
                .enter_new(&core.memory, block, range, operations, &mut place_of);
        }
        is_known
    }

    /// An instruction that is not in a run is about to be executed. It may start one if `may_run`.
    #[inline(never)]
    fn begin(&mut self, core: &Core, insn: &Executed, may_run: bool) {
        if self.run.closes() {
            return self.begin_closing(core, insn);
        }
        let Some(known) = self.arrive(core, insn) else {
            return;
        };
        match self.check(core, insn, known.claims, may_run) {
            Started::Nothing => self.prepare(core, insn, &known),
            Started::Whole => {}
            Started::Asking => self.go_on(core, insn),
        }
    }

    /// The next instruction was checked with the run before it: only what it will do is left.
    #[inline(always)]
    fn begin_closing(&mut self, core: &Core, insn: &Executed) {
        if let Some(&mut known) = self.code.known(insn.index) {
            self.current.class = known.class;
            self.current.index = insn.index;
            self.prepare(core, insn, &known);
        }
    }

    /// Finds what is known about the next instruction.
    #[inline(always)]
    fn arrive(&mut self, core: &Core, insn: &Executed) -> Option<Known> {
        self.end_run();
        let known = match self.code.known(insn.index) {
            Some(known) if known.claims != NONE => *known,
            _ => {
                self.look_up(core, insn);
                *self.code.known(insn.index)?
            }
        };

        self.current.class = known.class;
        self.current.index = insn.index;
        Some(known)
    }

    /// Checks the next instruction, whose rows make the set of claims `set`: the innermost frame, and now
    /// and then the whole stack, or starts a run, which checks it with those behind it.
    ///
    /// Nothing else needs this to be called at an instruction: if [`Outcome::give_up`] is called instead,
    /// only what is checked and found there is missing in the results.
    #[inline(always)]
    fn check(&mut self, core: &Core, insn: &Executed, set: u32, may_run: bool) -> Started {
        // Only an outcome that holds until something changes can be that of the instructions that
        // follow.
        if self.outcome.holds(set) || self.judge(core, insn.rip, set) {
            if may_run && self.outcome.set == set {
                let started = self.start_run(core, insn.index);
                if started != Started::Nothing {
                    return started;
                }
            }
            self.counts.checked += 1;
            if self.outcome.wrong | self.outcome.no_table != 0 {
                self.count(core, insn);
            }
        }

        if self.walks.is_due(self.counts.executed, 1) {
            self.walk(core, insn.rip);
        }

        self.outcome.settle();
        Started::Nothing
    }

    /// Notes what is needed of the state before the next instruction: what it will change, the live slots
    /// that it will store into, and registers.
    #[inline(always)]
    fn prepare(&mut self, core: &Core, insn: &Executed, known: &Known) {
        let effect = known.effect();
        self.outcome.change(Parts::from(known.writes));
        if effect != NO_EFFECT {
            self.about_to_store(core, insn.rip, known.claims, effect);
        } else if self.outcome.changed & claim::RSP != 0 {
            // The slot of a push is not among the known stores of an instruction.
            self.about_to_push(core, known.claims);
        }

        // The shadow stack needs the registers before the step only where frames may change.
        let is_quick = matches!(
            self.current.class,
            Insn::Other | Insn::Pop | Insn::Jump | Insn::Breakpoint
        );
        if !is_quick || self.stacks.tracker.is_watching() {
            self.current.before = cpu_at(&core.state, insn.rip);
            self.current.rax = core.state.gpr(0);
        }
    }

    /// An instruction that is not in a run was executed.
    #[inline]
    fn end(&mut self, core: &Core, insn: &Executed, next: u64) {
        let class = self.current.class;
        // At a system call the kernel has not written yet.
        if self.stores.are_pending() && class != Insn::Syscall {
            self.stored(core, insn.rip);
        }
        self.counts.executed += 1;
        if class == Insn::Ret && !self.findings.overwritten.is_empty() {
            let function = self.stacks.running();
            self.findings.returns(function, &cpu_at(&core.state, next));
        }
        // At a system call the kernel has not answered yet.
        if class == Insn::Syscall || self.stacks.tracker.step_quick(class, core.state.gpr(4)) {
            return;
        }
        if class != Insn::Far || !self.call_far(core, insn, next) {
            self.step_slow(core, class, next);
        }
    }

    fn step_slow(&mut self, core: &Core, class: Insn, next: u64) {
        if class == Insn::MoveSp && self.switch_task(core, next) {
            return;
        }
        // What the step changes is seen by comparing with these values of before it.
        if self.stores.is_waiting() {
            self.stores.returned(class, self.current.before.rsp, next);
        }
        let top = self.stacks.top();
        let function = self.stacks.running();
        let tracker = &self.stacks.tracker;
        let (before, count) = (*tracker.stats(), tracker.stack_count());

        let registers = (&self.current.before, self.current.rax);
        self.stacks.step(class, registers, core, next);

        // Another frame is the innermost now: no outcome of the last one holds.
        if top != self.stacks.top() {
            self.outcome.change_all();
        }

        let tracker = &self.stacks.tracker;
        let stats = tracker.stats();
        let findings = &mut self.findings;
        let number = self.counts.executed.saturating_sub(1);
        let switches = stats.switches != before.switches;

        // See `departures`: a load of rsp that leaves frames, and the jump that completes it.
        match class {
            Insn::MoveSp => {
                let is_other = tracker.stack_count() != count;
                if switches || is_other || stats.dropped != before.dropped {
                    findings.load(function, number);
                }
            }
            Insn::Ret | Insn::JumpIndirect => {
                let rewritten = stats.rewritten != before.rewritten;
                if switches || rewritten || findings.is_leaving(number) {
                    findings.leave(function, &cpu_at(&core.state, next));
                }
            }
            _ => {}
        }

        if let Insn::Call { .. } = class {
            let Some(known) = self.code.known(self.current.index).copied() else {
                return;
            };
            let behind = self.code.returns.get(known.behind() as usize);
            let inside = behind.map_or(NONE, |behind| behind.inside);
            // The call is already counted.
            self.stacks.note_site(inside, number);
            self.check_call(core, &known);

            // A call that is new gives a stack that was not walked yet.
            if self.code.call(known.behind()) {
                self.walks.take_next();
            }
        }

        if switches {
            self.walks.take_next();
        }
    }
}

#[cfg(test)]
mod tests;

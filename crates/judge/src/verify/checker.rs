//! The observer that compares every row with the shadow stack at every instruction.
//!
//! An outcome is reused if nothing that it depends on has changed: the claims and the frame are the
//! same, and no instruction in between may have written a register or slot that the claims name.
//! With `elide` off everything is computed, and the report must be the same.

mod calls;
mod deadlock;
mod generated;
mod now;
mod process;
mod quiet;
mod slots;
mod stray;
mod whole;
mod wrong;

use super::blocks::PlaceOf;
use super::claim::{self, Claim, Judged, Parts};
use super::code::{Code, NO_EFFECT, Tables};
use super::departures::Bounds;
use super::findings::{Finding, Findings};
use super::frames::wrong_in;
use super::generated::{Function, Generated};
use super::images::Images;
use super::late::Late;
use super::marks::Marks;
use super::memory::MemoryUse;
use super::numbered::{NONE, UNWINDERS_MAX};
use super::places::{PlaceId, Places};
use super::shown::Shown;
use super::stores::{Collector, Hit, SlotStores};
use super::walks::{Disagreement, Walks};
use super::work::Work;
use crate::engine::{Engine, Setting};
use crate::unwinders::may_err;
use process::OtherProcess;
use quiet::Run;
use slots::Site;
use std::collections::HashMap;
use stray::SlotsRead;
use unwind_sim_emulator::linux::Task;
use unwind_sim_emulator::machine::{BlockId, Executed};
use unwind_sim_emulator::{Core, Observer};
use unwind_sim_record::jit::Jit;
use unwind_sim_record::machine::{MachineWorld, cpu_at};
use unwind_sim_recordings::files::FileProblem;
use unwind_sim_unwind::cache::Cache;
use unwind_sim_unwind::finder::Finder;
use unwind_sim_unwind::image::{self, ImageId};
use unwind_sim_unwind::insn::Insn;
use unwind_sim_unwind::regs::Reg;
use unwind_sim_unwind::truth::{Cpu, Stats, Suspended, Tracker};

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

/// The observer.
pub struct Checker<'a> {
    engines: &'a [Engine],
    finders: Vec<&'a dyn Finder>,
    /// The index of each finder's engine.
    caches: Vec<Cache>,
    images: Images,
    /// The mapped images.
    space: image::AddressSpace,
    places: Places,
    /// The shadow stack and the call sites of each thread that does not run.
    others: HashMap<Task, (Tracker, Vec<Site>)>,
    task: Task,
    /// Whether the running process is checked.
    observed: bool,
    /// Whether images have changed since rows were looked up.
    is_stale: bool,
    /// The processes that do not run, by number.
    processes: HashMap<u32, OtherProcess>,
    tracker: Tracker,
    /// The statistics of programs before the last `execve`.
    earlier: Stats,
    suspended: Suspended,
    jit: Jit,
    generated: Generated,
    late: Late,
    shown: Shown,
    code: Code,
    rows: Vec<Marks<ImageId>>,
    findings: Findings,
    walks: Walks,
    elide: bool,
    /// The last outcome: the set of claims, what was wrong for each unwinder, and a bit for each
    /// unwinder for which something was wrong.
    last_set: u32,
    judged: [Judged; UNWINDERS_MAX],
    wrong: u8,
    /// A bit for each unwinder for which the last instruction is generated code without a table.
    no_table: u8,
    /// What has changed since.
    changed: Parts,
    /// What the last outcome depends on, and the slots that the claims read.
    depends: Parts,
    slots: SlotsRead,
    run: Run,
    /// The instruction that is being executed.
    index: u32,
    class: Insn,
    before: Cpu,
    rax: u64,
    /// The live slots that this instruction is about to store into.
    hits: Vec<Hit>,
    stores: Collector,
    /// The unwinder whose rows say where registers are saved: the first one that carries all of
    /// them.
    carries_all: Option<usize>,
    /// The call sites, by frame of the tracker.
    sites: Vec<Site>,
    tallies: [Tally; UNWINDERS_MAX],
    work: Work,
    checked: u64,
    number: u64,
    next_walk: u64,
}

/// The number of instructions between walks of the whole stack.
const WALK_EVERY: u64 = 997;
/// The interval between walks grows by itself for each this many frames, so that the cost of an
/// instruction does not depend on the depth of the stack.
const WALK_FRAMES: u64 = 64;

/// The compiled rows of one unwinder are dropped when they have this many bytes, and this many for
/// each distinct instruction. Rows are needed only for new code and for walks, and then only those
/// of a few functions.
const CACHE_MIN: usize = 128 << 10;
const CACHE_PER_INSTRUCTION: usize = 4;

impl<'a> Checker<'a> {
    /// A checker that finds images by `images`. All `engines` must read tables.
    pub fn new(engines: &'a [Engine], images: Images, setting: Setting, elide: bool) -> Self {
        let finders: Vec<_> = engines.iter().filter_map(Engine::finder).collect();
        let expected = engines.iter().zip(0..).filter(|(e, _)| may_err(e.name()));
        let expected = expected.fold(0, |all, (_, which)| all | 1 << which);

        Checker {
            images,
            caches: finders.iter().map(|_| Cache::new()).collect(),
            rows: finders.iter().map(|_| Marks::new()).collect(),
            walks: Walks::new(setting),
            carries_all: finders.iter().position(|finder| {
                let carried = finder.carries();
                Reg::CALLEE_SAVED.iter().all(|&reg| carried.contains(reg))
            }),
            engines,
            finders,
            space: image::AddressSpace::new(),
            places: Places::default(),
            others: HashMap::new(),
            task: Task::FIRST,
            observed: true,
            is_stale: false,
            processes: HashMap::new(),
            tracker: Tracker::root(&Cpu::default(), 0),
            earlier: Stats::default(),
            suspended: Suspended::new(),
            jit: Jit::default(),
            generated: Generated::default(),
            late: Late::default(),
            shown: Shown::default(),
            code: Code::new(),
            findings: Findings::new(expected),
            elide,
            last_set: NONE,
            judged: [Judged::NOTHING; UNWINDERS_MAX],
            wrong: 0,
            no_table: 0,
            changed: claim::ALL,
            depends: 0,
            slots: SlotsRead::EVERYWHERE,
            run: Run::NONE,
            index: 0,
            class: Insn::Other,
            before: Cpu::default(),
            rax: 0,
            hits: Vec::new(),
            stores: Collector::default(),
            sites: Vec::new(),
            tallies: [Tally::default(); UNWINDERS_MAX],
            work: Work::default(),
            checked: 0,
            number: 0,
            next_walk: WALK_EVERY,
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
        self.images.unread()
    }

    /// The results, and the images that are mapped at the end.
    pub fn finish(mut self) -> (Results, image::AddressSpace) {
        self.end_run();
        let truth = self.stats();
        let mut tallies = self.tallies[..self.finders.len()].to_vec();
        let findings = self.findings.bytes();
        let found = self.findings.finish(&self.places);

        for (which, tally) in tallies.iter_mut().enumerate() {
            // Generated code without a table was not checked.
            tally.checked = self.checked - tally.no_table;
            tally.rows = self.rows[which].count();
            (tally.walks, tally.walks_wrong, tally.walks_unjudged) = self.walks.tally(which);
            (tally.lost, tally.target) = (found.lost[which], found.target[which]);
            tally.bounds = self.findings.bounds(which);
        }

        let mut memory = self.code.memory();
        memory.findings += findings;
        memory.rows = self.caches.iter().map(Cache::bytes).sum();
        let rows = self.rows.iter().map(Marks::bytes);
        memory.met += rows.sum::<usize>() + self.places.bytes() + self.generated.bytes();
        memory.met += self.late.bytes() + self.shown.bytes();

        let executed = self.code.into_addresses();
        let results = Results {
            tallies,
            disagreements: self.walks.finish(),
            findings: found.all,
            instructions: self.number,
            truth,
            addresses: executed.count(),
            executed,
            generated: self.generated.functions(&self.places),
            not_kept: self.late.left_out,
            shown: self.shown,
            places: self.places,
            stores: self.stores.finish(),
            memory,
            work: self.work,
        };

        (results, self.space)
    }

    #[cold]
    fn look_up(&mut self, core: &Core, insn: &Executed) {
        let rows_max = CACHE_MIN.max(self.code.count() * CACHE_PER_INSTRUCTION);
        for cache in &mut self.caches {
            if cache.bytes() > rows_max {
                cache.forget_units();
            }
        }
        let mut tables = Tables {
            finders: &self.finders,
            caches: &mut self.caches,
            space: &self.space,
            places: &mut self.places,
            rows: &mut self.rows,
        };
        let is_hook = self.jit.may_be_hook(insn.rip);
        self.code.look_up(core, insn, is_hook, &mut tables);
        self.meet_generated(insn.rip);
    }

    /// Checks the innermost frame at the next instruction, whose outcome is not known. Returns
    /// false if there is nothing to check.
    #[inline(never)]
    fn judge(&mut self, core: &Core, rip: u64, set: u32) -> bool {
        // The outcome stays unknown until it is computed.
        self.last_set = NONE;
        self.wrong = 0;
        let (Some(held), Some(known)) = (self.tracker.frames().last(), self.code.set(set)) else {
            // The frame is the root, which has no caller.
            self.judged = [Judged::NOTHING; UNWINDERS_MAX];
            return false;
        };

        if self.tracker.in_doubt() {
            self.judged = [Judged::NOTHING; UNWINDERS_MAX];
            return false;
        }

        let gpr = |number| core.state.gpr(number);
        let same_slots = self.elide && self.changed & (claim::FRAME | claim::SLOTS) == 0;
        self.work.frames += 1;

        for which in 0..self.finders.len() {
            let number = known.claims[which];
            let last = &self.judged[which];
            let same = last.claim == number && self.changed & known.depends_by[which] == 0;
            // Neither the claim nor what it depends on has changed, so the outcome has not either.
            if same && self.elide {
                self.wrong |= u8::from(last.wrong != 0) << which;
                continue;
            }

            match self.code.claim(number) {
                Claim::Simple(simple) => {
                    let before = self.code.claim(last.claim);
                    let outcome = match (known.part_of[which], before) {
                        (Some((other, part)), _) if self.elide => {
                            self.judged[usize::from(other)].part(part)
                        }
                        (_, Claim::Simple(before)) if same_slots => {
                            self.work.parts += 1;
                            let before = (before, last, self.changed);
                            simple.judge_again(&gpr, &core.memory, held, before)
                        }
                        _ => {
                            self.work.whole += 1;
                            simple.judge(&gpr, &core.memory, held)
                        }
                    };
                    self.judged[which].set(number, simple, outcome);
                }
                Claim::Missing => {
                    self.judged[which] = Judged::without_cfa(number, claim::NOTHING);
                }
                Claim::NoTable => self.judged[which] = Judged::without_cfa(number, 0),
                Claim::Slow => self.judged[which] = Judged::NOTHING,
            }

            let judged = &self.judged[which];
            self.wrong |= u8::from(judged.wrong != 0) << which;
        }

        self.depends = known.depends;
        self.no_table = known.no_table;
        self.slots = self.slots_read(held);

        // A slow claim may depend on anything, so only an outcome without one is used again.
        if known.has_slow {
            self.judge_slow(core, rip, set);
        } else if self.elide {
            self.last_set = set;
        }

        true
    }

    /// Checks the claims that do not have the common shape.
    #[cold]
    fn judge_slow(&mut self, core: &Core, rip: u64, set: u32) {
        let (Some(&held), Some(&known)) = (self.tracker.frames().last(), self.code.set(set)) else {
            return;
        };
        for which in 0..self.finders.len() {
            if *self.code.claim(known.claims[which]) == Claim::Slow {
                let wrong = wrong_in(&self.contradictions(core, rip, &held, which));
                self.judged[which] = Judged::without_cfa(NONE, wrong);
                self.wrong |= u8::from(wrong != 0) << which;
            }
        }
    }
}

impl Observer for Checker<'_> {
    #[inline]
    fn enter(&mut self, core: &Core, block: Option<BlockId>, operations: usize, end: u64) -> usize {
        match self.enter_block(core, block, operations, end) {
            true => self.start_with_block(core),
            false => 0,
        }
    }

    #[inline(always)]
    fn before(&mut self, core: &Core, insn: &Executed) {
        match self.run.goes_on() {
            true => self.go_on(core, insn),
            false => self.begin(core, insn, true),
        }
    }

    #[inline(always)]
    fn after(&mut self, core: &Core, insn: &Executed, next: u64) {
        match self.run.is_active() {
            true => self.executed(),
            false => self.end(core, insn, next),
        }
    }

    #[inline(always)]
    fn next_wanted(&mut self, insn: &Executed) -> usize {
        self.next_effect(insn.index)
    }

    fn stopped(&mut self, insn: &Executed, left: u64) {
        self.run_stopped(insn, left);
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
            let mut place_of = PlaceOf::new(&mut self.places, &self.space);
            self.code
                .enter_new(&core.memory, block, range, operations, &mut place_of);
        }
        is_known
    }

    /// An instruction that is not in a run is about to be executed. It may start one if `may_run`.
    #[inline(never)]
    fn begin(&mut self, core: &Core, insn: &Executed, may_run: bool) {
        self.end_run();
        let known = match self.code.known(insn.index) {
            Some(known) if known.claims != NONE => known,
            _ => {
                self.look_up(core, insn);
                match self.code.known(insn.index) {
                    Some(known) => known,
                    None => return,
                }
            }
        };

        let (set, writes, effect) = (known.claims, known.writes, known.effect());
        self.class = known.class;
        self.index = insn.index;

        let same = set == self.last_set && self.changed & self.depends == 0;
        // Only an outcome that holds until something changes can be that of the instructions that
        // follow.
        if same || self.judge(core, insn.rip, set) {
            if may_run && self.last_set == set && self.start_run(insn.index) {
                return self.go_on(core, insn);
            }
            self.checked += 1;
            if self.wrong | self.no_table != 0 {
                self.count(core, insn);
            }
        }

        if self.number >= self.next_walk {
            self.walk(core, insn.rip);
        }

        self.changed = Parts::from(writes);
        if effect != NO_EFFECT {
            self.about_to_store(core, insn.rip, set, effect);
        } else if self.changed & claim::RSP != 0 {
            // The slot of a push is not among the known stores of an instruction.
            self.about_to_push(core, set);
        }

        // The shadow stack needs the registers before the step only where frames may change.
        let is_quick = matches!(
            self.class,
            Insn::Other | Insn::Pop | Insn::Jump | Insn::Breakpoint
        );
        if !is_quick || self.tracker.is_watching() {
            self.before = cpu_at(&core.state, insn.rip);
            self.rax = core.state.gpr(0);
        }
    }

    /// An instruction that is not in a run was executed.
    #[inline]
    fn end(&mut self, core: &Core, insn: &Executed, next: u64) {
        // At a system call the kernel has not written yet.
        if !self.hits.is_empty() && self.class != Insn::Syscall {
            self.stored(core, insn.rip);
        }
        self.number += 1;
        if self.class == Insn::Ret && !self.findings.overwritten.is_empty() {
            let function = self.activation(self.tracker.frames().len().checked_sub(1));
            self.findings.returns(function, &cpu_at(&core.state, next));
        }
        // At a system call the kernel has not answered yet.
        if self.class != Insn::Syscall && !self.tracker.step_quick(self.class, core.state.gpr(4)) {
            self.step_slow(core, self.class, next);
        }
    }

    /// The innermost frame, by the number of frames, its slot and its pc, and whether the truth is in
    /// doubt.
    fn top(&self) -> (Option<(usize, u64, u64)>, bool) {
        let frames = self.tracker.frames();
        let top = frames.last().map(|held| (frames.len(), held.slot, held.pc));
        (top, self.tracker.in_doubt())
    }

    fn step_slow(&mut self, core: &Core, class: Insn, next: u64) {
        // What the step changes is seen by comparing with these values of before it.
        if self.stores.is_waiting() {
            self.returned(class, next);
        }
        let top = self.top();
        let function = self.activation(self.tracker.frames().len().checked_sub(1));
        let (before, stacks) = (*self.tracker.stats(), self.tracker.stack_count());

        let after = cpu_at(&core.state, next);
        self.tracker.step(
            class,
            &self.before,
            self.rax,
            &after,
            &mut self.suspended,
            &mut MachineWorld(core),
        );

        if top != self.top() {
            self.changed = claim::ALL;
        }

        let stats = self.tracker.stats();
        let findings = &mut self.findings;
        let number = self.number.saturating_sub(1);
        let switches = stats.switches != before.switches;

        // See `departures`: a load of rsp that leaves frames, and the jump that completes it.
        match class {
            Insn::MoveSp => {
                let stacks = self.tracker.stack_count() != stacks;
                if switches || stacks || stats.dropped != before.dropped {
                    findings.load(function, number);
                }
            }
            Insn::Ret | Insn::JumpIndirect => {
                let rewritten = stats.rewritten != before.rewritten;
                if switches || rewritten || findings.is_leaving(number) {
                    findings.leave(function, &after);
                }
            }
            _ => {}
        }

        if let Insn::Call { .. } = class {
            let Some(known) = self.code.known(self.index).copied() else {
                return;
            };
            let behind = self.code.returns.get(known.behind() as usize);
            self.note_site(behind.map_or(NONE, |behind| behind.inside));
            self.check_call(core, &known);

            // A call that is new gives a stack that was not walked yet.
            if self.code.call(known.behind()) {
                self.next_walk = 0;
            }
        }

        if switches {
            self.next_walk = 0;
        }
    }
}

#[cfg(test)]
mod tests;
